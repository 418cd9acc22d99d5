"""Random access to images in both formats, and shards that do not match their tables."""

import os

import numpy as np
import pyarrow as pa
import pytest
from helpers.damaged import change_column

from loaders.dataset import images
from loaders.dataset.files import Mappings
from loaders.dataset.images import StoredImages
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import ShardError, TableError
from manifests.tables import read_table


def open_records(split):
    return StoredImages(split, SampleTables(split))


def test_the_bytes_of_the_images_are_prefetched(prepared, monkeypatch):
    ranges = []
    monkeypatch.setattr(images, "prefetch", lambda *places: ranges.append([*map(list, places)]))
    records = open_records(open_split(prepared["mixed tfrecord"], "train"))
    rows = np.array([20, 3, 11])
    assert records.prefetch(rows).exception() is None
    found = records.images(rows)
    assert ranges == [[[image.ctypes.data for image in found], [len(image) for image in found]]]
    records.close()


@pytest.mark.parametrize(
    ("column", "value"), [("offset", -1), ("offset", 2**62), ("size", 0), ("size", 2**62)]
)
def test_a_table_that_points_outside_its_shard(make_dataset, mixed, column, value):
    folder = make_dataset("webdataset", mixed)
    split = open_split(folder, "train")
    path = split.path(split.shards[1].table)
    values = read_table(path)[column].to_pylist()
    values[3] = value
    change_column(path, column, pa.array(values, pa.int64()))
    problem = "the table places an image outside its shard"
    if value == -1:
        problem = "column 'offset' contains -1"
    with pytest.raises(TableError, match=rf"00001\.parquet, record 3: {problem}"):
        open_records(split)


def test_a_shortened_shard_is_found_after_its_mapping_was_released(
    make_dataset, mixed, monkeypatch
):
    """The mapping of another shard of the batch may release it."""
    monkeypatch.setattr(Mappings, "max_mapped", 1)
    split = open_split(make_dataset("tfrecord", mixed), "train")
    records = open_records(split)
    records.images(np.array([0]))
    os.truncate(split.path(split.shards[0].file), 0)
    with pytest.raises(ShardError, match=r"00000\.tfrecord, byte \d+: the shard was shortened"):
        records.images(np.array([0, 10]))
    records.close()
