"""Labels of every type on disk, as other readers see them, and through every command that reads or writes them."""

from __future__ import annotations

import io
import json
import shutil
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from helpers import annotated, oracles
from helpers.datasets import FORMATS, flip, run_steps, shards_of
from helpers.shards import stored_samples
from PIL import Image
from tfrecord.reader import tfrecord_loader

pytestmark = pytest.mark.usefixtures("quick_programs")

N = 8
CLASSES = ("bird", "cat", "dog")
LABELS = [[1], [1, 2], [], [0, 2], [2], [0], [0, 1, 2], []]
VALUES = [[number + 0.1, -number] for number in range(N)]
CAPTIONS = [f'a "photo" of number {number}, é|' for number in range(N)]
NAMES = [[CLASSES[label] for label in labels] for labels in LABELS]

#: The columns of the source for labels of each type in a table.
TABLES = {
    "none": {},
    "multi-label": {"labels": NAMES},
    "regression": {"values": VALUES},
    "caption": {"caption": CAPTIONS},
    "captions": {"captions": [[text, "line 1\nline 2"][: 1 + len(text) % 2] for text in CAPTIONS]},
    # Samples with a second image, `right`, have labels of any of these types.
    "views": {"caption": CAPTIONS},
}
KINDS = (*TABLES, "boxes", "mask", "depth")


def options_of(kind):
    own = {"none": ["--label-type", kind], "views": ["--image-columns", "path,right"]}
    return ["--samples-per-shard", 3, "--no-shuffle", *own.get(kind, ())]


@pytest.fixture(scope="module")
def sources(photographs, tmp_path_factory):
    """A source for each kind of labels: tables of the photographs, and annotated pictures."""
    folder = tmp_path_factory.mktemp("labels")
    names = [f"{number}.{extension}" for number, (extension, _) in enumerate(photographs[:N])]
    for name, (_, data) in zip(names, photographs, strict=False):
        (folder / name).write_bytes(data)
    found = annotated.make_each_kind(folder)
    for kind, columns in TABLES.items():
        found[kind] = folder / f"{kind}.parquet"
        cameras = [number * 2 for number in range(N)]
        table = pa.table({"path": names, **columns, "camera": cameras})
        if kind == "views":
            table = table.append_column("right", [names[::-1]])
        pq.write_table(table, found[kind])
    return found


@pytest.fixture(scope="module")
def made(sources, convert, tmp_path_factory):
    """A function that converts each source once with each format. Tests must not change the datasets."""
    folder = tmp_path_factory.mktemp("datasets")

    def make(kind: str, fmt: str) -> Path:
        out = folder / f"{kind}-{fmt}"
        if not out.exists():
            convert(sources[kind], out, "--fmt", fmt, *options_of(kind))
        return out

    return make


# --- what is stored -------------------------------------------------------------------------------


def test_the_protobuf_library_reads_lists_boxes_and_depths(made):
    def read(kind):
        for path in shards_of(made(kind, "tfrecord")):
            yield from map(oracles.parse_example, oracles.read_tfrecord(path))

    assert [features["image/class/label"] or [] for features in read("multi-label")] == LABELS
    values = [features["image/values"] for features in read("regression")]
    np.testing.assert_array_equal(values, np.float32(VALUES))
    sides = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]
    for number, features in enumerate(read("boxes")):
        height, width = annotated.SIZES[number]
        corners = np.array([features.get(name) or [] for name in sides], float).T.reshape(-1, 4)
        expected, labels = annotated.boxes()[number], annotated.box_labels()[number]
        np.testing.assert_allclose(corners * ([width, height] * 2), expected, atol=1e-3)
        assert (features.get("image/object/class/label") or []) == labels
        texts = [[*annotated.CATEGORIES.values()][label].encode() for label in labels]
        assert (features.get("image/object/class/text") or []) == texts
    for features, depth in zip(read("depth"), annotated.depths(), strict=True):
        (png,) = features["image/depth/encoded"]
        np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(png))), depth)


def test_other_readers_read_the_second_image_of_a_sample(made, photographs):
    """The package tfrecord, and webdataset, whose decoder knows the extension."""
    photos = [data for _, data in photographs[:N]]
    features, found = ("image/encoded", "image/right/encoded"), []
    for shard in shards_of(made("views", "tfrecord")):
        for record in tfrecord_loader(str(shard), None, dict.fromkeys(features, "byte")):
            found.append(tuple(bytes(record[name]) for name in features))
    assert found == [*zip(photos, photos[::-1], strict=True)]
    paths = [*map(str, shards_of(made("views", "webdataset")))]
    read = webdataset.WebDataset(paths, shardshuffle=False, empty_check=False).decode("rgb8")
    for sample, data in zip(read, photos[::-1], strict=True):
        (name,) = (name for name in sample if name.startswith("right."))
        shown = Image.open(io.BytesIO(data)).convert("RGB")
        np.testing.assert_array_equal(sample[name], np.asarray(shown))


# --- what other commands do with it ---------------------------------------------------------------


@pytest.mark.parametrize(("fmt", "kind"), [*zip(cycle(FORMATS), KINDS, strict=False)])
def test_verify_resharding_diff_info_and_report(
    made, sources, fmt, kind, convert, invoke, tmp_path
):
    dataset, again, back = made(kind, fmt), tmp_path / "again", tmp_path / "back"
    assert "no problems" in invoke("verify", dataset, "--decode").output
    (other,) = {*FORMATS} - {fmt}
    convert(dataset, again, "--fmt", other, "--samples-per-shard", 5, "--seed", 1)
    assert "no problems" in invoke("verify", again, "--decode").output
    assert "the datasets have the same samples" in invoke("diff", dataset, again).output
    # Back in the first format, every byte is as before: nothing got lost on the way.
    convert(again, back, "--fmt", fmt, "--no-shuffle")
    rows = [{}, {}]
    for each, found in zip((dataset, back), rows, strict=True):
        for sample, data in stored_samples(each):
            extra = {
                name: value for name, value in sample.extra.items() if not name.endswith("_offset")
            }
            found[sample.source] = (data, extra)
    assert rows[0] == rows[1]
    info = json.loads(invoke("info", again, "--json").output)
    assert info["label_type"] == ("caption" if kind == "views" else kind)
    if kind == "views":
        assert info["images"] == ["path", "right"]
        table, path = pq.read_table(sources[kind]), sources[kind].with_name("other.parquet")
        pq.write_table(table.drop_columns("right").append_column("right", table["path"]), path)
        convert(path, tmp_path / "other", *options_of(kind))
        assert "changed" in invoke("diff", dataset, tmp_path / "other", status=1).output
    invoke("report", again, "--out", tmp_path / "report.html")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["samples"] == len(rows[0])
    assert not data["problems"]
    # Classes of boxes that are never the first of an image, and the 256 values of masks, are not
    # called unused.
    assert data["unused"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_three_steps_and_append(made, sources, kind, tmp_path, convert, invoke):
    """The files of a plan carry the labels to the workers: the result has the same bytes."""
    dataset, out = made(kind, "webdataset"), tmp_path / "out"
    source, options = sources[kind], ("--fmt", "webdataset", *options_of(kind))
    run_steps(invoke, "--src", source, *options, out=out)
    name = {"none": "unlabelled", "views": "caption"}.get(kind, kind)
    assert name in invoke("info", out / ".dataprep" / "plan").output
    for path in (*shards_of(dataset), dataset / "manifest.json"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    if kind not in TABLES:  # of another dataset, the same paths are other images
        more = Path(shutil.copytree(source, tmp_path / "more"))
        for path in [*more.rglob("images/*.png"), *more.rglob("train2017/*.png")]:
            Image.fromarray(np.array(Image.open(path))[::-1]).save(path)
        convert(more, out, "--append")
        assert "no problems" in invoke("verify", out, "--decode").output
        assert len(list(stored_samples(out))) > 5


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("side", [37, 77])
def test_resized_boxes_agree_with_their_table(sources, fmt, side, convert, invoke, tmp_path):
    """The record has fractions of the side, which are computed from the float32 numbers of the table."""
    convert(sources["boxes"], tmp_path / "out", "--fmt", fmt, "--resize-shorter", side)
    assert "no problems" in invoke("verify", tmp_path / "out", "--decode").output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_changed_label_and_a_lost_table_are_found_and_repaired(
    made, sources, kind, fmt, invoke, tmp_path
):
    dataset = Path(shutil.copytree(made(kind, fmt), tmp_path / "dataset"))
    path, second, *_ = shards_of(dataset)
    whole, is_tar = path.read_bytes(), fmt == "webdataset"
    box = json.dumps(annotated.boxes()[0].tolist(), separators=(",", ":"))[:8].encode()
    value = b"2.1,-2" if is_tar else np.float32(2.1).tobytes()
    texts = {"multi-label": b"dog", "regression": value, "boxes": box if is_tar else b"xmax"}
    texts |= dict.fromkeys(("caption", "captions"), b"number 1")
    if offset := {"mask": "mask_offset", "views": "right_offset"}.get(kind):
        flip(path, pq.read_table(path.with_suffix(".parquet"))[offset][0].as_py() + 60)
    elif kind in texts:
        flip(path, whole.index(texts[kind]) + (4 if kind == "boxes" else 1))
    else:
        path.write_bytes(whole[:-600])
    output = invoke("verify", dataset, status=1).output
    assert kind != "views" or "the image 'right' is not valid (corrupt)" in output
    assert (
        kind not in ("multi-label", "regression", "caption", "captions")
        or "a byte around the image differs" in output
    )
    again = ("repair", dataset, "--src", sources[kind], *options_of(kind)[3:])
    invoke(*again)
    assert path.read_bytes() == whole
    table = second.with_suffix(".parquet")
    before = table.read_bytes()
    table.unlink()
    if (kind, fmt) == ("boxes", "tfrecord"):  # it has fractions of the side
        assert "does not determine" in invoke("repair", dataset, status=1).output
        invoke(*again)
    else:
        invoke("repair", dataset)
    assert table.read_bytes() == before
