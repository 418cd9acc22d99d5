"""Call a sampler: give it the columns of a split, and check what it returns. Never imports DALI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.tables import TABLE_DTYPES
from loaders.samplers.base import SHARD, Plan, Sampler, check_is_sampler
from loaders.samplers.order import CHECK_SAMPLER
from manifests.errors import CallError

if TYPE_CHECKING:
    from loaders.dataset.split import OpenSplit
    from loaders.dataset.tables import SampleTables


def fit_sampler(
    sampler: Sampler,
    columns: Mapping[str, NDArray[Any]],
    *,
    samples: int,
    batch_size: int,
    world_size: int,
    seed: int,
) -> Plan:
    """Return the plan of a sampler, and check that it has what `Plan` requires.

    See `Sampler.plan` for the arguments.

    Raises:
        CallError: it has not, or the sampler cannot sample this split.

    """
    plan = sampler.plan(
        columns, samples=samples, batch_size=batch_size, world_size=world_size, seed=seed
    )
    name = type(sampler).__name__
    planned, lines = getattr(plan, "samples", None), getattr(plan, "lines", None)
    if not isinstance(planned, int) or planned < 1:
        raise CallError(
            f"{name}.plan() must return a plan whose samples is an int of at least 1, got"
            f" {planned!r}",
            hint=CHECK_SAMPLER,
        )
    if not isinstance(lines, tuple) or not callable(getattr(plan, "batch", None)):
        raise CallError(
            f"{name}.plan() must return a plan that has lines (a tuple of strings) and the method"
            " batch()",
            hint=CHECK_SAMPLER,
        )
    return plan


def sampler_columns(
    split: OpenSplit, tables: SampleTables, sampler: Sampler
) -> dict[str, NDArray[Any]]:
    """Return the columns that a sampler needs, each an array [samples].

    Raises:
        CallError: the object is not a sampler, or a column does not exist.

    """
    check_is_sampler(sampler)
    name = type(sampler).__name__
    columns = getattr(sampler, "columns", None)
    if not isinstance(columns, (tuple, list)) or not all(
        isinstance(column, str) for column in columns
    ):
        raise CallError(
            f"{name}.columns must be a tuple of column names, got {columns!r}", hint=CHECK_SAMPLER
        )
    found = tables.columns([column for column in columns if column != SHARD], requested_by=name)
    if SHARD in columns:
        samples = [shard.samples for shard in split.shards]
        found[SHARD] = np.repeat(np.arange(len(samples), dtype=np.int32), samples)
    if _is_own(sampler):
        return found
    # The types of the tables: a custom sampler may calculate with the values.
    return {
        name: array.astype(
            TABLE_DTYPES.get(name, array.dtype) if array.dtype != object else object, copy=False
        )
        for name, array in found.items()
    }


def grouping_column(sampler: Sampler) -> str | None:
    """Return the column by which a sampler, or one that it contains, groups samples."""
    by, inner = getattr(sampler, "by", None), getattr(sampler, "sampler", None)
    # In a custom sampler, `by` may be anything.
    if isinstance(by, str) and by in getattr(sampler, "columns", ()):
        return by
    return None if inner is None else grouping_column(inner)


def _is_own(sampler: Sampler) -> bool:
    """Return whether a sampler, and one that it contains, is of this package, which handles integers of every width."""
    inner = getattr(sampler, "sampler", None)
    return type(sampler).__module__.startswith("loaders.") and (inner is None or _is_own(inner))
