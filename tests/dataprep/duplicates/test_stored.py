"""The hashes that `dataprep duplicates` stores beside a dataset."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.pictures import encode

from dataprep.duplicates import collection
from dataprep.options import HASHES_NAME
from dataprep.storage.temporary import this_owner
from manifests.errors import StorageError
from manifests.store import read_manifest


@pytest.fixture
def convert(invoke, tmp_path):
    def run(source, name, *options):
        invoke("convert", "--src", source, "--out", tmp_path / name, *options)
        return tmp_path / name

    return run


def test_computed_hashes_are_stored_beside_the_dataset(
    convert, invoke, monkeypatch, snapshot, source
):
    """The second run reads no image, whatever has no hash, and no other file changes."""
    (source / "train/a/white.png").write_bytes(encode(np.full((80, 90, 3), 255, np.uint8), "PNG"))
    data = (source / "val/b/grass.jpg").read_bytes()
    (source / "val/b/odd.jpg").write_bytes(data[: len(data) // 2] + b"\xff\xd9")
    out = convert(source, "out", "--samples-per-shard", 4)
    before = snapshot(out)
    first = invoke("duplicates", out, "--json", "--no-store", status=1)
    assert snapshot(out) == before
    assert invoke("duplicates", out, "--json", status=1).stdout == first.stdout
    after = snapshot(out)
    assert {**before, HASHES_NAME: after[HASHES_NAME]} == after
    invoke("verify", out)
    monkeypatch.setattr(collection, "read_some", None)
    again = invoke("duplicates", out, "--json", status=1)
    assert (again.stdout, again.stderr) == (
        first.stdout,
        first.stderr,
    ), "also the image that does not decode"
    assert snapshot(out) == after
    filtered = convert(
        out, "dropped", "--duplicates", "drop", "--where", "path not like '%coffee%'"
    )
    assert "val/b/half.jpg" in {row for name, row in sources_of(filtered)}


def leave_partials(out):
    """Leave the folder for temporary files, as a run does that is killed right after it stored the hashes."""
    (out / ".dataprep/partial").mkdir(exist_ok=True, parents=True)
    (out / ".dataprep/partial" / "made-by-dataprep").touch()
    host, machine, _, start = this_owner().split(".")
    (out / ".dataprep/partial" / f"{host}.{machine}.99999999.{start}-{HASHES_NAME}").write_bytes(
        b"x"
    )


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_a_killed_run_left_is_removed(is_stored, convert, invoke, snapshot, source):
    out = convert(source, "out")
    invoke("duplicates", out, status=1)
    expected = snapshot(out)
    if not is_stored:
        (out / HASHES_NAME).unlink()
    leave_partials(out)
    invoke("duplicates", out, status=1)
    assert not (out / ".dataprep/partial").exists()
    assert snapshot(out) == expected


def sources_of(dataset):
    for split in read_manifest(dataset).splits:
        for shard in split.shards:
            yield from (
                (split.name, row)
                for row in pq.read_table(dataset / shard.table.name)["source"].to_pylist()
            )


def count_read(monkeypatch):
    """Return a list that receives the number of images of each reading."""
    counts, read = [], collection.read_some
    monkeypatch.setattr(
        collection,
        "read_some",
        lambda images, rows, *args, **kw: [
            counts.append(len(rows)),
            read(images, rows, *args, **kw),
        ][1],
    )
    return counts


def test_only_new_images_are_read_after_an_append(
    convert, invoke, monkeypatch, pictures, source, tmp_path
):
    out = convert(source, "out")
    invoke("duplicates", out, status=1)
    (tmp_path / "more" / "a").mkdir(parents=True)
    (tmp_path / "more" / "a" / "new.jpg").write_bytes(
        encode(pictures["brick"].rotate(7), quality=80)
    )
    invoke("convert", "--src", tmp_path / "more", "--out", out, "--append")
    counts = count_read(monkeypatch)
    for _ in range(2):
        invoke("duplicates", out, status=1)
    invoke("revert", out)
    invoke("duplicates", out, status=1)
    assert counts == [1]


def test_stored_hashes_that_do_not_fit_are_computed_again(
    convert, invoke, monkeypatch, source, tmp_path
):
    out, other = convert(source, "out"), convert(source, "other", "--seed", 5)
    expected = invoke("duplicates", out, "--json", status=1).stdout
    invoke("duplicates", other, status=1)
    good = (out / HASHES_NAME).read_bytes()
    table = pq.read_table(out / HASHES_NAME)
    counts = count_read(monkeypatch)

    def write(changed):
        pq.write_table(changed, out / HASHES_NAME)

    other_recipe = {b"dataprep": json.dumps({"recipe": "dct256-2"})}
    for number, change in enumerate((
        lambda: (out / HASHES_NAME).write_bytes((other / HASHES_NAME).read_bytes()),
        lambda: (out / HASHES_NAME).write_bytes(good[:-40]),
        lambda: (out / HASHES_NAME).write_bytes(b""),
        lambda: write(table.replace_schema_metadata(other_recipe)),
        lambda: write(table.replace_schema_metadata({b"dataprep": b"["})),
        lambda: write(table.replace_schema_metadata({b"dataprep": b"[]"})),
        lambda: write(table.drop_columns(["hash"])),
        lambda: write(table.set_column(3, "hash", pa.array(["0" * 64] * len(table)))),
        lambda: write(table.slice(0, 0)),
    )):  # fmt: skip
        change()
        assert invoke("duplicates", out, "--json", status=1).stdout == expected, number
        assert counts[-1] > 0, number
        assert (out / HASHES_NAME).read_bytes() == good, number
    assert len(counts) == 9


def test_a_dataset_that_cannot_be_written_to(convert, invoke, monkeypatch, source):
    out = convert(source, "out")

    def refuse(path, _):
        raise StorageError("the file cannot be written (Read-only file system)", file=path)

    monkeypatch.setattr("dataprep.storage.replace_file", refuse)
    output = invoke("duplicates", out, status=1).stderr
    assert (
        "the hashes are not stored (the file cannot be written (Read-only file system))" in output
    )
    assert not (out / HASHES_NAME).exists()


def test_raw_pixels_and_indexed_shards(convert, invoke, monkeypatch, source, tmp_path):
    raw = convert(source, "raw", "--store", "raw", "--raw-size", 64)
    indexed = convert(source, "indexed", "--fmt", "webdataset")
    for path in indexed.glob("[!.]*"):
        if path.suffix != ".tar":
            path.unlink()
    invoke("index", indexed, "--validate", "header")
    counts = count_read(monkeypatch)
    for dataset in (raw, indexed):
        first = invoke("duplicates", dataset, "--json", status=1).stdout
        assert invoke("duplicates", dataset, "--json", status=1).stdout == first
    assert len(counts) == 2
