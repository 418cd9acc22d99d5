"""Sources of small images, converted datasets read back from their files, and damage to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from helpers.pictures import encode, photo
from manifests.store import read_manifest
from manifests.tables import read_table

FORMATS = ("tfrecord", "webdataset")
SUFFIX = {"tfrecord": ".tfrecord", "webdataset": ".tar"}


def write_images(
    folder: Path,
    numbers: Iterable[int],
    classes: tuple[str, ...],
    first: int = 0,
    **options: object,
) -> Path:
    """Write ``cat/0000.jpg`` and so on, in these classes in turn; `first` chooses other images."""
    for number in numbers:
        path = folder / classes[number % len(classes)] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(first + number, 40, 30), **options))
    return folder


def write_csv(path: Path, columns: str, rows: Iterable[Iterable[object]]) -> Path:
    """Write a table whose values need no quotes."""
    lines = [columns, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def shards_of(dataset: Path) -> list[Path]:
    """Return the shards of all splits."""
    splits = read_manifest(dataset).splits
    return [dataset / shard.name for split in splits for shard in split.shards]


def rows_of(dataset: Path) -> list[dict[str, Any]]:
    """Return the rows of all sample tables, with the split and, if it has one, the class."""
    manifest, found = read_manifest(dataset), []
    for split in manifest.splits:
        for shard in split.shards:
            table = read_table(dataset / shard.table.name, label_type=manifest.label_type)
            for row in table.to_pylist():
                named = {"class": manifest.classes[row["label"]]} if "label" in row else {}
                found.append({**row, "split": split.name, **named})
    return found


def rejected_of(dataset: Path) -> list[dict[str, Any]]:
    """Return the rows of the list of rejected images."""
    return [*map(json.loads, (dataset / "rejected.jsonl").read_text("utf-8").splitlines())]


def without_plan(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the files of a plan: a snapshot of three steps, to compare with one conversion."""
    return {name: data for name, data in files.items() if not name.startswith(".dataprep/plan/")}


def run_steps(
    invoke: Callable[..., Any], *options: object, out: Path, finish: tuple[object, ...] = ()
) -> Path:
    """Convert a source with `plan`, `work` and `finish`."""
    invoke("plan", *options, "--out", out)
    invoke("work", out, "--task", "0/1", "--workers", 1)
    invoke("finish", out, *finish)
    return out


def flip(path: Path, at: int | None = None) -> None:
    """Change a bit of a byte, by default of the one in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 4
    path.write_bytes(data)
