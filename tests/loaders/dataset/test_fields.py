"""Contents of a batch: labels, rows and table columns, as tensors of each framework."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from helpers import loading
from helpers.damaged import change_column
from helpers.datasets import write_csv
from helpers.handmade import make_dataset
from helpers.loading import converted, equal
from helpers.pictures import encode

from loaders.dataset.fields import Fields
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import DamagedError
from manifests.schema import MAX_LABEL_OFFSET

TO_32 = ({"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}})


def build(folder, **options):
    return loading.build(folder, **{"transforms": TO_32, **options})


@pytest.mark.parametrize(
    ("fmt", "transforms"), [("tfrecord", "imagenet-train"), ("webdataset", "modern-train")]
)
@pytest.mark.filterwarnings("error")
def test_without_the_image_field_nothing_is_decoded(prepared, make_dataset, mixed, fmt, transforms):
    """Labels, also mixed ones, are the same as with images, even if the images cannot be decoded."""
    options = {"transforms": transforms, "shuffle": False}
    whole = [labels for _, labels in build(prepared[f"mixed {fmt}"], **options)]
    broken = make_dataset(fmt, [(extension, b"no image", label) for extension, _, label in mixed])
    for fields in (("label",), ("index", "label", "key")):
        alone = [batch[fields.index("label")] for batch in build(broken, fields=fields, **options)]
        assert equal(alone, whole)
    with pytest.raises(DamagedError):
        list(build(broken, **options))
    assert "no image is decoded" in build(broken, fields=("label",), **options).explain()


@pytest.mark.filterwarnings("error")
def test_a_column_with_the_name_of_a_field(tmp_path):
    (tmp_path / "0.png").write_bytes(encode(np.zeros((9, 9, 3), np.uint8), "png"))
    table = write_csv(tmp_path / "list.csv", "path,label,index,image", [("0.png", "cat", 77, "x")])
    folder = converted(table, tmp_path / "out")
    ((images, _),) = build(folder, batch_size=1)
    assert images.shape == (1, 3, 32, 32)
    warning = '"index" is the row of the sample in the split, not .*column:index'
    with pytest.warns(UserWarning, match=warning):
        loader = build(folder, batch_size=1, fields=("index",))
    assert [index.tolist() for (index,) in loader] == [[0]]
    loader = build(folder, batch_size=1, fields=("column:index", "column:image"))
    assert [(index.tolist(), image) for index, image in loader] == [([77], ["x"])]


def test_columns_of_integers_and_floats_keep_their_values(prepared, tmp_path):
    """From 2**53 on, float64 does not contain every integer, so two identities could become one."""
    folder = shutil.copytree(prepared["people tfrecord"], tmp_path / "copy")
    split, expected = open_split(folder, "train"), []
    for number, shard in enumerate(split.shards):
        column = np.arange(shard.samples) + (2**53, 0.5)[number % 2]
        expected += column.tolist()
        change_column(split.path(shard.table), "camera", pa.array(column))
    found = SampleTables(split).columns(["camera"], requested_by="a test")["camera"]
    assert found.tolist() == expected


@pytest.mark.parametrize("stored", [np.iinfo(np.int64).min, np.iinfo(np.int64).max])
@pytest.mark.parametrize("offset", [-MAX_LABEL_OFFSET, -2, -1, 1, 2, MAX_LABEL_OFFSET])
def test_labels_do_not_wrap_around(offset, stored, tmp_path):
    """Without class names, -2**63 - 2 would be read as a large positive label."""
    folder = make_dataset(tmp_path / "out", "tfrecord", [("jpg", b"image", 0)], shards=1)
    split = open_split(folder, "train")
    components = replace(split.manifest.components, label_offset=offset)
    split = replace(split, manifest=replace(split.manifest, classes=(), components=components))
    with pytest.raises(DamagedError, match="labels go from 0 to 10000000"):
        Fields(split, SampleTables(split), ["label"]).values(np.array([[stored]]), None)
