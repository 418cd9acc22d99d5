"""The part of `dataprep report` about images that look alike, on photographs with copies of every kind."""

from __future__ import annotations

import json

import pytest
from helpers.datasets import write_csv
from helpers.photographs import photograph
from helpers.pictures import encode
from PIL import Image

from dataprep.report import copies as near
from dataprep.report.columns import read_columns
from dataprep.report.copies import find_near
from manifests.store import read_manifest

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Ten photographs in train; another one and three copies of them in val."""
    root = tmp_path_factory.mktemp("near") / "photos"
    photographs = [Image.fromarray(photograph(name)) for name in ("astronaut", "chelsea", "coffee")]
    corners = [(0, 0), (200, 0), (0, 140), (200, 140)]
    pictures = [photo.crop((x, y, x + 200, y + 140)) for x, y in corners for photo in photographs]
    files = {}
    for number, picture in enumerate(pictures[:10]):
        files[f"train/{'ab'[number % 2]}/{number}.jpg"] = encode(picture, quality=90)
    files["val/a/other.jpg"] = encode(pictures[10])
    files["val/a/half.jpg"] = encode(pictures[0].resize((100, 70)))
    files["val/a/mirrored.jpg"] = encode(pictures[1].transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    files["val/a/same.jpg"] = files["train/a/2.jpg"]
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def report(invoke, out, tmp_path):
    """A function that makes a report, and returns its JSON, the page and what the command says."""

    def make(status=0):
        result = invoke("report", out, "--out", tmp_path / "r.html", status=status)
        data, page = ((tmp_path / f"r.{suffix}").read_text() for suffix in ("json", "html"))
        return json.loads(data), page, result.stdout

    return make


def test_leaks_and_conflicts(source, out, convert, report):
    convert(source, out, "--hash")
    data, page, output = report()
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
    manifest = read_manifest(out)
    columns = read_columns(str(out), manifest)[0]
    for limit, pairs, word in ((150, 2, "different splits"), (10, 0, "too many images")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(near, "_MAX_COMPARISONS", limit)
            few = find_near(str(out), manifest, columns, workers=1)
        assert few.pairs == pairs
        assert word in few.note
    (out / "val-00000.parquet").write_bytes(b"nothing")
    note = report(status=1)[0]["copies"]["near"]["note"]
    assert note.startswith("Images that look alike were not looked for: ")


def test_labels_are_the_numbers_of_classes(out, convert, report, tmp_path):
    """Labels that are not classes are shown in groups, which the numbers of a pair refer to."""
    rows = [("0.jpg", "b|c"), ("1.jpg", "c"), ("2.jpg", "a"), ("3.jpg", "c")]
    for number, (name, _) in enumerate(rows):
        picture = Image.fromarray(photograph(("astronaut", "coffee")[number % 2]))
        quality = 90 if number < 2 else 60
        (tmp_path / name).write_bytes(encode(picture.resize((200, 150)), quality=quality))
    table = write_csv(tmp_path / "tags.csv", "path,labels", rows)
    convert(table, out, "--label-type", "multi-label", "--no-shuffle", "--hash")
    data = report()[0]
    names = [each["name"] for each in data["classes"]]
    shown = data["copies"]["near"]["shown"]
    assert [[names[label] for label in group["labels"]] for group in shown] == [["a", "b"], ["c"]]


def test_hashes_that_duplicates_stored(source, out, convert, invoke, report):
    convert(source, out)
    data, page, _ = report()
    assert data["copies"]["near"]["pairs"] == 0
    assert "--hash" in data["copies"]["near"]["note"]
    assert "dataprep duplicates" in page
    invoke("duplicates", out, status=1)
    found = report()[0]["copies"]["near"]
    assert (found["pairs"], found["conflicting"], found["hashed"], found["note"]) == (2, 1, 14, "")
