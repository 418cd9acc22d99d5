"""`check_sampler`: test whether a custom sampler keeps the contract of `Sampler` and `Plan`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Array
from loaders.samplers.base import Plan, Rows, Sampler
from manifests.errors import CallError

#: Batches of an epoch that are tested, spread from the first to the last.
_BATCHES = 32


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
    """Test the contract of a sampler on a split, with up to 32 batches of each epoch.

    Args:
        sampler: the sampler; or, if a sampler works with one batch size only, a function that
            returns the sampler for a batch size: ``lambda size: PKSampler(size // 4, 4)``. Without
            a function, the global batches of such a sampler cannot be compared between numbers of
            ranks.
        columns: the columns that the sampler needs, each an array [samples].
        samples: number of rows in the split.
        batch_size: samples in a batch of one rank.
        world_sizes: numbers of ranks to test. A number that divides
            ``batch_size * max(world_sizes)`` is also tested with a global batch of that size, which
            must be the same for all of them.
        seed: from 0 to 2**63 - 1.
        epochs: number of epochs to test.

    Raises:
        AssertionError: the sampler breaks the contract; the message says how.
        CallError: the sampler cannot sample the split.

    """

    def make(size: int) -> Sampler:
        return sampler(size) if callable(sampler) else sampler

    def fit(instance: Sampler, size: int, world_size: int) -> Plan:
        for name in instance.columns:
            _require(
                name in columns,
                f"the sampler needs the column {name!r}, which is not in the argument columns",
            )
        copies = {name: columns[name].copy() for name in instance.columns}
        plan = instance.plan(
            copies, samples=samples, batch_size=size, world_size=world_size, seed=seed
        )
        unchanged = all(_equal(copies[name], columns[name]) for name in copies)
        _require(unchanged, "plan() must not change the columns")
        return plan

    most = max(world_sizes)
    reference = _Batches(fit(make(batch_size), batch_size, most), batch_size * most, epochs)
    for world_size in world_sizes:
        instance = make(batch_size)
        global_batch = batch_size * world_size
        plan = fit(instance, batch_size, world_size)
        _check_values(plan, samples, global_batch, epochs)
        batches = _Batches(plan, global_batch, epochs)
        # In another order, which must make no difference.
        backward = [_batch(plan, call) for call in reversed(batches.calls)][::-1]
        batches.compare(backward, "a batch must not depend on earlier calls")
        again = fit(make(batch_size), batch_size, world_size)
        batches.compare_plan(again, "an equal call of plan() must give an equal plan")
        fresh = fit(instance, batch_size, world_size)
        with ThreadPoolExecutor(4) as threads:
            results = threads.map(partial(_batch, fresh), batches.calls)
        batches.compare(results, "a batch must be the same if several threads call batch() at once")
        copy = fit(_pickled(instance), batch_size, world_size)
        batches.compare_plan(copy, "a pickled sampler must give an equal plan")

        size, rest = divmod(batch_size * most, world_size)
        if rest:
            continue
        try:
            divided = fit(make(size), size, world_size)
        except CallError:
            if callable(sampler):
                raise
            continue  # This sampler works with one batch size only.
        reference.compare_plan(
            divided,
            "a global batch must not depend on the number of ranks that share it: "
            f"{world_size} ranks with batch_size {size}, {most} ranks with batch_size {batch_size}",
        )


class _Batches:
    """Some batches of a plan, spread over its epochs.

    Attributes:
        calls: epoch and number of each batch.

    """

    def __init__(self, plan: Plan, global_batch: int, epochs: int) -> None:
        self.calls = _tested(plan, global_batch, epochs)
        self._samples = plan.samples
        self._rows = [_batch(plan, call) for call in self.calls]

    def compare_plan(self, plan: Plan, rule: str) -> None:
        """Check that another plan has the same batches."""
        _require(
            plan.samples == self._samples,
            f"{rule}; samples are {plan.samples} and {self._samples}",
        )
        self.compare(starmap(plan.batch, self.calls), rule)

    def compare(self, others: Iterable[Array], rule: str) -> None:
        """Check that these are the same batches."""
        for (epoch, number), rows, other in zip(self.calls, self._rows, others, strict=True):
            _require(_equal(rows, other), f"{rule}; batch {number} of epoch {epoch} differs")


def _batch(plan: Plan, call: tuple[int, int]) -> Array:
    """Return a copy of a batch, because a plan may use an array again."""
    return plan.batch(*call).copy()


def _check_values(plan: Plan, samples: int, global_batch: int, epochs: int) -> None:
    _require(plan.samples >= 1, f"samples must be at least 1, got {plan.samples}")
    lines = plan.lines
    _require(
        isinstance(lines, tuple) and all(isinstance(line, str) for line in lines),
        "lines must be a tuple of strings",
    )
    for epoch, number in _tested(plan, global_batch, epochs):
        rows = plan.batch(epoch, number)
        batch = f"batch {number} of epoch {epoch}"
        _require(
            isinstance(rows, np.ndarray) and rows.dtype == np.int64,
            f"{batch} must be an array of int64",
        )
        expected = min(global_batch, plan.samples - number * global_batch)
        _require(
            rows.shape == (expected,), f"{batch} must have shape ({expected},), got {rows.shape}"
        )
        _require(
            rows.min() >= 0 and rows.max() < samples,
            f"{batch} must have rows from 0 to {samples - 1}, got {rows.min()} to {rows.max()}",
        )


def _pickled(sampler: Sampler) -> Sampler:
    try:
        copy: Sampler = pickle.loads(pickle.dumps(sampler))  # noqa: S301
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise AssertionError(f"the sampler must be picklable: {error}") from error
    return copy


def _tested(plan: Plan, global_batch: int, epochs: int) -> Sequence[tuple[int, int]]:
    last = -(-plan.samples // global_batch) - 1
    numbers: Rows = np.unique(np.linspace(0, last, _BATCHES).astype(np.int64))
    return [(epoch, number) for epoch in range(epochs) for number in numbers.tolist()]


def _equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
