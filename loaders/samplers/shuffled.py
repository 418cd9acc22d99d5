"""Every sample once an epoch, in an order of its own. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Plan, needs_samples, slots
from loaders.samplers.permutation import Keys, Rows, hashed, permute, stream
from manifests.errors import CallError

# What each draw is for: with seed and epoch, it names a stream of its own.
_LAYER, _LEFT = 0, 1

#: Places of an order that are computed at once. A place costs about 450 ns among 256, and 120 among 4,096 or more.
_STRETCH = 4096


@dataclass(frozen=True, slots=True)
class ShuffledSampler:
    """Every sample once an epoch, in a random order of the whole split, another each epoch.

    Args:
        spread: whether large images are spread over the batches: the samples are sorted by their pixels into as many
            layers as a global batch has places, and each batch takes one of each layer. So the worst batch takes
            hardly more memory than the mean. Who is in a batch with whom stays random, between the layers.

    """

    spread: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.spread, bool):
            raise CallError(f"spread must be True or False, got {self.spread!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        """None, or the images' sizes where large ones are spread."""
        return ("width", "height") if self.spread else ()

    def plan(
        self, columns: Mapping[str, NDArray[Any]], *, samples: int, batch_size: int, world_size: int, seed: int
    ) -> Plan:
        """Fit to a split; see `Sampler`.

        Raises:
            CallError: the split has no sample, or large images are to be spread and some sizes are not known.

        """
        needs_samples(samples)
        if not self.spread:
            return _ShuffledPlan(samples, batch_size * world_size, seed)
        sides = [columns[name] for name in self.columns]
        if any(side.dtype.kind not in "iu" for side in sides):
            raise CallError(
                "spread=True, and the sample tables do not state the sizes of all images",
                hint="leave spread out, or index the shards with `--validate header`",
            )
        order = np.argsort(sides[0].astype(np.int64) * sides[1], kind="stable")
        return _SpreadPlan(order.astype(np.int32 if samples < 2**31 else np.int64), batch_size * world_size, seed)


@dataclass(frozen=True, slots=True)
class _ShuffledPlan:
    samples: int
    global_batch: int
    seed: int

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"An epoch has each of {self.samples:,} samples once, in a random order of the whole split.",)

    def batch(self, epoch: int, number: int) -> Rows:
        places = slots(number, self.global_batch, self.samples)
        first, last = (int(place) // _STRETCH for place in places[[0, -1]])
        parts = [_stretch(self.samples, self.seed, epoch, each) for each in range(first, last + 1)]
        rows: Rows = np.concatenate(parts)[places - first * _STRETCH]
        return rows


@lru_cache(maxsize=16)
def _stretch(samples: int, seed: int, epoch: int, number: int) -> Rows:
    """Return what stands at places [number * _STRETCH, (number + 1) * _STRETCH) of an epoch's order."""
    places = np.arange(number * _STRETCH, min((number + 1) * _STRETCH, samples))
    return permute(places, samples, stream(seed, epoch))


@dataclass(frozen=True, slots=True, eq=False)
class _SpreadPlan:
    """Layer j of the whole batches are places [j * batches, (j + 1) * batches) of the sorted samples.

    What does not fill a batch is drawn out of all first, so that it falls on no size.
    """

    order: NDArray[np.signedinteger[Any]]
    global_batch: int
    seed: int

    @property
    def samples(self) -> int:
        return len(self.order)

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            f"An epoch has each of {self.samples:,} samples once; each batch has one of each of {self.global_batch:,} "
            "layers of like size, drawn at random.",
        )

    def batch(self, epoch: int, number: int) -> Rows:
        places = slots(number, self.global_batch, self.samples)
        batches, left = divmod(self.samples, self.global_batch)
        out = np.sort(permute(np.arange(left), self.samples, stream(self.seed, epoch, _LEFT)))
        if number == batches:
            return self.order[out].astype(np.int64)
        layers = _turns(len(places))
        keys: Keys = hashed(stream(self.seed, epoch, _LAYER), layers)
        within = permute(np.full(len(places), number), np.full(len(places), batches), keys)
        kept = layers * batches + within
        # Place k of those that are not drawn out, among all: past every drawn one that stands before it.
        among = kept + np.searchsorted(out - np.arange(left), kept, side="right")
        rows: Rows = self.order[among].astype(np.int64)
        return rows


def _turns(count: int) -> Rows:
    """Return 0 .. count - 1 in an order of which any stretch is spread evenly, for each rank takes a stretch."""
    step = round(count * (5**0.5 - 1) / 2)
    while math.gcd(step, count) > 1:
        step += 1
    return np.arange(count) * step % count
