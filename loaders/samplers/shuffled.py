"""Every sample once an epoch, in an order of its own. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from loaders.samplers.base import Plan, needs_samples, slots
from loaders.samplers.permutation import Rows, permute, stream


@dataclass(frozen=True, slots=True)
class ShuffledSampler:
    """Every sample once an epoch, in a random order of the whole split, another each epoch."""

    @property
    def columns(self) -> tuple[str, ...]:
        """None."""
        return ()

    def plan(
        self,
        columns: Mapping[str, NDArray[Any]],  # noqa: ARG002
        *,
        samples: int,
        batch_size: int,
        world_size: int,
        seed: int,
    ) -> Plan:
        """Fit to a split; see `Sampler`.

        Raises:
            CallError: the split has no sample.

        """
        needs_samples(samples)
        return _ShuffledPlan(samples, batch_size * world_size, seed)


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
        return permute(places, self.samples, stream(self.seed, epoch))
