"""The datasets of the golden batches: one of each label kind, format and store."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from golden.recording import BOXES, CATEGORIES, SIZES, images, jsonl

#: Classes of the samples of `table`, from which samplers draw.
_CLASSES = (0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 2, 0, 3, 1, 0, 2, 0, 0, 1, 0)


def _annotated(folder: Path, second: str) -> str:
    for path, data in images("annotated").items():
        kind = path.partition("/")[0]
        if kind in ("images", second):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
    return str(folder)


def _with_boxes(folder: Path) -> str:
    _annotated(folder, "")
    for number in range(len(SIZES)):
        path = folder / f"train2017/{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        (folder / f"images/{number}.jpg").rename(path)
    (folder / "images").rmdir()
    files = [
        {"id": number, "file_name": f"{number}.jpg", "width": width, "height": height}
        for number, (height, width) in enumerate(SIZES)
    ]
    boxes = [
        {"id": 50 + n, "image_id": image, "category_id": category, "bbox": box, "iscrowd": 0}
        for n, (image, category, box) in enumerate(BOXES)
    ]
    categories = [{"id": number, "name": name} for number, name in CATEGORIES.items()]
    path = folder / "annotations/instances_train2017.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"images": files, "annotations": boxes, "categories": categories}))
    return str(folder)


def _table(folder: Path, column: str, labels: tuple[Any, ...]) -> str:
    """Write a table of the annotated images, repeated, with columns of each type."""
    given = images("annotated")
    (folder / "images").mkdir(parents=True)
    rows = []
    for number, label in enumerate(labels):
        (folder / f"images/{number}.jpg").write_bytes(given[f"images/{number % 5}.jpg"])
        rows.append({
            "path": f"images/{number}.jpg", column: label, "camera": number % 4,
            "weight": 0.25 * (number % 4), "note": f"№ {number}", "wide": 2**40 + number,
        })  # fmt: skip
    (folder / "all.jsonl").write_text(jsonl(rows))
    return str(folder / "all.jsonl")


def _colored(folder: Path) -> str:
    """Write photographs of other formats and color modes, in classes, of several sizes."""
    for path, data in images("photographs").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return str(folder)


_MULTI = ([0, 2], [1], [], [2], [0, 1], [1], [2, 0])

_table_of_classes = partial(_table, column="label", labels=_CLASSES)

#: The source of each dataset, and the options of the conversion.
DATASETS: dict[str, tuple[Callable[[Path], str], tuple[object, ...]]] = {
    "classes": (_table_of_classes, ("--samples-per-shard", 8)),
    "classes of WebDataset": (_table_of_classes, ("--samples-per-shard", 8, "--fmt", "webdataset")),
    "pixels": (_table_of_classes, ("--store", "raw", "--raw-size", 20)),
    "photographs": (_colored, ()),
    "none": (partial(_annotated, second=""), ("--label-type", "none")),
    "multi-label": (partial(_table, column="label", labels=_MULTI), ()),
    "regression": (partial(_table, column="label", labels=(0.5, -1.25, 3, 2.5, 0, 1, 7.5)), ()),
    "caption": (
        partial(_table, column="caption", labels=("a cat", "ein Häßlicher Text", "日本", "x", "y")),
        (),
    ),
    "captions": (
        partial(_table, column="caption", labels=('["a cat", "é"]', '["x"]', '["日本", "y", "z"]')),
        ("--label-type", "captions"),
    ),
    "boxes": (_with_boxes, ()),
    "mask": (partial(_annotated, second="masks"), ()),
    "depth": (partial(_annotated, second="depth"), ()),
}


def make_datasets(root: Path, run: Callable[..., Any]) -> Callable[[str], Path]:
    """Return a function that makes a dataset once, and returns its folder.

    Args:
        root: folder of all datasets and sources.
        run: runs `dataprep`.

    """

    def make(name: str) -> Path:
        out = root / name.replace(" ", "-")
        if not out.exists():
            make_source, options = DATASETS[name]
            source = make_source(root / f"source of {name}")
            done = run("convert", "--src", source, "--out", out, "--quiet", *options)
            assert done.returncode == 0, done.stderr
        return out

    return make
