"""Decisions of a cache, pure: how far to fetch in advance, in what pieces, and what to evict.

`Fetcher` and `Room` follow them, and `loaders.simulate` computes what follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loaders.arrays import Ints
from loaders.cache.layout import Layout

#: Requests of a process on their way at a time.
CONNECTIONS = 32

#: With this many batches in advance, whole blocks are fetched; before, only what is needed at once,
#: unless the blocks take at most `_BLOCKS_COST` times as long.
_BLOCKS_AFTER = 4
_BLOCKS_COST = 1.5

#: Bytes of images that are fetched before they are needed.
LOOKAHEAD_BYTES = 1 << 30
#: Minimum number of batches that are fetched before they are needed.
LOOKAHEAD_BATCHES = 4

#: Maximum number of batches whose requests are combined. At first it is one, so that the first
#: batch arrives soon.
MOST_BATCHES_AT_ONCE = 64

#: Batches of all ranks that the cache must have room for: the current one, and the next ones, which
#: are fetched in advance.
_LEAST_BATCHES = 8

#: With a limit, at most this part of it is fetched before it is needed.
_LIMITED_LOOKAHEAD = 1 / 4

#: Evicting frees at least this part of the limit at once, because looking for what is needed latest
#: takes a while.
AT_ONCE = 1 / 32

#: The image is not needed within the batches that were looked at.
NEVER = np.iinfo(np.int64).max


# --- what to fetch --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lookahead:
    """How far a process fetches before it needs the images.

    Attributes:
        samples: samples that are fetched in advance.
        in_blocks: whether neighbors of the needed images are fetched too.

    """

    samples: int
    in_blocks: bool

    @classmethod
    def of(cls, layout: Layout, limit: int | None = None) -> Lookahead:
        """Return the lookahead for a split.

        With a limit of the cache in bytes, only requested images are fetched, and at most a part of
        the limit.
        """
        # Mean size of the images of a sample.
        mean = max(1, int(layout.sizes.mean()) * len(layout.wanted))
        if limit is None:
            return cls(LOOKAHEAD_BYTES // mean, in_blocks=True)
        size = min(LOOKAHEAD_BYTES, int(limit * _LIMITED_LOOKAHEAD))
        return cls(size // mean, in_blocks=False)

    def most(self, batch_size: int, batches: int) -> int:
        """Return how many batches are fetched in advance, of an epoch of so many batches."""
        return min(max(LOOKAHEAD_BATCHES, self.samples // batch_size), 2 * batches)

    def at_once(self, ahead: int, batches: int) -> int:
        """Return how many batches are requested together, if so many are requested already."""
        return min(max(1, ahead), MOST_BATCHES_AT_ONCE, batches)

    def blocks(self, layout: Layout, absent: Ints, ahead: int) -> Ints | None:
        """Return the rows of the blocks of absent rows; `None` if only these rows are fetched."""
        blocks = layout.blocks(absent)
        late = ahead >= _BLOCKS_AFTER
        if late or layout.cost(blocks) <= _BLOCKS_COST * layout.cost(absent):
            return blocks
        return None


def least_room(space: int, batch: int, samples: int) -> int:
    """Return how many bytes of a split of `samples`, which takes `space`, a cache must have room for."""
    return min(_LEAST_BATCHES * batch * space // samples, space)


# --- what to evict --------------------------------------------------------------------------------


def next_uses(batches: Sequence[Ints], samples: int) -> Ints:
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


def choose_victims(uses: Ints, pages: Ints, needed: int) -> Ints:
    """Choose which images to evict: the ones that are needed latest, as few as possible.

    An optimal cache replaces what is needed latest (L. A. Belady, "A study of replacement
    algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966). The age of an image
    says nothing here: each is read once per epoch, so the oldest one is often needed first.

    Args:
        uses: when each image that is present is needed next, in samples from now, int64 [N].
        pages: the disk space of each, in any unit, int64 [N].
        needed: space to free, in the same unit.

    Returns:
        Indices into `uses`, int64 [victims]. All together may be smaller than `needed`.

    """
    order = np.argsort(-uses, kind="stable")
    freed = np.cumsum(pages[order])
    return order[: int(np.searchsorted(freed, needed)) + 1]
