"""When each image is needed next. Pure functions over arrays: no I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

#: The image is not needed within the batches that were looked at.
NEVER = np.iinfo(np.int64).max


def next_uses(batches: Sequence[Rows], samples: int) -> NDArray[np.int64]:
    """Return when each row is needed next, counted in samples from the first batch.

    `NEVER` if it is not.

    Args:
        batches: the rows of the coming batches, in order.
        samples: number of rows in the split.

    Returns:
        int64 [samples].

    """
    uses = np.full(samples, NEVER, np.int64)
    if batches:
        order = np.concatenate(batches)
        # Of several assignments to a row, the last one counts: so go from the end to the beginning.
        uses[order[::-1]] = np.arange(len(order))[::-1]
    return uses


def choose_victims(
    uses: NDArray[np.int64], pages: NDArray[np.int64], needed: int, *, keep: int
) -> NDArray[np.int64]:
    """Choose which images to evict: those that are needed latest, as few as possible.

    An optimal cache replaces what is needed latest (L. A. Belady, "A study of replacement
    algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966). The age of an image
    says nothing here: each is read once per epoch, so the oldest one is often needed first.

    Args:
        uses: when each image that is present is needed next, in samples from now, int64 [N].
        pages: the disk space of each, in any unit, int64 [N].
        needed: space to free, in the same unit.
        keep: images that are needed before this number of samples stay.

    Returns:
        Indices into `uses`, int64 [victims]. All together may be smaller than `needed`.

    """
    candidates = np.flatnonzero(uses >= keep)
    order = candidates[np.argsort(-uses[candidates], kind="stable")]
    freed = np.cumsum(pages[order])
    return order[: int(np.searchsorted(freed, needed)) + 1]
