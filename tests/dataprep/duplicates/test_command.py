"""`dataprep duplicates` on photographs with copies of every kind."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from helpers.pictures import encode
from PIL import Image

from dataprep.duplicates import search
from dataprep.options import MAX_PIXELS
from manifests.store import read_manifest

#: Each copy of the fixture `source`: its original, distance and symmetry. The rotation is clockwise
#: from the copy.
COPIES = {
    "val/a/astronaut.jpg": ("train/a/astronaut.jpg", None, "identical"),
    "val/b/half.jpg": ("train/b/coffee.jpg", 24, "identical"),
    "val/a/mirrored.jpg": ("train/b/coins.jpg", 24, "mirrored"),
    "val/a/rotated.png": ("train/a/moon.jpg", 24, "rotated 90"),
}


def run(invoke, *arguments, status):
    return json.loads(invoke("duplicates", *arguments, "--json", status=status).stdout)


def check_pairs(result):
    found = {pair["images"][1]["path"]: pair for pair in result["pairs"]}
    assert {*found} == {*COPIES}
    for copy, (original, distance, symmetry) in COPIES.items():
        pair = found[copy]
        assert pair["images"][0]["path"] == original
        assert (pair["same_bytes"], pair["symmetry"]) == (distance is None, symmetry)
        assert pair["distance"] <= (distance or 0)
        assert pair["leak"]
        assert pair["conflicting_labels"] == (copy == "val/a/mirrored.jpg")
    assert result["pairs"][0]["conflicting_labels"], "conflicting labels come first"
    assert [
        (leak["images"], leak["of"]["split"], leak["in"]["split"]) for leak in result["leaks"]
    ] == [(4, "val", "train")]
    assert (result["exact"], result["near"], result["conflicts"], result["groups"]) == (1, 3, 1, 4)


def test_a_source(invoke, source):
    result = run(invoke, source, status=1)
    check_pairs(result)
    assert all(image["key"] is None for pair in result["pairs"] for image in pair["images"])


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_a_dataset(invoke, source, tmp_path, fmt):
    invoke(
        "convert",
        "--src",
        source,
        "--out",
        tmp_path / "out",
        "--fmt",
        fmt,
        "--samples-per-shard",
        4,
    )
    result = run(invoke, tmp_path / "out", status=1)
    check_pairs(result)
    keys = [image["key"] for pair in result["pairs"] for image in pair["images"]]
    assert len(set(keys)) == 8
    assert all(keys)


def test_text(invoke, source):
    output = invoke("duplicates", source, "--limit", 2, status=1).stdout
    assert output.index("conflicting labels") < output.index("same bytes, different splits")
    assert "4 images of val are also in train" in output
    assert "and 2 more; --limit 4 lists all" in output
    output = invoke("duplicates", source, "--limit", 0, status=1).stdout
    assert output.startswith("4 pairs are not listed; --limit 4 lists all\n")
    assert "4 images of val are also in train" in output
    assert "not listed" not in invoke("duplicates", source, "--limit", 4, status=1).stdout


def test_distance(invoke, source):
    result = run(invoke, source, "--distance", -1, status=1)
    assert (result["exact"], result["near"]) == (1, 0)


def test_across_datasets(invoke, source, tmp_path):
    """A dataset in which nothing repeats has no leak.

    Two have one, whatever their splits are called.
    """
    a, b = tmp_path / "a", tmp_path / "b"
    shutil.copytree(source / "train", a)
    shutil.copytree(source / "val", b)
    assert "no image is in more than one split" in invoke("duplicates", a).stdout
    for option in ((), ("--across",)):
        result = run(invoke, a, b, *option, status=1)
        assert (result["exact"], result["near"]) == (1, 3)
        (leak,) = result["leaks"]
        assert leak == {
            "images": 4,
            "of": {"dataset": str(b), "split": "train"},
            "in": {"dataset": str(a), "split": "train"},
        }


def test_across_leaves_out_pairs_within_a_split(invoke, source):
    shutil.copy(source / "val/b/half.jpg", source / "val/b/same.jpg")
    coffee = Image.open(source / "train/b/coffee.jpg")
    (source / "train/b/again.jpg").write_bytes(encode(coffee, quality=60))
    assert run(invoke, source, status=1)["near"] == 5
    assert run(invoke, source, "--across", status=1)["near"] == 4


def test_images_that_do_not_decode_are_named(invoke, source):
    data = bytearray((source / "val/b/grass.jpg").read_bytes())
    (source / "val/b/damaged.jpg").write_bytes(b"\xff\xd8 nothing")
    (source / "val/b/cut.jpg").write_bytes(bytes(data[: len(data) // 3]))
    result = invoke("duplicates", source, "--json", status=1)
    assert "damaged.jpg" in result.stderr
    assert json.loads(result.stdout)["images"] == 17


def test_equal_checksums_are_not_equal_images(monkeypatch, invoke, source):
    """Images count as copies only if their bytes are equal, not if their CRC-32C and their size are."""
    from dataprep.duplicates import collection as content

    monkeypatch.setattr(content, "crc32c", lambda data: 1)
    original = source / "train/a/astronaut.jpg"
    (source / "train/b/other.jpg").write_bytes(original.read_bytes()[:-1] + b"\0")
    assert run(invoke, source, "--workers", 1, status=1)["exact"] == 1


def test_too_many_pairs(monkeypatch, invoke, source):
    monkeypatch.setattr(search, "MAX_PAIRS", 2)
    output = invoke("duplicates", source, status=2).stderr
    assert "more than 2 pairs" in output
    assert "set a smaller --distance; -1 finds only images with the same bytes" in output


def test_labels_that_are_not_classes(invoke, pictures, tmp_path):
    """Copies with other numbers are in conflict.

    Those with the same are not, and images without labels never are.
    """
    rows = ["path,label"]
    for name, value in (("coffee", 0.25), ("coins", 0.5)):
        for quality, change in ((90, 0), (60, int(name == "coins"))):
            (tmp_path / f"{name}{quality}.jpg").write_bytes(encode(pictures[name], quality=quality))
            rows.append(f"{name}{quality}.jpg,{value + change}")
    (tmp_path / "list.csv").write_text("\n".join(rows) + "\n")
    invoke(
        "convert",
        "--src",
        tmp_path / "list.csv",
        "--label-type",
        "regression",
        "--out",
        tmp_path / "numbers",
    )
    result = run(invoke, tmp_path / "numbers", status=0)
    assert (result["near"], result["conflicts"]) == (2, 1)
    assert {image["label"] for image in result["pairs"][0]["images"]} == {"0.5", "1.5"}
    invoke(
        "convert",
        "--src",
        tmp_path / "list.csv",
        "--label-type",
        "none",
        "--out",
        tmp_path / "none",
    )
    result = run(invoke, tmp_path / "none", status=0)
    assert (result["near"], result["conflicts"]) == (2, 0)
    result = run(invoke, tmp_path / "numbers", tmp_path / "none", status=1)
    assert (result["exact"], result["conflicts"]) == (
        4,
        1,
    ), "a label does not contradict an image without one"


def test_a_dataset_given_twice(invoke, source, monkeypatch):
    monkeypatch.chdir(source.parent)
    assert "is given twice" in invoke("duplicates", source, f"{source.name}/", status=2).stderr


def test_a_folder_without_class_folders(invoke, pictures, tmp_path):
    for quality in (90, 60):
        (tmp_path / f"{quality}.jpg").write_bytes(encode(pictures["coffee"], quality=quality))
    invoke("duplicates", tmp_path, status=2)
    assert run(invoke, tmp_path, "--label-type", "none", status=0)["near"] == 1


def test_images_above_the_default_limit_of_pixels_are_compared(invoke, tmp_path):
    """If the option says so, for `duplicates` and for a conversion: a manifest does not raise the limit."""
    blocks = np.random.default_rng(0).integers(0, 256, (20, 20), np.uint8)
    (tmp_path / "photos" / "class").mkdir(parents=True)
    for side in (13, 260):  # the larger image has 27 million pixels in 100 KB
        image = np.kron(blocks, np.ones((side, side), np.uint8))
        (tmp_path / f"photos/class/{side}.png").write_bytes(encode(image, "PNG"))
    limit = ("--max-pixels", 2 * MAX_PIXELS)
    invoke("convert", "--src", tmp_path / "photos", "--out", tmp_path / "out", *limit)
    refused = invoke("duplicates", tmp_path / "out", "--json", "--no-store")
    assert "1 image cannot be compared" in refused.stderr
    assert f"a --max-pixels above {MAX_PIXELS} accepts it" in refused.stderr
    found = invoke("duplicates", tmp_path / "out", "--json", *limit)
    assert "cannot be compared" not in found.stderr
    assert json.loads(found.stdout)["near"] == 1
    dropped = ("--out", tmp_path / "dropped", "--duplicates", "drop", *limit)
    invoke("convert", "--src", tmp_path / "photos", *dropped)
    assert read_manifest(tmp_path / "dropped").shards[0].samples == 1
