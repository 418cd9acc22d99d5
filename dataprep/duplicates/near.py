"""Search for near hashes in all eight rotations and reflections, in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import combinations_with_replacement
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.search import (
    Pairs,
    band_order,
    check_count,
    count_bands,
    distances,
    find_pairs,
    join_pairs,
)
from dataprep.duplicates.symmetries import SYMMETRIES, Symmetry, transform_hashes
from dataprep.engines import LocalEngine
from dataprep.engines.base import Result
from dataprep.progress import Progress
from dataprep.storage.temporary import save_array, temporary_folder

#: Fewer comparisons than this are made in this process alone.
_FEW_COMPARISONS = 1e9

#: Among the same images, the pairs that this rotation finds are those of the inverse rotation, in
#: the other order.
_INVERSE: Symmetry = "rotated 270"


def search_hashes(
    hashes: NDArray[np.uint64],
    distance: int,
    side: NDArray[np.integer] | None = None,
    *,
    bits: Callable[[NDArray[np.uint64]], NDArray[np.uint64]] = band_order,
    skip: NDArray[np.bool_] | None = None,
    most: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Pairs, NDArray[np.uint8]]:
    """Find all pairs of images whose hashes differ in at most `distance` bits.

    Args:
        hashes: uint64 [N, 4].
        distance: the number of bits.
        side: [N]. If given, only hashes with different values are compared.
        bits: returns the bits to compare, in the order of their bands: `band_order` or
            `low_frequencies`.
        skip: bool [N]. If given, such hashes are compared with the others, and not with each other.
        most: number of pairs, at most; `None` means `search.MAX_PAIRS`. A pair counts once for each
            symmetry.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in hashes.

    Returns:
        Each pair once, as rows, `first` less than `second`, with the distance in the symmetry in
        which it is smallest; and this symmetry, which turns the image of `second` into that of
        `first`: uint8, positions in `SYMMETRIES`.

    Raises:
        TooManyPairsError: there are more than `most` pairs.

    """
    parts: list[Pairs] = []
    symmetries: list[NDArray[np.uint8]] = []
    total = 0
    search = Search(hashes, side, distance, bits, skip=skip, limit=most)
    with closing(search.run(search_part, workers, progress)) as results:
        for task, found in results:
            first, second = (
                search.sides[task.first][found.first],
                search.sides[task.second][found.second],
            )
            parts.append(Pairs(first.astype(np.int32), second.astype(np.int32), found.distance))
            symmetries.append(np.full(len(first), task.symmetry, np.uint8))
            total += len(first)
            check_count(total, distance, most)
    return keep_closest(join_pairs(parts), np.concatenate([np.empty(0, np.uint8), *symmetries]))


class Search:
    """A search that is divided into tasks: one for each band and symmetry of two sides.

    The hashes of a side that are compared with each other, and those that are not, are two sides
    here.

    Args:
        hashes: uint64 [N, 4].
        side: [N]. If given, only hashes with different values are compared.
        distance: number of different bits, at most.
        bits: returns the bits to compare, in the order of their bands.
        skip: bool [N]. If given, such hashes are compared with the others, and not with each other.
        limit: what the tasks get as `SearchTask.limit`.
        with_hashes: whether the tasks need the hashes too.

    """

    def __init__(
        self,
        hashes: NDArray[np.uint64],
        side: NDArray[np.integer] | None,
        distance: int,
        bits: Callable[[NDArray[np.uint64]], NDArray[np.uint64]],
        *,
        skip: NDArray[np.bool_] | None = None,
        limit: int | None,
        with_hashes: bool = False,
    ) -> None:
        self._hashes, self._distance, self._bits = hashes, distance, bits
        self._limit, self._with_hashes, self._within = limit, with_hashes, side is None
        value = (
            np.zeros(len(hashes), np.int64)
            if side is None
            else np.unique(side, return_inverse=True)[1]
        )
        skipped = np.zeros(len(hashes), np.bool_) if skip is None else skip
        keys = np.unique(np.stack([value, skipped], axis=1), axis=0).tolist()
        #: The value of each side, and whether its hashes are not compared with each other.
        self._keys = [(each, bool(is_skipped)) for each, is_skipped in keys]
        #: The rows of each side, int64.
        self.sides = [
            np.flatnonzero((value == each) & (skipped == is_skipped))
            for each, is_skipped in self._keys
        ]

    def run(
        self,
        function: Callable[[SearchTask], Result],
        workers: int | None,
        progress: Progress | None,
    ) -> Generator[Result, None, None]:
        """Apply a function to each task in several processes, and yield the results as they finish."""
        count, done = len(self._hashes), 0
        with temporary_folder() as folder, closing(LocalEngine(workers)) as engine:
            tasks = list(self._tasks(folder))
            if progress:
                progress.start(count, len(tasks))
            most = 1 if count**2 < _FEW_COMPARISONS else len(tasks)
            for number, result in enumerate(engine.run(function, tasks, most), 1):
                yield result
                if progress:
                    progress.advance(str(number), count * number // len(tasks) - done)
                    done = count * number // len(tasks)

    def _tasks(self, folder: str) -> Iterator[SearchTask]:
        """Write the hashes that the tasks share into files, and yield the tasks."""
        for number, side in enumerate(self.sides):
            for symmetry, name in enumerate(SYMMETRIES):
                transformed = transform_hashes(self._hashes[side], name)
                if self._with_hashes:
                    save_array(_path(folder, "hashes", number, symmetry), transformed)
                save_array(_path(folder, "bits", number, symmetry), self._bits(transformed))
        bands = range(count_bands(self._bits(self._hashes[:1])))
        for first, second in self._compared():
            for symmetry, name in enumerate(SYMMETRIES):
                if first != second or name != _INVERSE:
                    for band in bands:
                        yield SearchTask(
                            folder, first, second, self._distance, band, symmetry, self._limit
                        )

    def _compared(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers of two sides that are compared with each other, or twice that of one."""
        for first, second in combinations_with_replacement(range(len(self.sides)), 2):
            (value, is_skipped), (other, is_other_skipped) = self._keys[first], self._keys[second]
            if (self._within or value != other) and not (is_skipped and is_other_skipped):
                yield first, second


class SearchTask(NamedTuple):
    """A part of a search: one band, one symmetry.

    Attributes:
        folder: has the hashes of each side in each symmetry, and their bits in the order of the
            bands.
        first: number of a side.
        second: number of the other side, or of the same.
        distance: number of different bits, at most.
        band: the band.
        symmetry: position in `SYMMETRIES`: how the second side is transformed.
        limit: how many pairs the task may find.

    """

    folder: str
    first: int
    second: int
    distance: int
    band: int
    symmetry: int
    limit: int | None

    @property
    def is_same(self) -> bool:
        """Whether images are compared with themselves, as they are."""
        return self.first == self.second and self.symmetry == 0

    def load(
        self, kind: Literal["hashes", "bits"]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Map the hashes of the first side, and the transformed ones of the second, or the bits to compare."""
        paths = (
            _path(self.folder, kind, self.first, 0),
            _path(self.folder, kind, self.second, self.symmetry),
        )
        a, b = (np.load(path, mmap_mode="r") for path in paths)
        return a, b


def _path(folder: str, kind: str, side: int, symmetry: int) -> str:
    return os.path.join(folder, f"{kind}-{side}-{symmetry}.npy")


def search_part(task: SearchTask) -> tuple[SearchTask, Pairs]:
    """Find the pairs of a task, as rows of its sides."""
    a, b = task.load("bits")
    return task, find_pairs(a, b, task.distance, task.band, is_same=task.is_same, most=task.limit)


def keep_closest(pairs: Pairs, symmetry: NDArray[np.uint8]) -> tuple[Pairs, NDArray[np.uint8]]:
    """Keep each pair once, with the symmetry in which it is closest.

    `first` becomes the smaller.
    """
    symmetry = np.where(pairs.first > pairs.second, INVERSES[symmetry], symmetry)
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    order = np.lexsort((symmetry, pairs.distance, high, low))
    order = order[low[order] != high[order]]  # a symmetric image is close to its own reflection
    new = np.ones(len(order), np.bool_)
    new[1:] = (low[order[1:]] != low[order[:-1]]) | (high[order[1:]] != high[order[:-1]])
    kept = order[new]
    return Pairs(low[kept], high[kept], pairs.distance[kept]), symmetry[kept]


def count_bits(
    hashes: NDArray[np.uint64],
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    symmetry: NDArray[np.uint8],
) -> NDArray[np.uint8]:
    """Return how many of all bits differ in each pair of rows, after the symmetry of the second one, uint8 [N]."""
    bits = np.zeros(len(symmetry), np.uint8)
    for number, name in enumerate(SYMMETRIES):
        some = symmetry == number
        bits[some] = distances(
            hashes[first[some]], transform_hashes(hashes[second[some]], name)
        ).clip(max=255)
    return bits


def _inverse(symmetry: Symmetry) -> Symmetry:
    return {"rotated 90": "rotated 270", "rotated 270": "rotated 90"}.get(symmetry, symmetry)  # type: ignore[return-value]


#: The symmetry that undoes each one: positions in `SYMMETRIES`.
INVERSES = np.array([SYMMETRIES.index(_inverse(name)) for name in SYMMETRIES], np.uint8)
