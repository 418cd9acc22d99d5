"""Whether a sampler keeps the duties that `Sampler` and `Plan` state: a test for samplers of your own. NumPy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Plan, Sampler
from loaders.samplers.permutation import Rows
from manifests.errors import CallError

#: Batches of an epoch that are looked at, from the first to the last.
_LOOKED_AT = 32


def check_sampler(
    sampler: Sampler | Callable[[int], Sampler],
    columns: Mapping[str, NDArray[Any]],
    *,
    samples: int,
    batch_size: int,
    world_sizes: Sequence[int] = (1, 2, 4),
    seed: int = 0,
    epochs: int = 2,
) -> None:
    """Try the duties of a sampler on a split, on up to 32 batches of each epoch.

    Args:
        sampler: to try; or a function of the batch size that makes one, where the sampler fits one batch size only:
            ``lambda size: PKSampler(size // 4, 4)``. Without the function such a sampler's cuts cannot be compared.
        columns: those it needs, each an array [samples].
        samples: rows of the split.
        batch_size: samples in a batch of one rank.
        world_sizes: numbers of ranks to try; those that divide ``batch_size * max(world_sizes)`` share a global batch
            of that many samples in turn, which has to be the same.
        seed: from 0 to 2**63.
        epochs: how many to try.

    Raises:
        AssertionError: a duty is broken; the sentence says which.
        CallError: the sampler refuses the split.

    """

    def fit(size: int, world_size: int) -> Plan:
        made = sampler(size) if callable(sampler) else sampler
        for name in made.columns:
            _duty(name in columns, f"columns names {name!r}, which is not among the columns given")
        given = {name: columns[name].copy() for name in made.columns}
        plan = made.plan(given, samples=samples, batch_size=size, world_size=world_size, seed=seed)
        unchanged = all(_same(given[name], columns[name]) for name in given)
        _duty(unchanged, "plan() must not change the columns")
        return plan

    most = max(world_sizes)
    reference = fit(batch_size, most)
    for world_size in world_sizes:
        plan = fit(batch_size, world_size)
        _check_form(plan, samples, batch_size * world_size, epochs)
        _check_repeatable(plan, fit(batch_size, world_size), batch_size * world_size, epochs)
        size, left = divmod(batch_size * most, world_size)
        if left:
            continue
        try:
            cut = fit(size, world_size)
        except CallError:
            if callable(sampler):
                raise
            continue  # The record fits one batch size only.
        where = f"{world_size} ranks of batch_size {size} and {most} of {batch_size}"
        _check_equal(cut, reference, batch_size * most, epochs, f"a global batch must not depend on its cut: {where}")


def _check_form(plan: Plan, samples: int, global_batch: int, epochs: int) -> None:
    _duty(plan.samples >= 1, f"samples must be at least 1, got {plan.samples}")
    lines = plan.lines
    _duty(isinstance(lines, tuple) and all(isinstance(line, str) for line in lines), "lines must be a tuple of texts")
    for epoch, number in _looked_at(plan, global_batch, epochs):
        rows, where = plan.batch(epoch, number), f"batch {number} of epoch {epoch}"
        _duty(isinstance(rows, np.ndarray) and rows.dtype == np.int64, f"{where} must be an array of int64")
        wanted = min(global_batch, plan.samples - number * global_batch)
        _duty(rows.shape == (wanted,), f"{where} must have the shape ({wanted},), got {rows.shape}")
        inside = bool(np.all((rows >= 0) & (rows < samples)))
        _duty(inside, f"{where} must hold rows from 0 to {samples - 1}, got {rows.min()} to {rows.max()}")


def _check_repeatable(plan: Plan, anew: Plan, global_batch: int, epochs: int) -> None:
    numbers = list(_looked_at(plan, global_batch, epochs))
    forward = [plan.batch(*each).copy() for each in numbers]
    backward = [plan.batch(*each).copy() for each in reversed(numbers)][::-1]
    for each, first, again in zip(numbers, forward, backward, strict=True):
        _duty(_same(first, again), f"batch {each[1]} of epoch {each[0]} must not depend on what was asked before")
    _check_equal(anew, plan, global_batch, epochs, "an equal call of plan() must give an equal plan")


def _check_equal(plan: Plan, other: Plan, global_batch: int, epochs: int, duty: str) -> None:
    _duty(plan.samples == other.samples, f"{duty}; samples are {plan.samples} and {other.samples}")
    for epoch, number in _looked_at(plan, global_batch, epochs):
        same = _same(plan.batch(epoch, number), other.batch(epoch, number))
        _duty(same, f"{duty}; batch {number} of epoch {epoch} differs")


def _looked_at(plan: Plan, global_batch: int, epochs: int) -> Sequence[tuple[int, int]]:
    last = -(-plan.samples // global_batch) - 1
    numbers: Rows = np.unique(np.linspace(0, last, _LOOKED_AT).astype(np.int64))
    return [(epoch, number) for epoch in range(epochs) for number in numbers.tolist()]


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _duty(kept: bool, sentence: str) -> None:
    if not kept:
        raise AssertionError(sentence)
