"""`TolerantOrder`: a planned order that continues without images that cannot be decoded.

Never imports DALI.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.progress import Position
from loaders.samplers.fit import grouping_column
from loaders.samplers.groups import Groups, group, read_codes
from loaders.samplers.order import PlannedOrder
from loaders.samplers.pk import PKSampler
from loaders.samplers.repeat_factors import has_lists
from loaders.samplers.shuffle import random_words
from loaders.samplers.subset import SubsetSampler
from manifests.errors import CallError, DamagedError
from manifests.labels import LABELS

if TYPE_CHECKING:
    from loaders.dataset.tables import SampleTables
    from loaders.samplers.base import Sampler


#: Code of a row without peers; those of `read_codes` are below 2**32.
_NO_CODE = np.uint64(2**32)


@dataclass(frozen=True, slots=True, eq=False)
class Peers:
    """The rows that may replace a row: those with the same value of a column.

    Attributes:
        codes: a number for each value of the column, uint64 [rows].
        groups: the rows by code.
        index: position of each code's group among the groups.

    """

    codes: NDArray[np.uint64]
    groups: Groups
    index: dict[int, int]

    @classmethod
    def of(
        cls,
        columns: Mapping[str, NDArray[Any]],
        name: str,
        samples: int,
        drawable: NDArray[np.bool_] | None = None,
    ) -> Peers:
        """Group the rows by a column, or only the `drawable` ones: bool [samples].

        The others have no peers.

        Raises:
            CallError: the column is missing, or a row has no value.

        """
        if drawable is None:
            codes = read_codes(columns, name, samples)
            groups = group(codes)
        else:
            # Others may have no value: a filter may leave them out for that reason.
            rows = np.flatnonzero(drawable)
            drawn = read_codes({name: columns[name][rows]}, name, len(rows))
            codes = np.full(samples, _NO_CODE)
            codes[rows] = drawn
            within = group(drawn)
            groups = Groups(within.starts, rows[within.members])
        values = codes[groups.members[groups.starts[:-1]]].tolist()
        return cls(codes, groups, {value: number for number, value in enumerate(values)})

    def rows(self, row: int) -> NDArray[np.integer[Any]]:
        """Return the rows with the same value as `row`, itself included."""
        number = self.index.get(int(self.codes[row]))
        if number is None:
            return self.groups.members[:0]
        return self.groups.members[self.groups.starts[number] : self.groups.starts[number + 1]]


@dataclass(frozen=True, slots=True)
class _Stream:
    """The rows that a rank reads in an epoch: int64. From `distinct` on, they repeat others."""

    rows: NDArray[np.int64]
    distinct: int


@dataclass(frozen=True, slots=True, eq=False)
class TolerantOrder(PlannedOrder):
    """A planned order from which some rows are taken out.

    The number of batches does not change, so ranks stay in step.

    The batches up to a bad row do not depend on bad rows that come later. So a loader that finds
    one restarts at that batch, and what the user has received before stays what the order says.

    Attributes:
        bad: the rows to take out.
        mode: ``"skip"`` moves all later samples of the rank up, so the last batch is shorter (with
            ``last_batch="partial"``) or is filled up (otherwise). ``"replace"`` puts another row of
            the split in the place of a bad one, drawn from its peers.
        peers: which rows may replace a row; `None` means every row.
        seed: seed of the draw.
        drawable: which rows may replace a row, because the sampler draws them at all: bool [rows];
            `None` means all.

    """

    bad: frozenset[int] = frozenset()
    mode: Literal["skip", "replace"] = "skip"
    peers: Peers | None = None
    seed: int = 0
    drawable: NDArray[np.bool_] | None = None
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def without(self, bad: frozenset[int]) -> TolerantOrder:
        """Return this order without these rows, and with those that it was without."""
        return replace(self, bad=bad, _streams={}, _lock=threading.Lock())

    def rank_rows(self, step: int, started: int) -> NDArray[np.int64]:
        """Return the rows of this rank's batch without bad rows; see `PlannedOrder.rank_rows`.

        Raises:
            DamagedError: no good sample is left.

        """
        if not self.bad:
            return PlannedOrder.rank_rows(self, step, started)
        epochs, number = divmod(step, self.batches)
        if self.mode == "replace":
            return self._replaced(
                PlannedOrder.rank_rows(self, step, started), started + epochs, number
            )
        stream = self._stream(started + epochs).rows
        rows = stream[number * self.batch_size : (number + 1) * self.batch_size]
        return np.concatenate([rows, np.repeat(stream[-1:], self.batch_size - len(rows))])

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if not self.bad or self.mode == "replace" or self.last_batch != "partial":
            return PlannedOrder.size(self, position)
        return self._at_least_one(int(self.valid(position).sum()))

    def valid(self, position: Position) -> NDArray[np.bool_]:
        """Return which samples of the batch that comes next neither fill it up nor replace a bad one."""
        if not self.bad:
            return PlannedOrder.valid(self, position)
        if self.mode == "replace":
            planned = PlannedOrder.rank_rows(self, position.batch, position.epoch)
            return PlannedOrder.valid(self, position) & ~self._is_bad(planned)
        rest = self._stream(position.epoch).distinct - position.batch * self.batch_size
        return np.arange(self.batch_size) < rest

    def _stream(self, epoch: int) -> _Stream:
        """Return the good rows of this rank in an epoch.

        At least as many as the batches need, unless partial.
        """
        # Two epochs, because batches of the next one are prepared while the current one is used.
        with self._lock:
            if epoch not in self._streams:
                while len(self._streams) > 1:
                    del self._streams[min(self._streams)]
                self._streams[epoch] = self._compute_stream(epoch)
            return self._streams[epoch]

    def _compute_stream(self, epoch: int) -> _Stream:
        planned = np.concatenate(list(self._parts(epoch)))
        # A rank without samples of its own has one batch, which only repeats a sample of another
        # rank.
        rows = self._without_bad(planned if len(planned) else self._checked(epoch, 0))
        if not len(rows):
            raise DamagedError(
                "every image that this rank reads is damaged", hint="run `dataprep verify --decode`"
            )
        if not len(planned):
            return _Stream(rows[-1:], 0)
        missing = self.batches * self.batch_size - len(rows)
        if missing <= 0 or self.last_batch != "drop":
            return _Stream(rows, len(rows))
        # The samples that "drop" leaves out come first, then the rank's own again.
        spare = self._without_bad(self._left_over(epoch))[:missing]
        repeated = np.resize(rows, missing - len(spare))
        return _Stream(np.concatenate([rows, spare, repeated]), len(rows) + len(spare))

    def _parts(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        for number in range(self.batches):
            yield self._checked(epoch, number)[self.rank_part(number)]

    def _left_over(self, epoch: int) -> NDArray[np.int64]:
        if self.batches * self.batch_size * self.ranks.world_size >= self.plan.samples:
            return np.empty(0, np.int64)
        return self._checked(epoch, self.batches)[self.ranks.rank :: self.ranks.world_size]

    def _without_bad(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[~self._is_bad(rows)]

    def _is_bad(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(rows, np.fromiter(self.bad, np.int64, len(self.bad)))

    def _replaced(self, rows: NDArray[np.int64], epoch: int, number: int) -> NDArray[np.int64]:
        used = set(rows.tolist())
        for place, row in enumerate(rows.tolist()):
            if row in self.bad:
                word = int(random_words(1, self.seed, epoch, number, self.ranks.rank, place)[0])
                rows[place] = self._replacement(row, word, used)
                used.add(int(rows[place]))
        return rows

    def _replacement(self, row: int, word: int, used: set[int]) -> int:
        """Return a good row in place of a bad one: a peer that is not in the batch, else any row, else any peer."""
        everyone = range(self.rows)
        peers = everyone if self.peers is None else self.peers.rows(row)
        for candidates, excluded in ((peers, used), (peers, set()), (everyone, set())):
            for step in range(len(candidates)):
                candidate = int(candidates[(word + step) % len(candidates)])
                if (
                    candidate not in self.bad
                    and candidate not in excluded
                    and self._is_drawable(candidate)
                ):
                    return candidate
        raise DamagedError(
            "every image of the split is damaged", hint="run `dataprep verify --decode`"
        )

    def _is_drawable(self, row: int) -> bool:
        return self.drawable is None or bool(self.drawable[row])


def tolerant_order(
    order: PlannedOrder,
    tables: SampleTables,
    sampler: Sampler,
    *,
    mode: Literal["skip", "replace"],
    seed: int,
) -> TolerantOrder:
    """Return an order that can continue without bad images.

    Args:
        order: the order of the sampler.
        tables: the sample tables of the split.
        sampler: the sampler. A bad row is replaced by one with the same value in the column that it
            samples by.
        mode: see `TolerantOrder`.
        seed: seed of the draw.

    Raises:
        CallError: the sampler makes batches of a fixed composition, and `mode` would move samples
            between them.

    """
    drawing = sampler
    while isinstance(drawing, SubsetSampler):
        drawing = drawing.sampler
    if mode == "skip" and isinstance(drawing, PKSampler):
        raise CallError(
            'on_error="skip" would move samples into other batches, which then are not P x K',
            hint='set on_error="replace"',
        )
    peers = None
    drawable = getattr(order.plan, "drawable", None)
    if mode == "replace":
        by = grouping_column(drawing) or ("label" if LABELS[tables.label_type].is_class else None)
        columns = {} if by is None else tables.columns([by], requested_by=type(sampler).__name__)
        # Samples with several classes have no peers, and neither have those without a class.
        peers = (
            None
            if by is None or has_lists(columns[by])
            else Peers.of(columns, by, order.rows, drawable)
        )
    values = {each.name: getattr(order, each.name) for each in fields(PlannedOrder)}
    return TolerantOrder(**values, mode=mode, peers=peers, seed=seed, drawable=drawable)
