"""Random access to images in both formats, and shards that do not match their tables."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.dataset.images import StoredImages
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import ShardError, TableError
from manifests.tables import read_table


def open_records(split):
    return StoredImages(split, SampleTables(split))


FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


@FORMATS
def test_rows_in_any_order(make_dataset, mixed, fmt):
    records = open_records(open_split(make_dataset(fmt, mixed), "train"))
    stored = [data for start in range(3) for _, data, _ in mixed[start::3]]

    @settings(max_examples=examples(50))
    @given(st.lists(st.integers(0, 22), min_size=1, max_size=40))
    def check(rows):
        images = records.images(np.array(rows))
        assert [image.tobytes() for image in images] == [stored[row] for row in rows]
        assert all(not image.flags.writeable and not image.flags.owndata for image in images)
        records.prefetch(np.array(rows))

    check()
    records.close()


def test_images_stay_valid_after_close(make_dataset, mixed):
    records = open_records(open_split(make_dataset("webdataset", mixed), "train"))
    (image,) = records.images(np.array([0]))
    records.close()
    del records
    assert image.tobytes() == mixed[0][1]


@FORMATS
def test_a_changed_shard_is_rejected(make_dataset, mixed, fmt):
    """The length is the same, so only the checksum shows the change."""
    folder = make_dataset(fmt, mixed)
    split = open_split(folder, "train")
    shard = folder / split.shards[1].name
    table = read_table(split.path(split.shards[1].table))
    data = bytearray(shard.read_bytes())
    begin = table["offset"][2].as_py()
    for offset in table["offset"].to_pylist():
        data[offset + 20] ^= 1
    shard.write_bytes(data)
    first = split.shards[0].samples
    open_records(split).images(np.array([0, first - 1]))
    records = open_records(split)
    prefetched = records.prefetch(np.array([first + 2]))
    assert prefetched.exception() is None
    for _ in range(2):  # The check also runs after prefetching and after an earlier error.
        with pytest.raises(ShardError, match="the shard has changed"):
            records.images(np.array([first + 2]))
    message = f"{shard.name}, byte {begin}: the shard has changed since its sample table was made"
    with pytest.raises(ShardError, match=message):
        open_records(split).images(np.array([0, first + 2]))


@FORMATS
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_truncated_or_missing_shard(make_dataset, mixed, fmt, damage):
    split = open_split(make_dataset(fmt, mixed), "train")
    records = open_records(split)
    path = split.path(split.shards[2].file)
    if damage == "missing":
        os.unlink(path)
    else:
        os.truncate(path, split.shards[2].file.bytes - 512)
    last = np.array([split.samples - 1])
    records.prefetch(last)  # prefetching raises nothing
    with pytest.raises(
        ShardError,
        match="cannot be read" if damage == "missing" else "bytes long, but the manifest states",
    ):
        records.images(last)


@pytest.mark.parametrize(
    ("column", "value"), [("offset", -1), ("offset", 2**62), ("size", 0), ("size", 2**62)]
)
def test_a_table_that_points_outside_its_shard(make_dataset, mixed, column, value):
    folder = make_dataset("webdataset", mixed)
    split = open_split(folder, "train")
    path = split.path(split.shards[1].table)
    table = read_table(path)
    values = table[column].to_pylist()
    values[3] = value
    table = table.set_column(table.column_names.index(column), column, pa.array(values, pa.int64()))
    pq.write_table(table, path)
    problem = (
        "column 'offset' contains -1"
        if value == -1
        else "the table places an image outside its shard"
    )
    with pytest.raises(TableError, match=rf"00001\.parquet, record 3: {problem}"):
        open_records(split)


def test_tables_without_checksums(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    split = open_split(folder, "train")
    for shard in split.shards:
        table = read_table(split.path(shard.table))
        missing = pa.nulls(table.num_rows, pa.uint32())
        table = table.set_column(table.column_names.index("crc32c"), "crc32c", missing)
        pq.write_table(table, split.path(shard.table))
    (image,) = open_records(split).images(np.array([5]))
    assert image.tobytes() == mixed[15][1]
