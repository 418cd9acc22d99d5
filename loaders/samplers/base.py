"""What a sampler is: the two interfaces, and what all samplers here share. It must never know a file or a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.permutation import Rows
from manifests.errors import CallError


class Plan(Protocol):
    """A sampler fitted to a split: which rows each batch holds.

    Duties, most of which `check_sampler` tries: a plan has no state, so any batch of any epoch can be asked for alone,
    in any order, and the answer is the same each time, and the same from a plan made anew by an equal call.
    A global batch depends on ``batch_size * world_size``, never on either alone.
    """

    @property
    def samples(self) -> int:
        """How many samples an epoch has over all ranks, at least 1."""
        ...

    @property
    def lines(self) -> tuple[str, ...]:
        """What ``explain()`` says of it, one sentence each; what `build` is to warn of stands in ``notes`` too."""
        ...

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Return the rows of a global batch, int64 [batch_size * world_size], the last of an epoch perhaps shorter.

        Rank r takes ``[r * batch_size : (r + 1) * batch_size]`` of it.

        Args:
            epoch: from 0.
            number: of the batch in the epoch, from 0.

        Raises:
            IndexError: the epoch has no such batch.

        """
        ...


class Sampler(Protocol):
    """What a user gives to ``loaders.build(sampler=...)``: a frozen record of choices.

    Duties: it holds no state, and `plan` changes nothing that it is given.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the sample tables that `plan` needs: ``("label",)``, say."""
        ...

    def plan(
        self, columns: Mapping[str, NDArray[Any]], *, samples: int, batch_size: int, world_size: int, seed: int
    ) -> Plan:
        """Fit to a split.

        Args:
            columns: each an array [samples], of numbers or of objects, in the order of the split's rows.
            samples: rows of the split.
            batch_size: samples in a batch of one rank.
            world_size: ranks that share an epoch.
            seed: from 0 to 2**63.

        Raises:
            CallError: this split cannot be sampled so; the message says what to change.

        """
        ...


def slots(number: int, global_batch: int, samples: int) -> Rows:
    """Return the places in the epoch that a batch takes: int64, at most `global_batch` of them.

    Raises:
        IndexError: an epoch of so many samples has no such batch.

    """
    needs_batch(number, -(-samples // global_batch))
    first = number * global_batch
    return np.arange(first, min(first + global_batch, samples))


def needs_batch(number: int, batches: int) -> None:
    """Refuse a batch that is not in the epoch.

    Raises:
        IndexError: `number` is not from 0 to below `batches`.

    """
    if not 0 <= number < batches:
        raise IndexError(f"batch {number} of an epoch of {batches} batches")


def needs_samples(samples: int) -> None:
    """Refuse a split without rows.

    Raises:
        CallError: `samples` is 0.

    """
    if samples < 1:
        raise CallError("there is no sample to draw from", hint="choose a split, or a condition, that has some")


def named_column(argument: str, name: object) -> None:
    """Refuse what cannot be a column's name.

    Raises:
        CallError: it is no text, or empty; the message names the argument.

    """
    if not isinstance(name, str) or not name:
        raise CallError(f"{argument} must name a column of the sample tables, got {name!r}")
