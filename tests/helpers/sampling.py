"""Fit samplers to columns, and read whole epochs of their plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np


def fit(
    sampler: Any,
    columns: Mapping[str, np.ndarray] | None = None,
    *,
    samples: int | None = None,
    batch_size: int = 8,
    world_size: int = 1,
    seed: int = 0,
) -> Any:
    """Return the plan of a sampler. By default, the split has a sample for each value of a column."""
    columns = columns or {}
    if samples is None:
        samples = len(next(iter(columns.values())))
    return sampler.plan(
        columns, samples=samples, batch_size=batch_size, world_size=world_size, seed=seed
    )


def epoch_of(plan: Any, epoch: int = 0, size: int = 8) -> np.ndarray:
    """Return the rows of an epoch in order; `size` is the global batch: int64 [samples]."""
    batches = getattr(plan, "batches", -(-plan.samples // size))  # of buckets, fewer may be full
    return np.concatenate([plan.batch(epoch, number) for number in range(batches)])


@dataclass(frozen=True)
class Still:
    """A sampler of four clips of four frames, each of one row, so that all frames are equal."""

    rows: tuple[int, ...] = (5, 5, 20, 20)
    columns: tuple[str, ...] = ()

    def plan(self, columns: Mapping[str, np.ndarray], **_: Any) -> Any:
        return SimpleNamespace(
            samples=16,
            lines=("",),
            frames=4,
            batch=lambda epoch, number: np.repeat(self.rows, 4),
            present=lambda epoch, number: np.ones(16, bool),
        )
