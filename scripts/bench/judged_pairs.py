"""Recall and precision of `dataprep duplicates` and of imagededup on pairs that people judged, for `duplicates.py`."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dataprep.duplicates.collection import collect
from dataprep.duplicates.find import find_duplicates
from dataprep.sources import read_source

Pair = frozenset[str]


def read_pairs(path: Path) -> set[Pair]:
    """Read a CSV of two columns, paths of images below the folder."""
    with path.open(newline="", encoding="utf-8") as file:
        return {frozenset(row) for row in csv.reader(file)}


def measure_ours(folder: Path, judged: set[Pair], distances: list[int]) -> Iterator[dict[str, Any]]:
    """Yield a row for each distance. Only images of different splits are compared."""
    start = _cpu()
    source = read_source(str(folder))
    images = collect([source], workers=1)
    hashing = _cpu() - start
    paths = source.path.to_pylist()
    for distance in distances:
        start = _cpu()
        found = find_duplicates(images, distance, across=True, workers=1)
        seconds = _cpu() - start
        first, second = found.first_image[found.pairs.first], found.first_image[found.pairs.second]
        pairs = {
            frozenset((paths[a], paths[b]))
            for a, b in zip(first.tolist(), second.tolist(), strict=True)
        }
        yield _row("dataprep", distance, pairs, judged) | {
            "CPU s": hashing + seconds,
            "of it search": seconds,
        }


def measure_imagededup(
    file: Path, judged: set[Pair], distances: list[int]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each distance of the hashes that `PHash().encode_images` wrote: JSON, 16 hex digits by path."""
    hashes = json.loads(file.read_text())
    sides = [
        sorted(path for path in hashes if path.startswith(split)) for split in ("test", "train")
    ]
    a, b = (np.array([int(hashes[path], 16) for path in side], np.uint64) for side in sides)
    bits = {}
    for start in range(0, len(a), 256):
        differing = np.bitwise_count(a[start : start + 256, None] ^ b)
        for row, column in zip(*np.nonzero(differing <= max(distances)), strict=True):
            pair = frozenset((sides[0][start + row], sides[1][column]))
            bits[pair] = int(differing[row, column])
    for distance in distances:
        pairs = {pair for pair, count in bits.items() if count <= distance}
        yield _row("imagededup PHash", distance, pairs, judged)


def _row(tool: str, distance: int, pairs: set[Pair], judged: set[Pair]) -> dict[str, Any]:
    hits = len(pairs & judged)
    return {
        "tool": tool,
        "distance": distance,
        "pairs": len(pairs),
        "judged ones": hits,
        "recall": f"{hits / len(judged):.0%}",
        "listed precision": f"{hits / max(len(pairs), 1):.0%}",
    }


def _cpu() -> float:
    return sum(os.times()[:4])
