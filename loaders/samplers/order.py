"""The order of an epoch on one rank: in the order of DALI's readers, or as a sampler plans it. Never imports DALI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.tables import TABLE_DTYPES
from loaders.options import LastBatch
from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.samplers.base import SHARD, Plan, Sampler
from loaders.transforms.base import short_repr
from manifests.errors import CallError
from manifests.text import agree, plural

if TYPE_CHECKING:
    from loaders.dataset.split import OpenSplit
    from loaders.dataset.tables import SampleTables

_CHECK_SAMPLER = "test the sampler with `loaders.samplers.check_sampler`"


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """The order of DALI's native readers: each rank reads a contiguous part of the stored samples.

    Attributes:
        samples: number of samples in the split.
        ranks: this rank, and how many ranks share the samples.
        batch_size: samples in a batch of one rank.
        last_batch: ``"drop"``, ``"partial"`` or ``"pad"``.
        shuffle: whether each epoch has the shards in another order, and DALI shuffles within its buffer.
        text: how `explain()` and checkpoints name the sampler; ``None``, because there is no sampler.
        version: version of the sampler's orders; ``None``, because there is no sampler.

    """

    samples: int
    ranks: Ranks
    batch_size: int
    last_batch: str
    shuffle: bool
    text: None = None
    version: None = None

    @property
    def batches(self) -> int:
        """Batches in an epoch, equal on every rank."""
        return self.ranks.smallest_share(self.samples) // self.batch_size if self.last_batch == "drop" else self.runs

    @property
    def runs(self) -> int:
        """Batches that DALI's reader produces in an epoch, including those that ``last_batch="drop"`` discards."""
        return -(-self.ranks.largest_share(self.samples) // self.batch_size)

    @property
    def restarts(self) -> bool:
        """Whether each epoch needs a new pipeline: the state of DALI's shuffling depends on all earlier epochs."""
        return self.shuffle

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if self.last_batch != "partial":
            return self.batch_size
        return self._own(position)

    def valid(self, position: Position) -> NDArray[np.bool_]:
        """Return which samples of the batch that comes next do not fill it up: bool [batch_size]."""
        return np.arange(self.batch_size) < self._own(position)

    def _own(self, position: Position) -> int:
        part = self.ranks.share(self.samples, position.epoch)
        return max(0, min(self.batch_size, part - position.batch * self.batch_size))


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """The order of a sampler: each rank takes its slice of every global batch.

    Attributes:
        plan: the sampler, fitted to the split.
        rows: number of rows in the split.
        ranks: this rank, and how many ranks share an epoch.
        batch_size: samples in a batch of one rank.
        last_batch: ``"drop"``, ``"partial"`` or ``"pad"``.
        text: how `explain()` and checkpoints name the sampler.
        spread: whether the sampler spreads large images over the batches.
        restarts: false, because a plan gives any batch of any epoch.
        by: column by which the sampler groups samples. ``None`` if it does not.

    """

    plan: Plan
    rows: int
    ranks: Ranks
    batch_size: int
    last_batch: str
    text: str
    spread: bool = False
    restarts: bool = False
    by: str | None = None

    @property
    def version(self) -> int | None:
        """`ORDER_VERSION` of the sampler, which checkpoints compare; ``None`` for a custom sampler without one."""
        version: int | None = getattr(self.plan, "order_version", None)
        return version

    @property
    def batches(self) -> int:
        """Batches in an epoch, equal on every rank."""
        full, rest = divmod(self.plan.samples, self.batch_size * self.ranks.world_size)
        return full + bool(rest and self.last_batch != "drop")

    @property
    def runs(self) -> int:
        """Equal to `batches`: a batch that ``last_batch="drop"`` discards is never read."""
        return self.batches

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if self.last_batch != "partial":
            return self.batch_size
        return self._own(position)

    def valid(self, position: Position) -> NDArray[np.bool_]:
        """Return which samples of the batch that comes next do not fill it up: bool [batch_size]."""
        return np.arange(self.batch_size) < self._own(position)

    def _own(self, position: Position) -> int:
        rest = self.plan.samples - position.batch * self.batch_size * self.ranks.world_size
        return max(0, min(self.batch_size, rest - self.ranks.rank * self.batch_size))

    def filled(self, step: int, started: int) -> NDArray[np.int64]:
        """Return the rows of this rank's batch, int64 [batch_size]; a short batch repeats the epoch's last sample.

        Args:
            step: index of the batch, counted from the start of epoch `started`.
            started: the epoch that the pipeline started with.

        Raises:
            CallError: the sampler's plan returns rows of a wrong shape, dtype or range.

        """
        global_batch = self.everyone(step, started)
        first = self.ranks.rank * self.batch_size
        rows = global_batch[first : first + self.batch_size]
        if len(rows) == self.batch_size:
            return rows
        return np.concatenate([rows, np.repeat(global_batch[-1:], self.batch_size - len(rows))])

    def everyone(self, step: int, started: int) -> NDArray[np.int64]:
        """Return the rows of the batch of all ranks, int64 [batch_size * world_size] or less; see `filled`."""
        epochs, number = divmod(step, self.batches)
        return self._checked(started + epochs, number)

    def _checked(self, epoch: int, number: int) -> NDArray[np.int64]:
        rows = np.asarray(self.plan.batch(epoch, number))
        most = self.batch_size * self.ranks.world_size
        expected = min(most, self.plan.samples - number * most)
        if rows.shape != (expected,) or rows.dtype.kind != "i" or rows.min() < 0 or rows.max() >= self.rows:
            raise CallError(
                f"the sampler's batch {number} of epoch {epoch} must be {expected} integers from 0 to "
                f"{self.rows - 1}, got {rows.dtype} {list(rows.shape)}",
                hint=_CHECK_SAMPLER,
            )
        # Copy, because the plan may own and reuse the array it returned.
        return np.array(rows, np.int64)


# --- which order a loader has ---------------------------------------------------------------------


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
    if "label" not in sampler.columns:
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
        raise CallError(f"{name}.columns must be a tuple of column names, got {columns!r}", hint=_CHECK_SAMPLER)
    found = tables.columns([column for column in columns if column != SHARD], requested_by=name)
    if SHARD in columns:
        samples = [shard.samples for shard in split.shards]
        found[SHARD] = np.repeat(np.arange(len(samples), dtype=np.int32), samples)
    if _is_own(sampler):
        return found
    # The types of the tables: a custom sampler may calculate with the values.
    return {name: array.astype(TABLE_DTYPES.get(name, array.dtype), copy=False) for name, array in found.items()}


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
            hint=_CHECK_SAMPLER,
        )
    if not isinstance(lines, tuple) or not callable(getattr(plan, "batch", None)):
        raise CallError(
            f"{name}.plan() must return a plan that has lines (a tuple of strings) and the method batch()",
            hint=_CHECK_SAMPLER,
        )
    return plan
