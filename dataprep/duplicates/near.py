"""Search for near hashes in all eight rotations and reflections, in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import closing
from functools import lru_cache
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.arrays import AnyArray, BoolArray, Int64Array, IntegerArray, UInt64Array
from dataprep.duplicates import search
from dataprep.duplicates.pixels import SYMMETRIES, transform_hashes
from dataprep.duplicates.search import (
    Pairs,
    TooManyPairsError,
    band_order,
    check_count,
    count_bands,
    distances,
    find_pairs,
    iterate_pairs,
    join_pairs,
    low_frequencies,
    make_pairs,
    order_pairs,
    starts_run,
)
from dataprep.engines import LocalEngine
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress, divide
from dataprep.storage.local import save_array, temporary_folder
from manifests.errors import CallError

#: Fewer comparisons than this are made in this process alone.
_FEW_COMPARISONS = 1e9

#: Among the same images, this rotation finds the pairs of the inverse rotation, in the other order.
_INVERSE = SYMMETRIES.index("rotated 270")


def search_hashes(
    hashes: UInt64Array,
    distance: int,
    side: IntegerArray | None = None,
    *,
    bits: Callable[[UInt64Array], UInt64Array] = band_order,
    skip: BoolArray | None = None,
    most: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Pairs:
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
        Each pair once, as rows, `first` less than `second`, with the symmetry in which the distance
        is smallest.

    Raises:
        TooManyPairsError: there are more than `most` pairs.

    """
    parts = []
    total, most = 0, search.MAX_PAIRS if most is None else most
    found = _run(
        search_part,
        hashes,
        side,
        skip,
        bits=bits,
        bands=count_bands(bits(hashes[:1])),
        distance=distance,
        limit=most,
        workers=workers,
        progress=progress,
    )
    with closing(found):
        for pairs in found:
            parts.append(pairs)
            total += len(pairs.first)
            check_count(total, distance, most)
    return keep_closest(join_pairs(parts))


class SearchTask(NamedTuple):
    """A part of a search: one band, one symmetry, and two sides or one.

    Attributes:
        folder: has the rows of each side, and the bits of their hashes in each symmetry.
        first: a side.
        second: the other side, or the same.
        band: the band.
        symmetry: position in `SYMMETRIES`: how the second side is transformed.
        distance: number of different bits, at most.
        limit: how many pairs the task may find, or keeps for each hash.

    """

    folder: str
    first: int
    second: int
    band: int
    symmetry: int
    distance: int
    limit: int

    @property
    def is_same(self) -> bool:
        """Whether hashes are compared with themselves, as they are."""
        return self.first == self.second and self.symmetry == 0

    def load(self) -> tuple[UInt64Array, UInt64Array, Int64Array, int]:
        """Map the bits of the first side, and the transformed ones of the second.

        Return also the rows of both sides, one side after the other, and where the second begins.
        """
        return _load_sides(self.folder, self.first, self.second, self.symmetry)


@lru_cache(maxsize=1)  # the tasks of all bands follow each other
def _load_sides(
    folder: str, first: int, second: int, symmetry: int
) -> tuple[UInt64Array, UInt64Array, Int64Array, int]:
    a = np.load(_bits_path(folder, first, 0), mmap_mode="r")
    b = np.load(_bits_path(folder, second, symmetry), mmap_mode="r")
    rows = [np.load(_rows_path(folder, side)) for side in (first, second)]
    return a, b, np.concatenate(rows), 0 if first == second else len(a)


def _bits_path(folder: str, side: int, symmetry: int) -> str:
    return os.path.join(folder, f"bits-{side}-{symmetry}.npy")


def _rows_path(folder: str, side: int) -> str:
    return os.path.join(folder, f"rows-{side}.npy")


def _run(
    function: Callable[[SearchTask], Pairs],
    hashes: UInt64Array,
    side: IntegerArray | None,
    skip: BoolArray | None,
    *,
    bits: Callable[[UInt64Array], UInt64Array],
    bands: int,
    distance: int,
    limit: int,
    workers: int | None,
    progress: Progress | None,
) -> Generator[Pairs, None, None]:
    """Divide a search into tasks, and yield the pairs that a function finds in each task."""
    number = np.zeros(len(hashes), np.int64)
    if side is not None:
        number += 2 * np.unique(side, return_inverse=True)[1]
    if skip is not None:
        number += skip  # they are a side of their own, which is odd
    sides, tasks = np.unique(number).tolist(), []
    with (
        temporary_folder() as folder,
        closing(LocalEngine(workers)) as engine,
        divide(progress, [len(hashes)]) as (share,),
    ):
        for each in sides:
            rows = np.flatnonzero(number == each)
            save_array(_rows_path(folder, each), rows)
            for symmetry, name in enumerate(SYMMETRIES):
                transformed = bits(transform_hashes(hashes[rows], name))
                save_array(_bits_path(folder, each, symmetry), transformed)
        for first, second in combinations_with_replacement(sides, 2):
            has_one_value = side is not None and first // 2 == second // 2
            if has_one_value or (first % 2 and second % 2):
                continue
            for symmetry, band in product(range(len(SYMMETRIES)), range(bands)):
                if first != second or symmetry != _INVERSE:
                    tasks.append(SearchTask(folder, first, second, band, symmetry, distance, limit))
        share.start(len(tasks), len(tasks))
        most = 1 if len(hashes) ** 2 < _FEW_COMPARISONS else len(tasks)
        for pairs in engine.run(function, tasks, most):
            yield pairs
            share.advance("task", 1)
        _load_sides.cache_clear()


def search_part(task: SearchTask) -> Pairs:
    """Find the pairs of a task."""
    a, b, rows, start = task.load()
    pairs = find_pairs(a, b, task.distance, task.band, is_same=task.is_same, most=task.limit)
    return make_pairs(rows[pairs.first], rows[pairs.second + start], pairs.distance, task.symmetry)


def keep_closest(pairs: Pairs) -> Pairs:
    """Keep each pair once, with the symmetry in which it is closest.

    `first` becomes the smaller.
    """
    # A symmetric image is close to its own reflection.
    pairs = order_pairs(pairs, pairs.first, pairs.second)
    pairs = pairs.take(np.lexsort((pairs.symmetry, pairs.distance, pairs.second, pairs.first)))
    return pairs.take(starts_run(pairs.first, pairs.second))


def with_all_bits(hashes: UInt64Array, pairs: Pairs) -> Pairs:
    """Return pairs with the number of all different bits as their distance."""
    bits = np.zeros(len(pairs.first), np.uint8)
    for number, name in enumerate(SYMMETRIES):
        some = pairs.symmetry == number
        turned = transform_hashes(hashes[pairs.second[some]], name)
        bits[some] = distances(hashes[pairs.first[some]], turned).clip(max=255)
    return pairs._replace(distance=bits)


# --- the nearest hashes of each image, where too many are near ------------------------------------


#: A candidate is one number: row, score, partner and symmetry, so sorted ones are in the order of
#: the score.
_ROW_BITS = 26
_PARTNER_AT, _SCORE_AT, _ROW_AT = 3, 3 + _ROW_BITS, 3 + _ROW_BITS + 8

#: Images that can be compared: their rows have `_ROW_BITS`.
MAX_ROWS = 1 << _ROW_BITS

#: The bits of a candidate that have its row and its partner.
_PAIR = np.uint64(((MAX_ROWS - 1) << _ROW_AT) | ((MAX_ROWS - 1) << _PARTNER_AT))

#: Candidates that are compared at a time, about: comparing takes several times their memory.
_PART = 1 << 21


def search_nearest(
    hashes: UInt64Array,
    distance: int,
    side: IntegerArray | None,
    *,
    keep: int,
    workers: int | None,
    progress: Progress | None,
) -> Pairs:
    """Find pairs with similar low frequencies, where one image is among the nearest of the other.

    The nearest images have the fewest different bits, where the 64 low frequencies count twice; of
    equally near images, the first ones. So the result is the same with any number of processes.

    Args:
        hashes: uint64 [N, 4], at most `MAX_ROWS`.
        distance: number of different low frequencies, at most.
        side: [N]. If given, only hashes with different values are compared.
        keep: number of images that each image is paired with, at most, unless it is among the
            nearest of others.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in hashes.

    Returns:
        As `search_hashes`, but with the distance of all 256 bits.

    """
    nearest = Nearest(len(hashes), keep)
    found = _run(
        nearest_part,
        hashes,
        side,
        None,
        bits=_with_low_frequencies,
        bands=count_bands(low_frequencies(hashes[:1])),
        distance=distance,
        limit=keep,
        workers=workers,
        progress=progress,
    )
    with closing(found):
        for pairs in found:
            nearest.add(pairs)
    return keep_closest(with_all_bits(hashes, nearest.pairs()))


def _with_low_frequencies(hashes: UInt64Array) -> UInt64Array:
    """Return hashes after their low frequencies, uint64 [N, 5]."""
    return np.hstack([low_frequencies(hashes), hashes])


def nearest_part(task: SearchTask) -> Pairs:
    """Find the nearest images of each image of a task; the distance is the score."""
    a, b, rows, start = task.load()
    nearest = Nearest(len(rows), task.limit)
    # Only the low frequencies are searched.
    low_a, low_b = np.ascontiguousarray(a[:, :1]), np.ascontiguousarray(b[:, :1])
    for found in iterate_pairs(low_a, low_b, task.distance, task.band, is_same=task.is_same):
        score = distances(a[found.first], b[found.second])
        pairs = make_pairs(found.first, found.second + start, score, task.symmetry)
        # A symmetric image is close to its own reflection.
        pairs = pairs.take(pairs.first != pairs.second)
        nearest.add(pairs)
        nearest.add(pairs.swapped())
    return nearest.pairs().among(rows)


class Nearest:
    """The nearest candidates of each row that were added.

    Args:
        rows: number of rows.
        keep: number of candidates to keep for each.

    """

    def __init__(self, rows: int, keep: int) -> None:
        self._keep = keep
        self._parts: list[AnyArray] = [np.zeros(0, np.uint64)]
        self._added = 0
        self._most = max(1 << 20, rows * keep)
        #: The last key that is kept of each row that has all that it can have.
        self._last = np.full(rows, 2**64 - 1, np.uint64)

    def add(self, pairs: Pairs) -> None:
        """Add the second image of each pair for the first one; the distance is the score."""
        keys = pairs.first.astype(np.uint64) << _ROW_AT
        keys |= pairs.distance.astype(np.uint64) << _SCORE_AT
        keys |= pairs.second.astype(np.uint64) << _PARTNER_AT
        keys |= pairs.symmetry
        keys = keys[keys < self._last[pairs.first]]
        self._parts.append(keys)
        self._added += len(keys)
        if self._added > self._most:
            self._prune()

    def pairs(self) -> Pairs:
        """Return the candidates that are kept, in the order of row, score, partner and symmetry."""
        keys = self._prune()
        return make_pairs(
            keys >> _ROW_AT,
            keys >> _PARTNER_AT & (MAX_ROWS - 1),
            (keys >> _SCORE_AT & 0xFF).astype(np.uint8),
            (keys & 7).astype(np.uint8),
        )

    def _prune(self) -> UInt64Array:
        """Keep the nearest candidates of each row, and return them in ascending order."""
        keys = np.concatenate(self._parts)
        self._parts, self._added = [], 0
        keys.sort()
        step = max(1, _PART // max(1, self._keep))
        starts = np.arange(step, len(self._last), step).astype(np.uint64) << _ROW_AT
        parts = np.split(keys, np.searchsorted(keys, starts))
        kept = np.concatenate([self._nearest(part) for part in parts])
        self._parts = [kept]
        return kept

    def _nearest(self, keys: UInt64Array) -> UInt64Array:
        """Return the candidates to keep for these rows, from all of them in ascending order."""
        # Each partner counts once, in the symmetry in which it is nearest.
        firsts = np.unique(keys & _PAIR, return_index=True)[1]
        firsts.sort()
        keys = keys[firsts]
        row = keys >> _ROW_AT
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        last = rank == self._keep - 1
        self._last[row[last]] = keys[last]
        return keys[rank < self._keep]


# --- small images ---------------------------------------------------------------------------------


#: Images whose shorter side has fewer pixels are small.
SMALL = 64

#: Of 64 low frequencies, so many may have another sign at the default distance, and at the largest
#: one.
_COARSE_DISTANCE, _MAX_COARSE_DISTANCE = 11, 15

#: Candidates for each small image on average, at most; and how many there may be in any case.
_CANDIDATES, _FEW_CANDIDATES = 50, 1_000_000


#: If more than this share of at least so many small images are near copies, most of them may only
#: look alike.
_MANY_COPIES, _MANY_IMAGES = 0.2, 100


def search_small(
    hashes: UInt64Array,
    distance: int,
    side: NDArray[np.int8] | None,
    *,
    workers: int | None,
    progress: Progress | None,
) -> tuple[Pairs, str]:
    """Find pairs of small images with similar low frequencies, whose pixels are to be compared.

    Args:
        hashes: uint64 [N, 4].
        distance: number of different bits of 256, which is converted to one of 64.
        side: [N]. If given, only images with different values are compared.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in images.

    Returns:
        The pairs, with the number of all 256 bits that differ; and a note for the user about what
        was not compared, empty if everything was.

    Raises:
        CallError: there are too many images.

    """
    if len(hashes) > MAX_ROWS:
        raise CallError(
            f"{len(hashes):,} images have a side of less than {SMALL} pixels, but at most"
            f" {MAX_ROWS:,} can be compared",
            hint=(
                "give fewer datasets, or set --distance -1, which finds only images with the same"
                " bytes"
            ),
        )
    coarse = min(_MAX_COARSE_DISTANCE, distance * _COARSE_DISTANCE // DEFAULT_DISTANCE)
    most = min(max(_CANDIDATES * len(hashes), _FEW_CANDIDATES), search.MAX_PAIRS)
    try:
        pairs = search_hashes(
            hashes,
            coarse,
            side,
            bits=low_frequencies,
            most=most,
            workers=workers,
            progress=progress,
        )
    except TooManyPairsError:
        keep = max(1, most // len(hashes))
        pairs = search_nearest(hashes, coarse, side, keep=keep, workers=workers, progress=progress)
        note = (
            f"so many of the {len(hashes):,} images with a side of less than {SMALL} pixels look"
            f" alike that only the {keep} nearest ones of each were compared with it: some near"
            " copies may be missing. A smaller --distance has fewer candidates"
        )
        return pairs, note
    return with_all_bits(hashes, pairs), ""


def doubt(near: Pairs, is_small: BoolArray) -> str:
    """Return a note for the user if many small images are near copies; else "".

    Most of them may only look alike.

    Args:
        near: near copies.
        is_small: which images are small, bool [N].

    """
    count = int(is_small.sum())
    copies = int(is_small[np.unique(np.concatenate([near.first, near.second]))].sum())
    if count < _MANY_IMAGES or copies <= _MANY_COPIES * count:
        return ""
    return (
        f"{copies:,} of the {count:,} images with a side of less than {SMALL} pixels count as near"
        " copies. Different digits, drawings and icons can look alike: compare some of the pairs."
        " --distance 10 is stricter"
    )
