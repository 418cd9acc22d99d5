"""``dataprep verify``: check a dataset for damage."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, print_line, workers_option
from dataprep.commands.progress_bars import ShardsBar
from manifests.errors import ExitStatus
from manifests.text import plural


@click.command(cls=Command)
@click.argument("out")
@click.option("--decode", is_flag=True, help="Also decode every image.")
@workers_option
def verify(out: str, *, decode: bool, workers: int | None) -> ExitStatus:
    """Check a dataset for damage.

    Reads all files of the dataset OUT. Prints the file, record and byte offset of each problem, and how to fix it.
    """
    from dataprep.verify import verify_dataset

    with ShardsBar() as bar:
        result = verify_dataset(out, decode=decode, workers=workers, progress=bar)
    for problem in result.problems:
        print_line(str(problem))
    if result.without_checksum:
        has = "has" if result.without_checksum == 1 else "have"
        print_line(
            f"{plural(result.without_checksum, 'shard')} {has} no checksum, so their images were not checked. "
            "Hint: `dataprep index --validate header --overwrite` reads them and adds checksums."
        )
    if result.problems:
        print_line(f"{plural(len(result.problems), 'problem')} in {out}")
        return ExitStatus.DATA_PROBLEM
    print_line(f"no problems in {out}: {plural(result.samples, 'sample')} in {plural(result.shards, 'shard')}")
    return ExitStatus.SUCCESS
