"""What a user reads about an exception that no code expected."""

import pytest

from manifests.errors import describe_bug


@pytest.mark.parametrize(
    ("program", "kept"), [("dataprep", " Finished shards are kept."), ("loaders", "")]
)
def test_only_the_program_that_writes_shards_speaks_of_them(program, kept):
    assert (
        describe_bug(program, ValueError("seven"))
        == f"a bug in {program} stopped it: ValueError: seven.{kept} Hint: please report this line"
        f" with the command and the output of `{program} --version`; DATAPREP_DEBUG=1 prints a"
        " traceback."
    )
