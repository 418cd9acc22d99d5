"""Files of class names as people have them: read as what they are, or refused."""

from __future__ import annotations

import pytest
from helpers.rows import evaluate, read_rows

from dataprep.labels.class_file import read_classes
from manifests.errors import SourceError


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("row", "form"), read_rows(__file__, "the classes cat and hot dog"))
def test_files_of_the_same_classes(row, form, encoding, tmp_path):
    file = tmp_path / "classes.txt"
    file.write_bytes(evaluate(row).encode(encoding))
    assert read_classes(str(file)) == ("cat", "hot dog"), form


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_other_files_are_refused(row, message, tmp_path):
    (tmp_path / "classes.txt").write_text(evaluate(row))
    with pytest.raises(SourceError, match=message):
        read_classes(str(tmp_path / "classes.txt"))


@pytest.mark.parametrize(
    ("row", "names"), read_rows(__file__, "names with numbers that belong to them")
)
def test_numbers_that_belong_to_names(row, names, tmp_path):
    (tmp_path / "classes.txt").write_text(evaluate(row))
    assert read_classes(str(tmp_path / "classes.txt")) == evaluate(names)
