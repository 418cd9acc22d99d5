"""The order of an epoch: a sampler's plan, divided among ranks, or the order of DALI's own readers.

`loaders.samplers.base.Order` says what a loader asks of both. Never imports DALI.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Array, Bools
from loaders.options import LastBatch
from loaders.progress import Position, Upcoming
from loaders.ranks import Ranks
from loaders.samplers.base import CHECK_SAMPLER, Plan, Rows, Traits
from loaders.samplers.draws import Groups, group, random_words, read_codes
from manifests.errors import CallError, DamagedError

_ALL_DAMAGED = "run `dataprep verify --decode`"

_UNKNOWN = Traits()


@dataclass(frozen=True, slots=True)
class Batching:
    """How an epoch is divided into batches.

    Attributes:
        batch_size: samples in a batch of one rank.
        last_batch: treatment of the samples that do not fill the last batch.
        ranks: this rank, and how many ranks share the samples.
        seed: seed of the order.
        training: whether the batches are for training: samples that are fewer than the ranks are
            then left out, so that no rank has an empty batch.
        filled: whether a batch that would be empty has one sample, because a field says that it is
            not valid.

    """

    batch_size: int
    last_batch: LastBatch
    ranks: Ranks = field(default_factory=Ranks)
    seed: int = 0
    training: bool = False
    filled: bool = False


@dataclass(frozen=True, slots=True)
class _Order:
    """What all orders share. The numbers of samples in two ranks' batches differ by one at most.

    Attributes:
        rows: number of rows in the split.
        batching: how an epoch is divided into batches.

    """

    rows: int
    batching: Batching

    @property
    def batch_size(self) -> int:
        """Samples in a batch of this rank."""
        return self.batching.batch_size

    @property
    def samples(self) -> int:
        """Samples in an epoch over all ranks."""
        return self.rows

    @property
    def global_batch(self) -> int:
        """Samples in a batch of all ranks."""
        return self.batching.batch_size * self.batching.ranks.world_size

    @property
    def too_few(self) -> int:
        """Samples of a last batch that has fewer than ranks; 0 if it has more."""
        rest = self.samples % self.global_batch
        if rest >= self.batching.ranks.world_size:
            return 0
        return rest

    @property
    def batches(self) -> int:
        """Batches in an epoch, equal on every rank."""
        full, rest = divmod(self.samples, self.global_batch)
        last_batch = self.batching.last_batch
        left_out = self.batching.training and last_batch == "partial" and self.too_few
        if not rest or last_batch == "drop" or left_out:
            return full
        return full + 1

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if self.batching.last_batch != "partial":
            return self.batching.batch_size
        return self._at_least_one(self._own(position))

    def _at_least_one(self, own: int) -> int:
        """Return the size of a batch with `own` samples: the mean over an empty batch is NaN."""
        if self.batching.training or self.batching.filled:
            return max(own, 1)
        return own

    def valid(self, position: Position) -> Bools:
        """Return which samples of the next batch are real, not padding: bool [batch_size]."""
        return np.arange(self.batching.batch_size) < self._own(position)

    def _own(self, position: Position) -> int:
        """Return how many samples of the next batch belong to this rank."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StoredOrder(_Order):
    """The order of DALI's native readers: each rank reads a contiguous part of the stored samples.

    There is no sampler, so `text`, `global_text` and `version` are `None`.

    Attributes:
        restarts: whether each epoch has the shards in another order, and DALI shuffles within its
            buffer. The state of this shuffling depends on all earlier epochs, so each epoch needs a
            new pipeline.

    """

    restarts: bool = False
    text: None = None
    global_text: None = None
    version: None = None
    traits: Traits = _UNKNOWN
    is_planned: bool = False

    @property
    def runs(self) -> int:
        """Batches that DALI's reader produces in an epoch, including one that is left out."""
        return -(-self.samples // self.global_batch)

    @property
    def lines(self) -> tuple[str, ...]:
        """What `explain()` says about the order."""
        return ("shuffled" if self.restarts else "in stored order",)

    def upcoming(self, started: int, skipped: int) -> None:
        """Return `None`: DALI's reader decides the batches."""

    def without(self, bad: frozenset[int]) -> StoredOrder:
        """Return this order, which cannot leave out rows."""
        del bad
        return self

    def _own(self, position: Position) -> int:
        # DALI's readers move on to the next part with each epoch.
        part = self.batching.ranks.share(self.rows, position.epoch)
        size = self.batching.batch_size
        return max(0, min(size, part - position.batch * size))


@dataclass(frozen=True, slots=True)
class PlannedOrder(_Order):
    """The order of a sampler: each rank takes its part of every global batch.

    Attributes:
        plan: the sampler, fitted to the split.
        text: how `explain()` names the sampler.
        global_text: how checkpoints name it: equal for samplers with equal global batches.
        traits: what is known about the sampler.
        restarts: false, because a plan gives any batch of any epoch.
        lock: one thread at a time uses the plan, because a custom plan may not be made for several.

    """

    plan: Plan
    text: str = ""
    global_text: str = ""
    traits: Traits = _UNKNOWN
    restarts: bool = False
    is_planned: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def samples(self) -> int:
        """Samples in an epoch over all ranks."""
        return self.plan.samples

    @property
    def version(self) -> int | None:
        """`ORDER_VERSION` of the sampler, which checkpoints compare."""
        version: int | None = getattr(self.plan, "order_version", None)
        return version

    @property
    def runs(self) -> int:
        """Equal to `batches`: a batch that is left out is never read."""
        return self.batches

    @property
    def lines(self) -> tuple[str, ...]:
        """What `explain()` says about the order."""
        return (f"planned by {self.text}", *self.plan.lines)

    def upcoming(self, started: int, skipped: int) -> Upcoming:
        """Return the batches of a pipeline; see `Order.upcoming`."""
        return Upcoming(
            rank_rows=lambda run: self.rank_rows(skipped + run, started),
            global_rows=lambda run: self.global_rows(skipped + run, started),
            batches=self.batches,
            batch_size=self.batching.batch_size,
        )

    def without(self, bad: frozenset[int]) -> PlannedOrder:
        """Return this order, which cannot leave out rows."""
        del bad
        return self

    def _own(self, position: Position) -> int:
        part = self.rank_part(position.batch)
        own: int = part.stop - part.start
        return own

    def _count(self, number: int) -> int:
        """Return the number of samples in a global batch."""
        return max(0, min(self.global_batch, self.samples - number * self.global_batch))

    def rank_part(self, number: int) -> slice:
        """Return the part of a global batch that this rank reads."""
        count, ranks = self._count(number), self.batching.ranks
        # Integer division spreads what is left: the parts differ by one sample at most.
        first = ranks.rank * count // ranks.world_size
        return slice(first, (ranks.rank + 1) * count // ranks.world_size)

    def rank_rows(self, step: int, started: int) -> Rows:
        """Return the rows of this rank's batch, int64 [batch_size].

        A short batch repeats the epoch's last sample.

        Args:
            step: index of the batch, counted from the start of epoch `started`.
            started: the epoch that the pipeline started with.

        Raises:
            CallError: the sampler's plan returns rows of a wrong shape, dtype or range.

        """
        epochs, number = divmod(step, self.batches)
        global_batch = self._checked(started + epochs, number)
        rows = global_batch[self.rank_part(number)]
        missing = self.batching.batch_size - len(rows)
        if not missing:
            return rows
        return np.concatenate([rows, np.repeat(global_batch[-1:], missing)])

    def global_rows(self, step: int, started: int) -> Rows:
        """Return the rows of the batch of all ranks, int64 [batch_size * world_size] or less.

        See `rank_rows`.
        """
        # A pipeline counts its batches over the epochs that it reads.
        epochs, number = divmod(step, self.batches)
        return self._checked(started + epochs, number)

    def _checked(self, epoch: int, number: int) -> Rows:
        with self.lock:
            # Copy, because the plan may own and reuse the array it returned.
            rows = np.array(self.plan.batch(epoch, number))
        expected = self._count(number)
        # Wrong rows would read other images, or fail in the middle of an epoch.
        is_valid = rows.shape == (expected,) and rows.dtype.kind == "i"
        if not is_valid or rows.min() < 0 or rows.max() >= self.rows:
            raise CallError(
                f"the sampler's batch {number} of epoch {epoch} must be {expected} integers from 0"
                f" to {self.rows - 1}, got {rows.dtype} {list(rows.shape)}",
                hint=CHECK_SAMPLER,
            )
        return rows.astype(np.int64, copy=False)


# --- an order that continues without bad images ---------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Peers:
    """The rows that may replace a row: the rows with the same value of a column.

    Attributes:
        codes: a number for each value of the column, int64 [rows]; -1 for a row without peers.
        groups: the rows by code.
        index: position of each code's group among the groups.

    """

    codes: Rows
    groups: Groups
    index: dict[int, int]

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Array],
        name: str,
        samples: int,
        drawable: Bools | None = None,
    ) -> Peers:
        """Group the rows by a column, or only the `drawable` ones: bool [samples].

        Raises:
            CallError: the column is missing, or a row has no value.

        """
        rows = np.arange(samples)
        if drawable is not None:
            rows = np.flatnonzero(drawable)
        # Rows that are not drawn may have no value: a filter may leave them out for that reason.
        drawn = {name: columns[name][rows]} if name in columns else columns
        found = read_codes(drawn, name, len(rows))
        codes = np.full(samples, -1)
        codes[rows] = found
        within = group(found)
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

    rows: Rows
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
        drawable: which rows may replace a row, because the sampler draws them at all: bool [rows];
            `None` means all.

    """

    bad: frozenset[int] = frozenset()
    mode: Literal["skip", "replace"] = "skip"
    peers: Peers | None = None
    drawable: Bools | None = None
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def without(self, bad: frozenset[int]) -> TolerantOrder:
        """Return this order without these rows."""
        return replace(self, bad=bad, _streams={}, _lock=threading.Lock())

    # A class with slots has no `super()` in its methods.

    def rank_rows(self, step: int, started: int) -> Rows:
        """Return the rows of this rank's batch without bad rows; see `PlannedOrder.rank_rows`.

        Raises:
            DamagedError: no good sample is left.

        """
        if not self.bad:
            return PlannedOrder.rank_rows(self, step, started)
        epochs, number = divmod(step, self.batches)
        if self.mode == "replace":
            rows = PlannedOrder.rank_rows(self, step, started)
            return self._replaced(rows, started + epochs, number)
        # The rows after a bad one move up, so all batches of the epoch are needed.
        stream, size = self._stream(started + epochs).rows, self.batching.batch_size
        rows = stream[number * size : (number + 1) * size]
        return np.concatenate([rows, np.repeat(stream[-1:], size - len(rows))])

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if not self.bad or self.mode == "replace" or self.batching.last_batch != "partial":
            return PlannedOrder.size(self, position)
        return self._at_least_one(int(self.valid(position).sum()))

    def valid(self, position: Position) -> Bools:
        """Return which samples of the next batch neither fill it up nor replace a bad one."""
        if not self.bad:
            return PlannedOrder.valid(self, position)
        if self.mode == "replace":
            planned = PlannedOrder.rank_rows(self, position.batch, position.epoch)
            return PlannedOrder.valid(self, position) & ~self._is_bad(planned)
        size = self.batching.batch_size
        rest = self._stream(position.epoch).distinct - position.batch * size
        return np.arange(size) < rest

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
        planned = np.concatenate(
            [self._checked(epoch, each)[self.rank_part(each)] for each in range(self.batches)]
        )
        # A rank without samples of its own has one batch, which repeats a sample of another rank.
        rows = self._without_bad(planned if len(planned) else self._checked(epoch, 0))
        if not len(rows):
            raise DamagedError("every image that this rank reads is damaged", hint=_ALL_DAMAGED)
        if not len(planned):
            return _Stream(rows[-1:], 0)
        missing = self.batches * self.batching.batch_size - len(rows)
        if missing <= 0 or self.batching.last_batch != "drop":
            return _Stream(rows, len(rows))
        # The samples that "drop" leaves out come first, then the rank's own again.
        spare = np.empty(0, np.int64)
        if self.batches * self.global_batch < self.samples:
            left_over, ranks = self._checked(epoch, self.batches), self.batching.ranks
            spare = self._without_bad(left_over[ranks.rank :: ranks.world_size])[:missing]
        repeated = np.resize(rows, missing - len(spare))
        return _Stream(np.concatenate([rows, spare, repeated]), len(rows) + len(spare))

    def _without_bad(self, rows: Rows) -> Rows:
        return rows[~self._is_bad(rows)]

    def _is_bad(self, rows: Rows) -> Bools:
        return np.isin(rows, np.fromiter(self.bad, np.int64, len(self.bad)))

    def _replaced(self, rows: Rows, epoch: int, number: int) -> Rows:
        # A batch should not have the same image twice, which a replacement could cause.
        used = set(rows.tolist())
        seed, rank = self.batching.seed, self.batching.ranks.rank
        for place, row in enumerate(rows.tolist()):
            if row in self.bad:
                word = int(random_words(1, seed, epoch, number, rank, place)[0])
                rows[place] = self._replacement(row, word, used)
                used.add(int(rows[place]))
        return rows

    def _replacement(self, row: int, word: int, used: set[int]) -> int:
        """Return a good row for a bad one: a peer that is not in the batch, any peer, any row."""
        everyone = range(self.rows)
        peers = everyone if self.peers is None else self.peers.rows(row)
        # A random row to begin with, then the next ones, so that each is tried once.
        for candidates, excluded in ((peers, used), (peers, set()), (everyone, set())):
            for step in range(len(candidates)):
                candidate = int(candidates[(word + step) % len(candidates)])
                is_drawable = self.drawable is None or self.drawable[candidate]
                if is_drawable and candidate not in self.bad and candidate not in excluded:
                    return candidate
        raise DamagedError("every image of the split is damaged", hint=_ALL_DAMAGED)
