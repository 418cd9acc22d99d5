"""`ShuffledSampler`: every sample once per epoch, in a random order of the whole split."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loaders.arrays import Columns, Ints
from loaders.options import require_int_field
from loaders.samplers.base import (
    SHARD,
    EpochPlan,
    Fit,
    Indices,
    OwnSampler,
    Plan,
    Rows,
    Traits,
    index_dtype,
)
from loaders.samplers.draws import permutation, permutation_within, random_words
from loaders.transforms.base import check_bool
from manifests.errors import CallError

# What each draw is for: the last number of its key.
_ORDER, _LAYER, _LAST_BATCH, _SHARDS, _DELAY = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class ShuffledSampler(OwnSampler):
    """Every sample once per epoch, in a random order of the whole split that changes every epoch.

    Args:
        spread: spread large images over the batches. The samples are sorted by their number of
            pixels and cut into as many layers as a global batch has samples; each batch takes one
            random sample of each layer. So the largest batch needs hardly more memory than the mean
            batch.
        window: shuffle within a moving window of this many shards instead of the whole split, for a
            dataset in an object store that is larger than the cache: a cache with room for the
            window reads every shard once per epoch. Each epoch has the shards in another random
            order; then every sample moves back by a random distance of up to `window` shards of
            mean size. Two samples that are stored next to each other come on average a third of the
            window apart; in a shuffle of the whole split, a third of the epoch. `None` shuffles the
            whole split.

    """

    spread: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        check_bool("spread", self.spread)
        if self.window is not None:
            require_int_field(self, "window", 1)
            if self.spread:
                raise CallError(
                    "spread=True draws each batch from the whole split, so it cannot be combined"
                    " with window",
                    hint="remove one of them",
                )

    @property
    def columns(self) -> tuple[str, ...]:
        """Width and height with ``spread=True``, the shards with a window, otherwise empty."""
        if self.window is not None:
            return (SHARD,)
        return ("width", "height") if self.spread else ()

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler."""
        return Traits(spread=self.spread)

    def _fitted(self, fit: Fit) -> Plan:
        if self.spread:
            return _SpreadPlan(self._sorted_by_pixels(fit.columns), fit)
        if self.window is not None:
            return _WindowPlan(fit.columns[SHARD], self.window, fit)
        return _ShuffledPlan(fit)

    def _sorted_by_pixels(self, columns: Columns) -> Indices:
        width, height = (columns[name] for name in self.columns)
        if width.dtype.kind not in "iu" or height.dtype.kind not in "iu":
            raise CallError(
                "spread=True needs the sizes of all images, but the sample tables do not have them",
                hint="remove spread=True, or run `dataprep index --overwrite --validate header`",
            )
        # A stable sort gives the same order on every machine.
        order = np.argsort(width.astype(np.int64) * height, kind="stable")
        return order.astype(index_dtype(len(order)))


class _ShuffledPlan(EpochPlan):
    @property
    def lines(self) -> tuple[str, ...]:
        return (
            (
                f"An epoch has each of {self.samples:,} samples once, in a random order of the"
                " whole split."
            ),
        )

    def draw_epoch(self, epoch: int) -> Indices:
        return permutation(self.samples, self.seed, epoch, _ORDER)


class _WindowPlan(EpochPlan):
    def __init__(self, shards: Indices, window: int, fit: Fit) -> None:
        """Plan epochs of rows whose shards are given, int [samples]."""
        super().__init__(fit)
        # Of a subset in another order, the rows of a shard need not follow each other.
        self._by_shard = np.argsort(shards, kind="stable").astype(index_dtype(len(shards)))
        _, self._sizes = np.unique(shards, return_counts=True)
        self._shards = min(window, len(self._sizes))
        self._distance = max(1, round(self.samples * self._shards / len(self._sizes)))

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            (
                f"An epoch has each of {self.samples:,} samples once, shuffled within a moving"
                f" window of {self._shards:,} shards ({self._distance:,} samples); the shards come"
                " in a random order."
            ),
        )

    def draw_epoch(self, epoch: int) -> Indices:
        order = permutation(len(self._sizes), self.seed, epoch, _SHARDS)
        sizes = self._sizes[order]
        firsts = (np.cumsum(self._sizes) - self._sizes)[order]
        # The rows of all shards in this order, and the place that each moves back to.
        rows = np.arange(self.samples) + np.repeat(firsts - (np.cumsum(sizes) - sizes), sizes)
        delays = random_words(self.samples, self.seed, epoch, _DELAY) % np.uint64(self._distance)
        places = delays.astype(np.int64) + np.arange(self.samples)
        order_of_rows: Indices = self._by_shard[rows[np.argsort(places, kind="stable")]]
        return order_of_rows


class _SpreadPlan(EpochPlan):
    def __init__(self, by_pixels: Indices, fit: Fit) -> None:
        super().__init__(fit)
        self._by_pixels = by_pixels

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            (
                f"An epoch has each of {self.samples:,} samples once; a batch has one random sample"
                f" from each of {self.global_batch:,} layers of images of similar size."
            ),
        )

    def draw_epoch(self, epoch: int) -> Indices:
        layers = self.global_batch
        batches, rest = divmod(self.samples, layers)
        # Draw the samples of the short last batch from all samples first, so that it has images of
        # every size.
        last = np.sort(permutation(self.samples, self.seed, epoch, _LAST_BATCH)[:rest])
        full = np.delete(self._by_pixels, last)  # still sorted by pixels
        # Each layer is a row: shuffle every row, then read the columns as batches.
        order = permutation_within(np.repeat(np.arange(layers), batches), self.seed, epoch, _LAYER)
        matrix = full[order].reshape(layers, batches)[_interleaved(layers)]
        return np.concatenate([matrix.T.ravel(), self._by_pixels[last]])


def _interleaved(count: int) -> Rows:
    """Return 0 .. count - 1 in an order where each slice, such as a rank's, covers the range evenly."""
    # Steps of the golden ratio fill a circle evenly, wherever one stops.
    step = round(count * (5**0.5 - 1) / 2)
    while math.gcd(step, count) > 1:
        step += 1
    return np.arange(count) * step % count


@dataclass(frozen=True, slots=True)
class SequentialSampler(OwnSampler):
    """Every sample once per epoch, in stored order.

    Each global batch follows the previous one in the split.
    """

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler."""
        return Traits(draws=False)

    def _fitted(self, fit: Fit) -> Plan:
        return _SequentialPlan(fit)


class _SequentialPlan(EpochPlan):
    @property
    def lines(self) -> tuple[str, ...]:
        return (f"An epoch has each of {self.samples:,} samples once, in stored order.",)

    def draw_epoch(self, epoch: int) -> Indices:
        del epoch
        return np.arange(self.samples, dtype=index_dtype(self.samples))


@dataclass(frozen=True, slots=True)
class RepeatedSampler(OwnSampler):
    """Repeated augmentation (Hoffer et al., CVPR 2020), as DeiT's ``RASampler`` does it.

    A global batch contains each of its samples `repeats` times, and each copy is augmented on its
    own. The copies are as far apart in the global batch as possible, so with at least `repeats`
    ranks each is on another rank. An epoch is as long as the split, so it contains one in `repeats`
    of all samples, chosen again in each epoch.

    Args:
        repeats: copies of a sample in a global batch, from 2.
        samples: samples in an epoch over all ranks, counted with their copies. ``None`` means the
            number of samples in the split.

    Raises:
        CallError: an argument is wrong; the message names it.

    """

    repeats: int = 3
    samples: int | None = None

    def __post_init__(self) -> None:
        require_int_field(self, "repeats", 2)
        if self.samples is not None:
            require_int_field(self, "samples", 1)

    def _fitted(self, fit: Fit) -> Plan:
        return _RepeatedPlan(self, fit)


class _RepeatedPlan(EpochPlan):
    def __init__(self, sampler: RepeatedSampler, fit: Fit) -> None:
        super().__init__(fit, sampler.samples)
        self._repeats = sampler.repeats
        self._rows = fit.samples

    @property
    def lines(self) -> tuple[str, ...]:
        chosen = -(-self.samples // self._repeats)
        return (
            (
                f"An epoch has {self.samples:,} samples: {chosen:,} random ones, each up to"
                f" {self._repeats} times in the same global batch or in two that follow each other."
            ),
        )

    def draw_epoch(self, epoch: int) -> Indices:
        chosen = -(-self.samples // self._repeats)
        rounds = -(-chosen // self._rows)
        # A split with few samples is read several times.
        rows = np.concatenate(
            [permutation(self._rows, self.seed, epoch, number, _ORDER) for number in range(rounds)]
        )
        stream = np.repeat(rows[:chosen], self._repeats)[: self.samples]
        # The last batch may be shorter.
        full = self.samples - self.samples % self.global_batch
        batches = stream[:full].reshape(-1, self.global_batch)
        last = stream[full:]
        apart = batches[:, self._apart(self.global_batch)].ravel()
        return np.concatenate([apart, last[self._apart(len(last))]])

    def _apart(self, count: int) -> Ints:
        """Return 0 .. count - 1 with the copies of a sample far apart: 0, 3, 6, ..., 1, 4, ..."""
        return np.argsort(np.arange(count) % self._repeats, kind="stable")
