"""`ShuffledSampler`: every sample once per epoch, in a random order of the whole split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import EpochPlan, Indices, Plan, Rows, check_not_empty, index_dtype
from loaders.samplers.shuffle import shuffled, shuffled_within
from manifests.errors import CallError

# What each draw is for: the last number of its key.
_ORDER, _LAYER, _LAST_BATCH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ShuffledSampler:
    """Every sample once per epoch, in a random order of the whole split that changes every epoch.

    Args:
        spread: spread large images over the batches. The samples are sorted by their number of pixels and cut into as
            many layers as a global batch has samples; each batch takes one random sample of each layer. So the largest
            batch needs hardly more memory than the mean batch.

    """

    spread: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.spread, bool):
            raise CallError(f"spread must be True or False, got {self.spread!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Width and height with ``spread=True``, otherwise empty."""
        return ("width", "height") if self.spread else ()

    def plan(
        self, columns: Mapping[str, NDArray[Any]], *, samples: int, batch_size: int, world_size: int, seed: int
    ) -> Plan:
        """Fit the sampler to a split; see `Sampler`.

        Raises:
            CallError: the split has no samples, or ``spread=True`` and the size of an image is unknown.

        """
        check_not_empty(samples)
        if self.spread:
            return _SpreadPlan(self._sorted_by_pixels(columns), batch_size * world_size, seed)
        return _ShuffledPlan(samples, batch_size * world_size, seed)

    def _sorted_by_pixels(self, columns: Mapping[str, NDArray[Any]]) -> Indices:
        width, height = (columns[name] for name in self.columns)
        if width.dtype.kind not in "iu" or height.dtype.kind not in "iu":
            raise CallError(
                "spread=True needs the sizes of all images, but the sample tables do not have them",
                hint="remove spread=True, or run `dataprep index --overwrite --validate header`",
            )
        order = np.argsort(width.astype(np.int64) * height, kind="stable")
        return order.astype(index_dtype(len(order)))


class _ShuffledPlan(EpochPlan):
    @property
    def lines(self) -> tuple[str, ...]:
        return (f"An epoch has each of {self.samples:,} samples once, in a random order of the whole split.",)

    def compute_epoch(self, epoch: int) -> Indices:
        return shuffled(self.samples, self.seed, epoch, _ORDER)


class _SpreadPlan(EpochPlan):
    def __init__(self, by_pixels: Indices, global_batch: int, seed: int) -> None:
        super().__init__(len(by_pixels), global_batch, seed)
        self._by_pixels = by_pixels

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            f"An epoch has each of {self.samples:,} samples once; a batch has one random sample from each of "
            f"{self.global_batch:,} layers of images of similar size.",
        )

    def compute_epoch(self, epoch: int) -> Indices:
        layers = self.global_batch
        batches, rest = divmod(self.samples, layers)
        # Draw the samples of the short last batch from all samples first, so that it has images of every size.
        last = np.sort(shuffled(self.samples, self.seed, epoch, _LAST_BATCH)[:rest])
        full = np.delete(self._by_pixels, last)
        # Each layer is a row: shuffle every row, then read the columns as batches.
        order = shuffled_within(np.repeat(np.arange(layers), batches), self.seed, epoch, _LAYER)
        matrix = full[order].reshape(layers, batches)[_interleaved(layers)]
        return np.concatenate([matrix.T.ravel(), self._by_pixels[last]])


def _interleaved(count: int) -> Rows:
    """Return 0 .. count - 1 in an order where each slice covers the range evenly, because each rank reads a slice."""
    step = round(count * (5**0.5 - 1) / 2)
    while math.gcd(step, count) > 1:
        step += 1
    return np.arange(count) * step % count
