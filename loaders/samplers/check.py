"""`check_sampler`: test whether a custom sampler keeps the contract of `Sampler` and `Plan`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    reference = fit(make(batch_size), batch_size, most)
    for world_size in world_sizes:
        instance, global_batch = make(batch_size), batch_size * world_size
        plan = fit(instance, batch_size, world_size)
        _check_values(plan, samples, global_batch, epochs)
        _check_independent_calls(plan, global_batch, epochs)
        again = fit(make(batch_size), batch_size, world_size)
        _check_equal(
            again, plan, global_batch, epochs, "an equal call of plan() must give an equal plan"
        )
        _check_threads(fit(instance, batch_size, world_size), plan, global_batch, epochs)
        copy = fit(_pickled(instance), batch_size, world_size)
        _check_equal(copy, plan, global_batch, epochs, "a pickled sampler must give an equal plan")

        size, rest = divmod(batch_size * most, world_size)
        if rest:
            continue
        try:
            divided = fit(make(size), size, world_size)
        except CallError:
            if callable(sampler):
                raise
            continue  # This sampler works with one batch size only.
        _check_equal(
            divided,
            reference,
            batch_size * most,
            epochs,
            "a global batch must not depend on the number of ranks that share it: "
            f"{world_size} ranks with batch_size {size}, {most} ranks with batch_size {batch_size}",
        )


def _check_values(plan: Plan, samples: int, global_batch: int, epochs: int) -> None:
    _require(plan.samples >= 1, f"samples must be at least 1, got {plan.samples}")
    lines = plan.lines
    _require(
        isinstance(lines, tuple) and all(isinstance(line, str) for line in lines),
        "lines must be a tuple of strings",
    )
    for epoch, number in _tested(plan, global_batch, epochs):
        rows, batch = plan.batch(epoch, number), f"batch {number} of epoch {epoch}"
        _require(
            isinstance(rows, np.ndarray) and rows.dtype == np.int64,
            f"{batch} must be an array of int64",
        )
        expected = min(global_batch, plan.samples - number * global_batch)
        _require(
            rows.shape == (expected,), f"{batch} must have shape ({expected},), got {rows.shape}"
        )
        inside = bool(np.all((rows >= 0) & (rows < samples)))
        _require(
            inside,
            f"{batch} must have rows from 0 to {samples - 1}, got {rows.min()} to {rows.max()}",
        )


def _check_independent_calls(plan: Plan, global_batch: int, epochs: int) -> None:
    tested = _tested(plan, global_batch, epochs)
    forward = [plan.batch(*each).copy() for each in tested]
    backward = [plan.batch(*each).copy() for each in reversed(tested)][::-1]
    for (epoch, number), first, second in zip(tested, forward, backward, strict=True):
        _require(
            _equal(first, second),
            f"batch {number} of epoch {epoch} must not depend on earlier calls",
        )


def _check_threads(fresh: Plan, plan: Plan, global_batch: int, epochs: int) -> None:
    tested = _tested(plan, global_batch, epochs)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda each: fresh.batch(*each).copy(), tested))
    for (epoch, number), rows in zip(tested, results, strict=True):
        same = _equal(rows, plan.batch(epoch, number))
        _require(
            same,
            f"batch {number} of epoch {epoch} must be the same if several threads call batch() at"
            " once",
        )


def _check_equal(plan: Plan, other: Plan, global_batch: int, epochs: int, rule: str) -> None:
    _require(
        plan.samples == other.samples, f"{rule}; samples are {plan.samples} and {other.samples}"
    )
    for epoch, number in _tested(plan, global_batch, epochs):
        same = _equal(plan.batch(epoch, number), other.batch(epoch, number))
        _require(same, f"{rule}; batch {number} of epoch {epoch} differs")


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
