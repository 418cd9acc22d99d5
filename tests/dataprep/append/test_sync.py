"""`sync`: a dataset becomes what its source is now."""

from __future__ import annotations

import shutil

import pytest
from helpers.datasets import rows_of, write_csv, write_images

from manifests.store import read_manifest

PETS = ("cat", "dog")
KEPT = ("source", "class", "split", "crc32c", "size", "width", "height")


@pytest.fixture
def sync(invoke, snapshot, tmp_path):
    """Sync a dataset with ``tmp_path / "photos"``; a dry run, and one that is refused, changes nothing."""

    def run(*more: object, status: int = 0, src=tmp_path / "photos", **texts: str) -> str:
        before = snapshot(tmp_path / "out")
        arguments = ("sync", tmp_path / "out", "--src", src, *more)
        dry = invoke(*arguments, "--dry-run", status=status).stdout
        assert snapshot(tmp_path / "out") == before
        output = invoke(*arguments, status=status).output
        for kind, paths in texts.items():
            assert f"{kind}: {paths}" in dry
            assert f"{kind}: {paths}" in output
        if status or "nothing changed" in output:
            assert snapshot(tmp_path / "out") == before
        return " ".join(output.split())

    return run


def samples_of(dataset, *more: str) -> list[tuple]:
    return sorted(tuple(row[name] for name in (*KEPT, *more)) for row in rows_of(dataset))


OPTIONS = {
    "tfrecord": [],
    "webdataset": ["--fmt", "webdataset", "--duplicates", "drop"],
    "resized": ["--resize-shorter", 16],
    "filtered": ["--where", "path not like '%3.jpg'"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_samples_are_those_of_a_new_conversion(name, sync, convert, invoke, tmp_path):
    source, out, options = tmp_path / "photos", tmp_path / "out", OPTIONS[name]
    convert(write_images(source, range(40), PETS), out, "--samples-per-shard", 15, *options)
    assert "nothing changed" in sync()
    write_images(source, (40, 43), PETS)
    shutil.copy(source / "cat/0002.jpg", source / "cat/copy.jpg")
    (source / "cat/0004.jpg").unlink()
    (source / "cat/0006.jpg").rename(source / "dog/0006.jpg")
    write_images(source, (8,), PETS, first=700)
    (source / "cat/broken.jpg").write_bytes(b"<html>")
    output = sync(moved="1, such as dog/0006.jpg", replaced="1, such as cat/0008.jpg",
                  vanished="1, such as cat/0004.jpg", rejected="1, such as cat/broken.jpg")  # fmt: skip
    assert f"{out} is at revision 2: " in output
    convert(source, tmp_path / "fresh", *options, "--max-rejected", 1)
    assert samples_of(out) == samples_of(tmp_path / "fresh")
    invoke("verify", out)
    assert "nothing changed" in sync()
    # As after a kill between the two revisions.
    invoke("revert", out)
    assert len(rows_of(out)) < len(rows_of(tmp_path / "fresh"))
    sync()
    assert samples_of(out) == samples_of(tmp_path / "fresh")


def test_labels_splits_and_columns_of_a_table(sync, convert, tmp_path):
    write_images(tmp_path, range(8), PETS)
    table = tmp_path / "table.csv"

    def write(**changed: str) -> None:
        rows = []
        for number in range(8):
            row = {"path": f"{PETS[number % 2]}/{number:04}.jpg", "label": "x", "split": "train"}
            row |= {"score": number / 2, **(changed if number == 5 else {})}
            rows.append(row.values())
        write_csv(table, "path,label,split,score", rows)

    write()
    convert(table, tmp_path / "out")
    assert "nothing changed" in sync(src=table)
    for changed in ({"score": "9.25"}, {"label": "new"}, {"split": "val"}):
        write(**changed)
        if "score" in changed:
            sync(src=table, moved="1, such as dog/0005.jpg")
        else:
            assert "1 relabelled" in sync(src=table, status=2)
            sync("--max-removed", 0.2, src=table, relabelled="1, such as dog/0005.jpg")
        assert "nothing changed" in sync(src=table)
        convert(table, tmp_path / "fresh", "--overwrite")
        assert samples_of(tmp_path / "out", "score") == samples_of(tmp_path / "fresh", "score")


def test_removed_samples_stay_out_and_splits_stay(sync, convert, invoke, tmp_path):
    source, out = tmp_path / "photos", tmp_path / "out"
    convert(write_images(source, range(40), PETS), out, "--val-fraction", 0.2)
    (tmp_path / "gone").write_text("cat/0000.jpg")
    invoke("remove", out, "--sources", tmp_path / "gone")
    assert "removed before: 1, such as cat/0000.jpg" in sync()
    (source / "cat/0000.jpg").rename(source / "dog/0000.jpg")
    assert "nothing changed" in sync(**{"removed before": "1, such as dog/0000.jpg"})
    assert read_manifest(out).revision == 1


def test_too_many_vanished_samples_are_refused(sync, convert, tmp_path):
    source = write_images(tmp_path / "photos", range(20), PETS)
    convert(source, tmp_path / "out")
    for name in ("cat/0000.jpg", "dog/0001.jpg"):
        (source / name).unlink()
    refused = sync(status=2)
    assert "2 vanished" in refused
    assert "raise --max-removed" in refused
    shutil.copytree(source, tmp_path / "other")
    (source / "cat").rename(source / "lion")
    (source / "dog").rename(source / "wolf")
    for more in ((), ("--max-removed", 1)):
        refused = sync(*more, status=2)
        assert "paths of all images are others now" in refused
        assert "no value permits to remove every sample" in refused
    sync("--max-removed", "10%", src=tmp_path / "other", vanished="2")
    assert len(rows_of(tmp_path / "out")) == 18


def test_a_forgotten_option_relabels_nothing(sync, convert, tmp_path):
    (tmp_path / "names.csv").write_text("cat,Katze\n")
    names = ("--rename-classes", tmp_path / "names.csv")
    convert(write_images(tmp_path / "photos", range(20), PETS), tmp_path / "out", *names)
    refused = sync(status=2)
    assert "10 relabelled" in refused
    assert "options that say how to read it are those of the conversion" in refused
    assert "nothing changed" in sync(*names)


def test_what_is_refused(sync, convert, invoke, tmp_path):
    source, out = tmp_path / "photos", tmp_path / "out"
    divided = ("--split-by", "duplicates", "--val-fraction", 0.5)
    convert(write_images(source, range(8), PETS), out, *divided)
    assert "a dataset with --split-by" in sync(status=2)
    convert(source, out, "--overwrite")
    more = write_images(tmp_path / "b", range(8, 10), PETS)
    convert(more, out, "--append", "--resize-shorter", 9)
    assert "revisions with another downscale" in sync(status=2)
    invoke("revert", out)
    write_csv(tmp_path / "scores.csv", "source,score", [("cat/0000.jpg", 1)])
    invoke("join", out, tmp_path / "scores.csv", "--on", "source", "--missing", "null")
    assert "a dataset with joined columns cannot be synced" in sync(status=2)
    invoke("revert", out)
    table = write_csv(tmp_path / "b.csv", "path,score", [("b/cat/0008.jpg", 1)])
    assert f"dataprep: {out} has the label type class, but" in sync(src=table, status=2)
