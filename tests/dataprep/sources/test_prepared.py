"""Prepared and indexed datasets as sources: other shards, formats, splits and sizes."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest
from helpers import annotated
from helpers.make_sources import VALID, image_folder, tar_of
from helpers.sources import read
from PIL import Image

from dataprep.containers import locations_of, read_location
from manifests.errors import CallError, SourceError
from manifests.store import read_manifest


def tables(folder):
    """Return the rows of all sample tables by source."""
    manifest = read_manifest(folder)
    names = [(split.name, shard) for split in manifest.splits for shard in split.shards]
    rows = [
        (split, row)
        for split, shard in names
        for row in pq.read_table(folder / shard.table.name).to_pylist()
    ]
    return {row["source"]: (split, row) for split, row in rows}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "photos"
    image_folder(folder, VALID)
    return folder


@pytest.fixture
def dataset(original, tmp_path, invoke):
    """A dataset with extra columns. Tests may change it."""
    invoke("convert", "--src", original, "--pattern", "{number}", "--out", tmp_path / "dataset",
           "--samples-per-shard", 6, "--workers", 1)  # fmt: skip
    return tmp_path / "dataset"


def test_another_format_with_the_same_content(dataset, tmp_path, invoke):
    invoke(
        "convert",
        "--src",
        dataset,
        "--fmt",
        "webdataset",
        "--samples-per-shard",
        4,
        "--out",
        tmp_path / "out",
    )
    before, after = tables(dataset), tables(tmp_path / "out")
    assert read_manifest(tmp_path / "out").classes == read_manifest(dataset).classes
    assert {*before} == {*after}
    for source, (split, row) in before.items():
        other_split, other = after[source]
        assert split == other_split
        for name in ("label", "width", "height", "size", "crc32c", "number"):
            assert row[name] == other[name]
    invoke("verify", tmp_path / "out", "--decode", "--workers", 1)


def test_images_are_not_decoded(dataset, tmp_path, invoke, monkeypatch):
    monkeypatch.setattr(Image, "open", None)
    invoke("convert", "--src", dataset, "--out", tmp_path / "out", "--workers", 1)


def test_resize_and_resize_again(dataset, tmp_path, invoke):
    invoke("convert", "--src", dataset, "--resize-shorter", 12, "--out", tmp_path / "12")
    invoke("convert", "--src", tmp_path / "12", "--resize-shorter", 8, "--out", tmp_path / "8")
    first, second = tables(tmp_path / "12"), tables(tmp_path / "8")
    assert {(row["height"], row["change"]) for _, row in first.values()} == {(12, "resized")}
    assert {(row["height"], row["original_height"]) for _, row in second.values()} == {(8, 12)}
    invoke("convert", "--src", tmp_path / "12", "--fmt", "webdataset", "--out", tmp_path / "copy")
    assert {row["original_height"] for _, row in tables(tmp_path / "copy").values()} == {16}


def test_raw_pixels_are_copied_and_not_resized(dataset, tmp_path, invoke):
    raw = ["--store", "raw", "--raw-size", 8]
    invoke("convert", "--src", dataset, *raw, "--out", tmp_path / "raw")
    invoke(
        "convert",
        "--src",
        tmp_path / "raw",
        *raw,
        "--fmt",
        "webdataset",
        "--out",
        tmp_path / "copy",
    )
    before, after = tables(tmp_path / "raw"), tables(tmp_path / "copy")
    for source, (_, row) in before.items():
        assert {name: row[name] for name in ("crc32c", "original_width", "change", "number")} == {
            name: after[source][1][name]
            for name in ("crc32c", "original_width", "change", "number")
        }
    invoke("verify", tmp_path / "copy", "--workers", 1)
    for options in ([], ["--resize-shorter", 4], ["--store", "raw", "--raw-size", 4]):
        result = invoke(
            "convert", "--src", tmp_path / "raw", *options, "--out", tmp_path / "x", status=2
        )
        assert "stores raw pixels of 8x8, which cannot be encoded or resized again" in result.stderr
        assert "--store raw --raw-size 8" in result.stderr
        assert not (tmp_path / "x").exists()


def test_other_splits_and_classes(original, tmp_path, invoke):
    invoke("convert", "--src", original / "train", "--out", tmp_path / "dataset")
    (tmp_path / "classes.txt").write_text("eel\ndog\ncat\nfox\n")
    invoke("convert", "--src", tmp_path / "dataset", "--classes", tmp_path / "classes.txt", "--val-fraction", 0.25,
           "--out", tmp_path / "out")  # fmt: skip
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.classes, [split.name for split in manifest.splits]) == (
        ("eel", "dog", "cat", "fox"),
        ["train", "val"],
    )
    names = {
        source: manifest.classes[row["label"]]
        for source, (_, row) in tables(tmp_path / "out").items()
    }
    assert names == {
        image.path.removeprefix("train/"): image.class_name
        for image in VALID
        if image.split == "train"
    }
    (tmp_path / "classes.txt").write_text("eel\ndog\n")
    with pytest.raises(SourceError, match="label 'cat' is not in --classes"):
        read(tmp_path / "dataset", classes=("eel", "dog"))


def test_class_names_of_masks_may_be_added_but_not_changed(tmp_path, invoke):
    source = annotated.make_pairs(tmp_path / "masks")
    invoke("convert", "--src", source, "--out", tmp_path / "unnamed")
    names = tmp_path / "names.txt"
    names.write_text("sky\ncat\n")
    invoke(
        "convert", "--src", tmp_path / "unnamed", "--classes", names, "--out", tmp_path / "named"
    )
    assert read_manifest(tmp_path / "named").classes == ("sky", "cat")
    names.write_text("cat\nsky\n")
    arguments = [
        "convert",
        "--src",
        tmp_path / "named",
        "--classes",
        names,
        "--out",
        tmp_path / "other",
    ]
    assert (
        "its masks have the classes sky, cat, and others would be"
        in invoke(*arguments, status=2).output
    )


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_a_damaged_manifest_is_named(text, tmp_path, image_folder, invoke):
    """Without it, the shards are those of nobody; but `dataprep index` must not replace it."""
    invoke("convert", "--src", image_folder, "--out", tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text(text)
    for call in (
        ["duplicates", tmp_path / "out"],
        ["convert", "--src", tmp_path / "out", "--out", tmp_path / "b"],
    ):
        output = invoke(*call, status=2).output
        assert (
            "out/manifest.json: the manifest is truncated or was written by another tool" in output
        )
        assert "dataprep index" not in output


def test_indexed_shards_of_another_tool(tmp_path, invoke):
    (tmp_path / "shards").mkdir()
    for number in range(2):
        files = []
        for image in VALID[number * 4 : number * 4 + 4]:
            files += [
                (f"{image.name[:2]}.jpg", image.data),
                (f"{image.name[:2]}.cls", str(image.label).encode()),
            ]
        (tmp_path / "shards" / f"train-{number}.tar").write_bytes(tar_of(files))
    with pytest.raises(
        SourceError,
        match=r"looks like shards without a manifest \(train-0\.tar\).*`dataprep index`",
    ):
        read(tmp_path / "shards")
    invoke("index", tmp_path / "shards")
    source = read(tmp_path / "shards")
    assert source.layout == "prepared indexed dataset (webdataset, encoded)"
    assert source.path.to_pylist() == [image.name for image in VALID[:8]]
    read_images = [
        read_location(source.root, location, 0)
        for location in locations_of(source.location, [*range(len(source))])
    ]
    assert read_images == [image.data for image in VALID[:8]]
    invoke("convert", "--src", tmp_path / "shards", "--out", tmp_path / "out")
    assert {*tables(tmp_path / "out")} == {*source.path.to_pylist()}


def damage(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_image_is_rejected_by_its_checksum(dataset, tmp_path, invoke):
    row = pq.read_table(dataset / "train-00000.parquet").to_pylist()[2]
    damage(dataset / "train-00000.tfrecord", row["offset"] + row["size"] // 2)
    invoke("convert", "--src", dataset, "--out", tmp_path / "out", "--max-rejected", 0.5)
    (rejected,) = [
        json.loads(line) for line in (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    ]
    assert (rejected["source"], rejected["reason"]) == (row["source"], "corrupt")
    assert (
        f"the image at byte {row['offset']} of train-00000.tfrecord does not have the checksum"
        in rejected["detail"]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: (d / "train-00000.tfrecord").unlink(),
            "train-00000.tfrecord: the shard is missing",
        ),
        (
            lambda d: (d / "train-00000.tfrecord").write_bytes(b"x"),
            "the shard has 1 bytes, but the manifest says",
        ),
        (
            lambda d: (d / "train-00001.parquet").unlink(),
            "train-00001.parquet: the sample table is missing",
        ),
        (
            lambda d: damage(d / "train-00001.parquet", 100),
            "the sample table does not have the checksum",
        ),
        (
            lambda d: shutil.copy(d / "val-00000.parquet", d / "train-00000.parquet"),
            "train-00000.parquet: ",
        ),
        (
            lambda d: damage(d / "manifest.json", 300),
            "the manifest does not match its own checksum",
        ),
        (
            lambda d: (d / "manifest.json").rename(d / ".dataprep/journal.json"),
            "the dataset is incomplete",
        ),
        (
            lambda d: (
                (d / "manifest.json").unlink() or (d / ".dataprep/journal.json").write_text("{}")
            ),
            "the dataset is incomplete",
        ),
    ],
)
def test_damage_is_named_before_anything_is_written(change, message, dataset, tmp_path, invoke):
    change(dataset)
    result = invoke("convert", "--src", dataset, "--out", tmp_path / "out", status=2)
    assert message in result.stderr
    assert "Hint: " in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_not_written_over_itself(dataset, invoke):
    before = (dataset / "train-00000.tfrecord").read_bytes()
    for out in (dataset, dataset / "inner"):
        result = invoke(
            "convert",
            "--src",
            dataset,
            "--out",
            out,
            "--overwrite",
            "--samples-per-shard",
            2,
            status=2,
        )
        assert "is inside the source" in result.stderr
    assert (dataset / "train-00000.tfrecord").read_bytes() == before


def test_options_of_tables_are_refused(dataset):
    with pytest.raises(
        CallError, match=r"--label-column does not apply to .*, which is a prepared dataset"
    ):
        read(dataset, label_column="number")


def test_a_manifest_of_another_tool_is_ignored(make_tree):
    root = make_tree(["cat/1.jpg", "dog/1.jpg"], **{"manifest.json": b'{"version": 3}'})
    assert read(root).layout == "ImageFolder"


def test_pixels_are_what_the_original_images_give(dataset, original, tmp_path, invoke):
    """Resizing a copy gives the same bytes as resizing the original."""
    options = ["--resize-shorter", 10, "--no-shuffle"]
    invoke("convert", "--src", original, "--pattern", "{number}", *options, "--out", tmp_path / "a")
    invoke("convert", "--src", dataset, *options, "--out", tmp_path / "b")
    first, second = tables(tmp_path / "a"), tables(tmp_path / "b")
    assert {source: row["crc32c"] for source, (_, row) in first.items()} == {
        source: row["crc32c"] for source, (_, row) in second.items()
    }
