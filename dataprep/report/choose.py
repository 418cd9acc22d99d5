"""Choose the images to decode: a random sample for statistics, and some of each class for its contact sheet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Pictures of a class on its contact sheet, if they fit.
PER_CLASS = 12


def random_ranks(samples: int, seed: int) -> NDArray[np.uint64]:
    """Return a random number for each sample.

    NumPy guarantees the raw output of PCG64, so it never changes.
    """
    return np.asarray(np.random.PCG64(seed).random_raw(samples), np.uint64)


def sample_rows(ranks: NDArray[np.uint64], limit: int) -> NDArray[np.int64]:
    """Return the rows of a random sample without replacement, ascending.

    All rows if there are at most `limit`.
    """
    if len(ranks) <= limit:
        return np.arange(len(ranks))
    return np.sort(np.argpartition(ranks, limit)[:limit])


def rows_per_class(
    labels: NDArray[np.integer], ranks: NDArray[np.uint64], classes: NDArray[np.int64], most: int
) -> dict[int, NDArray[np.int64]]:
    """Choose up to `most` random rows of each of some classes.

    Fewer rows are the beginning of more.

    Args:
        labels: class of each sample.
        ranks: random number of each sample.
        classes: labels of the classes.
        most: rows per class.

    """
    chosen = np.flatnonzero(np.isin(labels, classes))
    order = chosen[np.lexsort((ranks[chosen], labels[chosen]))]
    bounds = np.searchsorted(labels[order], np.stack([classes, classes + 1]))
    return {
        int(label): order[low : min(high, low + most)]
        for label, low, high in zip(classes, *bounds, strict=True)
    }


def shown_classes(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the classes that get a contact sheet, ascending: all with samples, or the smallest and the largest.

    Args:
        counts: samples of each class.
        most: number of sheets.

    """
    present = np.flatnonzero(counts)
    if len(present) <= most:
        return present
    ordered = present[np.argsort(counts[present], kind="stable")]
    rarest = (most + 1) // 2
    return np.sort(np.concatenate([ordered[:rarest], ordered[len(ordered) - (most - rarest) :]]))
