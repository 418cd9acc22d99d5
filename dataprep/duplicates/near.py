"""Search for near hashes in all eight rotations and reflections, in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import combinations_with_replacement
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates import search
from dataprep.duplicates.pixels import SYMMETRIES, Symmetry, transform_hashes
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
)
from dataprep.engines import LocalEngine
from dataprep.engines.base import Result
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress
from dataprep.storage.local import save_array, temporary_folder
from manifests.errors import CallError

#: Fewer comparisons than this are made in this process alone.
_FEW_COMPARISONS = 1e9

#: Among the same images, this rotation finds the pairs of the inverse rotation, in the other order.
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
    parts: list[Pairs] = []
    total = 0
    search = Search(hashes, side, distance, bits, skip=skip, limit=most)
    with closing(search.run(search_part, workers, progress)) as results:
        for task, found in results:
            parts.append(found.among(search.sides[task.first], search.sides[task.second]))
            total += len(found.first)
            check_count(total, distance, most)
    return keep_closest(join_pairs(parts))


class Search:
    """A search that is divided into tasks: one for each band and symmetry of two sides.

    Here, a side is two sides if some of its hashes are compared with each other, and others are not.

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
        value, skipped = np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.bool_)
        if side is not None:
            value = np.unique(side, return_inverse=True)[1]
        if skip is not None:
            skipped = skip
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
        """Yield the numbers of two sides that are compared; twice the same number for one side."""
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
        a = np.load(_path(self.folder, kind, self.first, 0), mmap_mode="r")
        b = np.load(_path(self.folder, kind, self.second, self.symmetry), mmap_mode="r")
        return a, b


def _path(folder: str, kind: str, side: int, symmetry: int) -> str:
    return os.path.join(folder, f"{kind}-{side}-{symmetry}.npy")


def search_part(task: SearchTask) -> tuple[SearchTask, Pairs]:
    """Find the pairs of a task, as rows of its sides."""
    a, b = task.load("bits")
    pairs = find_pairs(a, b, task.distance, task.band, is_same=task.is_same, most=task.limit)
    return task, make_pairs(pairs.first, pairs.second, pairs.distance, task.symmetry)


def keep_closest(pairs: Pairs) -> Pairs:
    """Keep each pair once, with the symmetry in which it is closest.

    `first` becomes the smaller.
    """
    is_reversed = pairs.first > pairs.second
    symmetry = np.where(is_reversed, INVERSES[pairs.symmetry], pairs.symmetry)
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    order = np.lexsort((symmetry, pairs.distance, high, low))
    order = order[low[order] != high[order]]  # a symmetric image is close to its own reflection
    new = np.ones(len(order), np.bool_)
    new[1:] = (low[order[1:]] != low[order[:-1]]) | (high[order[1:]] != high[order[:-1]])
    return Pairs(low, high, pairs.distance, symmetry).take(order[new])


def with_all_bits(
    hashes: NDArray[np.uint64],
    first: NDArray[np.integer],
    second: NDArray[np.integer],
    symmetry: NDArray[np.uint8],
) -> Pairs:
    """Return pairs of rows with the number of all different bits, after the symmetry of the second one."""
    bits = np.zeros(len(symmetry), np.uint8)
    for number, name in enumerate(SYMMETRIES):
        some = symmetry == number
        turned = transform_hashes(hashes[second[some]], name)
        bits[some] = distances(hashes[first[some]], turned).clip(max=255)
    return make_pairs(first, second, bits, symmetry)


#: The symmetry that undoes each one: positions in `SYMMETRIES`. Only a quarter turn is not its own.
INVERSES = np.arange(len(SYMMETRIES), dtype=np.uint8)
_QUARTERS = [SYMMETRIES.index("rotated 90"), SYMMETRIES.index("rotated 270")]
INVERSES[_QUARTERS] = _QUARTERS[::-1]


# --- the nearest hashes of each image, where too many are near --------------------------------------


#: A candidate is one number: row, score, partner and symmetry, so sorted ones are in the order of
#: the score.
_ROW_BITS, _SCORE_BITS, _SYMMETRY_BITS = 26, 8, 3

#: Images that can be compared: their rows have `_ROW_BITS`.
MAX_ROWS = 1 << _ROW_BITS

#: Candidates that are sorted at a time, about: sorting takes several times their memory.
_PART = 1 << 21

_NEVER = np.uint64(2**64 - 1)


def search_nearest(
    hashes: NDArray[np.uint64],
    distance: int,
    side: NDArray[np.integer] | None,
    *,
    keep: int,
    workers: int | None,
    progress: Progress | None,
) -> Pairs:
    """Find pairs of images with similar low frequencies, of which one is among the nearest of the other.

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
    search = Search(hashes, side, distance, low_frequencies, limit=keep, with_hashes=True)
    with closing(search.run(nearest_part, workers, progress)) as results:
        for task, firsts, seconds in results:
            rows, partners = search.sides[task.first], search.sides[task.second]
            nearest.add(*_unpack(firsts, rows, partners))
            nearest.add(*_unpack(seconds, partners, rows))
    row, _, partner, symmetry = _unpack(nearest.keys())
    return keep_closest(with_all_bits(hashes, row, partner, symmetry))


def nearest_part(task: SearchTask) -> tuple[SearchTask, NDArray[np.uint64], NDArray[np.uint64]]:
    """Find the nearest images of each side of a task: keys of `Nearest`, with rows of the sides."""
    bits, hashes = task.load("bits"), task.load("hashes")
    keep = task.limit or 0
    firsts = Nearest(len(hashes[0]), keep)
    seconds = firsts if task.first == task.second else Nearest(len(hashes[1]), keep)
    symmetry = np.uint8(task.symmetry)
    for pairs in iterate_pairs(*bits, task.distance, task.band, is_same=task.is_same):
        first, second, low = pairs.first, pairs.second, pairs.distance
        if task.first == task.second:  # a symmetric image is close to its own reflection
            is_other = first != second
            first, second, low = first[is_other], second[is_other], low[is_other]
        score = low + distances(hashes[0][first], hashes[1][second])
        firsts.add(first, score, second, symmetry)
        seconds.add(second, score, first, INVERSES[symmetry])
    return task, firsts.keys(), np.zeros(0, np.uint64) if seconds is firsts else seconds.keys()


class Nearest:
    """The nearest candidates of each row that were added.

    Args:
        rows: number of rows.
        keep: number of candidates to keep for each.

    """

    def __init__(self, rows: int, keep: int) -> None:
        self._keep = keep
        self._kept = np.zeros(0, np.uint64)
        self._added: list[NDArray[np.uint64]] = []
        self._count = 0
        self._most = max(1 << 20, rows * keep)
        #: The last key that is kept of each row that has all that it can have.
        self._last = np.full(rows, _NEVER, np.uint64)

    def add(
        self,
        row: NDArray[np.integer],
        score: NDArray[np.integer],
        partner: NDArray[np.integer],
        symmetry: NDArray[np.uint8] | np.uint8,
    ) -> None:
        """Add candidates; score and symmetry describe the partner."""
        keys = row.astype(np.uint64) << np.uint64(_SCORE_BITS + _ROW_BITS + _SYMMETRY_BITS)
        keys |= score.astype(np.uint64) << np.uint64(_ROW_BITS + _SYMMETRY_BITS)
        keys |= partner.astype(np.uint64) << np.uint64(_SYMMETRY_BITS)
        keys |= np.asarray(symmetry).astype(np.uint64)
        keys = keys[keys < self._last[row]]
        self._added.append(keys)
        self._count += len(keys)
        if self._count > self._most:
            self._prune()

    def keys(self) -> NDArray[np.uint64]:
        """Return the candidates that are kept, in ascending order, uint64 [N]."""
        self._prune()
        return self._kept

    def _prune(self) -> None:
        added = np.concatenate([np.zeros(0, np.uint64), *self._added])
        self._added, self._count = [], 0
        added.sort()
        rows = np.arange(0, len(self._last), max(1, _PART // max(1, self._keep))).astype(np.uint64)
        starts = rows << np.uint64(_SCORE_BITS + _ROW_BITS + _SYMMETRY_BITS)
        parts = zip(
            *(np.split(keys, np.searchsorted(keys, starts)) for keys in (self._kept, added)),
            strict=True,
        )
        self._kept = np.concatenate(
            [np.zeros(0, np.uint64), *(self._nearest(np.concatenate(part)) for part in parts)]
        )

    def _nearest(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the candidates to keep for these rows, in ascending order."""
        # Each partner counts once, in the symmetry in which it is nearest.
        keys = _exchange(keys, _SCORE_BITS, _ROW_BITS)
        keys.sort()
        pair = keys >> np.uint64(_SCORE_BITS + _SYMMETRY_BITS)
        keys = _exchange(
            keys[np.append(True, pair[1:] != pair[:-1])] if len(keys) else keys,
            _ROW_BITS,
            _SCORE_BITS,
        )
        keys.sort()
        row = _unpack(keys)[0]
        starts = (
            np.flatnonzero(np.append(True, row[1:] != row[:-1]))
            if len(row)
            else np.zeros(0, np.int64)
        )
        counts = np.diff(np.append(starts, len(row)))
        rank = np.arange(len(row)) - np.repeat(starts, counts)
        last = rank == self._keep - 1
        self._last[row[last]] = keys[last]
        kept: NDArray[np.uint64] = keys[rank < self._keep]
        return kept


def _exchange(keys: NDArray[np.uint64], high: int, low: int) -> NDArray[np.uint64]:
    """Exchange the two fields between row and symmetry, which have so many bits."""
    above, below = np.uint64(high + low + _SYMMETRY_BITS), np.uint64(_SYMMETRY_BITS)
    outer = keys >> above << above | keys & np.uint64((1 << _SYMMETRY_BITS) - 1)
    upper = keys >> np.uint64(low + _SYMMETRY_BITS) & np.uint64((1 << high) - 1)
    lower = keys >> below & np.uint64((1 << low) - 1)
    result: NDArray[np.uint64] = outer | lower << (below + np.uint64(high)) | upper << below
    return result


def _unpack(
    keys: NDArray[np.uint64],
    rows: NDArray[np.int64] | None = None,
    partners: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return row, score, partner and symmetry of candidates.

    Rows and partners can be positions in other arrays.
    """
    row = (keys >> np.uint64(_SCORE_BITS + _ROW_BITS + _SYMMETRY_BITS)).astype(np.int64)
    score = (keys >> np.uint64(_ROW_BITS + _SYMMETRY_BITS)).astype(np.int64) & (
        (1 << _SCORE_BITS) - 1
    )
    partner = (keys >> np.uint64(_SYMMETRY_BITS)).astype(np.int64) & (MAX_ROWS - 1)
    symmetry = (keys & np.uint64((1 << _SYMMETRY_BITS) - 1)).astype(np.uint8)
    return (
        row if rows is None else rows[row],
        score,
        partner if partners is None else partners[partner],
        symmetry,
    )


# --- small images -----------------------------------------------------------------------------------


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
    hashes: NDArray[np.uint64],
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
    return with_all_bits(hashes, pairs.first, pairs.second, pairs.symmetry), ""


def doubt(near: Pairs, is_small: NDArray[np.bool_]) -> str:
    """Return a note for the user if so many small images are near copies that many may only look alike; else "".

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
