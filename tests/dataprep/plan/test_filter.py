"""`dataprep convert --where`: filters over the columns of the source."""

from __future__ import annotations

import sys

import pytest
from helpers.datasets import rows_of, write_csv
from helpers.rows import read_rows
from helpers.sources import read

from dataprep.plan.splits import filter_source
from manifests.errors import CallError
from manifests.store import read_manifest


@pytest.fixture
def images(image_folder):
    return sorted(image_folder.glob("*/*"))


@pytest.fixture
def dry(convert, tmp_path):
    """A function that plans a conversion with a filter, and returns what it says."""

    def run(source, where, status=0):
        options = ("--dry-run", "--where", where)
        return convert(source, tmp_path / "dry", *options, status=status).stderr

    return run


def test_image_folder(convert, images, image_folder, tmp_path):
    out, where = tmp_path / "out", "LABEL <> 'cat' and size > 1000"
    result = convert(image_folder, out, "--where", where)
    others = [path for path in images if path.parent.name != "cat" and path.stat().st_size > 1000]
    expected = {str(path.relative_to(image_folder)) for path in others}
    assert 0 < len(expected) < 14
    assert {row["source"] for row in rows_of(out)} == expected
    assert f"--where: {len(expected)} of 14 images match" in result.stderr
    assert "no image of 1 class matches" in result.stderr
    manifest = read_manifest(out)
    assert manifest.options["where"] == where
    assert manifest.classes == ("cat", "ein Häßlicher Name", "日本")
    convert(image_folder, out, "--where", where)
    assert "--where" in convert(image_folder, out, status=2).stderr


def test_prepared_dataset_knows_sizes_in_pixels(convert, image_folder, tmp_path):
    convert(image_folder, tmp_path / "all", "--val-fraction", 0.3)
    where = "width > height and split = 'train'"
    convert(tmp_path / "all", tmp_path / "wide", "--where", where)
    wide, expected = rows_of(tmp_path / "wide"), {}
    for row in rows_of(tmp_path / "all"):
        if row["split"] == "train" and row["width"] > row["height"]:
            expected[row["source"]] = row["crc32c"]
    assert {row["source"]: row["crc32c"] for row in wide} == expected
    assert wide
    assert [split.name for split in read_manifest(tmp_path / "wide").splits] == ["train"]


@pytest.mark.parametrize(("where", "message"), read_rows(__file__, "case of names"))
def test_columns_whose_names_differ_only_in_case(dry, images, tmp_path, where, message):
    rows = [(path, "a", n + 5, 100 - n, n) for n, path in enumerate(images[:5])]
    table = write_csv(tmp_path / "table.csv", "path,label,Size,Age,age", rows)
    assert message in dry(table, where, status=0 if "of 5" in message else 2)


def test_filters_that_are_refused(dry, image_folder):
    """The message names the option. An example in it is a filter that works."""
    examples = set()
    for where, message in read_rows(__file__, "refused"):
        output = dry(image_folder, where, status=2)
        assert message in output, where
        assert output.splitlines()[-1].startswith("dataprep: --where")
        examples.update(part.split('"')[0] for part in output.split('for example "')[1:])
    assert examples
    for example in examples:
        dry(image_folder, example)


def test_without_duckdb(image_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CallError, match=r"dataprep-loaders\[sql\]"):
        filter_source(read(image_folder), "size > 1")


def test_a_column_with_a_reserved_name(dry, images, tmp_path):
    rows = [(path, "cat", number) for number, path in enumerate(images)]
    table = write_csv(tmp_path / "table.csv", "path,label,height", rows)
    output = dry(table, "Height > 9", status=2)
    named = "the column 'Height' of the source is called 'column:height' in shards and filters. "
    assert f"--where: {named}" in output
    where = output.split("Hint: write ")[1].split(",")[0] + " > 9"
    assert "--where: 4 of 14 images match" in dry(table, where)
