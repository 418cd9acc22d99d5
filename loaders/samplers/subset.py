"""`SubsetSampler`: another sampler, over some of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Bools, Columns
from loaders.options import LastBatch
from loaders.samplers.base import (
    ClippedPlan,
    ComparedByText,
    Fit,
    Plan,
    Rows,
    Sampler,
    ShapedPlan,
    Traits,
    array_text,
    check_is_sampler,
    clipped,
    on_one_rank,
    sampler_text,
    shaped,
    traits_of,
    with_last_batch,
)
from loaders.samplers.clips import ClipError
from loaders.samplers.shuffled import ShuffledSampler
from manifests.errors import CallError
from manifests.filters import filter_columns, matching_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SubsetSampler(ComparedByText):
    """Samples some rows of the split with another sampler. Give either `rows` or `where`.

    Args:
        rows: rows of the split, from 0, each once, in the order in which `SequentialSampler` reads
            them. What the field ``"index"`` contains.
        where: a filter over the columns of the sample tables, as in a SQL ``WHERE`` clause:
            ``"width >= 64 and label in (1, 2)"``. Needs the extra ``sql``.
        sampler: draws from these rows.

    Raises:
        CallError: an argument is wrong; the message names it.

    """

    rows: NDArray[np.int64] | Sequence[int] | None = None
    where: str | None = None
    sampler: Sampler = field(default_factory=ShuffledSampler)

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.where is None):
            raise CallError(
                "SubsetSampler needs rows or where, and not both",
                hint='pass for example where="label < 10"',
            )
        if self.rows is not None:
            object.__setattr__(self, "rows", _as_rows(self.rows))
        check_is_sampler(self.sampler)
        if isinstance(self.sampler, SubsetSampler) and self.sampler.rows is not None:
            # They could mean rows of the split, or of this subset.
            raise CallError(
                "a SubsetSampler with rows cannot be inside of another SubsetSampler",
                hint="give one SubsetSampler the rows that both choose",
            )
        _filter_columns(self.where)

    def __repr__(self) -> str:
        chosen = f"where={self.where!r}"
        if self.where is None:
            chosen = f"rows={array_text(np.asarray(self.rows), '<i8')}"
        return f"SubsetSampler({chosen}, sampler={sampler_text(self.sampler)})"

    def on_one_rank(self, world_size: int) -> SubsetSampler:
        """Return the sampler that gives the global batches of several ranks to one rank."""
        return replace(self, sampler=on_one_rank(self.sampler, world_size))

    def with_last_batch(self, last_batch: LastBatch) -> SubsetSampler:
        """Return the sampler whose epochs end as `last_batch` says."""
        return replace(self, sampler=with_last_batch(self.sampler, last_batch))

    @property
    def traits(self) -> Traits:
        """What a loader knows about the other sampler."""
        return traits_of(self.sampler)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the filter and of the other sampler."""
        return tuple(dict.fromkeys((*_filter_columns(self.where), *self.sampler.columns)))

    def _fitted(self, fit: Fit) -> Plan:
        # The other sampler sees a split that has only these rows.
        rows = self._chosen(fit.columns, fit.samples)
        columns = {name: fit.columns[name][rows] for name in self.sampler.columns}
        try:
            plan = replace(fit, columns=columns, samples=len(rows)).plan(self.sampler)
        except ClipError as error:
            error.rows = rows[error.rows].tolist()
            raise
        by_shape = shaped(plan)
        of_clips = clipped(plan)
        if by_shape is not None:
            return _ShapedSubsetPlan(by_shape, rows, fit.samples)
        if of_clips is not None:
            return _ClippedSubsetPlan(of_clips, rows, fit.samples)
        return _SubsetPlan(plan, rows, fit.samples)

    def _chosen(self, columns: Columns, samples: int) -> Rows:
        if self.where is None:
            rows = np.asarray(self.rows, np.int64)
            if rows.max() >= samples:
                raise CallError(
                    f"SubsetSampler has row {rows.max()}, but the split has rows from 0 to"
                    f" {samples - 1}",
                    hint="remove rows that are not in the split",
                )
            return rows
        rows = np.flatnonzero(
            matching_rows(self.where, _as_table(columns, _filter_columns(self.where), samples))
        )
        if not len(rows):
            raise CallError(
                f"no sample of the split matches where={self.where!r}", hint="change the filter"
            )
        return rows


@cache  # a loader asks several times
def _filter_columns(where: str | None) -> tuple[str, ...]:
    return () if where is None else filter_columns(where)


def _as_table(columns: Columns, names: Sequence[str], samples: int) -> pa.Table:
    import pyarrow as pa

    # A filter without columns also applies to every row.
    table = {"row": pa.array(np.arange(samples))}
    for name in names:
        values = columns[name]
        try:
            table[name] = pa.array(values.tolist() if values.dtype == object else values)
        except (pa.ArrowException, OverflowError) as error:
            # For example numbers in one dataset and texts in another.
            raise CallError(
                f"where cannot use the column {name!r}, because its values have no common type"
                f" ({error})",
                hint="give the column the same type in all datasets, or leave it out of where",
            ) from None
    return pa.table(table)


def _as_rows(values: Any) -> Rows:
    """Return a read-only int64 copy of the rows.

    Raises:
        CallError: they are not different integers of at least 0.

    """
    given = np.asarray(values)
    if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size:
        raise CallError(
            f"rows must be a list of integers with at least one, got {given.dtype}"
            f" {list(given.shape)}",
            hint="np.flatnonzero(mask) turns a mask into rows" if given.dtype == bool else "",
        )
    rows = given.astype(np.int64)
    if rows.min() < 0:
        raise CallError(f"rows must be at least 0, got {rows.min()}")
    # Sequential order would read a row twice in an epoch.
    unique, counts = np.unique(rows, return_counts=True)
    if len(unique) < len(rows):
        raise CallError(
            f"rows contains {unique[counts.argmax()]} twice", hint="WeightedSampler repeats samples"
        )
    rows.flags.writeable = False
    return rows


class _SubsetPlan:
    def __init__(self, plan: Plan, rows: Rows, split_samples: int) -> None:
        self._plan = plan
        self._rows = rows
        self._split_samples = split_samples
        self.samples = plan.samples
        self.order_version: int | None = getattr(plan, "order_version", None)
        self.notes: tuple[str, ...] = tuple(getattr(plan, "notes", ()))

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            f"A subset of {len(self._rows):,} of the {self._split_samples:,} samples is read.",
            *self._plan.lines,
        )

    @property
    def drawable(self) -> Bools:
        """Which rows of the split an epoch can contain: bool [samples of the split]."""
        # A row outside of the subset never replaces one that cannot be decoded.
        mask = np.zeros(self._split_samples, bool)
        mask[self._rows] = getattr(self._plan, "drawable", True)
        return mask

    def batch(self, epoch: int, number: int) -> Rows:
        return self._rows[self._plan.batch(epoch, number)]


class _ClippedSubsetPlan(_SubsetPlan):
    """A plan of a subset whose batches have clips. Implements `ClippedPlan`."""

    def __init__(self, plan: ClippedPlan, rows: Rows, split_samples: int) -> None:
        super().__init__(plan, rows, split_samples)
        self.frames = plan.frames
        self.present = plan.present


class _ShapedSubsetPlan(_SubsetPlan):
    """A plan of a subset whose batches have sizes of their own. Implements `ShapedPlan`."""

    def __init__(self, plan: ShapedPlan, rows: Rows, split_samples: int) -> None:
        super().__init__(plan, rows, split_samples)
        self.batches = plan.batches
        self.shapes = plan.shapes
        self.wholes = plan.wholes
        self.global_text = plan.global_text
        self.bucket = plan.bucket
        self.count = plan.count
        # A row outside of the subset is in no bucket.
        self.buckets = np.full(split_samples, -1)
        self.buckets[rows] = plan.buckets
        self.sides = np.zeros((split_samples, 2), np.float32)
        self.sides[rows] = plan.sides
