"""Boxes, masks and depth maps on disk, as other readers see them, and through verify, re-sharding, diff and append."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from helpers import annotated, oracles
from helpers.shards import stored_samples
from PIL import Image

from dataprep.cli import main
from manifests.store import read_manifest

pytestmark = pytest.mark.usefixtures("quick_programs")

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
KINDS = pytest.mark.parametrize("kind", ["boxes", "mask", "depth"])


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return annotated.make_each_kind(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def made(sources, tmp_path_factory):
    """A function that converts each source once with each format, in shards of 2."""
    folder, done = tmp_path_factory.mktemp("datasets"), set()

    def make(kind: str, fmt: str) -> Path:
        out = folder / f"{kind}-{fmt}"
        if out not in done:
            words = [
                "--src",
                sources[kind],
                "--fmt",
                fmt,
                "--out",
                out,
                "--samples-per-shard",
                2,
                "--no-shuffle",
            ]
            result = CliRunner().invoke(main, ["convert", *map(str, words)])
            assert result.exit_code == 0, result.output
            done.add(out)
        return out

    return make


def shards(dataset: Path) -> list[Path]:
    return [
        dataset / shard.name for split in read_manifest(dataset).splits for shard in split.shards
    ]


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def check_boxes(number: int, features: dict[str, list]) -> None:
    height, width = annotated.SIZES[number]
    names = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]
    corners = np.array([features.get(name) or [] for name in names], float).T.reshape(-1, 4)
    np.testing.assert_allclose(
        corners * ([width, height] * 2), annotated.boxes()[number], atol=1e-3
    )
    assert list(features.get("image/object/class/label") or []) == annotated.box_labels()[number]
    texts = [
        [*annotated.CATEGORIES.values()][label].encode() for label in annotated.box_labels()[number]
    ]
    assert list(features.get("image/object/class/text") or []) == texts


FEATURES = {"mask": "image/segmentation/class/encoded", "depth": "image/depth/encoded"}


@KINDS
def test_features_of_tfrecord(made, kind):
    payloads = [
        payload
        for path in shards(made(kind, "tfrecord"))
        for payload in oracles.read_tfrecord(path)
    ]
    for number, payload in enumerate(payloads):
        features = oracles.parse_example(payload)
        assert (pixels(features["image/encoded"][0]) == annotated.pictures()[number]).all()
        if kind == "boxes":
            check_boxes(number, features)
        else:
            given = (annotated.masks() if kind == "mask" else annotated.depths())[number]
            assert (pixels(features[FEATURES[kind]][0]) == given).all()
    assert len(payloads) == 5


def test_tensorflow_reads_boxes_and_masks(made):
    tf = pytest.importorskip("tensorflow")
    spec = {
        **{
            f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32)
            for side in ("xmin", "ymin", "xmax", "ymax")
        },
        "image/object/class/label": tf.io.VarLenFeature(tf.int64),
        "image/object/class/text": tf.io.VarLenFeature(tf.string),
    }
    records = tf.data.TFRecordDataset([str(path) for path in shards(made("boxes", "tfrecord"))])
    for number, record in enumerate(records):
        parsed = tf.io.parse_single_example(record, spec)
        check_boxes(
            number, {name: values.values.numpy().tolist() for name, values in parsed.items()}
        )
    spec = {FEATURES["depth"]: tf.io.FixedLenFeature((), tf.string)}
    records = tf.data.TFRecordDataset([str(path) for path in shards(made("depth", "tfrecord"))])
    for record, given in zip(records, annotated.depths(), strict=True):
        png = tf.io.parse_single_example(record, spec)[FEATURES["depth"]]
        assert (tf.io.decode_png(png, dtype=tf.uint16)[..., 0].numpy() == given).all()


@KINDS
def test_members_of_webdataset(made, kind):
    samples = [
        sample
        for path in shards(made(kind, "webdataset"))
        for sample in oracles.read_with_webdataset(path)
    ]
    assert len(samples) == 5
    for number, sample in enumerate(samples):
        members = {name for name in sample if not name.startswith("__")}
        assert members == {"png", "json", *([f"{kind}.png"] if kind != "boxes" else [])}
        row = json.loads(sample["json"])
        if kind == "boxes":
            assert row["boxes"] == annotated.boxes()[number].tolist()
            assert row["box_labels"] == annotated.box_labels()[number]
            assert (row["annotated_height"], row["annotated_width"]) == annotated.SIZES[number]
        else:
            given = (annotated.masks() if kind == "mask" else annotated.depths())[number]
            assert (pixels(sample[f"{kind}.png"]) == given).all()


@KINDS
@FORMATS
def test_verify_resharding_diff_info_and_report(made, fmt, kind, invoke, tmp_path):
    dataset = made(kind, fmt)
    assert "no problems" in invoke("verify", dataset, "--decode").output
    other = {"tfrecord": "webdataset", "webdataset": "tfrecord"}[fmt]
    again, back = tmp_path / "again", tmp_path / "back"
    invoke(
        "convert",
        "--src",
        dataset,
        "--fmt",
        other,
        "--out",
        again,
        "--samples-per-shard",
        3,
        "--seed",
        1,
    )
    assert "no problems" in invoke("verify", again, "--decode").output
    assert "the datasets have the same samples" in invoke("diff", dataset, again).output
    invoke("convert", "--src", again, "--fmt", fmt, "--out", back, "--no-shuffle")
    places = ("mask_offset",)
    rows = [
        {
            sample.source: (data, {k: v for k, v in sample.extra.items() if k not in places})
            for sample, data in each
        }
        for each in map(stored_samples, (dataset, back))
    ]
    assert rows[0] == rows[1]
    assert json.loads(invoke("info", again, "--json").output)["label_type"] == kind
    invoke("report", again, "--out", tmp_path / "report.html")
    # Classes of boxes that are never the first of an image, and the 256 values of masks, are not
    # called unused.
    assert json.loads((tmp_path / "report.json").read_text())["unused"] == 0


@FORMATS
@pytest.mark.parametrize("side", [37, 60, 77])
def test_resized_boxes_agree_with_their_table(made, fmt, side, invoke, tmp_path):
    """The record has fractions of the side, which are computed from the float32 numbers of the table."""
    out = tmp_path / "out"
    invoke(
        "convert",
        "--src",
        made("boxes", "tfrecord"),
        "--fmt",
        fmt,
        "--resize-shorter",
        side,
        "--out",
        out,
    )
    assert "no problems" in invoke("verify", out, "--decode").output


@KINDS
def test_three_steps_and_append(made, sources, kind, tmp_path, invoke):
    dataset, out = made(kind, "webdataset"), tmp_path / "out"
    arguments = ("--fmt", "webdataset", "--out", out, "--samples-per-shard", 2, "--no-shuffle")
    invoke("plan", "--src", sources[kind], *arguments)
    invoke("work", out, "--task", "0/1")
    invoke("finish", out)
    for path in (*shards(dataset), dataset / "manifest.json"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    more = tmp_path / "more"
    shutil.copytree(sources[kind], more)
    first = next(
        path for path in sorted(more.rglob("*.png")) if path.parent.name in ("images", "train2017")
    )
    Image.fromarray(annotated.pictures()[0][::-1]).save(first)
    append = ["convert", "--src", more, "--out", out, "--append"]
    assert "1 image replaced" in invoke(*append, status=2).output
    # Of another dataset, the same paths are other images.
    for path in more.rglob("*.png"):
        if path.parent.name in ("images", "train2017") and path != first:
            Image.fromarray(np.array(Image.open(path))[::-1]).save(path)
    invoke(*append)
    assert "no problems" in invoke("verify", out, "--decode").output
    samples = sum(pq.read_metadata(path.with_suffix(".parquet")).num_rows for path in shards(out))
    assert samples > 5


@pytest.mark.parametrize("kind", ["mask", "boxes"])
@FORMATS
def test_verify_finds_a_changed_label(made, fmt, kind, tmp_path, invoke):
    dataset = tmp_path / "damaged"
    shutil.copytree(made(kind, fmt), dataset)
    path = shards(dataset)[0]
    table, data = (
        pq.read_table(path.with_suffix(".parquet")).to_pylist(),
        bytearray(path.read_bytes()),
    )
    if kind == "mask":
        place = table[0]["mask_offset"] + 60
    else:
        box = annotated.boxes()[0]
        needle = (
            json.dumps(box.tolist(), separators=(",", ":"))[:8].encode()
            if fmt == "webdataset"
            else b"xmax"
        )
        place = data.index(needle) + 4
    data[place] ^= 1
    path.write_bytes(data)
    invoke("verify", dataset, status=1)


@KINDS
def test_a_lost_table_is_rebuilt_and_a_damaged_shard_made_again(
    made, sources, kind, tmp_path, invoke
):
    dataset = tmp_path / "damaged"
    shutil.copytree(made(kind, "webdataset"), dataset)
    table = shards(dataset)[1].with_suffix(".parquet")
    before = table.read_bytes()
    table.unlink()
    invoke("repair", dataset)
    assert table.read_bytes() == before
    path = shards(dataset)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-600])
    invoke("repair", dataset, "--src", sources[kind])
    assert path.read_bytes() == whole
