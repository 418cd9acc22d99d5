"""Search for the nearest hashes of each image, where there are more near ones than can be compared by their pixels."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.near import INVERSES, Search, SearchTask, count_bits, keep_closest
from dataprep.duplicates.search import Pairs, distances, iterate_pairs, low_frequencies
from dataprep.progress import Progress

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
) -> tuple[Pairs, NDArray[np.uint8]]:
    """Find pairs of images with similar low frequencies, of which one is among the nearest of the other.

    The nearest are those with the fewest different bits, where those of the 64 low frequencies
    count twice; of equally near images, the first ones. So the result is the same with any number
    of processes.

    Args:
        hashes: uint64 [N, 4], at most `MAX_ROWS`.
        distance: number of different low frequencies, at most.
        side: [N]. If given, only hashes with different values are compared.
        keep: number of images that each image is paired with, at most, unless it is among the
            nearest of others.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in hashes.

    Returns:
        As `near.search_hashes`, but the distance is that of all 256 bits.

    """
    nearest = Nearest(len(hashes), keep)
    search = Search(hashes, side, distance, low_frequencies, limit=keep, with_hashes=True)
    with closing(search.run(nearest_part, workers, progress)) as results:
        for task, firsts, seconds in results:
            rows, partners = search.sides[task.first], search.sides[task.second]
            nearest.add(*_unpack(firsts, rows, partners))
            nearest.add(*_unpack(seconds, partners, rows))
    row, _, partner, symmetry = _unpack(nearest.keys())
    bits = count_bits(hashes, row, partner, symmetry)
    return keep_closest(Pairs(row.astype(np.int32), partner.astype(np.int32), bits), symmetry)


def nearest_part(task: SearchTask) -> tuple[SearchTask, NDArray[np.uint64], NDArray[np.uint64]]:
    """Find the nearest images of those of each side in a task: keys of `Nearest`, with rows of the sides."""
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
        """Add candidates. Score and symmetry are those of the partner."""
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
        """Return the candidates to keep of those of some rows, in ascending order."""
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
