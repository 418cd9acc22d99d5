"""Labels of every type in batches: several classes as multi-hot, numbers, captions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.pictures import encode

import loaders
from loaders.dataset.labels import multi_hot
from loaders.dataset.tables import ListColumn, concat_lists
from loaders.transforms.mixing import mixed_values
from manifests.errors import CallError, DamagedError
from manifests.store import read_manifest

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
N = 11
CLASSES = ("bird", "cat", "dog", "horse")
LABELS = [[number % 4] if number % 3 else [number % 4, 3] for number in range(N)]
LABELS[4] = []
VALUES = [[number / 8, -number] for number in range(N)]
CAPTIONS = [f"a photo of {number}, é" for number in range(N)]

TYPES = {
    "none": ({}, ["--label-type", "none"]),
    "multi-label": ({"labels": [[CLASSES[label] for label in labels] for labels in LABELS]}, []),
    "regression": ({"values": VALUES}, []),
    "caption": ({"caption": CAPTIONS}, []),
}
TO_32 = [{"ResizeImage": {"size": [32, 32]}}]


@pytest.fixture(scope="module")
def made(tmp_path_factory, dataprep):
    """Datasets of every label type and format.

    The mean color of image i is 20 i; the column `label` names it.
    """
    folder = tmp_path_factory.mktemp("labels")
    names = [f"{number}.png" for number in range(N)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(encode(np.full((40, 50, 3), 20 * number, np.uint8), "png"))
    done = {}
    for label_type, (columns, options) in TYPES.items():
        user = {
            "label": [f"u{number}" for number in range(N)],
            "index": [7 * number for number in range(N)],
        }
        name = next(iter(columns), None)
        pq.write_table(
            pa.table({"path": names, **columns, **user}), folder / f"{label_type}.parquet"
        )
        for fmt in ("tfrecord", "webdataset"):
            out = done[label_type, fmt] = folder / f"{label_type}-{fmt}"
            chosen = ["--label-column", name] if name else []
            result = dataprep(
                "convert", "--src", folder / f"{label_type}.parquet", "--fmt", fmt, "--out", out,
                "--samples-per-shard", 4, *options, *chosen,
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
    return done


def build(folder, **options):
    defaults = {
        "batch_size": 4,
        "transforms": TO_32,
        "device": "cpu",
        "num_threads": 1,
        "dtype": "uint8",
    }
    return loaders.build(folder, **{**defaults, **options})


#: DALI's own readers, in stored order and with its buffer, and random access with a sampler.
ORDERS = pytest.mark.parametrize(
    "order",
    [{"shuffle": False}, {"shuffle": "buffer"}, {"sampler": loaders.ShuffledSampler()}],
    ids=str,
)


def numbers_of(images):
    return (images.float().mean((1, 2, 3)) / 20).round().int().tolist()


@FORMATS
@ORDERS
def test_each_image_has_its_label(made, fmt, order):
    options = {**order, "last_batch": "partial"}
    seen = []
    for images, labels in build(made["multi-label", fmt], fields=("image", "labels"), **options):
        assert (labels.dtype, labels.shape) == (torch.float32, (len(images), 4))
        for number, hot in zip(numbers_of(images), labels, strict=True):
            assert np.flatnonzero(hot).tolist() == sorted(set(LABELS[number]))
            assert set(hot.tolist()) <= {0.0, 1.0}
            seen.append(number)
    for images, values in build(made["regression", fmt], fields=("image", "values"), **options):
        assert (values.dtype, values.shape) == (torch.float32, (len(images), 2))
        np.testing.assert_array_equal(
            values, np.float32([VALUES[number] for number in numbers_of(images)])
        )
    for images, captions in build(made["caption", fmt], fields=("image", "caption"), **options):
        assert captions == [CAPTIONS[number] for number in numbers_of(images)]
    for (images,) in build(made["none", fmt], fields=("image",), **options):
        seen += numbers_of(images)
    assert sorted(seen) == sorted([*range(N)] * 2)


@FORMATS
@pytest.mark.parametrize("shuffle", [False, True])
def test_columns_of_any_name_are_read(made, fmt, shuffle):
    fields = ("image", "column:label", "column:index", "index")
    for label_type in TYPES:
        for images, own, mine, index in build(
            made[label_type, fmt], fields=fields, shuffle=shuffle, last_batch="partial"
        ):
            assert own == [f"u{number}" for number in numbers_of(images)]
            assert mine.tolist() == [7 * number for number in numbers_of(images)]
            assert index.max() < N
    # The labels of the dataset are not classes, so its `label` is the user's column.
    for images, label in build(made["regression", fmt], fields=("image", "label"), shuffle=shuffle):
        assert label == [f"u{number}" for number in numbers_of(images)]


def test_samplers_take_columns_of_any_name(made):
    folder = made["regression", "tfrecord"]
    for name in ("column:label", "column:index", "index", "label"):
        loader = build(
            folder, fields=("image",), sampler=loaders.ClassBalancedSampler(by=name), batch_size=N
        )
        assert sorted(numbers_of(next(iter(loader))[0])) == [*range(N)]
    weighted = loaders.WeightedSampler("column:index", samples=300)
    loader = build(folder, fields=("image",), sampler=weighted, batch_size=300)
    assert 0 not in numbers_of(next(iter(loader))[0])


@pytest.mark.parametrize(
    ("label_type", "message"),
    [
        ("none", "uses 'labels', which is not a column"),
        ("caption", "uses 'labels', which is not a column"),
    ],
)
def test_a_missing_label_is_an_error(made, label_type, message):
    with pytest.raises(CallError, match=message):
        build(made[label_type, "tfrecord"], fields=("image", "labels"))


def test_a_label_of_another_type_is_an_error_that_names_the_field(tmp_path, dataprep):
    (tmp_path / "0.png").write_bytes(encode(np.zeros((9, 9, 3), np.uint8), "png"))
    for name, text, hint in (
        ("label", "a|b", "'labels'"),
        ("caption", "a cat", "'caption'"),
        ("age", "3", "'values'"),
    ):
        (tmp_path / "list.csv").write_text(f"path,{name}\n0.png,{text}\n")
        done = dataprep("convert", "--src", tmp_path / "list.csv", "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        with pytest.raises(
            CallError, match=rf"the labels of .* are not classes.* Hint: use {hint}"
        ):
            build(tmp_path / name, batch_size=1)
    for sampler, hint in (
        (loaders.ClassBalancedSampler(), "its label type is regression. Hint: name another column"),
        (
            loaders.ClassBalancedSampler("values", threshold=0.5),
            "'values' contains decimal numbers",
        ),
    ):
        with pytest.raises(CallError, match=hint):
            build(tmp_path / "age", batch_size=1, fields=("image", "values"), sampler=sampler)
    done = dataprep(
        "convert",
        "--src",
        tmp_path / "list.csv",
        "--out",
        tmp_path / "none",
        "--label-type",
        "none",
    )
    with pytest.raises(CallError, match="its label type is none"):
        build(tmp_path / "none", batch_size=1)


@FORMATS
def test_repeat_factors_of_several_classes(made, fmt):
    """The reference is the rule of LVIS, written out: r(image) is the largest r of its classes."""
    threshold = 0.9
    factor = {
        label: max(1.0, (threshold * N / count) ** 0.5) for label, count in enumerate(counts())
    }
    expected = [max((factor[label] for label in labels), default=1.0) for labels in LABELS]
    sampler = loaders.ClassBalancedSampler(by="labels", threshold=threshold)
    loader = build(
        made["multi-label", fmt],
        fields=("image", "labels"),
        sampler=sampler,
        batch_size=N,
        last_batch="partial",
    )
    epochs = 40
    times = np.zeros(N)
    for _ in range(epochs):
        for images, _ in loader:
            np.add.at(times, numbers_of(images), 1)
    assert times.sum() == epochs * round(sum(expected))
    assert len(loader) == -(-round(sum(expected)) // N)
    np.testing.assert_array_less(np.abs(times / epochs - expected), 1 / 4)
    for number, each in enumerate(expected):  # each epoch rounds up or down
        assert np.floor(each - 1e-2) <= times[number] / epochs <= np.ceil(each + 1e-2)
    assert "several in a sample" in loader.explain()


def counts():
    return [sum(label in labels for labels in LABELS) for label in range(4)]


def test_other_weightings_of_several_classes_are_refused(made):
    folder = made["multi-label", "tfrecord"]
    for sampler in (
        loaders.ClassBalancedSampler(by="labels"),
        loaders.ClassBalancedSampler(by="labels", beta=0.9),
    ):
        with pytest.raises(CallError, match=r"several classes in a sample.* Hint: set threshold"):
            build(folder, fields=("image", "labels"), sampler=sampler)
    with pytest.raises(CallError, match="values that cannot name a class"):
        build(folder, fields=("image", "labels"), sampler=loaders.PKSampler(2, 2, by="labels"))


@pytest.mark.parametrize("label_type", ["multi-label", "regression"])
def test_mixed_images_mix_their_labels(made, label_type):
    field = {"multi-label": "labels", "regression": "values"}[label_type]
    transforms = [*TO_32, {"MixupOperator": {"alpha": 0.4, "class_num": 4}}]
    loader = build(made[label_type, "tfrecord"], fields=("image", field, "index"), transforms=transforms, batch_size=8,
                   dtype="float32")  # fmt: skip
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


@FORMATS
def test_joined_datasets_have_one_numbering_of_classes(made, fmt, tmp_path, dataprep):
    (tmp_path / "0.png").write_bytes(encode(np.zeros((40, 50, 3), np.uint8), "png"))
    (tmp_path / "list.csv").write_text("path,label\n0.png,zebra|dog\n")
    done = dataprep(
        "convert", "--src", tmp_path / "list.csv", "--fmt", fmt, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    folders = [made["multi-label", fmt], tmp_path / "out"]
    loader = build(folders, fields=("labels", "source"), shuffle=False, batch_size=N + 1)
    assert loader.dataset.classes == (*CLASSES, "zebra")
    assert loader.dataset.label_type == "multi-label"
    ((labels, _),) = loader
    assert np.flatnonzero(labels[-1]).tolist() == [2, 4]
    with pytest.raises(CallError, match=r"has the label type regression, but .* has multi-label"):
        build([made["regression", fmt], folders[0]], fields=("image",))


@FORMATS
def test_datasets_with_other_numbers_for_each_sample_are_not_joined(made, fmt, tmp_path, dataprep):
    (tmp_path / "0.png").write_bytes(encode(np.zeros((40, 50, 3), np.uint8), "png"))
    (tmp_path / "list.csv").write_text("path,values\n0.png,2.5\n")
    done = dataprep(
        "convert", "--src", tmp_path / "list.csv", "--fmt", fmt, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    folders = [made["regression", fmt], tmp_path / "out"]
    with pytest.raises(
        DamagedError, match=r"'values' has 1 number for each sample, but 2 in .*regression-"
    ):
        build(folders, fields=("image", "values"))
    build(folders, fields=("image",)).close()


def test_a_damaged_table_is_named(made, tmp_path):
    import shutil

    folder = tmp_path / "damaged"
    shutil.copytree(made["multi-label", "tfrecord"], folder)
    path = folder / read_manifest(folder).splits[0].shards[1].table.name
    table = pq.read_table(path)
    wrong = pa.array([[1], [9], [0], [0]], pa.list_(pa.field("element", pa.int64())))
    pq.write_table(table.set_column(table.column_names.index("labels"), "labels", wrong), path)
    with pytest.raises(
        DamagedError, match=r"record 1: the table has the label 9, but labels go from 0 to 3"
    ):
        build(folder, fields=("image", "labels"))


def test_a_preview_names_the_labels(made):
    for label_type, text in {
        "multi-label": "horse",
        "regression": "0.125, -1",
        "caption": "a photo of",
    }.items():
        field = {"multi-label": "labels", "regression": "values", "caption": "caption"}[label_type]
        loader = build(made[label_type, "tfrecord"], fields=("image", field))
        page = loader.preview(samples=N)
        assert any(text in item.label for group in page.groups for item in group.items)


def test_lists_by_row():
    column = concat_lists(
        [
            ListColumn(np.array([5, 6, 7]), np.array([0, 2, 2, 3])),
            ListColumn(np.array([8]), np.array([0, 1])),
        ]
    )
    values, sizes = column.take(np.array([3, 1, 0]))
    assert (values.tolist(), sizes.tolist()) == ([8, 5, 6], [1, 0, 2])
    assert column.objects().tolist() == [[5, 6], [], [7], [8]]
    assert multi_hot(column, np.array([1, 0]), classes=9).sum(1).tolist() == [0, 2]


def test_the_command_line_previews_every_type(made, tmp_path):
    from click.testing import CliRunner

    from loaders.cli import main

    for label_type in TYPES:
        arguments = [
            "preview",
            made[label_type, "tfrecord"],
            "--transforms",
            "imagenet-eval",
            "--out",
        ]
        result = CliRunner().invoke(
            main, [*map(str, arguments), str(tmp_path / f"{label_type}.html")]
        )
        assert result.exit_code == 0, result.output
