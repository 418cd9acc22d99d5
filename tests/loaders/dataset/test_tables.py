"""What identifies a split; `SampleTables` opens each sample table of a split once per build."""

import hashlib
from unittest import mock

import pyarrow.parquet as pq
import pytest
from helpers.loading import build

import loaders
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import TableError


@pytest.fixture
def classes(make_dataset, mixed):
    """Two classes, so that a PK sampler has several samples of each."""
    samples = [(extension, data, label % 2) for extension, data, label in mixed]
    return make_dataset("tfrecord", samples)


def test_labels_and_places_of_a_shard_are_read_together(classes):
    wrapped = {"autospec": True, "side_effect": SampleTables._read_defined}
    with mock.patch.object(SampleTables, "_read_defined", **wrapped) as read:
        options = {"sampler": loaders.ShuffledSampler(), "transforms": "imagenet-train"}
        build(classes, **options).close()
    assert sorted(call.args[1] for call in read.call_args_list) == [0, 1, 2]


def test_the_fingerprint_is_that_of_the_text_of_all_files_and_is_computed_once(classes):
    """Checkpoints of earlier releases contain it."""
    split = open_split(classes, "train")
    text = repr([(shard.file, shard.index) for shard in split.shards])
    assert split.fingerprint == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert split.fingerprint is split.fingerprint


@pytest.mark.parametrize("damage", ["missing", "cut", "without widths"])
def test_image_sizes_of_damaged_tables_are_unknown(classes, damage):
    split = open_split(classes, "train")
    path = classes / split.shards[1].table.name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        pq.write_table(pq.read_table(path).drop_columns(["width"]), path)
    tables = SampleTables(split)
    assert tables.image_sizes() is None
    with pytest.raises(TableError) as caught:
        tables.columns(["label", "width"], requested_by="a test")
    assert caught.value.file == str(path)
