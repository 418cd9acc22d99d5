"""The part of `dataprep report` about images that look alike, on photographs with copies of every kind."""

from __future__ import annotations

import json

import pytest
from helpers.photographs import photograph
from helpers.pictures import encode
from PIL import Image

from dataprep.report import copies as near
from dataprep.report.columns import read_columns
from dataprep.report.copies import find_near
from manifests.store import read_manifest

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture
def dataset(invoke, tmp_path):
    """Ten photographs in train.

    In val another one, a smaller and a mirrored copy, and one with the same bytes.
    """
    root = tmp_path / "photos"
    for split in ("train", "val"):
        for name in "ab":
            (root / split / name).mkdir(parents=True)
    photographs = [Image.fromarray(photograph(name)) for name in ("astronaut", "chelsea", "coffee")]
    crops = [
        (photo, x, y) for x, y in ((0, 0), (200, 0), (0, 140), (200, 140)) for photo in photographs
    ]
    pictures = [photo.crop((x, y, x + 200, y + 140)) for photo, x, y in crops][:11]
    for number, picture in enumerate(pictures[:10]):
        (root / "train" / "ab"[number % 2] / f"{number}.jpg").write_bytes(
            encode(picture, quality=90)
        )
    (root / "val/a/other.jpg").write_bytes(encode(pictures[10]))
    (root / "val/a/half.jpg").write_bytes(encode(pictures[0].resize((100, 70))))
    (root / "val/a/mirrored.jpg").write_bytes(
        encode(pictures[1].transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    )
    (root / "val/a/same.jpg").write_bytes((root / "train/a/2.jpg").read_bytes())

    def convert(*options):
        invoke("convert", "--src", root, "--out", tmp_path / "out", *options)
        return tmp_path / "out"

    return convert


def report(invoke, dataset, tmp_path):
    result = invoke("report", dataset, "--out", tmp_path / "r.html")
    return (
        json.loads((tmp_path / "r.json").read_text()),
        (tmp_path / "r.html").read_text(),
        result.stdout,
    )


def test_leaks_and_conflicts(invoke, dataset, tmp_path):
    data, page, output = report(invoke, dataset("--hash"), tmp_path)
    found = data["copies"]["near"]
    assert (found["pairs"], found["conflicting"], found["hashed"], found["note"]) == (2, 1, 14, "")
    assert found["leaked"] == {"val in train": 2}, (
        "the copy with the same bytes is counted elsewhere"
    )
    assert data["copies"]["leaked"] == {"val in train": 1}
    pairs = [sorted(image["source"] for image in group["images"]) for group in found["shown"]]
    assert pairs == [["train/b/1.jpg", "val/a/mirrored.jpg"], ["train/a/0.jpg", "val/a/half.jpg"]]
    assert found["shown"][0]["note"].endswith("differ, mirrored")
    assert "problem: 2 images of val look like images of train" in output
    assert "1 pair of images that look alike has different labels" in output
    assert "differ, mirrored" in page
    assert 'href="#near"' in page


def test_labels_are_the_numbers_of_classes(invoke, tmp_path):
    """Labels that are not classes are shown in groups, which the numbers of a pair refer to."""
    lines = ["path,labels"]
    pictures = [
        Image.fromarray(photograph(name)).resize((200, 150)) for name in ("astronaut", "coffee")
    ]
    for number, (picture, quality, labels) in enumerate(
        [
            (pictures[0], 90, "b|c"),
            (pictures[1], 90, "c"),
            (pictures[0], 60, "a"),
            (pictures[1], 60, "c"),
        ]
    ):
        (tmp_path / f"{number}.jpg").write_bytes(encode(picture, quality=quality))
        lines.append(f"{number}.jpg,{labels}")
    (tmp_path / "tags.csv").write_text("\n".join(lines) + "\n")
    options = ("--label-type", "multi-label", "--no-shuffle", "--hash")
    invoke("convert", "--src", tmp_path / "tags.csv", "--out", tmp_path / "out", *options)
    data, _, _ = report(invoke, tmp_path / "out", tmp_path)
    names = [
        [data["classes"][label]["name"] for label in group["labels"]]
        for group in data["copies"]["near"]["shown"]
    ]
    assert names == [["a", "b"], ["c"]]


def test_hashes_that_duplicates_stored(invoke, dataset, tmp_path):
    out = dataset()
    invoke("duplicates", out, status=1)
    found = report(invoke, out, tmp_path)[0]["copies"]["near"]
    assert (found["pairs"], found["conflicting"], found["hashed"], found["note"]) == (2, 1, 14, "")


def test_without_hashes(invoke, dataset, tmp_path):
    data, page, _ = report(invoke, dataset(), tmp_path)
    assert data["copies"]["near"]["pairs"] == 0
    assert "--hash" in data["copies"]["near"]["note"]
    assert "dataprep duplicates" in page


def test_a_damaged_table(invoke, dataset, tmp_path):
    out = dataset("--hash")
    (out / "val-00000.parquet").write_bytes(b"nothing")
    invoke("report", out, "--out", tmp_path / "r.html", status=1)
    note = json.loads((tmp_path / "r.json").read_text())["copies"]["near"]["note"]
    assert note.startswith("Images that look alike were not looked for: ")


@pytest.mark.parametrize(
    ("limit", "pairs", "word"), [(150, 2, "different splits"), (10, 0, "too many images")]
)
def test_too_many_images(monkeypatch, dataset, limit, pairs, word):
    out = dataset("--hash")
    monkeypatch.setattr(near, "_MAX_COMPARISONS", limit)
    manifest = read_manifest(out)
    found = find_near(str(out), manifest, read_columns(str(out), manifest)[0], workers=1)
    assert found.pairs == pairs
    assert word in found.note
