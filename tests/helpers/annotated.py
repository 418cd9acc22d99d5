"""Sources with boxes, masks, depth maps and captions, made of photographs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers.mutated_images import png_chunk
from helpers.photographs import photograph
from helpers.pictures import encode

#: Height and width of the images.
SIZES = ((120, 160), (97, 131), (150, 110), (80, 200), (101, 101))


def pictures() -> list[np.ndarray]:
    """Return photographs of several sizes: uint8 [H, W, 3]."""
    names = ("astronaut", "chelsea", "coffee", "astronaut", "chelsea")
    return [
        np.ascontiguousarray(photograph(name)[20 : 20 + height, 30 : 30 + width])
        for name, (height, width) in zip(names, SIZES, strict=True)
    ]


def masks() -> list[np.ndarray]:
    """Return a mask of each picture: uint8 [H, W], in which most pixels differ from their neighbors."""
    rng = np.random.default_rng(7)
    return [rng.integers(0, 21, size).astype(np.uint8) for size in SIZES]


def depths() -> list[np.ndarray]:
    """Return a depth map of each picture: uint16 [H, W]."""
    rng = np.random.default_rng(8)
    return [rng.integers(0, 65536, size).astype(np.uint16) for size in SIZES]


def boxes() -> list[np.ndarray]:
    """Return the boxes of each picture as x1, y1, x2, y2: float32 [n, 4]. The third has none."""
    rng = np.random.default_rng(9)
    counts = (3, 1, 0, 5, 2)
    found = []
    for (height, width), count in zip(SIZES, counts, strict=True):
        start = rng.integers(0, 40, (count, 2))
        size = rng.integers(8, 40, (count, 2))
        corners = np.concatenate([start, start + size], 1).clip(0, [width, height] * 2)
        found.append(corners.astype(np.float32))
    return found


def box_labels() -> list[list[int]]:
    """Return the class of each box."""
    return [[number % 3 for number in range(len(each))] for each in boxes()]


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(pixels, path.suffix[1:]))
    return path


def with_text(png: bytes, text: bytes) -> bytes:
    """Return a PNG of the same pixels with a text, which is other bytes."""
    return png[:33] + png_chunk(b"tEXt", b"Comment\0" + text) + png[33:]


def make_pairs(
    folder: Path, images: str = "images", seconds: str = "masks", *, kind: str = "mask"
) -> Path:
    """Write ``images/0.png`` and ``masks/0.png`` and so on, lossless, so tests can compare pixels."""
    others = masks() if kind == "mask" else depths()
    for number, (image, second) in enumerate(zip(pictures(), others, strict=True)):
        save(folder / images / f"{number}.png", image)
        save(folder / seconds / f"{number}.png", second)
    return folder


def make_views(folder: Path) -> Path:
    """Write ``cat/0_left.png`` and ``cat/0_right.png`` and so on: another picture of the same size."""
    for number, image in enumerate(pictures()):
        save(folder / f"cat/{number}_left.png", image)
        save(folder / f"cat/{number}_right.png", image[::-1, ::-1])
    return folder


#: Ids of COCO's categories, with a hole, not in the order of their names.
CATEGORIES = {1: "person", 2: "bicycle", 7: "train"}


def coco_json() -> dict[str, Any]:
    """Return the annotations of the pictures as COCO has them."""
    annotations, images, shape = [], [], {"iscrowd": 0, "segmentation": [[1.5, 2, 3, 4]]}
    for image, (height, width) in enumerate(SIZES):
        size = {"width": width, "height": height}
        images.append({"id": 1000 + image, "file_name": f"{image:012d}.png", **size})
        corners, labels = boxes()[image].tolist(), box_labels()[image]
        for (x1, y1, x2, y2), label in zip(corners, labels, strict=True):
            ids = {"id": len(annotations) + 100, "image_id": 1000 + image}
            box = {"category_id": [*CATEGORIES][label], "bbox": [x1, y1, x2 - x1, y2 - y1]}
            annotations.append({**ids, **box, **shape})
    named = [{"id": at, "name": name, "supercategory": "x"} for at, name in CATEGORIES.items()]
    info = {"info": {"year": 2017}, "licenses": [{"id": 1}]}
    return {**info, "images": images, "annotations": annotations, "categories": named}


def make_coco(
    folder: Path, splits: Sequence[str] = ("train2017",), annotations: dict[str, Any] | None = None
) -> Path:
    """Write ``annotations/instances_train2017.json`` and the images of ``train2017/``."""
    for split in splits:
        for number, image in enumerate(pictures()):
            save(folder / split / f"{number:012d}.png", image)
        path = folder / "annotations" / f"instances_{split}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(annotations or coco_json()))
    return folder


def make_each_kind(folder: Path) -> dict[str, Path]:
    """Write a source with masks, one with depth maps and one with boxes; return them by label type."""
    return {
        "mask": make_pairs(folder / "mask"),
        "depth": make_pairs(folder / "depth", seconds="depth", kind="depth"),
        "boxes": make_coco(folder / "boxes"),
    }


def voc_xml(number: int, *, first: int = 1) -> str:
    """Return the annotations of a picture as Pascal VOC has them; `first` numbers the first pixel."""
    objects = ""
    part = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
    corners, labels = boxes()[number].tolist(), box_labels()[number]
    for (x1, y1, x2, y2), label in zip(corners, labels, strict=True):
        start = f"<xmin>{x1 + first:g}</xmin><ymin>{y1 + first:g}</ymin>"
        box = f"<bndbox>{start}<xmax>{x2:g}</xmax><ymax>{y2:g}</ymax></bndbox>"
        name = [*CATEGORIES.values()][label]
        objects += f"<object><name>{name}</name><difficult>0</difficult>{box}{part}</object>"
    height, width = SIZES[number]
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><filename>{number}.jpg</filename>{size}{objects}</annotation>"


def make_voc(folder: Path) -> Path:
    """Write ``JPEGImages/``, ``Annotations/``, ``SegmentationClass/`` and ``ImageSets/``."""
    for number, (image, mask) in enumerate(zip(pictures(), masks(), strict=True)):
        save(folder / f"JPEGImages/{number}.png", image)
        path = folder / f"Annotations/{number}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(voc_xml(number))
        palette = Image.fromarray(mask, "P")
        colors = np.stack([np.arange(256), 255 - np.arange(256), 7 * np.arange(256) % 256], 1)
        palette.putpalette(colors.astype(np.uint8).tobytes())
        (folder / "SegmentationClass").mkdir(exist_ok=True)
        palette.save(folder / f"SegmentationClass/{number}.png")
    for name in ("Main", "Segmentation"):
        (folder / f"ImageSets/{name}").mkdir(parents=True)
        (folder / f"ImageSets/{name}/train.txt").write_text("0\n1\n2\n")
        (folder / f"ImageSets/{name}/val.txt").write_text("3\n4\n")
    return folder
