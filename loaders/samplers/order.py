"""The order of an epoch: a sampler's plan, divided among ranks, or the order of DALI's own readers.

`Order` is what a loader asks of both. Never imports DALI.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from loaders.arrays import Bools, Columns, Ints
from loaders.options import LastBatch
from loaders.progress import BatchShape, Position, Shapes, Upcoming
from loaders.ranks import Ranks
from loaders.samplers.base import (
    CHECK_SAMPLER,
    ClippedPlan,
    Epochs,
    Plan,
    Rows,
    ShapedPlan,
    Traits,
    clipped,
    shaped,
)
from loaders.samplers.draws import random_words, read_codes
from manifests.errors import CallError, DamagedError

_ALL_DAMAGED = "run `dataprep verify --decode`"


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
class Order(ABC):
    """What a loader asks about its epochs. Batches of two ranks differ by one sample at most.

    Attributes:
        rows: number of rows in the split.
        batching: how an epoch is divided into batches.
        restarts: whether each epoch needs a new pipeline.
        text: how `explain()` names the sampler; `None` without one.
        global_text: how checkpoints name the sampler: equal for samplers with equal global batches.
        traits: what is known about the sampler.

    """

    rows: int
    batching: Batching
    _: KW_ONLY
    restarts: bool = False
    text: str | None = None
    global_text: str | None = None
    traits: Traits = field(default=Traits())

    #: Whether the rows of a batch are known before it is read.
    is_planned = False

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
        # Of aspect buckets, no last batch is left out of an epoch.
        if self.shaped is not None or rest >= self.batching.ranks.world_size * self.unit:
            return 0
        return rest

    @property
    def batches(self) -> int:
        """Batches in an epoch, equal on every rank."""
        if self.shaped is not None:
            return self.shaped.batches
        full, rest = divmod(self.samples, self.global_batch)
        last_batch = self.batching.last_batch
        left_out = self.batching.training and last_batch == "partial" and self.too_few
        if not rest or last_batch == "drop" or left_out:
            return full
        return full + 1

    @property
    def shaped(self) -> ShapedPlan | None:
        """The plan, if its batches have sizes of their own."""
        return None

    @property
    def clipped(self) -> ClippedPlan | None:
        """The plan, if its batches have clips."""
        return None

    @property
    def unit(self) -> int:
        """Samples that no rank shares with another: the frames of a clip, 1 without clips."""
        return 1 if self.clipped is None else self.clipped.frames

    @property
    def runs(self) -> int:
        """Batches that the reader produces in an epoch, including a last one that is left out."""
        return self.batches

    @property
    def version(self) -> int | None:
        """`ORDER_VERSION` of the sampler; `None` without one, and for a custom sampler."""
        return None

    @property
    @abstractmethod
    def lines(self) -> tuple[str, ...]:
        """What `explain()` says about the order: how it is made, then the lines of the sampler."""

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if self.batching.last_batch != "partial":
            return self._whole(position.epoch, position.batch)
        own = self._own(position)
        # The mean over an empty batch is NaN.
        if self.batching.training or self.batching.filled:
            return max(own, self.unit)
        return own

    def count(self, epoch: int, number: int) -> int:
        """Return the number of samples in a batch of all ranks, without what fills it up."""
        del epoch
        return max(0, min(self.global_batch, self.samples - number * self.global_batch))

    @abstractmethod
    def shown_rows(self, epoch: int, number: int, *, all_ranks: bool) -> Ints | None:
        """Return the rows in a batch, without what only fills it up; `None` if they are not known.

        Args:
            epoch: number of the epoch.
            number: number of the batch in the epoch.
            all_ranks: whether to return the rows of all ranks. Bad rows are then not replaced.

        """

    def valid(self, position: Position) -> Bools:
        """Return which samples of the next batch are real, not padding: bool [batch_size]."""
        return np.arange(self._whole(position.epoch, position.batch)) < self._own(position)

    def _whole(self, epoch: int, number: int) -> int:
        """Return the size of a batch of this rank once it is filled up."""
        del epoch, number
        return self.batching.batch_size

    def upcoming(self, started: int, skipped: int) -> Upcoming | None:
        """Return the batches of a pipeline; `None` if DALI's own reader decides them.

        Args:
            started: epoch of the pipeline's first batch.
            skipped: batches of that epoch that come before the first batch.

        """
        del started, skipped
        return None

    def without(self, bad: frozenset[int]) -> Order:
        """Return the order that leaves out these rows, if it can leave out rows."""
        del bad
        return self

    @abstractmethod
    def _own(self, position: Position) -> int:
        """Return how many samples of the next batch belong to this rank."""


@dataclass(frozen=True, slots=True)
class StoredOrder(Order):
    """The order of DALI's native readers: each rank reads a contiguous part of the stored samples.

    If it `restarts`, each epoch has the shards in another order, and DALI shuffles within its
    buffer. The state of this shuffling depends on all earlier epochs.
    """

    @property
    def runs(self) -> int:
        """Batches that DALI's reader produces in an epoch, including one that is left out."""
        return -(-self.samples // self.global_batch)

    @property
    def lines(self) -> tuple[str, ...]:
        """What `explain()` says about the order."""
        return ("shuffled within a buffer" if self.restarts else "in stored order",)

    def shown_rows(self, epoch: int, number: int, *, all_ranks: bool) -> Ints | None:
        """Return the rows in a batch; see `Order.shown_rows`."""
        if self.restarts:
            return None
        size = self.batching.batch_size
        rows = []
        own = self.batching.ranks
        for rank in range(own.world_size) if all_ranks else [own.rank]:
            ranks = replace(own, rank=rank)
            start = ranks.part(epoch) * self.rows // own.world_size
            end = min(start + ranks.share(self.rows, epoch), start + (number + 1) * size)
            rows.append(np.arange(start + number * size, end))
        return np.concatenate(rows)

    def _own(self, position: Position) -> int:
        # DALI's readers move on to the next part with each epoch.
        part = self.batching.ranks.share(self.rows, position.epoch)
        size = self.batching.batch_size
        return max(0, min(size, part - position.batch * size))


@dataclass(frozen=True, slots=True, eq=False)
class Peers:
    """The rows that may replace a row: the rows with the same value of a column.

    Attributes:
        codes: a number for each value of the column, int64 [rows]; -1 for a row without peers.
        members: the rows by code, int64 [rows].
        sorted: the codes of the members.

    """

    codes: Rows
    members: Rows
    sorted: Rows

    @classmethod
    def of(
        cls,
        columns: Columns,
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
        drawn = columns
        if name in columns:
            drawn = {name: columns[name][rows]}
        codes = np.full(samples, -1)
        codes[rows] = read_codes(drawn, name, len(rows))
        return cls.of_codes(codes)

    @classmethod
    def of_codes(cls, codes: Rows) -> Peers:
        """Group the rows by their codes, int64 [rows]; rows of the code -1 have no peers."""
        members = np.argsort(codes, kind="stable")
        return cls(codes, members, codes[members])

    def rows(self, row: int) -> Rows:
        """Return the rows with the same value as `row`, itself included."""
        code = int(self.codes[row])
        if code < 0:
            return self.members[:0]
        first, end = np.searchsorted(self.sorted, [code, code + 1]).tolist()
        return self.members[first:end]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedOrder(Order):
    """The order of a sampler: each rank takes its part of every global batch.

    Some rows may be taken out, if `mode` says how. The number of batches does not change, so ranks
    stay in step. The batches up to a bad row do not depend on bad rows that come later. So a loader
    that finds one restarts at that batch, and what the user has received before stays what the
    order says.

    Attributes:
        plan: the sampler, fitted to the split.
        lock: one thread at a time uses the plan, because a custom plan may not be made for several.
        bad: the rows to take out.
        mode: ``"skip"`` moves all later samples of the rank up, so the last batch is shorter (with
            ``last_batch="partial"``) or is filled up (otherwise). ``"replace"`` puts another row of
            the split in the place of a bad one, drawn from its peers. `None` keeps bad rows.
        peers: which rows may replace a row; `None` means every row.
        drawable: which rows may replace a row, because the sampler draws them at all: bool [rows];
            `None` means all.
        sampler: the sampler, as the user passed it.

    """

    plan: Plan
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    bad: frozenset[int] = frozenset()
    mode: Literal["skip", "replace"] | None = None
    peers: Peers | None = None
    drawable: Bools | None = None
    sampler: Any = field(default=None, repr=False)
    #: Of the good rows of this rank in an epoch: the rows, and from which one on they repeat others.
    _streams: Epochs[tuple[Rows, int]] = field(default_factory=Epochs, init=False, repr=False)

    is_planned = True

    @property
    def samples(self) -> int:
        """Samples in an epoch over all ranks."""
        return self.plan.samples

    @property
    def shaped(self) -> ShapedPlan | None:
        """The plan, if its batches have sizes of their own."""
        return shaped(self.plan)

    @property
    def clipped(self) -> ClippedPlan | None:
        """The plan, if its batches have clips."""
        return clipped(self.plan)

    @property
    def version(self) -> int | None:
        """`ORDER_VERSION` of the sampler, which checkpoints compare."""
        return getattr(self.plan, "order_version", None)

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
            shapes=self._shapes(skipped, started),
        )

    def _shapes(self, skipped: int, started: int) -> Shapes | None:
        plan = self.shaped
        if plan is None:
            return None

        def shape(run: int) -> BatchShape:
            epochs, number = divmod(skipped + run, self.batches)
            epoch = started + epochs
            height, width = plan.shapes[plan.bucket(epoch, number)]
            return BatchShape(self._whole(epoch, number), height, width)

        return Shapes(shape, plan.sides)

    def without(self, bad: frozenset[int]) -> PlannedOrder:
        """Return this order without these rows."""
        if self.mode is None:
            return self
        return replace(self, bad=bad)

    def _own(self, position: Position) -> int:
        size = self.batching.batch_size
        if self._skips:
            _, distinct = self._streams.get(position.epoch, self._compute_stream)
            return max(0, min(size, distinct - position.batch * size))
        part = self.rank_part(position.epoch, position.batch)
        own: int = part.stop - part.start
        return own

    def _whole(self, epoch: int, number: int) -> int:
        plan = self.shaped
        if plan is None:
            return self.batching.batch_size
        return plan.wholes[plan.bucket(epoch, number)] // self.batching.ranks.world_size

    def count(self, epoch: int, number: int) -> int:
        """Return the number of samples in a batch of all ranks; see `Order.count`."""
        if self.shaped:
            return self.shaped.count(epoch, number)
        return Order.count(self, epoch, number)

    def shown_rows(self, epoch: int, number: int, *, all_ranks: bool) -> Ints | None:
        """Return the rows in a batch; see `Order.shown_rows`."""
        if all_ranks:
            return self._checked(epoch, number)
        return self.rank_rows(number, epoch)[: self._own(Position(epoch, batch=number))]

    def rank_part(self, epoch: int, number: int) -> slice:
        """Return the part of a global batch that this rank reads."""
        ranks = self.batching.ranks
        unit = self.unit
        units = self.count(epoch, number) // unit
        # Integer division spreads what is left: the parts differ by one sample, or clip, at most.
        first = ranks.rank * units // ranks.world_size
        return slice(first * unit, (ranks.rank + 1) * units // ranks.world_size * unit)

    def rank_rows(self, step: int, started: int) -> Rows:
        """Return the rows of this rank's batch without bad rows, int64 [batch_size].

        A short batch repeats the epoch's last sample.

        Args:
            step: index of the batch, counted from the start of epoch `started`.
            started: the epoch that the pipeline started with.

        Raises:
            CallError: the sampler's plan returns rows of a wrong shape, dtype or range.
            DamagedError: no good sample is left.

        """
        # A pipeline counts its batches over the epochs that it reads.
        epochs, number = divmod(step, self.batches)
        if self._skips:
            # The rows after a bad one move up, so all batches of the epoch are needed.
            stream, _ = self._streams.get(started + epochs, self._compute_stream)
            size = self.batching.batch_size
            own = stream[number * size : (number + 1) * size]
            return self._filled_up(own, stream, size)
        rows = self._planned(started + epochs, number)
        if self.bad:
            self._replace_bad(rows, started + epochs, number)
        return rows

    def global_rows(self, step: int, started: int) -> Rows:
        """Return the rows of the batch of all ranks, int64 [batch_size * world_size] or less.

        See `rank_rows`.
        """
        epochs, number = divmod(step, self.batches)
        return self._checked(started + epochs, number)

    def valid(self, position: Position) -> Bools:
        """Return which samples of the next batch neither fill it up nor replace a bad one."""
        valid = Order.valid(self, position)  # a class with slots has no `super()` in its methods
        epoch = position.epoch
        number = position.batch
        if self.bad and not self._skips:
            valid &= ~self._is_bad(self._planned(epoch, number))
        if self.clipped is not None:
            present = self.clipped.present(epoch, number)[self.rank_part(epoch, number)]
            valid[: len(present)] &= present
        return valid

    def _planned(self, epoch: int, number: int) -> Rows:
        """Return the rows of this rank's batch as the sampler plans them."""
        global_batch = self._checked(epoch, number)
        own = global_batch[self.rank_part(epoch, number)]
        return self._filled_up(own, global_batch, self._whole(epoch, number))

    def _filled_up(self, rows: Rows, source: Rows, size: int) -> Rows:
        """Return a whole batch: its rows, then the last row of `source` as often as needed."""
        return np.concatenate([rows, np.repeat(source[-1:], size - len(rows))])

    def _checked(self, epoch: int, number: int) -> Rows:
        with self.lock:
            # Copy, because the plan may own and reuse the array it returned.
            rows = np.array(self.plan.batch(epoch, number))
        expected = self.count(epoch, number)
        # Wrong rows would read other images, or fail in the middle of an epoch.
        is_valid = rows.shape == (expected,) and rows.dtype.kind == "i"
        if not is_valid or rows.min() < 0 or rows.max() >= self.rows:
            raise CallError(
                f"the sampler's batch {number} of epoch {epoch} must be {expected} integers from 0"
                f" to {self.rows - 1}, got {rows.dtype} {list(rows.shape)}",
                hint=CHECK_SAMPLER,
            )
        return rows.astype(np.int64, copy=False)

    # --- bad rows -------------------------------------------------------------------------------

    @property
    def _skips(self) -> bool:
        return bool(self.bad) and self.mode == "skip"

    def _compute_stream(self, epoch: int) -> tuple[Rows, int]:
        """Return the good rows of this rank, at least as many as the batches need, unless partial."""
        planned = np.concatenate(
            [
                self._checked(epoch, each)[self.rank_part(epoch, each)]
                for each in range(self.batches)
            ]
        )
        # A rank without samples of its own has one batch, which repeats a sample of another rank.
        rows = self._without_bad(planned if len(planned) else self._checked(epoch, 0))
        if not len(rows):
            raise DamagedError("every image that this rank reads is damaged", hint=_ALL_DAMAGED)
        if not len(planned):
            return rows[-1:], 0
        missing = self.batches * self.batching.batch_size - len(rows)
        if missing <= 0 or self.batching.last_batch != "drop":
            return rows, len(rows)
        # The samples that "drop" leaves out come first, then the rank's own again.
        spare = rows[:0]
        if self.batches * self.global_batch < self.samples:
            left_over = self._checked(epoch, self.batches)
            ranks = self.batching.ranks
            spare = self._without_bad(left_over[ranks.rank :: ranks.world_size])[:missing]
        repeated = np.resize(rows, missing - len(spare))
        return np.concatenate([rows, spare, repeated]), len(rows) + len(spare)

    def _without_bad(self, rows: Rows) -> Rows:
        return rows[~self._is_bad(rows)]

    def _is_bad(self, rows: Rows) -> Bools:
        return np.isin(rows, np.fromiter(self.bad, np.int64, len(self.bad)))

    def _replace_bad(self, rows: Rows, epoch: int, number: int) -> None:
        # A batch should not have the same image twice, which a replacement could cause.
        used = set(rows.tolist())
        seed = self.batching.seed
        rank = self.batching.ranks.rank
        for place, row in enumerate(rows.tolist()):
            if row in self.bad:
                word = int(random_words(1, seed, epoch, number, rank, place)[0])
                rows[place] = self._replacement(row, word, used)
                used.add(int(rows[place]))

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
