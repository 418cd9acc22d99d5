"""Choose the order of a split's samples: the stored order, or a sampler fitted to the split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.options import LastBatch
from loaders.ranks import Ranks
from loaders.samplers import Plan, Sampler
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.base import short_repr
from manifests.errors import CallError

_CHECK_SAMPLER = "test the sampler with `loaders.samplers.check_sampler`"


@dataclass(frozen=True, slots=True)
class Batching:
    """How an epoch is divided into batches.

    Attributes:
        batch_size: samples per batch of one rank, as requested.
        last_batch: treatment of the samples that do not fill the last batch.
        ranks: rank and world size.
        seed: seed of the order.

    """

    batch_size: int
    last_batch: LastBatch
    ranks: Ranks
    seed: int


def stored_order(split: OpenSplit, batching: Batching, *, shuffle: bool) -> StoredOrder:
    """Return the order of DALI's readers.

    Raises:
        CallError: the split has fewer samples than ranks, or than a full batch needs.

    """
    ranks, samples = batching.ranks, split.samples
    if ranks.world_size > samples:
        raise CallError(
            f"split {split.name!r} has {samples} samples, but there are {ranks.world_size} ranks",
            hint="use fewer ranks, for example a single one with rank=0, world_size=1",
        )
    size = batching.batch_size
    if batching.last_batch == "partial":
        # DALI decodes full batches, and a batch never contains more than a rank's part of the split.
        size = min(size, ranks.largest_share(samples))
    order = StoredOrder(samples, ranks, size, batching.last_batch, shuffle)
    if order.batches == 0:
        raise _no_full_batch(batching, samples, f"of split {split.name!r}")
    return order


def planned_order(split: OpenSplit, tables: SampleTables, batching: Batching, sampler: Sampler) -> PlannedOrder:
    """Fit a sampler to a split.

    Raises:
        CallError: the object is not a sampler, cannot sample this split, or plans less than one full batch.

    """
    name = type(sampler).__name__
    columns = _sampler_columns(tables, sampler)
    ranks, size = batching.ranks, batching.batch_size
    plan = _fit(sampler, columns, split, batching, size)
    if batching.last_batch == "partial" and plan.samples < size:
        # DALI decodes full batches.
        size = plan.samples
        plan = _fit(sampler, columns, split, batching, size)
    # Checkpoints identify a sampler without its own __repr__ by its class.
    text = f"{name}()" if type(sampler).__repr__ is object.__repr__ else short_repr(sampler)
    spread = getattr(sampler, "spread", False) is True
    order = PlannedOrder(plan, split.samples, ranks, size, batching.last_batch, text, spread)
    if order.batches == 0:
        whole_split = plan.samples == split.samples
        raise _no_full_batch(
            batching, plan.samples, f"of split {split.name!r}" if whole_split else f"in an epoch of {name}"
        )
    return order


def sampler_warnings(split: OpenSplit, tables: SampleTables, sampler: Sampler, order: PlannedOrder) -> tuple[str, ...]:
    """Return the warnings of a fitted sampler, and one if some classes have no sample."""
    notes: tuple[str, ...] = tuple(getattr(order.plan, "notes", ()))
    if "label" not in sampler.columns:
        return notes
    classes = len(split.manifest.classes)
    present = len(np.unique(tables.columns(["label"], requested_by="a sampler")["label"]))
    if present >= classes:
        return notes
    absent = f"{classes - present:,} of {classes:,} classes have no sample in split {split.name!r}"
    return (*notes, f"{absent}, so no batch contains them")


def _no_full_batch(batching: Batching, samples: int, where: str) -> CallError:
    size, world = batching.batch_size, batching.ranks.world_size
    if world == 1:
        message = f"batch_size={size} is more than the {samples} samples {where}"
    else:
        share = batching.ranks.smallest_share(samples)
        message = f"batch_size={size}, but a rank reads only {share} of the {samples} samples {where}"
    return CallError(message, hint='lower batch_size, or set last_batch="partial" or last_batch="pad"')


def _sampler_columns(tables: SampleTables, sampler: Sampler) -> dict[str, NDArray[Any]]:
    if isinstance(sampler, type) or not callable(getattr(sampler, "plan", None)):
        raise CallError(
            f"sampler must follow the protocol loaders.samplers.Sampler, got {sampler!r}",
            hint='pass an instance, for example loaders.ClassBalancedSampler(by="label")',
        )
    name = type(sampler).__name__
    columns = getattr(sampler, "columns", None)
    if not isinstance(columns, (tuple, list)) or not all(isinstance(column, str) for column in columns):
        raise CallError(f"{name}.columns must be a tuple of column names, got {columns!r}", hint=_CHECK_SAMPLER)
    return tables.columns(columns, requested_by=name)


def _fit(
    sampler: Sampler, columns: Mapping[str, NDArray[Any]], split: OpenSplit, batching: Batching, batch_size: int
) -> Plan:
    plan = sampler.plan(
        columns,
        samples=split.samples,
        batch_size=batch_size,
        world_size=batching.ranks.world_size,
        seed=batching.seed,
    )
    name = type(sampler).__name__
    samples, lines = getattr(plan, "samples", None), getattr(plan, "lines", None)
    if not isinstance(samples, int) or samples < 1:
        raise CallError(
            f"{name}.plan() must return a plan whose samples is an int of at least 1, got {samples!r}",
            hint=_CHECK_SAMPLER,
        )
    if not isinstance(lines, tuple) or not callable(getattr(plan, "batch", None)):
        raise CallError(
            f"{name}.plan() must return a plan that has lines (a tuple of strings) and the method batch()",
            hint=_CHECK_SAMPLER,
        )
    return plan
