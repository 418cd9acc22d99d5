"""`convert --append`: a dataset gains a revision, and everything that was there stays as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.pictures import encode, photo

from dataprep.verification.verify import verify_dataset
from manifests.serialization import manifest_digest
from manifests.store import read_manifest, read_revision
from manifests.tables import read_table

FORMATS = ("tfrecord", "webdataset")


def write(folder: Path, numbers: range, classes: tuple[str, ...], first: int = 0) -> Path:
    for number in numbers:
        path = folder / classes[number % len(classes)] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(first + number, 40, 30)))
    return folder


def rows(out: Path) -> list[dict]:
    manifest = read_manifest(out)
    found = []
    for split in manifest.splits:
        for shard in split.shards:
            for row in read_table(str(out / shard.table.name)).to_pylist():
                found.append({**row, "split": split.name, "class": manifest.classes[row["label"]]})
    return found


@pytest.fixture
def sources(tmp_path) -> tuple[Path, Path]:
    """Two sources that share a class and a file name."""
    first = write(tmp_path / "first", range(20), ("cat", "dog"))
    return first, write(tmp_path / "second", range(1, 16, 2), ("ant", "dog"), first=500)


@pytest.fixture
def dataset(request, sources, convert, tmp_path) -> Path:
    """The first source, converted: to TFRecord, unless a test is parametrized with `IN_BOTH_FORMATS`."""
    out, fmt = tmp_path / "out", getattr(request, "param", "tfrecord")
    convert(sources[0], out, "--fmt", fmt, "--samples-per-shard", 8)
    return out


IN_BOTH_FORMATS = pytest.mark.parametrize("dataset", FORMATS, indirect=True)


@IN_BOTH_FORMATS
def test_old_files_keep_their_bytes_and_new_samples_follow(dataset, sources, convert, snapshot):
    before, old = snapshot(dataset), rows(dataset)
    (sources[1] / "fox").mkdir()
    (sources[1] / "fox" / "0.jpg").write_bytes(encode(photo(99, 40, 30)))
    output = convert(sources[1], dataset, "--append").output
    after, manifest = snapshot(dataset), read_manifest(dataset)
    assert {name: data for name, data in after.items() if name in before} | {
        "manifest.json": b""
    } == {**before, "manifest.json": b""}
    assert after["manifest.0.json"] == before["manifest.json"]
    assert manifest.revisions[0].parent == manifest_digest(before["manifest.json"])
    assert manifest.classes == ("cat", "dog", "fox"), "a class without images is not added"
    assert rows(dataset)[: len(old)] == old
    new = rows(dataset)[len(old) :]
    assert sorted((row["source"], row["class"]) for row in new) == [
        *[(f"dog/{number:04d}.jpg", "dog") for number in range(1, 16, 2)],
        ("fox/0.jpg", "fox"),
    ]
    assert len({row["key"] for row in rows(dataset)}) == len(old) + 9
    assert verify_dataset(str(dataset), decode=True, workers=1).problems == ()
    assert "train: 9 samples" in output
    assert "1 new class: fox" in output
    assert f"{dataset} is at revision 1: 29 samples in 3 classes" in output
    assert read_revision(dataset, 0).splits[0].samples == 20


def test_appending_the_same_source_again_adds_nothing(dataset, sources, convert, invoke, snapshot):
    (sources[1] / "dog" / "broken.jpg").write_bytes(b"")
    append = ["convert", "--src", sources[1], "--out", dataset, "--append", "--max-rejected", 1]
    invoke(*append)
    convert(write(sources[0].parent / "third", range(50, 53), ("eel",)), dataset, "--append")
    before = snapshot(dataset)
    assert json.loads(before["rejected.1.jsonl"])["source"] == "dog/broken.jpg"
    output = invoke(*append).output
    assert (
        f"nothing to append: all 9 images of the source are in {dataset} since revision 1, or"
        " rejected then\n" in output
    )
    output = convert(sources[0], dataset, "--append").output
    assert (
        f"nothing to append: all 20 images of the source are in {dataset} since revision 0, or"
        " rejected then\n" in output
    )
    assert snapshot(dataset) == before


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


@pytest.mark.parametrize(
    "options", [[], ["--resize-shorter", 20], ["--store", "raw", "--raw-size", 16]]
)
def test_a_source_that_has_grown_adds_only_its_new_images(
    options, sources, convert, invoke, tmp_path
):
    out = tmp_path / "out"
    convert(sources[0], out, *options)
    same_path = sources[0] / "cat" / "0002.jpg"
    write(sources[0], range(20, 23), ("cat", "dog"))
    data = encode(photo(7777, 40, 30))
    before = same_path.read_bytes()
    same_path.write_bytes(data)
    append = ["convert", "--src", sources[0], "--out", out, "--append"]
    assert "1 image replaced (cat/0002.jpg)" in invoke(*append, status=2).output
    same_path.write_bytes(before)
    assert f"20 images of the source are in {out} already" in invoke(*append).output
    new = rows(out)[20:]
    assert sorted(row["source"] for row in new) == ["cat/0020.jpg", "cat/0022.jpg", "dog/0021.jpg"]
    same_path.unlink()
    output = invoke(*append, "--keep-removed").output
    assert "nothing to append: all 22 images" in output
    assert read_manifest(out).revision == 1
    assert verify_dataset(str(out), workers=1).problems == ()


def test_options_that_are_not_given_are_those_of_the_dataset(sources, convert, tmp_path):
    out = tmp_path / "out"
    convert(sources[0], out, "--fmt", "webdataset", "--samples-per-shard", 6, "--seed", 5)
    convert(sources[1], out, "--append", "--seed", 6)
    options = read_manifest(out).revisions[0].options
    assert (options["fmt"], options["shard_samples"], options["seed"]) == ("webdataset", 6, 6)
    names = [shard.name for shard in read_manifest(out).splits[0].shards]
    assert names == [f"train-{number:05d}.tar" for number in range(6)]


def test_new_splits(sources, convert, tmp_path):
    out = tmp_path / "out"
    convert(sources[0], out, "--val-fraction", 0.2)
    second = tmp_path / "splits"
    for split in ("test", "val"):
        shutil.copytree(sources[1], second / split)
    output = convert(second, out, "--append").output
    assert "made with --val-fraction" in output
    manifest = read_manifest(out)
    assert [(split.name, split.samples, len(split.shards)) for split in manifest.splits] == [
        ("train", 16, 1),
        ("val", 12, 2),
        ("test", 8, 1),
    ]
    assert verify_dataset(str(out), workers=1).problems == ()


@pytest.mark.parametrize("fmt", FORMATS)
def test_revert(fmt, sources, convert, invoke, snapshot, tmp_path):
    out = tmp_path / "out"
    convert(sources[0], out, "--fmt", fmt)
    states = [snapshot(out)]
    (sources[1] / "dog" / "broken.jpg").write_bytes(b"x")
    for source in (sources[1], write(tmp_path / "third", range(50, 53), ("eel",))):
        convert(source, out, "--append", "--max-rejected", 1)
        states.append(snapshot(out))
    assert json.loads(invoke("info", out, "--json").stdout)["revisions"][1] == {
        "revision": 2,
        "source": "third",
        "samples": {"train": 3},
        "shards": 1,
        "classes": 3,
    }
    assert (
        "revision 1: train +8 from second, in 1 shard, 2 classes since then"
        in invoke("info", out).stdout
    )
    assert "3 samples were removed" in invoke("revert", out).stdout
    assert snapshot(out) == states[1]
    convert(tmp_path / "third", out, "--append")
    assert snapshot(out) == states[2], "the same append gives the same bytes"
    invoke("revert", out)
    assert f"{out} is at revision 0" in invoke("revert", out).stdout
    assert snapshot(out) == states[0]
    assert "nothing was appended to it" in invoke("revert", out, status=2).output


def test_an_interrupted_append_can_be_removed(
    dataset, sources, convert, invoke, snapshot, monkeypatch
):
    before = snapshot(dataset)
    append = ["convert", "--src", sources[1], "--out", dataset, "--append"]

    def stop(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.convert.finish_append", stop)
        invoke(*append, status=3)
    assert ".dataprep/journal.json" in snapshot(dataset)
    problems = verify_dataset(str(dataset), workers=1).problems
    assert [problem.file for problem in problems] == [".dataprep/journal.json"]
    other = write(sources[0].parent / "third", range(50, 53), ("eel",))
    output = convert(other, dataset, "--append", status=2).output
    assert "another append" in output
    assert "what an interrupted append wrote was removed" in invoke("revert", dataset).stdout
    assert snapshot(dataset) == before


@IN_BOTH_FORMATS
def test_conversion_without_append_keeps_an_appended_dataset(dataset, sources, invoke, snapshot):
    fmt = read_manifest(dataset).format
    convert = [
        "convert",
        "--src",
        sources[0],
        "--out",
        dataset,
        "--fmt",
        fmt,
        "--samples-per-shard",
        8,
    ]
    made = snapshot(dataset)
    invoke("convert", "--src", sources[1], "--out", dataset, "--append")
    before = snapshot(dataset)
    output = invoke(*convert, status=2).output
    assert "is at revision 1: images were appended to it" in output
    assert snapshot(dataset) == before
    invoke(*convert, "--overwrite")
    assert snapshot(dataset) == made


# Sources and options that an append refuses, with the message. The paths are made by the test.
REFUSED = {
    "format": ("second", ["--append", "--fmt", "webdataset"], "has the format"),
    "store": ("second", ["--append", "--store", "raw"], "stores encoded images"),
    "overwrite": ("second", ["--append", "--overwrite"], "excludes --overwrite"),
    "numbers": ("numbers.txt", ["--append"], "the classes are numbers, such as 3"),
    "case": ("almost", ["--append"], "class Cat is almost the class cat"),
    "labels": (
        "moved.csv",
        ["--append", "--image-root", "first"],
        "cat/0000.jpg: the image is in the dataset in class cat, but here in class dog, and 2 other"
        " images",
    ),
    "another source": ("almost", [], "which was not made from this source"),
}


@pytest.mark.parametrize(("source", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_sources_and_options_that_are_refused(
    source, options, message, dataset, sources, convert, snapshot, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "almost", range(30), ("Cat",))
    (tmp_path / "numbers.txt").write_text("second/dog/0001.jpg 3\n")
    moved = ["path,label", *(f"cat/000{number}.jpg,dog" for number in (0, 2, 4))]
    (tmp_path / "moved.csv").write_text("\n".join([*moved, "dog/0001.jpg,dog\n"]))
    before = snapshot(dataset)
    options = [*options, "--samples-per-shard", 8]
    assert message in convert(source, dataset, *options, status=2).output
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


@IN_BOTH_FORMATS
def test_a_prepared_dataset_can_be_appended(dataset, sources, convert, invoke, tmp_path):
    convert(sources[1], tmp_path / "other", "--fmt", "tfrecord")
    append = ["convert", "--src", tmp_path / "other", "--out", dataset, "--append"]
    invoke(*append)
    assert {row["source"] for row in rows(dataset)[20:]} == {
        row["source"] for row in rows(tmp_path / "other")
    }
    assert verify_dataset(str(dataset), decode=True, workers=1).problems == ()
    assert "nothing to append: all 8 images" in invoke(*append).output
    # The same images, but as files.
    output = convert(sources[1], dataset, "--append").output
    assert "nothing to append: all 8 images" in output
    assert read_manifest(dataset).revision == 1


def test_a_list_of_shards_for_each_revision(
    sources, convert, invoke, snapshot, monkeypatch, tmp_path
):
    for module in ("manifests.store", "manifests.tables", "dataprep.plan.assign"):
        monkeypatch.setattr(f"{module}.MAX_SHARDS_IN_JSON", 3)
    out = tmp_path / "out"
    convert(sources[0], out, "--samples-per-shard", 4)
    before = snapshot(out)
    convert(sources[1], out, "--append")
    after = snapshot(out)
    assert after["manifest.shards.parquet"] == before["manifest.shards.parquet"]
    assert "manifest.shards.1.parquet" in after
    assert [read_revision(out, number).splits[0].samples for number in (0, 1)] == [20, 28]
    assert verify_dataset(str(out), workers=1).problems == ()
    invoke("revert", out)
    assert snapshot(out) == before


def test_work_and_finish_leave_an_appended_dataset_alone(
    sources, convert, invoke, snapshot, tmp_path
):
    out = tmp_path / "out"
    invoke("plan", "--src", sources[0], "--out", out)
    invoke("work", out, "--task", "0/1")
    invoke("finish", out)
    convert(sources[1], out, "--append")
    before = snapshot(out)
    for command in (["work", out, "--task", "0/1"], ["work", out, "--claim"], ["finish", out]):
        assert "is at revision 1: images were appended to it" in invoke(*command, status=2).output
    assert "is at revision 1" in invoke("plan", "--src", sources[0], "--out", out, status=2).output
    assert snapshot(out) == before


def test_labels_of_several_classes_are_numbered_as_in_the_dataset(
    sources, convert, invoke, tmp_path
):
    for name, lines in (
        ("a", ["cat/0000.jpg,cat|red", "dog/0001.jpg,dog"]),
        ("b", ["cat/0002.jpg,blue|cat|red"]),
    ):
        table = "\n".join(["path,label", *lines])
        (sources[0] / f"{name}.csv").write_text(table + "\n")
    out, options = tmp_path / "out", ["--label-type", "multi-label", "--label-separator", "|"]
    convert(sources[0] / "a.csv", out, *options)
    convert(sources[0] / "b.csv", out, "--append", *options)
    both = [*options, "--out", tmp_path / "both"]
    invoke("convert", "--src", sources[0] / "a.csv", "--src", sources[0] / "b.csv", *both)
    for folder in (out, tmp_path / "both"):
        manifest = read_manifest(folder)
        assert manifest.classes == ("cat", "dog", "red", "blue")
        found = {}
        for shard in manifest.splits[0].shards:
            for row in read_table(
                str(folder / shard.table.name), label_type="multi-label"
            ).to_pylist():
                found[row["source"]] = {manifest.classes[label] for label in row["labels"]}
        assert found == {
            "cat/0000.jpg": {"cat", "red"},
            "dog/0001.jpg": {"dog"},
            "cat/0002.jpg": {"blue", "cat", "red"},
        }
        assert verify_dataset(str(folder), workers=1).problems == ()
    output = convert(sources[1], out, "--append", status=2).output
    assert "has the label type multi-label" in output


@pytest.mark.parametrize("options", [[], ["--resize-shorter", 20]])
def test_images_are_known_whatever_else_was_given_as_source(
    options, sources, convert, invoke, tmp_path
):
    """The path in the column ``source`` depends on the other sources: `first/cat/0000.jpg` or `cat/0000.jpg`."""
    first, second = sources
    invoke("convert", "--src", first, "--src", second, "--out", tmp_path / "both", *options)
    write(first, range(20, 22), ("cat", "dog"))
    output = convert(first, tmp_path / "both", "--append").output
    assert "20 images of the source are in" in output
    convert(second, tmp_path / "one", *options)
    append = ["convert", "--src", first, "--src", second, "--out", tmp_path / "one", "--append"]
    assert "8 images of the source are in" in invoke(*append).output
    assert "nothing to append: all 30 images" in invoke(*append).output
    assert len(rows(tmp_path / "one")) == len(rows(tmp_path / "both")) == 30


def test_frames_of_many_videos(convert, monkeypatch, tmp_path):
    """Files of the same name in folders of the same name are compared by their whole paths."""
    monkeypatch.setattr("dataprep.run.known._MOST_PAIRS", 1)
    lines = ["path,label"]
    for number in range(8):
        path = f"video {number}/frames/1.bmp"
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(encode(photo(number, 8, 8), "bmp"))
        lines.append(f"{path},cat")
    (tmp_path / "six.csv").write_text("\n".join(lines[:7]) + "\n")
    (tmp_path / "all.csv").write_text("\n".join(lines) + "\n")
    convert(tmp_path / "six.csv", tmp_path / "out")
    output = convert(tmp_path / "all.csv", tmp_path / "out", "--append").output
    assert "6 images of the source are in" in output
    assert len(rows(tmp_path / "out")) == 8


def table(path: Path, folder: Path, columns: dict[str, list]) -> Path:
    """Write a CSV with some columns about the first images of a folder."""
    images = sorted(folder.rglob("*.jpg"))
    lines = [",".join(["path", "label", *columns])]
    lines += [
        f"{image},{image.parent.name},{','.join(map(str, values))}"
        for image, values in zip(images, zip(*columns.values(), strict=True), strict=False)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_of_another_type_are_refused(sources, convert, snapshot, tmp_path):
    out = tmp_path / "out"
    convert(table(tmp_path / "ages.csv", sources[0], {"age": [1, 2]}), out)
    before = snapshot(out)
    texts = table(tmp_path / "texts.csv", sources[1], {"age": ["old", "young"]})
    output = convert(texts, out, "--append", status=2).output
    assert "column age has the type large_string, but int64 in" in output
    assert snapshot(out) == before
    halves = table(tmp_path / "halves.csv", sources[1], {"age": [0.5, 1.5], "name": ["a", "b"]})
    convert(halves, out, "--append")
    convert(out, tmp_path / "again")
    ages = {row["source"]: row["age"] for row in rows(tmp_path / "again")}
    assert sorted(ages.values()) == [0.5, 1, 1.5, 2]


def test_a_column_of_the_source_is_not_mixed_with_one_that_options_add(
    sources, convert, snapshot, tmp_path
):
    out = tmp_path / "out"
    foreign = table(tmp_path / "foreign.csv", sources[0], {"perceptual_hash": ["a", "b"]})
    convert(foreign, out)
    before = snapshot(out)
    output = convert(sources[1], out, "--append", "--hash", status=2).output
    assert "has a column 'perceptual_hash' that came with a source" in output
    assert snapshot(out) == before
    convert(sources[1], out, "--append")


def test_raw_pixels_are_not_resized(sources, convert, invoke, snapshot, tmp_path):
    out = tmp_path / "out"
    convert(sources[0], out, "--store", "raw", "--raw-size", 24)
    before = snapshot(out)
    append = ["convert", "--src", sources[1], "--out", out, "--append"]
    assert "stores raw pixels of 24x24" in invoke(*append, "--resize-shorter", 20, status=2).output
    assert snapshot(out) == before
    invoke(*append)
    assert len(read_manifest(out).revisions) == 1


def test_an_image_in_two_classes_stays_known(sources, convert, invoke, tmp_path):
    out = tmp_path / "out"
    first = sorted(sources[0].rglob("*.jpg"))[0]
    other = tmp_path / "other" / "cat" / first.name
    other.parent.mkdir(parents=True)
    shutil.copy(first, other)
    (tmp_path / "twice.csv").write_text(f"path,label\n{first},cat\n{other},dog\n")
    (tmp_path / "moved.csv").write_text(f"path,label\n{first},fox\n")
    convert(tmp_path / "twice.csv", out)
    append = ["convert", "--out", out, "--append", "--src"]
    with (tmp_path / "twice.csv").open("a") as file:
        file.write(f"{sources[1]}/dog/0003.jpg,dog\n")
    assert "2 images of the source are in" in invoke(*append, tmp_path / "twice.csv").output
    assert len(rows(out)) == 3
    assert "but here in class fox" in invoke(*append, tmp_path / "moved.csv", status=2).output


def test_known_images_in_another_split_are_named(sources, convert, invoke, snapshot, tmp_path):
    first = sources[0]
    for split, number in (("train", 0), ("train", 2), ("train", 4), ("val", 6), ("val", 4)):
        path = tmp_path / "old" / split / "cat" / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(first / "cat" / path.name, path)
    out = tmp_path / "out"
    convert(tmp_path / "old", out)
    before = snapshot(out)
    for split, number in (("val", 0), ("val", 2), ("val", 4), ("val", 6)):
        path = tmp_path / "new" / split / "cat" / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(first / "cat" / path.name, path)
    append = ["convert", "--src", tmp_path / "new", "--out", out, "--append"]
    named = (
        f"2 images of the source are in {out} in another split, where they stay: val/cat/0000.jpg"
        " is in train, not in val, ..."
    )
    for option in ([], ["--dry-run"]):
        output = invoke(*append, *option).output
        assert named in output
        assert "nothing to append: all 4 images" in output
    assert snapshot(out) == before
    shutil.copy(first / "cat" / "0008.jpg", tmp_path / "new" / "val" / "cat")
    output = invoke(*append).output
    assert named in output
    assert "val: 1 sample" in output


@pytest.mark.parametrize(
    "options", [["--val-fraction", 0.3, "--test-fraction", 0.2], ["--duplicates", "same-split"]]
)
def test_splits_that_options_made_are_not_named(options, sources, convert, tmp_path):
    first = sources[0]
    if "--duplicates" in options:
        for split in ("train", "val"):
            shutil.copytree(sources[0], tmp_path / "both" / split)
        first = tmp_path / "both"
    out = tmp_path / "out"
    convert(first, out, *options)
    write(first if first == sources[0] else first / "train", range(20, 22), ("cat", "dog"))
    output = convert(first, out, "--append").output
    assert "are in" in output
    assert "another split" not in output


# --- a source that has changed --------------------------------------------------------------------


def test_a_source_that_has_grown_is_not_a_damaged_shard(dataset, sources, convert, snapshot):
    write(sources[0], range(20, 24), ("cat", "dog"))
    manifest, before = read_manifest(dataset), snapshot(dataset)
    options = ("--fmt", manifest.format, "--samples-per-shard", 8)
    output = convert(sources[0], dataset, *options, status=2).output
    assert "the source has grown since: from 20 to 24 images. Hint: set --append" in output
    assert snapshot(dataset) == before
    output = convert(sources[0], dataset, "--append").output
    assert "20 images of the source are in" in output
    assert len(rows(dataset)) == 24


def test_append_has_the_output_folder_of_convert(sources, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("convert", "--src", "first")
    write(sources[0], range(20, 24), ("cat", "dog"))
    invoke("convert", "--src", "first", "--append")
    assert len(rows(tmp_path / "first-tfrecord")) == 24


def test_too_few_new_images_for_another_split(dataset, sources, invoke):
    write(sources[0], range(20, 22), ("cat", "dog"))
    append = ("convert", "--src", sources[0], "--out", dataset, "--append", "--val-fraction", 0.1)
    output = invoke(*append).output
    assert "leaves a split empty, so the new images stay in the splits of the source" in output
    assert [row["split"] for row in rows(dataset)] == ["train"] * 22
    assert "nothing to append" in invoke(*append).output


def test_an_image_that_could_not_be_read_is_tried_again(
    sources, convert, invoke, tmp_path, monkeypatch
):
    hidden, out = sources[0] / "cat" / "0000.jpg", tmp_path / "out"
    data = hidden.read_bytes()
    hidden.unlink()
    hidden.symlink_to(hidden.name)
    convert(sources[0], out, "--max-rejected", 1)
    append = ("convert", "--src", sources[0], "--out", out, "--append")
    rejected = [json.loads(line) for line in (out / "rejected.jsonl").read_text().splitlines()]
    assert [row["reason"] for row in rejected] == ["unreadable"]
    assert "nothing to append" in invoke(*append).output
    hidden.unlink()
    hidden.write_bytes(data)
    invoke(*append)
    assert len(rows(out)) == 20
    assert read_manifest(out).rejected is None
    assert verify_dataset(str(out), workers=1).problems == ()
    assert "nothing to append" in invoke(*append).output
