"""The datasets of the golden batches: one of each label kind, format and store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from golden.recording import coco_text, images, jsonl

#: Classes of the samples of `table`, from which samplers draw.
_CLASSES = (0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 2, 0, 3, 1, 0, 2, 0, 0, 1, 0)


def _images(folder: Path, prefix: str, *patterns: str) -> str:
    for path, data in images(prefix, *patterns).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return str(folder)


def _with_boxes(folder: Path) -> str:
    _images(folder, "annotated", "images/*")
    (folder / "images").rename(folder / "train2017")
    path = folder / "annotations/instances_train2017.json"
    path.parent.mkdir()
    path.write_text(coco_text("{}.jpg", 0, *({"id": 50 + n, "iscrowd": 0} for n in range(4))))
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


def _annotated(*patterns: str) -> Callable[[Path], str]:
    return lambda folder: _images(folder, "annotated", *patterns)


_MULTI = ([0, 2], [1], [], [2], [0, 1], [1], [2, 0])

_table_of_classes = partial(_table, column="label", labels=_CLASSES)

#: The source of each dataset, and the options of the conversion.
DATASETS: dict[str, tuple[Callable[[Path], str], tuple[object, ...]]] = {
    "classes": (_table_of_classes, ("--samples-per-shard", 8)),
    "classes of WebDataset": (_table_of_classes, ("--samples-per-shard", 8, "--fmt", "webdataset")),
    "pixels": (_table_of_classes, ("--store", "raw", "--raw-size", 20)),
    "photographs": (partial(_images, prefix="photographs"), ()),
    "none": (_annotated("images/*"), ("--label-type", "none")),
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
    "mask": (_annotated("images/*", "masks/*"), ()),
    "depth": (_annotated("images/*", "depth/*"), ()),
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
