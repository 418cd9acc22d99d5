"""Select samples of a source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataprep.sources.base import Source


def take_rows(source: Source, rows: NDArray[np.int64]) -> Source:
    """Return a source with some samples, in this order.

    Splits without samples are removed, classes are not.

    Args:
        source: the samples.
        rows: rows to keep, int64 [N].

    """
    split = source.split[rows]
    kept = np.unique(split)
    return replace(
        source,
        splits=tuple(source.splits[number] for number in kept.tolist()),
        path=source.path.take(rows),
        label=source.label[rows],
        split=np.searchsorted(kept, split).astype(np.int8),
        size=source.size[rows],
        extra=source.extra.take(rows) if source.extra.num_columns else source.extra,
        stamp=None if source.stamp is None else source.stamp[rows],
        location=None if source.location is None else source.location.take(rows),
        group=None if source.group is None else source.group[rows],
        measured=None if source.measured is None else source.measured.take(rows),
        copies=None if source.copies is None else source.copies[rows],
    )
