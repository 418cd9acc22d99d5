"""Labels of every type in batches: several classes as multi-hot, numbers, captions."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import loading
from helpers.damaged import change_column
from helpers.datasets import FORMATS, write_csv
from helpers.loading import converted
from helpers.pictures import encode
from helpers.rows import evaluate, read_rows

from loaders import ClassBalancedSampler, PKSampler
from loaders.transforms.mixing import mixed_values
from manifests.errors import CallError, DamagedError
from manifests.store import read_manifest

EACH_FORMAT = pytest.mark.parametrize("fmt", FORMATS)
N = 11
CLASSES = ("bird", "cat", "dog", "horse")
LABELS = [[number % 4] if number % 3 else [number % 4, 3] for number in range(N)]
LABELS[4] = []
VALUES = [[number / 8, -number] for number in range(N)]
CAPTIONS = [f"a photo of {number}, é" for number in range(N)]

COLUMNS = {
    "none": {},
    "multi-label": {"labels": [[CLASSES[label] for label in labels] for labels in LABELS]},
    "regression": {"values": VALUES},
    "caption": {"caption": CAPTIONS},
}
TO_32 = [{"ResizeImage": {"size": [32, 32]}}]


def photograph(folder, name="0.png", color=0):
    (folder / name).write_bytes(encode(np.full((40, 50, 3), color, np.uint8), "png"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Datasets of every label type and format, which tests must not change.

    The mean color of image i is 20 i; the column `label` names it.
    """
    folder = tmp_path_factory.mktemp("labels")
    names = [f"{number}.png" for number in range(N)]
    for number, name in enumerate(names):
        photograph(folder, name, 20 * number)
    user = {"label": [f"u{number}" for number in range(N)], "index": [7 * n for n in range(N)]}
    done = {}
    for label_type, column in COLUMNS.items():
        table = folder / f"{label_type}.parquet"
        options = {"label_column": next(iter(column))} if column else {"label_type": "none"}
        pq.write_table(pa.table({"path": names, **column, **user}), table)
        for fmt in FORMATS:
            out = folder / f"{label_type}-{fmt}"
            done[label_type, fmt] = converted(table, out, fmt, **options)
    return done


@pytest.fixture
def one_image(tmp_path):
    """A function that converts a table of one image with one label."""
    photograph(tmp_path)

    def make(column, text, fmt="tfrecord", **options):
        table = write_csv(tmp_path / "list.csv", f"path,{column}", [("0.png", text)])
        out = tmp_path / f"{column}-{len(options)}"
        return converted(table, out, fmt, **options)

    return make


def build(folder, **options):
    return loading.build(folder, **{"transforms": TO_32, "dtype": "uint8", **options})


def numbers_of(images):
    return (images.float().mean((1, 2, 3)) / 20).round().int().tolist()


@pytest.mark.parametrize(
    ("column", "text", "hint"),
    [("label", "a|b", "'labels'"), ("caption", "a cat", "'caption'"), ("age", "3", "'values'")],
)
def test_a_label_of_another_type_is_an_error_that_names_the_field(one_image, column, text, hint):
    folder = one_image(column, text)
    with pytest.raises(CallError, match=rf"the labels of .* are not classes.* Hint: use {hint}"):
        build(folder, batch_size=1)
    with pytest.raises(CallError, match=r"PKSampler uses 'label', .* Hint: name another column"):
        build(folder, batch_size=1, sampler=PKSampler(1, 1))
    if column == "age":
        with pytest.raises(CallError, match="its label type is none"):
            build(one_image(column, text, label_type="none"), batch_size=1)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "labels that cannot be used"))
def test_labels_that_cannot_be_used(made, row, message):
    label_type, field, sampler = evaluate(row, globals(), {"PKSampler": PKSampler})
    with pytest.raises(CallError, match=message):
        build(made[label_type, "tfrecord"], fields=("image", field), sampler=sampler)


def test_repeat_factors_of_several_classes(made):
    """The reference is the rule of LVIS, written out: r(image) is the largest r of its classes."""
    threshold, epochs = 0.9, 40
    factors = []
    for label in range(4):
        count = sum(label in labels for labels in LABELS)
        factors.append(max(1.0, (threshold * N / count) ** 0.5))
    expected = [max((factors[label] for label in labels), default=1.0) for labels in LABELS]
    sampler = ClassBalancedSampler(by="labels", threshold=threshold)
    options = {"fields": ("image", "labels"), "batch_size": N, "last_batch": "partial"}
    loader = build(made["multi-label", "webdataset"], sampler=sampler, **options)
    times = np.zeros(N)
    for _ in range(epochs):
        for images, _ in loader:
            np.add.at(times, numbers_of(images), 1)
    assert times.sum() == epochs * round(sum(expected))
    assert (np.abs(times / epochs - expected) < 1 / 4).all()
    assert "several in a sample" in loader.explain()


@pytest.mark.parametrize("label_type", ["multi-label", "regression"])
def test_mixed_images_mix_their_labels(made, label_type):
    field = {"multi-label": "labels", "regression": "values"}[label_type]
    mixing = [*TO_32, {"MixupOperator": {"alpha": 0.4, "class_num": 4}}]
    options = {"transforms": mixing, "batch_size": 8, "dtype": "float32"}
    loader = build(made[label_type, "tfrecord"], fields=("image", field, "column:index"), **options)
    images, labels, _ = next(iter(loader))
    assert labels.dtype == torch.float32
    if label_type == "regression":
        # The first number of image i is i / 8, its color 20 i: mixing keeps the ratio.
        np.testing.assert_allclose(labels[:, 0] * 160, images.float().mean((1, 2, 3)), atol=1.5)


def test_mixed_values_are_weighted_sums():
    values = np.float32([[1, 0, 0], [0, 1, 1]])
    mixed = mixed_values(values, np.int32([1, 0]), np.float32([0.75, 0.5]), 0.3)
    expected = 0.7 * np.float32([[0.75, 0.25, 0.25], [0.5, 0.5, 0.5]]) + 0.1
    np.testing.assert_allclose(mixed, expected, rtol=1e-6)


@EACH_FORMAT
def test_joined_datasets(made, fmt, one_image):
    """They have one numbering of classes, and the same number of numbers for each sample."""
    folders = [made["multi-label", fmt], one_image("label", "zebra|dog", fmt)]
    loader = build(folders, fields=("labels", "source"), shuffle=False, batch_size=N + 1)
    assert loader.dataset.classes == (*CLASSES, "zebra")
    assert loader.dataset.label_type == "multi-label"
    ((labels, _),) = loader
    assert np.flatnonzero(labels[-1]).tolist() == [2, 4]
    with pytest.raises(CallError, match=r"has the label type regression, but .* has multi-label"):
        build([made["regression", fmt], folders[0]], fields=("image",))
    folders = [made["regression", fmt], one_image("values", "2.5", fmt)]
    message = r"'values' has 1 number for each sample, but 2 in .*regression-"
    with pytest.raises(DamagedError, match=message):
        build(folders, fields=("image", "values"))
    build(folders, fields=("image",)).close()


def test_a_damaged_table_is_named(made, tmp_path):
    folder = shutil.copytree(made["multi-label", "tfrecord"], tmp_path / "damaged")
    path = folder / read_manifest(folder).splits[0].shards[1].table.name
    wrong = pa.array([[1], [9], [0], [0]], pa.list_(pa.field("element", pa.int64())))
    change_column(path, "labels", wrong)
    message = "record 1: the table has the label 9, but labels go from 0 to 3"
    with pytest.raises(DamagedError, match=message):
        build(folder, fields=("image", "labels"))
