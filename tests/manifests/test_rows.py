"""The rows of a dataset: read by row group, in order, and checked against the manifest."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.handmade import make_dataset
from helpers.rows import evaluate, read_rows

import manifests
from manifests.errors import CallError, TableError
from manifests.store import read_manifest, read_some_rows
from manifests.tables import SampleTable, read_table

SAMPLES = [("jpg", b"image %d" % number, number % 4) for number in range(10)]


@pytest.fixture
def folder(tmp_path):
    return make_dataset(tmp_path / "data set", "tfrecord", SAMPLES, shards=2)


def change(folder, columns, row_group_size=2):
    """Replace values of the second table, and divide it into row groups."""
    path = folder / "train-00001.parquet"
    table = read_table(path)
    for name, (row, value) in columns.items():
        values = table[name].to_pylist()
        values[row] = value
        column = pa.array(values, table[name].type)
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, path, row_group_size=row_group_size, write_page_checksum=True)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "ranges"))
def test_a_value_out_of_its_range(folder, row, message):
    column, value = evaluate(row)
    change(folder, {column: (3, value)})
    manifest = replace(read_manifest(folder), classes=("a", "b", "c", "d"))
    with pytest.raises(TableError, match=rf"00001\.parquet, record 3: .*{message}"):
        list(manifests.read_dataset(folder, ["label", "offset", "size"], manifest=manifest))


def test_a_table_that_is_not_of_its_shard(folder):
    other = make_dataset(folder.parent / "other", "tfrecord", SAMPLES[:6], shards=2)
    content = (other / "train-00001.parquet").read_bytes()
    (folder / "train-00001.parquet").write_bytes(content)
    with pytest.raises(TableError, match="has 3 rows, but its shard has 5 samples"):
        list(manifests.read_dataset(folder, ["key"]))
    manifest = read_manifest(folder)
    (split,) = manifest.splits
    table = replace(split.shards[0].table, checksum="crc32c:00000000")
    splits = (replace(split, shards=(replace(split.shards[0], table=table),)),)
    stated = replace(manifest, splits=splits)
    with pytest.raises(TableError, match="does not have the checksum in the manifest"):
        list(manifests.read_dataset(folder, ["key"], checksums=True, manifest=stated))
    assert len(list(manifests.read_dataset(folder, ["key"], manifest=stated))) == 1
    errors = []
    batches = manifests.read_dataset(folder, ["key"], on_error=lambda *found: errors.append(found))
    assert [each.number for each in batches] == [0]
    assert [shard.name for shard, _ in errors] == ["train-00001.tfrecord"]


def test_columns_splits_and_revisions(folder):
    (first, _) = manifests.read_dataset(folder, ["size"], optional=["width", "none"])
    assert first.table.column_names == ["size", "width"]
    assert list(manifests.read_dataset(folder, split="val")) == []
    with pytest.raises(CallError, match="has no revision 1"):
        list(manifests.read_dataset(folder, revision=1))
    with pytest.raises(TableError, match="has no column 'none'"):
        list(manifests.read_dataset(folder, ["none"]))


def test_some_rows_by_their_numbers(folder):
    shards = read_manifest(folder).splits[0].shards
    tables = [each.table for each in manifests.read_dataset(folder)]
    every = pa.concat_tables(tables)["key"]
    rows = np.array([1, 4, 5, 9])
    found = read_some_rows(str(folder), shards, ["key"], rows)["key"]
    assert found.to_pylist() == every.take(rows).to_pylist()


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (-10, 20), (5, -2), (0, 2**62)])
def test_label_images_are_inside_their_shard(folder, offset, size):
    shard = read_manifest(folder).splits[0].shards[1]
    path = folder / shard.table.name
    table = read_table(path).drop_columns(["label"])
    table = table.append_column("mask_offset", pa.array([shard.file.bytes - 1, 0, offset, 0, 0]))
    table = table.append_column("mask_size", pa.array([1, 1, size, 1, 1]))
    pq.write_table(table, path, write_page_checksum=True)
    with pytest.raises(TableError, match="outside its shard") as caught:
        SampleTable(path, shard, label_type="mask").read(["mask_offset", "mask_size"])
    assert caught.value.record == 2
