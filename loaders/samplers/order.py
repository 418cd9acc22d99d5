"""The order of an epoch: `EpochPlan` draws it and `PlannedOrder` divides it among ranks, or `StoredOrder`, DALI's own.

Never imports DALI.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.samplers.base import ORDER_VERSION, Indices, Plan, Rows
from manifests.errors import CallError

#: A hint for errors of custom samplers.
CHECK_SAMPLER = "test the sampler with `loaders.samplers.check_sampler`"


class EpochPlan(ABC):
    """A plan that draws one array per epoch and takes every batch from it.

    The array contains the rows of the epoch; a plan that overrides `batch` draws what it needs
    instead, identities for example. The arrays of the two most recently requested epochs are kept:
    drawing one takes up to seconds, slicing a batch microseconds, and a loader prefetches batches
    of the next epoch while it reads the current one. In the middle of an epoch, a thread begins to
    draw the next one, so that the loader does not wait for it.
    """

    order_version = ORDER_VERSION

    def __init__(self, samples: int, global_batch: int, seed: int) -> None:
        """Plan epochs of `samples` samples; `global_batch` is the batch size over all ranks."""
        self.samples = samples
        self.global_batch = global_batch
        self.seed = seed
        self._epochs: dict[int, Future[Indices]] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def draw_epoch(self, epoch: int) -> Indices:
        """Return the array of an epoch.

        If `batch` is not overridden, its rows in order, int32 or int64 [samples].
        """

    def batch(self, epoch: int, number: int) -> Rows:
        """Return the rows of a global batch; see `Plan.batch`."""
        return self.part(epoch, number, self.global_batch, self.samples).astype(np.int64)

    def part(self, epoch: int, number: int, width: int, length: int) -> Indices:
        """Return the values of an epoch's array that belong to a batch.

        Args:
            epoch: from 0.
            number: index of the batch in the epoch, from 0.
            width: values for each batch.
            length: values for all batches.

        Raises:
            IndexError: the epoch has no such batch.

        """
        values = self.epoch(epoch)[batch_slice(number, width, length)]
        if number == -(-length // width) // 2 and epoch + 1 not in self._epochs:
            with suppress(
                RuntimeError
            ):  # Without a thread, the next epoch is drawn when it is requested.
                threading.Thread(
                    target=self._draw_early, args=(epoch + 1,), name="draw epoch", daemon=True
                ).start()
        return values

    def _draw_early(self, epoch: int) -> None:
        with suppress(Exception):  # The request for the epoch raises it again.
            self.epoch(epoch)

    def epoch(self, epoch: int) -> Indices:
        """Return what `draw_epoch` returns, computed once.

        While one thread draws an epoch, others may use another.
        """
        own: Future[Indices] = Future()
        # Register within `try`: after an interrupt at any line, no one waits for an epoch that is
        # not being drawn.
        try:
            with self._lock:
                future = self._epochs.pop(epoch, None)
                if future is None:
                    while (
                        len(self._epochs) > 1
                    ):  # Free the older epoch before the new one takes its memory.
                        del self._epochs[next(iter(self._epochs))]
                    future = own
                self._epochs[epoch] = future
            if future is own:
                own.set_result(self.draw_epoch(epoch))
        except BaseException as error:
            with self._lock:
                if self._epochs.get(epoch) is own:
                    del self._epochs[epoch]
            if not own.done():
                own.set_exception(error)
            raise
        return future.result()


def batch_slice(number: int, global_batch: int, samples: int) -> slice:
    """Return the part of an epoch of `samples` samples that a batch takes.

    Raises:
        IndexError: the epoch has no such batch.

    """
    batches = -(-samples // global_batch)
    if not 0 <= number < batches:
        raise IndexError(f"batch {number} is not in an epoch of {batches} batches")
    return slice(number * global_batch, min((number + 1) * global_batch, samples))


class _Batches:
    """What both orders know about a batch, once they know how many samples of it are a rank's own."""

    __slots__ = ()

    batch_size: int
    last_batch: str
    training: bool
    filled: bool

    def size(self, position: Position) -> int:
        """Return the number of samples in the batch that comes next."""
        if self.last_batch != "partial":
            return self.batch_size
        return self._at_least_one(self._own(position))

    @property
    def leaves_out(self) -> bool:
        """Whether a last batch that has fewer samples than ranks is left out."""
        return self.training and self.last_batch == "partial"

    def _at_least_one(self, own: int) -> int:
        """Return the size of a batch with `own` samples: the mean over an empty batch is NaN."""
        if self.training or self.filled:
            return max(own, 1)
        return own

    def valid(self, position: Position) -> NDArray[np.bool_]:
        """Return which samples of the next batch are real, not padding: bool [batch_size]."""
        return np.arange(self.batch_size) < self._own(position)

    def _own(self, position: Position) -> int:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class StoredOrder(_Batches):
    """The order of DALI's native readers: each rank reads a contiguous part of the stored samples.

    Attributes:
        samples: number of samples in the split.
        ranks: this rank, and how many ranks share the samples.
        batch_size: samples in a batch of one rank.
        last_batch: ``"drop"``, ``"partial"`` or ``"pad"``.
        shuffle: whether each epoch has the shards in another order, and DALI shuffles within its
            buffer.
        training: whether samples that are fewer than the ranks are left out, so that no rank has an
            empty batch.
        filled: whether a batch that would be empty has one sample, which is not valid.
        text, global_text: how `explain()` and checkpoints name the sampler; ``None``, because there is no
            sampler.
        version: version of the sampler's orders; ``None``, because there is no sampler.

    """

    samples: int
    ranks: Ranks
    batch_size: int
    last_batch: str
    shuffle: bool
    training: bool = False
    filled: bool = False
    text: None = None
    global_text: None = None
    version: None = None

    @property
    def batches(self) -> int:
        """Batches in an epoch, equal on every rank."""
        if self.last_batch == "drop":
            return self.ranks.smallest_share(self.samples) // self.batch_size
        return self.runs - bool(self.leaves_out and self.too_few)

    @property
    def too_few(self) -> int:
        """Samples of a last batch that has fewer than ranks; 0 if it has more."""
        if self.ranks.smallest_share(self.samples) % self.batch_size:
            return 0
        return self.samples % self.ranks.world_size

    @property
    def runs(self) -> int:
        """Batches that DALI's reader produces in an epoch, including the last one if it is left out."""
        return -(-self.ranks.largest_share(self.samples) // self.batch_size)

    @property
    def restarts(self) -> bool:
        """Whether each epoch needs a new pipeline: the state of DALI's shuffling depends on all earlier epochs."""
        return self.shuffle

    def _own(self, position: Position) -> int:
        part = self.ranks.share(self.samples, position.epoch)
        return max(0, min(self.batch_size, part - position.batch * self.batch_size))


@dataclass(frozen=True, slots=True)
class PlannedOrder(_Batches):
    """The order of a sampler: each rank takes its part of every global batch.

    The samples of a short last batch are divided evenly: the parts differ by one sample at most.

    Attributes:
        plan: the sampler, fitted to the split.
        rows: number of rows in the split.
        ranks: this rank, and how many ranks share an epoch.
        batch_size: samples in a batch of one rank.
        last_batch: ``"drop"``, ``"partial"`` or ``"pad"``.
        text: how `explain()` names the sampler.
        global_text: how checkpoints name it: equal for samplers with equal global batches.
        training: see `StoredOrder`.
        filled: see `StoredOrder`.
        spread: whether the sampler spreads large images over the batches.
        restarts: false, because a plan gives any batch of any epoch.
        by: column by which the sampler groups samples. ``None`` if it does not.
        lock: one thread at a time uses the plan, because a custom plan may not be made for several.

    """

    plan: Plan
    rows: int
    ranks: Ranks
    batch_size: int
    last_batch: str
    text: str
    global_text: str = ""
    training: bool = False
    filled: bool = False
    spread: bool = False
    restarts: bool = False
    by: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def version(self) -> int | None:
        """`ORDER_VERSION` of the sampler, which checkpoints compare.

        ``None`` for a custom sampler without one.
        """
        version: int | None = getattr(self.plan, "order_version", None)
        return version

    @property
    def batches(self) -> int:
        """Batches in an epoch, equal on every rank."""
        full, rest = divmod(self.plan.samples, self.batch_size * self.ranks.world_size)
        if self.last_batch == "drop" or (self.leaves_out and self.too_few):
            return full
        return full + bool(rest)

    @property
    def too_few(self) -> int:
        """Samples of a last batch that has fewer than ranks; 0 if it has more."""
        rest = self.plan.samples % (self.batch_size * self.ranks.world_size)
        return rest if rest < self.ranks.world_size else 0

    @property
    def runs(self) -> int:
        """Equal to `batches`: a batch that is left out is never read."""
        return self.batches

    def _own(self, position: Position) -> int:
        first, stop = self._bounds(position.batch)
        return stop - first

    def rank_part(self, number: int) -> slice:
        """Return the part of a global batch that this rank reads."""
        return slice(*self._bounds(number))

    def _bounds(self, number: int) -> tuple[int, int]:
        most = self.batch_size * self.ranks.world_size
        samples = max(0, min(most, self.plan.samples - number * most))
        rank, world_size = self.ranks.rank, self.ranks.world_size
        return rank * samples // world_size, (rank + 1) * samples // world_size

    def rank_rows(self, step: int, started: int) -> NDArray[np.int64]:
        """Return the rows of this rank's batch, int64 [batch_size].

        A short batch repeats the epoch's last sample.

        Args:
            step: index of the batch, counted from the start of epoch `started`.
            started: the epoch that the pipeline started with.

        Raises:
            CallError: the sampler's plan returns rows of a wrong shape, dtype or range.

        """
        global_batch = self.global_rows(step, started)
        rows = global_batch[self.rank_part(step % self.batches)]
        if len(rows) == self.batch_size:
            return rows
        return np.concatenate([rows, np.repeat(global_batch[-1:], self.batch_size - len(rows))])

    def global_rows(self, step: int, started: int) -> NDArray[np.int64]:
        """Return the rows of the batch of all ranks, int64 [batch_size * world_size] or less.

        See `rank_rows`.
        """
        epochs, number = divmod(step, self.batches)
        return self._checked(started + epochs, number)

    def _checked(self, epoch: int, number: int) -> NDArray[np.int64]:
        with self.lock:
            # Copy, because the plan may own and reuse the array it returned.
            rows = np.array(self.plan.batch(epoch, number))
        most = self.batch_size * self.ranks.world_size
        expected = min(most, self.plan.samples - number * most)
        if (
            rows.shape != (expected,)
            or rows.dtype.kind != "i"
            or rows.min() < 0
            or rows.max() >= self.rows
        ):
            raise CallError(
                f"the sampler's batch {number} of epoch {epoch} must be {expected} integers from 0"
                f" to {self.rows - 1}, got {rows.dtype} {list(rows.shape)}",
                hint=CHECK_SAMPLER,
            )
        return rows.astype(np.int64, copy=False)


@dataclass(frozen=True)
class Upcoming:
    """The batches of a loader from now on.

    Attributes:
        rank_rows: returns the rows of this rank's batch by its number, counted from the start of
            the pipeline.
        global_rows: the same for the batch of all ranks together.
        batches: batches in an epoch.
        batch_size: samples in a batch of this rank.

    """

    rank_rows: Callable[[int], NDArray[np.int64]]
    global_rows: Callable[[int], NDArray[np.int64]]
    batches: int
    batch_size: int
