"""Prepared and indexed datasets as sources: other shards, formats, splits and sizes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from helpers import annotated
from helpers.datasets import flip, rejected_of, rows_of
from helpers.make_sources import VALID, image_folder
from helpers.rows import evaluate, read_rows
from helpers.sources import refused

from manifests.store import manifest_files, read_manifest


def values(folder, *names):
    """Return some values of each sample by its source."""
    return {row["source"]: tuple(row[name] for name in names) for row in rows_of(folder)}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "photos"
    image_folder(folder, VALID)
    return folder


@pytest.fixture
def dataset(original, tmp_path, convert):
    """A dataset with extra columns. Tests may change it."""
    options = ["--pattern", "{number}", "--samples-per-shard", 6]
    convert(original, tmp_path / "dataset", *options)
    return tmp_path / "dataset"


def test_raw_pixels_are_copied_and_not_resized(dataset, tmp_path, convert, invoke):
    raw = ["--store", "raw", "--raw-size", 8]
    convert(dataset, tmp_path / "raw", *raw)
    convert(tmp_path / "raw", tmp_path / "copy", *raw, "--fmt", "webdataset")
    names = ("crc32c", "original_width", "change", "number")
    assert values(tmp_path / "copy", *names) == values(tmp_path / "raw", *names)
    invoke("verify", tmp_path / "copy", "--workers", 1)
    for options in ([], ["--resize-shorter", 4], ["--store", "raw", "--raw-size", 4]):
        error = convert(tmp_path / "raw", tmp_path / "x", *options, status=2).stderr
        assert "stores raw pixels of 8x8, which cannot be encoded or resized again" in error
        assert "--store raw --raw-size 8" in error
        assert not (tmp_path / "x").exists()


def test_other_splits_and_classes(original, tmp_path, convert):
    convert(original / "train", tmp_path / "dataset")
    names, out = tmp_path / "classes.txt", tmp_path / "out"
    names.write_text("eel\ndog\ncat\nfox\n")
    convert(tmp_path / "dataset", out, "--classes", names, "--val-fraction", 0.25)
    manifest = read_manifest(out)
    assert manifest.classes == ("eel", "dog", "cat", "fox")
    assert [split.name for split in manifest.splits] == ["train", "val"]
    expected = {}
    for image in VALID:
        if image.split == "train":
            expected[image.path.removeprefix("train/")] = (image.class_name,)
    assert values(out, "class") == expected
    refused(tmp_path / "dataset", "label 'cat' is not in --classes", classes=("eel", "dog"))


def test_class_names_of_masks_may_be_added_but_not_changed(tmp_path, convert):
    convert(annotated.make_pairs(tmp_path / "masks"), tmp_path / "unnamed")
    names = tmp_path / "names.txt"
    names.write_text("sky\ncat\n")
    convert(tmp_path / "unnamed", tmp_path / "named", "--classes", names)
    assert read_manifest(tmp_path / "named").classes == ("sky", "cat")
    names.write_text("cat\nsky\n")
    result = convert(tmp_path / "named", tmp_path / "other", "--classes", names, status=2)
    assert "its masks have the classes sky, cat, and others would be" in result.output


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_a_damaged_manifest_is_named(text, tmp_path, image_folder, convert, invoke):
    """Without it, the shards are those of nobody; but `dataprep index` must not replace it."""
    out = tmp_path / "out"
    convert(image_folder, out)
    (out / "manifest.json").write_text(text)
    for command in ("duplicates", ("convert", "--out", tmp_path / "b", "--src")):
        words = [command] if isinstance(command, str) else command
        output = invoke(*words, out, status=2).output
        assert "out/manifest.json: the manifest is truncated or was written by another" in output
        assert "dataprep index" not in output


def test_a_damaged_image_is_rejected_by_its_checksum(dataset, tmp_path, convert):
    row = pq.read_table(dataset / "train-00000.parquet").to_pylist()[2]
    flip(dataset / "train-00000.tfrecord", row["offset"] + row["size"] // 2)
    convert(dataset, tmp_path / "out", "--max-rejected", 0.5)
    (rejected,) = rejected_of(tmp_path / "out")
    assert (rejected["source"], rejected["reason"]) == (row["source"], "corrupt")
    place = f"the image at byte {row['offset']} of train-00000.tfrecord"
    assert f"{place} does not have the checksum" in rejected["detail"]


SHARD, TABLE = "train-00000.tfrecord", "train-00001.parquet"
JOURNAL = ".dataprep/journal.json"


def unfinished(folder):
    (folder / "manifest.json").unlink()
    (folder / JOURNAL).write_text("{}")


def without_classes(folder):
    for name, content in manifest_files(replace(read_manifest(folder), classes=())).items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(("change", "message"), read_rows(__file__, "damages"))
def test_damage_is_named_before_anything_is_written(change, message, dataset, tmp_path, convert):
    evaluate(change, globals(), {"folder": dataset})
    result = convert(dataset, tmp_path / "out", status=2)
    assert message in result.stderr
    assert "Hint: " in result.stderr
    assert not (tmp_path / "out").exists()
