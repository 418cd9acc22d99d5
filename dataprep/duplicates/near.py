"""Search for near hashes in all eight rotations and reflections, in several processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.search import Pairs, band_order, check_count, count_bands, find_pairs, join_pairs
from dataprep.duplicates.symmetries import SYMMETRIES, Symmetry, transform_hashes
from dataprep.engines import LocalEngine
from dataprep.progress import Progress

#: Fewer comparisons than this are made in this process alone.
_FEW_COMPARISONS = 1e9

#: Among the same images, the pairs that this rotation finds are those of the inverse rotation, in the other order.
_INVERSE: Symmetry = "rotated 270"


def search_hashes(
    hashes: NDArray[np.uint64],
    distance: int,
    side: NDArray[np.integer] | None = None,
    *,
    bits: Callable[[NDArray[np.uint64]], NDArray[np.uint64]] = band_order,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Pairs, NDArray[np.uint8]]:
    """Find all pairs of images whose hashes differ in at most `distance` bits.

    Args:
        hashes: uint64 [N, 4].
        distance: the number of bits.
        side: [N]. If given, only hashes with different values are compared.
        bits: returns the bits to compare, in the order of their bands: `band_order` or `low_frequencies`.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in hashes.

    Returns:
        Each pair once, as rows, `first` less than `second`, with the distance in the symmetry in which it is smallest;
        and this symmetry, which turns the image of `second` into that of `first`: uint8, positions in `SYMMETRIES`.

    Raises:
        CallError: there are more than `search.MAX_PAIRS` pairs.

    """
    sides = [np.arange(len(hashes))] if side is None else [np.flatnonzero(side == value) for value in np.unique(side)]
    within = side is None
    parts: list[Pairs] = []
    symmetries: list[NDArray[np.uint8]] = []
    total = done = 0
    with tempfile.TemporaryDirectory(prefix="dataprep-") as folder, closing(LocalEngine(workers)) as engine:
        tasks = list(_tasks(folder, hashes, sides, distance, bits, within=within))
        if progress:
            progress.start(len(hashes), len(tasks))
        most = 1 if len(hashes) ** 2 < _FEW_COMPARISONS else len(tasks)
        for number, (task, found) in enumerate(engine.run(search_part, tasks, most), 1):
            first, second = sides[task.first][found.first], sides[task.second][found.second]
            parts.append(Pairs(first.astype(np.int32), second.astype(np.int32), found.distance))
            symmetries.append(np.full(len(first), task.symmetry, np.uint8))
            total += len(first)
            check_count(total, distance)
            if progress:
                progress.advance(str(number), len(hashes) * number // len(tasks) - done)
                done = len(hashes) * number // len(tasks)
    return keep_closest(join_pairs(parts), np.concatenate([np.empty(0, np.uint8), *symmetries]))


class SearchTask(NamedTuple):
    """A part of a search: one band, one symmetry.

    Attributes:
        folder: has the bits of the hashes of each side in each symmetry.
        first: number of a side.
        second: number of the other side, or of the same.
        distance: number of different bits, at most.
        band: the band.
        symmetry: position in `SYMMETRIES`: how the second side is transformed.

    """

    folder: str
    first: int
    second: int
    distance: int
    band: int
    symmetry: int


def _path(folder: str, side: int, symmetry: int) -> str:
    return os.path.join(folder, f"{side}-{symmetry}.npy")


def _tasks(
    folder: str,
    hashes: NDArray[np.uint64],
    sides: list[NDArray[np.int64]],
    distance: int,
    bits: Callable[[NDArray[np.uint64]], NDArray[np.uint64]],
    *,
    within: bool,
) -> Iterator[SearchTask]:
    """Write the hashes that the tasks share into files, and yield the tasks."""
    for number, side in enumerate(sides):
        for symmetry, name in enumerate(SYMMETRIES):
            np.save(_path(folder, number, symmetry), bits(transform_hashes(hashes[side], name)))
    bands = range(count_bands(bits(hashes[:1])))
    for first, second in [(0, 0)] if within else [(a, b) for b in range(len(sides)) for a in range(b)]:
        for symmetry, name in enumerate(SYMMETRIES):
            if first != second or name != _INVERSE:
                for band in bands:
                    yield SearchTask(folder, first, second, distance, band, symmetry)


def search_part(task: SearchTask) -> tuple[SearchTask, Pairs]:
    """Find the pairs of a task, as rows of its sides."""
    paths = _path(task.folder, task.first, 0), _path(task.folder, task.second, task.symmetry)
    a, b = (np.load(path, mmap_mode="r") for path in paths)
    is_same = task.first == task.second and task.symmetry == 0
    return task, find_pairs(a, b, task.distance, task.band, is_same=is_same)


def keep_closest(pairs: Pairs, symmetry: NDArray[np.uint8]) -> tuple[Pairs, NDArray[np.uint8]]:
    """Keep each pair once, with the symmetry in which it is closest; `first` becomes the smaller."""
    symmetry = np.where(pairs.first > pairs.second, _INVERSES[symmetry], symmetry)
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    order = np.lexsort((symmetry, pairs.distance, high, low))
    order = order[low[order] != high[order]]  # a symmetric image is close to its own reflection
    new = np.ones(len(order), np.bool_)
    new[1:] = (low[order[1:]] != low[order[:-1]]) | (high[order[1:]] != high[order[:-1]])
    kept = order[new]
    return Pairs(low[kept], high[kept], pairs.distance[kept]), symmetry[kept]


def _inverse(symmetry: Symmetry) -> Symmetry:
    return {"rotated 90": "rotated 270", "rotated 270": "rotated 90"}.get(symmetry, symmetry)  # type: ignore[return-value]


_INVERSES = np.array([SYMMETRIES.index(_inverse(name)) for name in SYMMETRIES], np.uint8)
