"""`convert --append`: a dataset gains a revision, and everything that was there stays as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.datasets import rows_of, write_csv, write_images
from helpers.pictures import encode, photo

from manifests.store import read_manifest

PETS = ("cat", "dog")


@pytest.fixture
def sources(tmp_path) -> tuple[Path, Path]:
    """Two sources that share a class and a file name."""
    first = write_images(tmp_path / "first", range(20), PETS)
    return first, write_images(tmp_path / "second", range(1, 16, 2), ("ant", "dog"), first=500)


@pytest.fixture
def dataset(sources, convert, tmp_path) -> Path:
    """The first source, converted."""
    convert(sources[0], tmp_path / "out", "--samples-per-shard", 8)
    return tmp_path / "out"


def test_the_list_of_rejected_images_of_an_old_revision_is_checked_and_repaired(
    sources, convert, invoke, snapshot, tmp_path
):
    out = tmp_path / "out"
    for source, options in zip(sources, ([], ["--append"]), strict=True):
        (source / "dog" / "broken.jpg").write_bytes(b"")
        convert(source, out, "--max-rejected", 1, *options)
    before = snapshot(out)
    (out / "rejected.jsonl").unlink()
    assert "rejected.jsonl: the file cannot be read" in invoke("verify", out, status=1).output
    assert "rejected.jsonl" in invoke("repair", out).output
    assert snapshot(out) == before


def test_revert(sources, convert, invoke, snapshot, tmp_path):
    out = tmp_path / "out"
    convert(sources[0], out)
    states = [snapshot(out)]
    (sources[1] / "dog" / "broken.jpg").write_bytes(b"x")
    third = write_images(tmp_path / "third", range(50, 53), ("eel",))
    for source in (sources[1], third):
        convert(source, out, "--append", "--max-rejected", 1)
        states.append(snapshot(out))
    newest = {"revision": 2, "source": "third", "samples": {"train": 3}, "shards": 1, "classes": 3}
    assert json.loads(invoke("info", out, "--json").stdout)["revisions"][1] == newest
    line = "revision 1: train +8 from second, in 1 shard, 2 classes since then"
    assert line in invoke("info", out).stdout
    assert "3 samples were removed" in invoke("revert", out).stdout
    assert snapshot(out) == states[1]
    convert(third, out, "--append")
    assert snapshot(out) == states[2], "the same append gives the same bytes"
    invoke("revert", out)
    assert f"{out} is at revision 0" in invoke("revert", out).stdout
    assert snapshot(out) == states[0]
    assert "nothing was appended or joined to it" in invoke("revert", out, status=2).output


# Sources and options that an append refuses, with the message. The paths are made by the test.
MOVED = "cat/0000.jpg: the image is in the dataset in class cat, but here in class dog"
REFUSED = (
    ("second", ["--append", "--fmt", "webdataset"], "has the format"),
    ("second", ["--append", "--store", "raw"], "stores encoded images"),
    ("second", ["--append", "--overwrite"], "excludes --overwrite"),
    ("numbers.txt", ["--append"], "the classes are numbers, such as 3"),
    ("almost", ["--append"], "class Cat is almost the class cat"),
    ("moved.csv", ["--append", "--image-root", "first"], f"{MOVED}, and 2 other images"),
    ("almost", [], "which was not made from this source"),
)


def test_sources_and_options_that_are_refused(dataset, convert, snapshot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "almost", range(30), ("Cat",))
    (tmp_path / "numbers.txt").write_text("second/dog/0001.jpg 3\n")
    moved = [(f"cat/000{number}.jpg", "dog") for number in (0, 2, 4)]
    write_csv(tmp_path / "moved.csv", "path,label", [*moved, ("dog/0001.jpg", "dog")])
    before = snapshot(dataset)
    for source, options, message in REFUSED:
        call = (source, dataset, *options, "--samples-per-shard", 8)
        assert message in convert(*call, status=2).output
        assert snapshot(dataset) == before


def test_folders_that_are_refused(dataset, sources, convert, invoke, snapshot, tmp_path):
    output = convert(sources[1], tmp_path / "missing", "--append", status=2).output
    assert "is not a complete dataset (the folder " in output
    assert "Hint: check the path, or leave out --append to make a new dataset." in output
    assert "Hint: check the path." in invoke("revert", tmp_path / "missing", status=2).output
    output = invoke("convert", "--src", sources[1], "--append", status=2).output
    assert "is not a complete dataset" in output
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    output = convert(sources[0], tmp_path / "link", status=2).output
    assert f"is a link to {tmp_path / 'gone'}, which does not exist" in output
    before = snapshot(dataset)
    (dataset / "train-00003.tfrecord").write_bytes(b"another tool's")
    output = convert(sources[1], dataset, "--append", status=2).output
    assert "which is not in its manifest" in output
    (dataset / "train-00003.tfrecord").unlink()
    output = convert(sources[1], dataset, "--append", "--dry-run").output
    assert "train: 8 images" in output
    assert "1 shard to append" in output
    assert snapshot(dataset) == before


def test_work_and_finish_leave_an_appended_dataset_alone(
    sources, convert, invoke, snapshot, tmp_path
):
    out = tmp_path / "out"
    invoke("plan", "--src", sources[0], "--out", out)
    convert(sources[0], out)
    convert(sources[1], out, "--append")
    before = snapshot(out)
    work = ("work", out)
    plan = ("plan", "--src", sources[0], "--out", out)
    for command in ((*work, "--task", "0/1"), (*work, "--claim"), ("finish", out), plan):
        refused = invoke(*command, status=2).output
        assert "is at revision 1: images or columns were added to it" in refused
    assert snapshot(out) == before


def test_frames_of_many_videos(convert, monkeypatch, tmp_path):
    """Files of the same name in folders of the same name are compared by their whole paths."""
    monkeypatch.setattr("dataprep.run.known._MOST_PAIRS", 1)
    paths = [f"video {number}/frames/1.bmp" for number in range(8)]
    for number, path in enumerate(paths):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(encode(photo(number, 8, 8), "bmp"))
    for name, count in (("six", 6), ("all", 8)):
        rows = [(path, "cat") for path in paths[:count]]
        write_csv(tmp_path / f"{name}.csv", "path,label", rows)
    convert(tmp_path / "six.csv", tmp_path / "out")
    output = convert(tmp_path / "all.csv", tmp_path / "out", "--append").output
    assert "6 images of the source are in" in output
    assert len(rows_of(tmp_path / "out")) == 8


def table(folder: Path, columns: str, *values: object) -> Path:
    """Write a CSV with further columns about the first images of a folder."""
    images = zip(sorted(folder.rglob("*.jpg")), values, strict=False)
    rows = [(image, image.parent.name, value) for image, value in images]
    return write_csv(folder.parent / f"{folder.name}.csv", f"path,label,{columns}", rows)


@pytest.fixture
def refused(convert, sources, snapshot, tmp_path):
    """A function that converts a source, and checks that appending another one with options is refused."""

    def run(
        message: str, first: Path, *made: object, second: Path = sources[1], append: tuple = ()
    ) -> Path:
        out = tmp_path / f"out {message}"
        convert(first, out, *made)
        before = snapshot(out)
        assert message in convert(second, out, "--append", *append, status=2).output
        assert snapshot(out) == before
        return out

    return run


def test_columns_and_images_that_do_not_fit_what_is_stored(refused, sources, convert, tmp_path):
    """A column of the source is not mixed with one that options add; raw pixels are not resized."""
    first, second = sources
    message = "column age has the type large_string, but int64 in"
    ages = table(second, "age", "old", "young")
    out = refused(message, table(first, "age", 1, 2), second=ages)
    convert(table(second, "age,name", "0.5,a", "1.5,b"), out, "--append")
    convert(out, tmp_path / "again")
    assert sorted(row["age"] for row in rows_of(tmp_path / "again")) == [0.5, 1, 1.5, 2]
    message = "has a column 'perceptual_hash' that came with a source"
    hashes = table(first, "perceptual_hash", "a", "b")
    raw = ("--store", "raw", "--raw-size", 24)
    for out in (
        refused(message, hashes, append=("--hash",)),
        refused("stores raw pixels of 24x24", first, *raw, append=("--resize-shorter", 20)),
    ):
        convert(second, out, "--append")
        assert read_manifest(out).revision == 1


def test_known_images_in_another_split_are_named(sources, convert, snapshot, tmp_path):
    places = {
        "old": (("train", 0), ("train", 2), ("train", 4), ("val", 6), ("val", 4)),
        "new": (("val", 0), ("val", 2), ("val", 4), ("val", 6)),
    }
    for name, images in places.items():
        for split, number in images:
            path = tmp_path / name / split / "cat" / f"{number:04d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(sources[0] / "cat" / path.name, path)
    out = tmp_path / "out"
    convert(tmp_path / "old", out)
    before = snapshot(out)
    named = (
        f"2 images of the source are in {out} in another split, where they stay: val/cat/0000.jpg"
    )
    named += " is in train, not in val, ..."
    for option in ([], ["--dry-run"]):
        output = convert(tmp_path / "new", out, "--append", *option).output
        assert named in output
        assert "nothing to append: all 4 images" in output
    assert snapshot(out) == before
    shutil.copy(sources[0] / "cat" / "0008.jpg", tmp_path / "new" / "val" / "cat")
    output = convert(tmp_path / "new", out, "--append").output
    assert named in output
    assert "val: 1 sample" in output


# --- a source that has changed --------------------------------------------------------------------


def test_a_source_that_has_grown_is_not_a_damaged_shard(dataset, sources, convert, snapshot):
    write_images(sources[0], range(20, 24), PETS)
    before = snapshot(dataset)
    output = convert(sources[0], dataset, "--samples-per-shard", 8, status=2).output
    assert "the source has grown since: from 20 to 24 images. Hint: set --append" in output
    assert snapshot(dataset) == before
    output = convert(sources[0], dataset, "--append").output
    assert "20 images of the source are in" in output
    assert len(rows_of(dataset)) == 24


def test_too_few_new_images_for_another_split(dataset, sources, convert):
    write_images(sources[0], range(20, 22), PETS)
    append = (sources[0], dataset, "--append", "--val-fraction", 0.1)
    output = convert(*append).output
    assert "leaves a split empty, so the new images stay in the splits of the source" in output
    assert [row["split"] for row in rows_of(dataset)] == ["train"] * 22
    assert "nothing to append" in convert(*append).output


def test_an_image_that_could_not_be_read_is_tried_again(sources, convert, invoke, tmp_path):
    hidden, out = sources[0] / "cat" / "0000.jpg", tmp_path / "out"
    data = hidden.read_bytes()
    hidden.unlink()
    hidden.symlink_to(hidden.name)
    convert(sources[0], out, "--max-rejected", 1)
    assert json.loads((out / "rejected.jsonl").read_text())["reason"] == "unreadable"
    assert "nothing to append" in convert(sources[0], out, "--append").output
    hidden.unlink()
    hidden.write_bytes(data)
    convert(sources[0], out, "--append")
    assert len(rows_of(out)) == 20
    assert read_manifest(out).rejected is None
    invoke("verify", out, "--decode")
    assert "nothing to append" in convert(sources[0], out, "--append").output


@pytest.mark.parametrize(
    "made", [(), ("--resize-shorter", 16), ("--store", "raw", "--raw-size", 16)]
)
def test_removed_images_can_stay_and_new_ones_are_added(made, convert, invoke, tmp_path):
    source, out = write_images(tmp_path / "photos", range(8), PETS), tmp_path / "out"
    convert(source, out, *made)
    (source / "cat" / "0000.jpg").unlink()
    append = (source, out, "--append")
    refused = convert(*append, status=2).output
    assert "1 image removed (cat/0000.jpg)" in " ".join(refused.split())
    assert convert(*append, "--dry-run", status=2).output == refused
    output = convert(*append, "--keep-removed").output
    assert "removed images stay in the dataset" in " ".join(output.split())
    assert "nothing to append" in output
    write_images(source, range(50, 51), PETS)
    output = convert(*append, "--keep-removed").output
    assert "7 images of the source are in" in " ".join(output.split())
    assert [row["source"] for row in rows_of(out)[8:]] == ["cat/0050.jpg"]
    assert read_manifest(out).revision == 1
    invoke("verify", out, "--decode")


def test_one_source_of_a_merged_dataset(sources, convert, tmp_path):
    """The other source is not removed; paths in the dataset begin with the name of the source."""
    first, second = sources
    convert(first, tmp_path / "out", "--src", second)
    write_images(first, range(50, 51), PETS)
    (first / "dog" / "0001.jpg").rename(first / "cat" / "0001.jpg")
    output = convert(first, tmp_path / "out", "--append", status=2).output
    assert "1 image moved (dog/0001.jpg is now cat/0001.jpg). Hint" in " ".join(output.split())
    (first / "cat" / "0001.jpg").rename(first / "dog" / "0001.jpg")
    convert(first, tmp_path / "out", "--append")
