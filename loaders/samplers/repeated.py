"""`RepeatedSampler`: several differently augmented copies of a sample in one global batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.integers import require_int_field
from loaders.samplers.base import Indices, Plan, check_not_empty
from loaders.samplers.order import EpochPlan
from loaders.samplers.shuffle import shuffled

# What the draw is for: the last number of its key.
_ORDER = 0


@dataclass(frozen=True, slots=True)
class RepeatedSampler:
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

    @property
    def columns(self) -> tuple[str, ...]:
        """Empty: the order depends on no column."""
        return ()

    def plan(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        samples: int,
        batch_size: int,
        world_size: int,
        seed: int,
    ) -> Plan:
        """Fit the sampler to a split; see `Sampler`.

        Raises:
            CallError: the split has no samples.

        """
        del columns
        check_not_empty(samples)
        return _RepeatedPlan(self, samples, batch_size * world_size, seed)


class _RepeatedPlan(EpochPlan):
    def __init__(self, sampler: RepeatedSampler, rows: int, global_batch: int, seed: int) -> None:
        super().__init__(sampler.samples or rows, global_batch, seed)
        self._repeats = sampler.repeats
        self._rows = rows

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
        rows = np.concatenate(
            [shuffled(self._rows, self.seed, epoch, number, _ORDER) for number in range(rounds)]
        )
        stream = np.repeat(rows[:chosen], self._repeats)[: self.samples]
        full = self.samples - self.samples % self.global_batch
        batches = stream[:full].reshape(-1, self.global_batch)
        apart = [batches[:, self._apart(self.global_batch)].ravel()] if full else []
        return np.concatenate([*apart, stream[full:][self._apart(self.samples - full)]])

    def _apart(self, count: int) -> NDArray[np.int64]:
        """Return 0 .. count - 1 in the order that places the copies of a sample far apart: 0, 3, 6, ..., 1, 4, ..."""
        return np.concatenate(
            [np.arange(first, count, self._repeats) for first in range(self._repeats)]
        )
