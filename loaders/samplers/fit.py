"""Fit a sampler, or the order of DALI's readers, to a split. Never imports DALI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.tables import TABLE_DTYPES
from loaders.options import LastBatch
from loaders.ranks import Ranks
from loaders.samplers.base import SHARD, Plan, Sampler
from loaders.samplers.order import CHECK_SAMPLER, PlannedOrder, StoredOrder
from loaders.transforms.base import short_repr
from manifests.errors import CallError
from manifests.text import agree, plural

if TYPE_CHECKING:
    from loaders.dataset.split import OpenSplit
    from loaders.dataset.tables import SampleTables


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
    columns = _sampler_columns(split, tables, sampler)
    ranks, size = batching.ranks, batching.batch_size
    plan = _fit(sampler, columns, split, batching, size)
    if batching.last_batch == "partial" and plan.samples < size:
        # DALI decodes full batches.
        size = plan.samples
        plan = _fit(sampler, columns, split, batching, size)
    # Checkpoints identify a sampler without its own __repr__ by its class.
    text = getattr(sampler, "text", None) or (
        f"{name}()" if type(sampler).__repr__ is object.__repr__ else short_repr(sampler)
    )
    spread = getattr(sampler, "spread", False) is True
    order = PlannedOrder(
        plan, split.samples, ranks, size, batching.last_batch, text, spread, by=_grouping_column(sampler)
    )
    if order.batches == 0:
        whole_split = plan.samples == split.samples
        raise _no_full_batch(
            batching, plan.samples, f"of split {split.name!r}" if whole_split else f"in an epoch of {name}"
        )
    return order


def sampler_warnings(split: OpenSplit, tables: SampleTables, sampler: Sampler, order: PlannedOrder) -> tuple[str, ...]:
    """Return the warnings of a fitted sampler, and one if some classes have no sample."""
    notes: tuple[str, ...] = tuple(getattr(order.plan, "notes", ()))
    if "label" not in sampler.columns or split.manifest.label_type != "class":
        return notes
    classes = len(split.manifest.classes)
    present = int(np.count_nonzero(np.bincount(tables.columns(["label"], requested_by="a sampler")["label"])))
    if present >= classes:
        return notes
    absent = classes - present
    have, them = agree(absent, "has", "have"), agree(absent, "it", "them")
    of = f"{absent:,} of {plural(classes, 'class')}"
    return (*notes, f"{of} {have} no sample in split {split.name!r}, so no batch contains {them}")


def _no_full_batch(batching: Batching, samples: int, where: str) -> CallError:
    size, world = batching.batch_size, batching.ranks.world_size
    if world == 1:
        message = f"batch_size={size} is more than the {samples} samples {where}"
    else:
        share = batching.ranks.smallest_share(samples)
        message = f"batch_size={size}, but a rank reads only {share} of the {samples} samples {where}"
    return CallError(message, hint='lower batch_size, or set last_batch="partial" or last_batch="pad"')


def _sampler_columns(split: OpenSplit, tables: SampleTables, sampler: Sampler) -> dict[str, NDArray[Any]]:
    if isinstance(sampler, type) or not callable(getattr(sampler, "plan", None)):
        raise CallError(
            f"sampler must follow the protocol loaders.samplers.Sampler, got {sampler!r}",
            hint='pass an instance, for example loaders.ClassBalancedSampler(by="label")',
        )
    name = type(sampler).__name__
    columns = getattr(sampler, "columns", None)
    if not isinstance(columns, (tuple, list)) or not all(isinstance(column, str) for column in columns):
        raise CallError(f"{name}.columns must be a tuple of column names, got {columns!r}", hint=CHECK_SAMPLER)
    found = tables.columns([column for column in columns if column != SHARD], requested_by=name)
    if SHARD in columns:
        samples = [shard.samples for shard in split.shards]
        found[SHARD] = np.repeat(np.arange(len(samples), dtype=np.int32), samples)
    if _is_own(sampler):
        return found
    # The types of the tables: a custom sampler may calculate with the values.
    return {
        name: array.astype(TABLE_DTYPES.get(name, array.dtype) if array.dtype != object else object, copy=False)
        for name, array in found.items()
    }


def _grouping_column(sampler: Sampler) -> str | None:
    """Return the column by which a sampler, or one that it contains, groups samples."""
    by, inner = getattr(sampler, "by", None), getattr(sampler, "sampler", None)
    if isinstance(by, str):
        return by
    return None if inner is None else _grouping_column(inner)


def _is_own(sampler: Sampler) -> bool:
    """Return whether a sampler, and one that it contains, is of this package, which handles integers of every width."""
    inner = getattr(sampler, "sampler", None)
    return type(sampler).__module__.startswith("loaders.") and (inner is None or _is_own(inner))


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
            hint=CHECK_SAMPLER,
        )
    if not isinstance(lines, tuple) or not callable(getattr(plan, "batch", None)):
        raise CallError(
            f"{name}.plan() must return a plan that has lines (a tuple of strings) and the method batch()",
            hint=CHECK_SAMPLER,
        )
    return plan
