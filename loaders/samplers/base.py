"""The interfaces `Sampler` and `Plan`, and what the samplers of this package share.

Reads no files and never imports DALI.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Array, Columns, Float32s, Ints
from loaders.options import LastBatch
from loaders.transforms.base import Size
from manifests.errors import CallError

Rows: TypeAlias = Ints
#: int32 if it is wide enough, otherwise int64.
Indices: TypeAlias = NDArray[np.integer[Any]]

#: Name under which a sampler gets the number of the shard of each row, int32 [samples]: no column
#: of the sample tables.
SHARD = "shard of the row"

#: Names under which a sampler gets the height and the width of each image as decoding returns it:
#: the columns of the sample tables have them before EXIF orientation.
UPRIGHT = ("upright height of the image", "upright width of the image")

#: Version of the orders that these samplers draw. Raise it when a sampler with the same arguments
#: draws other samples than before: loading an older checkpoint then raises an error instead of
#: resuming with other samples.
ORDER_VERSION = 2

#: A hint for errors of custom samplers.
CHECK_SAMPLER = "test the sampler with `loaders.samplers.check_sampler`"


class Plan(Protocol):
    """A sampler fitted to a split: it knows the rows of every batch of every epoch.

    Contract, tested by `check_sampler`:

    - Deterministic: `batch` depends on its arguments and the arguments of `Sampler.plan` alone, in any
      process. A call never depends on earlier calls, so a loader can resume at any batch of any
      epoch.
    - Independent of the number of ranks: a global batch depends on ``batch_size * world_size``, not
      on either alone.
    - Thread-safe: several threads may call `batch` at once.
    - Not pickled: every process makes its own plan.
    """

    @property
    def samples(self) -> int:
        """Samples in an epoch over all ranks, at least 1."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for ``explain()``, one sentence each.

        A plan may also have ``notes``, which `build` warns about.
        """

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Return the rows of a global batch, int64 [batch_size * world_size].

        The last batch may be shorter.

        Of n rows, rank r reads ``[r * n // world_size : (r + 1) * n // world_size]``.

        Args:
            epoch: from 0.
            number: index of the batch in the epoch, from 0.

        Raises:
            IndexError: the epoch has no such batch.

        """


class ShapedPlan(Plan, Protocol):
    """A plan whose batches have sizes of their own: in pixels, and in samples.

    All methods of a plan are still pure and thread-safe. Numbers of batches are from 0; a number
    that the epoch does not have is an `IndexError`.
    """

    @property
    def batches(self) -> int:
        """Batches in every epoch."""

    @property
    def shapes(self) -> tuple[Size, ...]:
        """Height and width of the images of each bucket, in pixels."""

    @property
    def buckets(self) -> Rows:
        """The number of the bucket of each row, int64 [samples of the split]."""

    @property
    def sides(self) -> Float32s:
        """Height and width of the image of each row as decoding returns it, [samples of the split, 2]."""

    @property
    def wholes(self) -> Sequence[int]:
        """Samples of a whole global batch of each bucket: multiples of the world size."""

    @property
    def global_text(self) -> str:
        """What checkpoints compare besides the text of the sampler; may be empty."""

    def bucket(self, epoch: int, number: int) -> int:
        """Return the number of the bucket of a global batch."""

    def count(self, epoch: int, number: int) -> int:
        """Return the number of samples of a global batch, at least 1."""


def shaped(plan: Plan) -> ShapedPlan | None:
    """Return the plan if its batches have sizes of their own, else `None`."""
    if not hasattr(plan, "shapes"):
        return None
    return cast(ShapedPlan, plan)


class ClippedPlan(Plan, Protocol):
    """A plan whose batches have clips: as many rows that follow each other are frames of one."""

    @property
    def frames(self) -> int:
        """Frames of a clip; it divides the samples of all batches."""

    def present(self, epoch: int, number: int) -> NDArray[np.bool_]:
        """Return which rows of a global batch do not fill up a clip, bool [rows of the batch]."""


def clipped(plan: Plan) -> ClippedPlan | None:
    """Return the plan if its batches have clips, else `None`."""
    if not hasattr(plan, "frames"):
        return None
    return cast(ClippedPlan, plan)


class Sampler(Protocol):
    """The argument of ``loaders.build(sampler=...)``: an immutable record of options.

    Contract, tested by `check_sampler`:

    - Deterministic: equal calls of `plan` return plans with equal batches.
    - Free of side effects: `plan` does not modify its arguments.
    - Picklable: a copy sent to another process returns plans with the same batches.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the sample tables that `plan` needs, for example ``("label",)``.

        Also `SHARD`, and the names of `UPRIGHT`.
        """

    def plan(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        samples: int,
        batch_size: int,
        world_size: int,
        seed: int,
    ) -> Plan:
        """Fit the sampler to a split.

        Args:
            columns: one array [samples] for each name in `columns`, numbers or objects, in the
                order of the rows.
            samples: number of rows in the split.
            batch_size: samples in a batch of one rank.
            world_size: number of ranks that share an epoch.
            seed: from 0 to 2**63 - 1.

        Raises:
            CallError: the sampler cannot sample this split; the hint says what to change.

        """


# --- what is known about a sampler ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Traits:
    """What a loader knows about a sampler besides its plan.

    Attributes:
        draws: whether it draws an order of its own, as for training.
        by: column by which it groups samples. `None` if it does not.
        fixed: what its batches always are, so that samples cannot move up. Empty if they can.
        spread: whether it spreads large images over the batches.
        lists: column with lists of values of the column `by`. `None` if there is none.

    """

    draws: bool = True
    by: str | None = None
    fixed: str = ""
    spread: bool = False
    lists: str | None = None


def traits_of(sampler: object) -> Traits:
    """Return the traits of a sampler, which a custom sampler need not state."""
    stated = getattr(sampler, "traits", None)
    if isinstance(stated, Traits):
        return stated
    by = getattr(sampler, "by", None)
    inner = getattr(sampler, "sampler", None)
    # In a custom sampler, `by` may be anything.
    if isinstance(by, str) and by in getattr(sampler, "columns", ()):
        return Traits(by=by)
    # A sampler that contains another one groups as that one does.
    return Traits() if inner is None else Traits(by=traits_of(inner).by)


# --- what the samplers of this package share ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """What a sampler is fitted to; the arguments of `Sampler.plan`.

    Attributes:
        columns: one array [samples] for each column that the sampler needs.
        samples: number of rows, at least 1.
        batch_size: samples in a batch of one rank.
        world_size: number of ranks.
        seed: from 0 to 2**63 - 1.

    """

    columns: Columns
    samples: int
    batch_size: int
    world_size: int
    seed: int

    @property
    def global_batch(self) -> int:
        """Samples in a batch of all ranks."""
        return self.batch_size * self.world_size

    def plan(self, sampler: Sampler) -> Plan:
        """Return the plan of a sampler."""
        return sampler.plan(
            self.columns,
            samples=self.samples,
            batch_size=self.batch_size,
            world_size=self.world_size,
            seed=self.seed,
        )


class OwnSampler(ABC):
    """A sampler of this package. Implements `Sampler`."""

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the sample tables that the plan needs."""
        return ()

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler besides its plan."""
        return Traits()

    def plan(
        self,
        columns: Columns,
        *,
        samples: int,
        batch_size: int,
        world_size: int,
        seed: int,
    ) -> Plan:
        """Fit the sampler to a split; see `Sampler`.

        Raises:
            CallError: the split has no samples, or the sampler cannot sample it.

        """
        fit = Fit(columns, samples, batch_size, world_size, seed)
        if samples < 1:
            raise CallError("the split has no samples to draw from", hint="choose another split")
        return self._fitted(fit)

    @abstractmethod
    def _fitted(self, fit: Fit) -> Plan:
        """Return the plan for a split with samples."""


def is_own(sampler: object) -> bool:
    """Return whether a sampler, and one that it contains, is of this package."""
    inner = getattr(sampler, "sampler", None)
    return type(sampler).__module__.startswith("loaders.") and (inner is None or is_own(inner))


def index_dtype(count: int) -> np.dtype[np.integer[Any]]:
    """Return the integer type that the indexes of `count` rows fit into: int32 or int64."""
    return np.dtype(np.int32 if count < 2**31 else np.int64)


EpochT = TypeVar("EpochT")


class Epochs(Generic[EpochT]):
    """What was computed for the two most recently requested epochs.

    A loader prefetches batches of the next epoch while it reads the current one. While one thread
    computes an epoch, others may use another.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, Future[EpochT]] = {}
        self._lock = threading.Lock()

    def __contains__(self, epoch: int) -> bool:
        return epoch in self._epochs

    def get(self, epoch: int, compute: Callable[[int], EpochT]) -> EpochT:
        """Return what a function computes for an epoch, computed once."""
        own: Future[EpochT] = Future()
        # Register within `try`: after an interrupt at any line, no one waits for an epoch that is
        # not being computed.
        try:
            with self._lock:
                future = self._epochs.pop(epoch, None)
                if future is None:
                    # Free the older epoch before the new one takes its memory.
                    while len(self._epochs) > 1:
                        del self._epochs[next(iter(self._epochs))]
                    future = own
                self._epochs[epoch] = future
            if future is own:
                own.set_result(compute(epoch))
        except BaseException as error:
            with self._lock:
                if self._epochs.get(epoch) is own:
                    del self._epochs[epoch]
            if not own.done():
                own.set_exception(error)
            raise
        return future.result()


class EpochPlan(ABC):
    """A plan that draws one array per epoch and takes every batch from it.

    The array contains the rows of the epoch; a plan that overrides `batch` draws what it needs
    instead, identities for example. Drawing an array takes up to seconds, slicing a batch
    microseconds. In the middle of an epoch, a thread begins to draw the next one, so that the
    loader does not wait for it.
    """

    order_version = ORDER_VERSION

    def __init__(self, fit: Fit, samples: int | None = None) -> None:
        """Plan epochs of `samples` samples; `None` means as many as the split has."""
        self.samples = fit.samples if samples is None else samples
        self.global_batch = fit.global_batch
        self.seed = fit.seed
        self._epochs = Epochs[Indices]()

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
        halfway = number == -(-length // width) // 2
        return self.slice_of(epoch, batch_slice(number, width, length), halfway=halfway)

    def slice_of(self, epoch: int, part: slice, *, halfway: bool) -> Indices:
        """Return a part of an epoch's array; in the middle of the epoch, begin to draw the next."""
        # By the middle of the epoch, no one reads the one before it, whose memory the next takes.
        values = self._epochs.get(epoch, self.draw_epoch)[part]
        if halfway and epoch + 1 not in self._epochs:
            # Without a thread, the next epoch is drawn when it is requested.
            with suppress(RuntimeError):
                threading.Thread(
                    target=self._draw_early, args=(epoch + 1,), name="draw epoch", daemon=True
                ).start()
        return values

    def _draw_early(self, epoch: int) -> None:
        with suppress(Exception):  # The request for the epoch raises it again.
            self._epochs.get(epoch, self.draw_epoch)


def batch_slice(number: int, global_batch: int, samples: int) -> slice:
    """Return the part of an epoch of `samples` samples that a batch takes.

    Raises:
        IndexError: the epoch has no such batch.

    """
    batches = -(-samples // global_batch)
    if not 0 <= number < batches:
        raise IndexError(f"batch {number} is not in an epoch of {batches} batches")
    return slice(number * global_batch, min((number + 1) * global_batch, samples))


def check_column_name(argument: str, name: object) -> None:
    """Check that an argument can be the name of a column.

    Raises:
        CallError: `name` is not a string, or is empty; the message names the argument.

    """
    if not isinstance(name, str) or not name:
        raise CallError(
            f"{argument} must be the name of a column of the sample tables, got {name!r}"
        )


def check_is_sampler(sampler: object) -> None:
    """Check that an object can be a sampler.

    Raises:
        CallError: it has no method `plan`, or is a class.

    """
    if isinstance(sampler, type) or not callable(getattr(sampler, "plan", None)):
        raise CallError(
            f"sampler must follow the protocol loaders.samplers.Sampler, got {sampler!r}",
            hint='pass an instance, for example loaders.ClassBalancedSampler(by="label")',
        )


def on_one_rank(sampler: Sampler, world_size: int) -> Sampler:
    """Return the sampler that gives the global batches of several ranks to one rank.

    Only a sampler whose options are about the batch of a rank has a method `on_one_rank`.
    """
    method: Callable[[int], Sampler] | None = getattr(sampler, "on_one_rank", None)
    return method(world_size) if callable(method) else sampler


def with_last_batch(sampler: Sampler, last_batch: LastBatch) -> Sampler:
    """Return the sampler whose epochs end as `last_batch` says.

    Only a sampler whose epochs can end in several ways has a method `with_last_batch`.
    """
    method: Callable[[LastBatch], Sampler] | None = getattr(sampler, "with_last_batch", None)
    return method(last_batch) if callable(method) else sampler


def sampler_text(sampler: Sampler, text: Callable[[Sampler], str] = repr) -> str:
    """Return the text of a sampler."""
    # The `repr` of `object` has an address, which differs in each process.
    if type(sampler).__repr__ is object.__repr__:
        return f"{type(sampler).__name__}()"
    return text(sampler)


def array_text(array: Array, dtype: str) -> str:
    """Return a short text that differs for different arrays. Checkpoints compare it.

    Args:
        array: numbers.
        dtype: little-endian type whose bytes identify the numbers, for example ``"<i8"``.

    """
    digest = hashlib.sha256(array.astype(dtype).tobytes()).hexdigest()[:16]
    return f"<{len(array)} numbers, sha256 {digest}>"


class ComparedByText(OwnSampler):
    """A sampler with an array that its ``repr`` identifies: equal texts mean equal samplers."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def text(self) -> str:
        """How `explain()` and checkpoints name the sampler."""
        return repr(self)
