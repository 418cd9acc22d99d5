"""Images that are in a dataset already: another label of any kind is refused, and equal ones are recognized."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.annotated import with_text
from helpers.datasets import flip, write_csv
from helpers.pictures import encode, photo
from PIL import Image

from dataprep.run import known
from manifests.store import read_manifest

pytestmark = pytest.mark.usefixtures("quick_programs")

COUNT = 6

#: The label of an image, and another one, for each kind of labels in a table.
LABELS = {
    "captions": lambda number, other: f"a thing {number} in the {'rain' if other else 'sun'}",
    "class": lambda number, other: "cat" if (number % 2) ^ other else "dog",
    "multi-label": lambda number, other: "a|b" if (number % 2) ^ other else "b|c",
    "regression": lambda number, other: number + 0.5 + 100 * other,
    "caption": lambda number, other: (
        f"a photograph of thing {number} in the {'rain' if other else 'sun'}"
    ),
}
KINDS = (*LABELS, "boxes", "mask", "palette", "depth", "views")
#: Where the second images are.
SECONDS = {"depth": "depth", "views": "rights"}


def write(folder: Path, kind: str, count: int = COUNT, changed: tuple[int, ...] = ()) -> Path:
    """Write images with labels of a kind, of which some have other ones; return the source."""
    images = folder / {"boxes": "train2017"}.get(kind, "images")
    shutil.rmtree(folder, ignore_errors=True)
    images.mkdir(parents=True)
    rows = []
    for number in range(count):
        (images / f"{number}.jpg").write_bytes(encode(photo(number, 48, 40)))
        other = number in changed
        if kind in LABELS:
            rows.append((f"images/{number}.jpg", LABELS[kind](number, other)))
        elif kind == "boxes":
            # They reach a little beyond the image, as rounding makes them.
            left = 7.25 if other else 1.3
            rows.append([left, 2, 48.5 - left, 12])
        else:
            write_second(folder / SECONDS.get(kind, "masks"), kind, number, other)
            rows.append((f"images/{number}.jpg", "cat", f"rights/{number}.png"))
    if kind == "boxes":
        write_coco(folder / "annotations", rows)
    elif kind in (*LABELS, "views"):
        columns = "path,y,right" if kind == "views" else "path,y"
        return write_csv(folder / "list.csv", columns, rows)
    return folder


def write_second(folder: Path, kind: str, number: int, other: bool) -> None:
    """Write the mask, the depth map or the second view of an image."""
    folder.mkdir(exist_ok=True)
    values = np.full((40, 48), 900 + number if kind == "depth" else number)
    values[:5, :5] = 3 + other
    image = Image.fromarray(values.astype(np.uint16 if kind == "depth" else np.uint8))
    if kind == "palette":
        image = image.copy()
        image.putpalette([value for color in range(8) for value in (color * 30, 0, 255)])
    image.convert("RGB" if kind == "views" else image.mode).save(folder / f"{number}.png")


def write_coco(folder: Path, boxes: list[list[float]]) -> None:
    images, annotations = [], []
    for number, box in enumerate(boxes):
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 48, "height": 40})
        one = {"id": number, "image_id": number, "category_id": 1, "bbox": box}
        annotations.append({**one, "area": 1, "iscrowd": 0})
    parts = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    folder.mkdir()
    (folder / "instances_train2017.json").write_text(json.dumps(parts))


def options_of(kind: str) -> list[str]:
    options = ["--label-type", {"palette": "mask", "views": "class"}.get(kind, kind)]
    if kind == "views":
        options += ["--image-columns", "path,right"]
    return [*options, "--label-column", "y"] if kind in (*LABELS, "views") else options


@pytest.fixture
def append(invoke):
    """A function that appends a source, or converts it first, and returns what the command says."""

    def run(kind, source, out, *options, status=0):
        call = ("convert", "--src", source, "--out", out, *options_of(kind), *options)
        more = ("--append",) if Path(out).exists() else ()
        return invoke(*call, *more, "--workers", 1, status=status).output

    return run


@pytest.fixture
def masks(append, tmp_path):
    """A dataset of images with masks, and its source."""
    out, source = tmp_path / "out", write(tmp_path / "source", "mask")
    append("mask", source, out)
    return out, source


SAME = f"nothing to append: all {COUNT} images"


def refusal(number: int) -> str:
    image = f"images/{number}.jpg: the image is in the dataset"
    return f"{image} with another mask than masks/{number}.png"


@pytest.mark.parametrize(
    ("kind", "resize"),
    [*((kind, []) for kind in KINDS), *((k, ["--resize-shorter", 20]) for k in ("boxes", "mask"))],
)
def test_equal_labels_are_recognized_and_others_refused(kind, resize, append, snapshot, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "source"
    append(kind, write(folder, kind), out, *resize)
    assert SAME in append(kind, write(folder, kind), out)
    assert "6 images of the source are in" in append(kind, write(folder, kind, COUNT + 1), out)
    assert read_manifest(out).revision == 1
    before = snapshot(out)
    named = {"mask": "another mask than masks/2.png", "palette": "another mask than masks/2.png"}
    named["depth"] = "another depth map than depth/2.png"
    named["views"] = "another image right than rights/2.png"
    for count in (COUNT, COUNT + 2):  # the same images, and some more
        output = append(kind, write(folder, kind, count, (2, 4, 5)), out, status=2)
        assert "/2.jpg: the image is in the dataset" in output
        assert ", and 2 other images also have another" in output
        assert "--append only adds images" in output
        assert named.get(kind, "but here") in output
        assert snapshot(out) == before


def test_masks_of_other_images_are_not_read(masks, append, monkeypatch):
    out, source = masks
    write(source, "mask", COUNT + 1)
    flip(source / "images" / "0.jpg", -20)  # another image of the same length
    read, load_second = [], known.load_others

    def load(root, extra, *args, **options):
        read.append(extra["mask_source"])
        return load_second(root, extra, *args, **options)

    monkeypatch.setattr(known, "load_others", load)
    assert "1 image replaced (images/0.jpg)" in append("mask", source, out, status=2)
    assert sorted(read) == [f"masks/{number}.png" for number in range(1, COUNT)]


def test_an_image_with_several_masks_in_the_dataset(masks, append, tmp_path):
    """The same image and mask twice: one with equal values is enough, whichever it is."""
    _, source = masks
    other, merged = write(tmp_path / "other", "mask", changed=(2,)), tmp_path / "merged"
    append("mask", source, merged, "--src", other)
    for folder in (source, other):
        mask = folder / "masks" / "2.png"
        mask.write_bytes(with_text(mask.read_bytes(), b"note"))  # other bytes of the same pixels
        assert SAME in append("mask", folder, merged)
    write(other, "mask", changed=(3,))
    assert refusal(3) in append("mask", other, merged, status=2)


def test_boxes_in_another_order_are_the_same(append, invoke, tmp_path):
    """COCO files have no order: each export can write the annotations in another one."""
    out, source = tmp_path / "out", write(tmp_path / "source", "boxes")
    path = source / "annotations" / "instances_train2017.json"
    parts = json.loads(path.read_text())
    parts["categories"].append({"id": 2, "name": "dog"})
    for each in list(parts["annotations"]):
        for category, side in ((2, 12.5), (1, 9), (1, 30)):
            more = {"id": len(parts["annotations"]), "category_id": category}
            parts["annotations"].append(each | more | {"bbox": [1, 2, side, 7]})
    path.write_text(json.dumps(parts))
    append("boxes", source, out)
    parts["annotations"].reverse()
    path.write_text(json.dumps(parts))
    assert SAME in append("boxes", source, out)
    append("boxes", source, tmp_path / "again")
    assert "the same samples" in invoke("diff", out, tmp_path / "again").output
    parts["annotations"][0]["bbox"][0] += 5
    path.write_text(json.dumps(parts))
    assert "--append only adds images" in append("boxes", source, out, status=2)
    append("boxes", source, tmp_path / "other")
    assert "relabelled               1" in invoke("diff", out, tmp_path / "other", status=1).output


def test_classes_of_an_image_in_another_order_are_the_same(append, invoke, tmp_path):
    """Labels are stored in the order of their numbers, which another list of classes changes."""
    source = write(tmp_path / "source", "multi-label")
    for name, classes in (("out", "abc"), ("other", "cba")):
        (tmp_path / name).with_suffix(".txt").write_text("\n".join(classes))
        append("multi-label", source, tmp_path / name, "--classes", tmp_path / f"{name}.txt")
    output = invoke("diff", tmp_path / "out", tmp_path / "other", status=1).output
    assert "same                     6" in output
    assert "relabelled" not in output
    append = ("convert", "--src", tmp_path / "other", "--out", tmp_path / "out", "--append")
    assert SAME in invoke(*append).output


@pytest.mark.parametrize(
    ("size", "rejected"), [(0, ", which is rejected ("), (70, "")], ids=["empty", "cut short"]
)
def test_a_mask_that_cannot_be_read_is_another_one(size, rejected, masks, append):
    out, source = masks
    os.truncate(source / "masks" / "1.png", size)
    assert refusal(1) + rejected in append("mask", source, out, status=2)


def test_masks_that_cannot_be_compared_are_named(append, monkeypatch, tmp_path):
    """Other libraries resized the images: the source is known to be the same, they are not."""
    out, source = tmp_path / "out", write(tmp_path / "source", "mask")
    append("mask", source, out, "--resize-shorter", 20)
    monkeypatch.setattr(known, "library_versions", lambda **_: "others")
    output = append("mask", source, out)
    assert SAME in output
    assert "note: the masks of these images were not compared" in output
    write(source, "mask", COUNT + 1)
    assert "cannot be compared" in append("mask", source, out, status=2)
