"""Contents of a batch: labels, rows and table columns, as tensors of each framework."""

import shutil
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import loading
from helpers.datasets import FORMATS, write_csv
from helpers.handmade import make_dataset
from helpers.loading import converted, equal
from helpers.pictures import encode

from loaders.dataset.fields import Fields
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import CallError, DamagedError
from manifests.schema import MAX_LABEL_OFFSET

TO_32 = ({"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}})


def build(folder, **options):
    return loading.build(folder, **{"transforms": TO_32, **options})


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """9 images with extra columns: identity is text, camera is a number, weight is a number or missing."""
    folder = tmp_path_factory.mktemp("people")
    rows = []
    for number in range(9):
        path = folder / f"{number}.png"
        path.write_bytes(encode(np.full((70, 60, 3), 20 * number, np.uint8), "png"))
        row = {"path": path.name, "label": number % 3, "identity": f"p{number}", "camera": number}
        rows.append({**row, "weight": None if number == 4 else number / 2})
    pq.write_table(pa.Table.from_pylist(rows), folder / "people.parquet")
    return {fmt: converted(folder / "people.parquet", folder / fmt, fmt) for fmt in FORMATS}


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_columns_match_their_images(people, fmt, shuffle):
    fields = ("camera", "identity", "image", "weight", "index", "label", "source")
    options = {"shuffle": shuffle, "last_batch": "partial", "dtype": "uint8"}
    seen, indexes = [], []
    for camera, *values in build(people[fmt], fields=fields, **options):
        identity, image, weight, index, label, source = values
        assert camera.dtype == index.dtype == label.dtype == torch.int64
        assert isinstance(identity, list)
        assert weight[0] is None or isinstance(weight[0], float)
        for row, number in enumerate(camera.tolist()):
            assert int(image[row].float().mean().round()) == 20 * number
            assert identity[row] == f"p{number}"
            assert weight[row] == (None if number == 4 else number / 2)
            assert label[row] == number % 3
            assert source[row].endswith(f"{number}.png")
        seen += camera.tolist()
        indexes += index.tolist()
    assert sorted(seen) == sorted(indexes) == list(range(9))
    if not shuffle:
        assert indexes == list(range(9))


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": ("image", "camra")}, "fields uses 'camra', .* did you mean 'camera'"),
        ({"fields": ("image", "xyz")}, "valid names are 'image', 'label', 'index', 'valid', 'key'"),
        ({"dtype": "uint8", "transforms": "imagenet-eval"},
         'dtype="uint8", but the transforms return normalized float values'),
        ({"framework": "paddle"}, "framework='paddle' is not installed"),
    ],
)  # fmt: skip
def test_wrong_arguments(people, monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "paddle", None)
    with pytest.raises(CallError, match=message):
        build(people["tfrecord"], **options)


def test_columns_of_integers_and_floats_keep_their_values(people, tmp_path):
    """From 2**53 on, float64 does not contain every integer, so two identities could become one."""
    folder = tmp_path / "copy"
    shutil.copytree(people["tfrecord"], folder)
    split = open_split(folder, "train")
    large = [2**53 + number for number in range(4)]
    for shard, column in zip(split.shards, ([*large], [0.5, 1.5, 2.5, 3.5], [7]), strict=True):
        table = pq.read_table(split.path(shard.table))
        place = table.column_names.index("camera")
        pq.write_table(table.set_column(place, "camera", pa.array(column)), split.path(shard.table))
    found = SampleTables(split).columns(["camera"], requested_by="a test")["camera"]
    assert found.tolist() == [*large, 0.5, 1.5, 2.5, 3.5, 7]


@pytest.mark.parametrize("stored", [np.iinfo(np.int64).min, np.iinfo(np.int64).max])
@pytest.mark.parametrize("offset", [-MAX_LABEL_OFFSET, -2, -1, 1, 2, MAX_LABEL_OFFSET])
def test_labels_do_not_wrap_around(offset, stored, tmp_path):
    """Without class names, -2**63 - 2 would be read as a large positive label."""
    split = open_split(
        make_dataset(tmp_path / "out", "tfrecord", [("jpg", b"image", 0)], shards=1), "train"
    )
    components = replace(split.manifest.components, label_offset=offset)
    split = replace(split, manifest=replace(split.manifest, classes=(), components=components))
    with pytest.raises(DamagedError, match="labels go from 0 to 10000000"):
        Fields(split, SampleTables(split), ["label"]).values(np.array([[stored]]), None)
