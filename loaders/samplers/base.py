"""The interface of samplers: `Sampler`, `Plan` and their contract.

Reads no files and never imports DALI.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from manifests.errors import CallError

Rows: TypeAlias = NDArray[np.int64]
#: int32 if it is wide enough, otherwise int64.
Indices: TypeAlias = NDArray[np.integer[Any]]

#: Name under which a sampler gets the number of the shard of each row, int32 [samples]: no column
#: of the sample tables.
SHARD = "shard of the row"

#: Version of the orders that these samplers draw. Raise it when a sampler with the same arguments
#: draws other samples than before: loading an older checkpoint then raises an error instead of
#: resuming with other samples.
ORDER_VERSION = 2


class Plan(Protocol):
    """A sampler fitted to a split: it knows the rows of every batch of every epoch.

    Contract, tested by `check_sampler`:

    - Deterministic: `batch` depends on its arguments and on those of `Sampler.plan` alone, in any
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
        ...

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for ``explain()``, one sentence each.

        A plan may also have ``notes``, which `build` warns about.
        """
        ...

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
        ...


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

        Also `SHARD`.
        """
        ...

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
        ...


def index_dtype(count: int) -> np.dtype[np.integer[Any]]:
    """Return the integer type that the indexes of `count` rows fit into: int32 or int64."""
    return np.dtype(np.int32 if count < 2**31 else np.int64)


def check_not_empty(samples: int) -> None:
    """Check that a split has rows.

    Raises:
        CallError: `samples` is 0.

    """
    if samples < 1:
        raise CallError("the split has no samples to draw from", hint="choose another split")


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

    That is the sampler itself, unless it has a method `on_one_rank`, because its options are about
    the batch of a rank.
    """
    method: Callable[[int], Sampler] | None = getattr(sampler, "on_one_rank", None)
    return method(world_size) if callable(method) else sampler


def sampler_text(sampler: Sampler, text: Callable[[Sampler], str] = repr) -> str:
    """Return the text of a sampler.

    Its class if it has no ``__repr__`` of its own, whose text has an address.
    """
    return (
        f"{type(sampler).__name__}()"
        if type(sampler).__repr__ is object.__repr__
        else text(sampler)
    )


def array_text(array: NDArray[Any], dtype: str) -> str:
    """Return a short text that differs for different arrays. Checkpoints compare it.

    Args:
        array: numbers.
        dtype: little-endian type whose bytes identify the numbers, for example ``"<i8"``.

    """
    digest = hashlib.sha256(array.astype(dtype).tobytes()).hexdigest()[:16]
    return f"<{len(array)} numbers, sha256 {digest}>"


class ComparedByText:
    """A sampler with an array: its ``repr`` identifies the array, and samplers with equal texts are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def text(self) -> str:
        """How `explain()` and checkpoints name the sampler."""
        return repr(self)
