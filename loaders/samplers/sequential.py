"""`SequentialSampler`: every sample once per epoch, in stored order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Indices, Plan, check_not_empty, index_dtype
from loaders.samplers.order import EpochPlan


@dataclass(frozen=True, slots=True)
class SequentialSampler:
    """Every sample once per epoch, in stored order.

    Each global batch follows the previous one in the split.
    """

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
        return _SequentialPlan(samples, batch_size * world_size, seed)


class _SequentialPlan(EpochPlan):
    @property
    def lines(self) -> tuple[str, ...]:
        return (f"An epoch has each of {self.samples:,} samples once, in stored order.",)

    def draw_epoch(self, epoch: int) -> Indices:
        del epoch
        return np.arange(self.samples, dtype=index_dtype(self.samples))
