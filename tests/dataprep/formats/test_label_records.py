"""Labels of every type on disk, as other readers see them, and through verify, re-sharding, diff, info and report."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import oracles
from helpers.shards import stored_samples
from PIL import Image

from manifests.store import read_manifest

pytestmark = pytest.mark.usefixtures("quick_programs")

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
N = 8
CLASSES = ("bird", "cat", "dog")
LABELS = [[1], [1, 2], [], [0, 2], [2], [0], [0, 1, 2], []]
VALUES = [[number + 0.1, -number] for number in range(N)]
CAPTIONS = [f'a "photo" of number {number}, é|' for number in range(N)]

#: Columns of the table, and further options, for each label type.
TYPES = {
    "none": ({}, ["--label-type", "none"]),
    "multi-label": ({"labels": [[CLASSES[label] for label in labels] for labels in LABELS]}, []),
    "regression": ({"values": VALUES}, []),
    "caption": ({"caption": CAPTIONS}, []),
}
LABEL_TYPES = pytest.mark.parametrize("label_type", TYPES)


@pytest.fixture(scope="module")
def made(photographs, convert, tmp_path_factory):
    """A function that converts the photographs once with each label type and format, in shards of 3."""
    folder = tmp_path_factory.mktemp("labels")
    names = [f"{number}.{extension}" for number, (extension, _) in enumerate(photographs[:N])]
    for name, (_, data) in zip(names, photographs, strict=False):
        (folder / name).write_bytes(data)
    cameras = [number * 2 for number in range(N)]

    def make(label_type: str, fmt: str) -> Path:
        out = folder / f"{label_type}-{fmt}"
        if not out.exists():
            columns, options = TYPES[label_type]
            path = folder / f"{label_type}.parquet"
            pq.write_table(pa.table({"path": names, **columns, "camera": cameras}), path)
            options = [*options, "--fmt", fmt, "--samples-per-shard", 3, "--no-shuffle"]
            (folder / f"{out.name}.txt").write_text(convert(path, out, *options).stderr)
        return out

    return make


def shards(dataset: Path) -> list[Path]:
    return [
        dataset / shard.name for split in read_manifest(dataset).splits for shard in split.shards
    ]


@LABEL_TYPES
@FORMATS
def test_the_manifest_and_the_tables_name_the_label_type(made, fmt, label_type):
    dataset = made(label_type, fmt)
    manifest = json.loads((dataset / "manifest.json").read_text())
    assert manifest["label_type"] == label_type
    assert manifest["components"]["label"] is None
    assert manifest["classes"] == (list(CLASSES) if label_type == "multi-label" else [])
    table = pa.concat_tables(
        pq.read_table(path.with_suffix(".parquet")) for path in shards(dataset)
    )
    expected = {
        "none": {},
        "multi-label": {"labels": LABELS},
        "regression": {"values": np.float32(VALUES).astype(float).tolist()},
        "caption": {"caption": CAPTIONS},
    }[label_type]
    own = ("key", "offset", "size", "width", "height", "source", "crc32c")
    assert table.column_names == [*own, "camera", *expected]
    assert {name: table[name].to_pylist() for name in expected} == expected
    message = (dataset.parent / f"{dataset.name}.txt").read_text()
    assert {"none": "unlabelled"}.get(label_type, f"labels: {label_type}") in message


@LABEL_TYPES
def test_features_of_tfrecord(made, label_type, photographs):
    records = [
        oracles.parse_example(payload)
        for path in shards(made(label_type, "tfrecord"))
        for payload in oracles.read_tfrecord(path)
    ]
    assert [record["image/encoded"] for record in records] == [
        [data] for _, data in photographs[:N]
    ]
    assert [record["camera"] for record in records] == [[number * 2] for number in range(N)]
    common = {
        "camera",
        "image/filename",
        "image/format",
        "image/height",
        "image/width",
        "image/encoded",
    }
    features = {
        "none": {},
        "multi-label": {
            "image/class/label": LABELS,
            "image/class/text": [
                [CLASSES[label].encode() for label in labels] for labels in LABELS
            ],
        },
        "regression": {"image/values": np.float32(VALUES).astype(float).tolist()},
        "caption": {"image/caption": [[caption.encode()] for caption in CAPTIONS]},
    }[label_type]
    assert set(records[0]) == common | set(features)
    for name, values in features.items():
        assert [record[name] for record in records] == values


def test_the_reader_tfrecord_reads_lists(made):
    from tfrecord.reader import tfrecord_loader

    path = shards(made("multi-label", "tfrecord"))[0]
    found = list(
        tfrecord_loader(str(path), None, {"image/class/label": "int", "image/width": "int"})
    )
    assert [
        record["image/class/label"].tolist() for record in found if len(record["image/class/label"])
    ] == [labels for labels in LABELS[:3] if labels]
    path = shards(made("regression", "tfrecord"))[0]
    values = [
        record["image/values"]
        for record in tfrecord_loader(str(path), None, {"image/values": "float"})
    ]
    np.testing.assert_array_equal(values, np.float32(VALUES[:3]))


def test_tensorflow_reads_lists(made):
    tf = pytest.importorskip("tensorflow")
    spec = {
        "image/class/label": tf.io.VarLenFeature(tf.int64),
        "image/class/text": tf.io.VarLenFeature(tf.string),
    }
    found = [
        tf.io.parse_single_example(record, spec)["image/class/label"].values.numpy().tolist()
        for path in shards(made("multi-label", "tfrecord"))
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert found == LABELS


@LABEL_TYPES
def test_members_of_webdataset(made, label_type, photographs):
    import webdataset

    paths = [str(path) for path in shards(made(label_type, "webdataset"))]
    samples = list(webdataset.WebDataset(paths, shardshuffle=False))
    extensions = [extension.lower() for extension, _ in photographs[:N]]
    for number, (sample, extension) in enumerate(zip(samples, extensions, strict=True)):
        members = {name for name in sample if not name.startswith("__")}
        assert members == {extension, "json", *(["txt"] if label_type == "caption" else [])}
        assert sample[extension] == photographs[number][1]
        row = json.loads(sample["json"])
        assert row["camera"] == 2 * number
        expected = {
            "none": {},
            "multi-label": {
                "labels": LABELS[number],
                "classes": [CLASSES[label] for label in LABELS[number]],
            },
            "regression": {"values": VALUES[number]},
            "caption": {"caption": CAPTIONS[number]},
        }[label_type]
        assert {name: row[name] for name in row if name in expected} == expected
        assert "label" not in row
        if label_type == "caption":
            assert sample["txt"].decode() == CAPTIONS[number]


@LABEL_TYPES
@FORMATS
def test_verify_resharding_diff_info_and_report(made, fmt, label_type, convert, invoke, tmp_path):
    dataset = made(label_type, fmt)
    assert "no problems" in invoke("verify", dataset, "--decode").output
    other = {"tfrecord": "webdataset", "webdataset": "tfrecord"}[fmt]
    again, back = tmp_path / "again", tmp_path / "back"
    convert(dataset, again, "--fmt", other, "--samples-per-shard", 5, "--seed", 1)
    invoke("verify", again)
    assert "the datasets have the same samples" in invoke("diff", dataset, again).output
    # Back in the first format and order, every byte is as before: nothing got lost on the way.
    convert(again, back, "--fmt", fmt, "--samples-per-shard", 3, "--seed", 1)
    rows = [
        {sample.source: (data, sample.extra) for sample, data in stored_samples(each)}
        for each in (dataset, back)
    ]
    assert rows[0] == rows[1]
    assert invoke("info", again).output
    assert json.loads(invoke("info", again, "--json").output)["label_type"] == label_type
    invoke("report", again, "--out", tmp_path / "report.html")
    data = json.loads((tmp_path / "report.json").read_text())
    assert sum(sum(each["samples"]) for each in data["classes"]) == N
    assert not data["problems"]


def test_labels_in_three_steps(made, tmp_path, invoke):
    """The files of a plan carry the labels to the workers: the result has the same bytes."""
    for label_type in ("multi-label", "regression", "caption", "none"):
        dataset = made(label_type, "webdataset")
        _, options = TYPES[label_type]
        out = tmp_path / label_type
        options = [*options, "--fmt", "webdataset", "--samples-per-shard", 3, "--no-shuffle"]
        invoke("plan", "--src", dataset.parent / f"{label_type}.parquet", "--out", out, *options)
        assert label_type in invoke("info", out / ".dataprep" / "plan").output.replace(
            "unlabelled", "none"
        )
        invoke("work", out, "--task", "0/1")
        invoke("finish", out)
        for path in shards(dataset):
            assert (out / path.name).read_bytes() == path.read_bytes()
        assert (out / "manifest.json").read_bytes() == (dataset / "manifest.json").read_bytes()


@FORMATS
def test_a_relabelled_sample_is_found(made, fmt, tmp_path, invoke, photographs):
    dataset = made("regression", fmt)
    changed = [[value + (number == 3), other] for number, (value, other) in enumerate(VALUES)]
    names = [f"{number}.{extension}" for number, (extension, _) in enumerate(photographs[:N])]
    table = pa.table(
        {"path": names, "values": changed, "camera": [number * 2 for number in range(N)]}
    )
    for name in names:
        shutil.copy(dataset.parent / name, tmp_path)
    pq.write_table(table, tmp_path / "l.parquet")
    invoke("convert", "--src", tmp_path / "l.parquet", "--out", tmp_path / "out")
    output = invoke("diff", dataset, tmp_path / "out", status=1).output
    assert "relabelled" in output
    assert "3.0999999" in output
    assert "4.0999999" in output


@FORMATS
@pytest.mark.parametrize("label_type", ["multi-label", "regression", "caption"])
def test_verify_finds_a_changed_label(made, fmt, label_type, tmp_path, invoke):
    dataset = tmp_path / "damaged"
    shutil.copytree(made(label_type, fmt), dataset)
    path = shards(dataset)[0]
    data = path.read_bytes()
    old, new = {
        "multi-label": (b"dog", b"dig"),
        "regression": (b"2.1,-2" if fmt == "webdataset" else np.float32(2.1).tobytes(), None),
        "caption": (b"number 1", b"number 7"),
    }[label_type]
    new = new or bytes([*old[:-1], old[-1] ^ 1])
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    assert "a byte around the image differs" in invoke("verify", dataset, status=1).output


def test_columns_of_a_table_are_checked_by_label_type(made, tmp_path, invoke):
    for label_type, column, wrong in (
        ("multi-label", "labels", pa.array([[7]] * 3, pa.list_(pa.field("element", pa.int64())))),
        (
            "regression",
            "values",
            pa.array([[1.0], [1.0, 2.0], [1.0]], pa.list_(pa.field("element", pa.float32()))),
        ),
        ("caption", "caption", pa.array(["a", None, "b"])),
        ("caption", "caption", pa.array([1, 2, 3])),
    ):
        dataset = tmp_path / f"{label_type}-{wrong.type}"
        shutil.copytree(made(label_type, "tfrecord"), dataset)
        path = shards(dataset)[0].with_suffix(".parquet")
        table = pq.read_table(path)
        pq.write_table(table.set_column(table.column_names.index(column), column, wrong), path)
        output = invoke("verify", dataset, status=1).output
        assert "does not match its checksum" in output or "bytes, but the manifest states" in output
        output = invoke("diff", dataset, made(label_type, "tfrecord"), status=1).output
        assert "checksum" in output


def test_a_caption_of_another_format_is_a_text_file(made):
    """`tar` alone gives image and caption of each sample."""
    import tarfile

    with tarfile.open(shards(made("caption", "webdataset"))[0]) as tar:
        names = tar.getnames()
        assert [name.split(".")[1].lower() in ("jpg", "png", "webp") for name in names[::3]] == [
            True
        ] * 3
        assert [name.split(".")[1] for name in names[1::3]] == ["txt"] * 3
        image = tar.extractfile(names[0]).read()
        assert Image.open(io.BytesIO(image)).size[0] > 0
        assert tar.extractfile(names[1]).read().decode() == CAPTIONS[0]


@LABEL_TYPES
@FORMATS
def test_a_lost_table_is_rebuilt_from_the_shard(made, fmt, label_type, tmp_path, invoke):
    dataset = tmp_path / "damaged"
    shutil.copytree(made(label_type, fmt), dataset)
    table = shards(dataset)[1].with_suffix(".parquet")
    before = table.read_bytes()
    table.unlink()
    invoke("repair", dataset)
    assert table.read_bytes() == before


@FORMATS
@pytest.mark.parametrize("label_type", ["multi-label", "caption"])
def test_a_damaged_shard_is_made_again_from_its_source(made, fmt, label_type, tmp_path, invoke):
    dataset = tmp_path / "damaged"
    made_from = made(label_type, fmt)
    shutil.copytree(made_from, dataset)
    path = shards(dataset)[0]
    path.write_bytes(path.read_bytes()[:-600])
    source = made_from.parent / f"{label_type}.parquet"
    invoke("repair", dataset, "--src", source, *TYPES[label_type][1])
    assert path.read_bytes() == (made_from / path.name).read_bytes()


def test_an_append_has_the_same_label_type_and_labels(made, tmp_path, invoke):
    dataset = tmp_path / "dataset"
    made_from = made("regression", "tfrecord")
    shutil.copytree(made_from, dataset)
    table = pq.read_table(made_from.parent / "regression.parquet")
    wrong = table.set_column(1, "values", pa.array([[value + 1, other] for value, other in VALUES]))
    pq.write_table(wrong, made_from.parent / "wrong.parquet")
    append = ("convert", "--append", "--out", dataset, "--src")
    error = invoke(*append, made_from.parent / "wrong.parquet", status=2).stderr
    assert (
        "the image is in the dataset with the label 0.100000001, 0, but here with 1.10000002, 0"
        in error
    )
    error = invoke(*append, made("caption", "tfrecord").parent / "caption.parquet", status=2).stderr
    assert "has the label type regression, but the source has caption" in error
    assert "nothing to append" in invoke(*append, made_from.parent / "regression.parquet").output
