"""Which rows share a value: columns of the sample tables -> rows, grouped. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.permutation import Rows
from manifests.errors import CallError


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows by value: those of group g are ``members[starts[g] : starts[g + 1]]``.

    Attributes:
        starts: int64 [groups + 1], from 0 to the number of rows.
        members: every row once, int32 or int64 [rows]; ascending within a group where there is no inner grouping.

    """

    starts: Rows
    members: NDArray[np.integer[Any]]

    @property
    def sizes(self) -> Rows:
        """How many rows each group has, int64 [groups], each at least 1."""
        return np.diff(self.starts)

    def sizes_of(self, chosen: Rows) -> Rows:
        """Return how many rows some groups have."""
        sizes: Rows = self.starts[chosen + 1] - self.starts[chosen]
        return sizes

    def rows(self, chosen: Rows, places: Rows) -> Rows:
        """Return the rows at some places, from 0 to below its size, of some groups; broadcast."""
        rows: Rows = self.members[self.starts[chosen] + places].astype(np.int64)
        return rows


def codes_of(columns: Mapping[str, NDArray[Any]], name: str, samples: int) -> NDArray[np.uint64]:
    """Return a number below 2**32 for each row, equal where and only where the values of a column are.

    Raises:
        CallError: there is no such column, it has another length, or a row has no value (None, NaN).

    """
    if name not in columns:
        known = ", ".join(map(repr, columns)) or "none"
        raise CallError(f"the sample tables have no column {name!r}", hint=f"columns to choose from: {known}")
    column = np.asarray(columns[name])
    if column.shape != (samples,):
        raise CallError(f"column {name!r} has the shape {column.shape}, and the split {samples} samples")
    if column.dtype.kind in "biu":
        return _number_integers(column)
    if column.dtype.kind in "fmM":
        _refuse_missing(name, int(np.count_nonzero(np.isnan(column))), samples)
        return np.unique(column, return_inverse=True)[1].astype(np.uint64)
    return _number_objects(name, column.tolist())


def value_at(column: NDArray[Any], row: int) -> object:
    """Return a row's value as Python's own, as a message shows it."""
    value: object = np.asarray(column)[row : row + 1].tolist()[0]
    return value


def group(codes: NDArray[np.uint64]) -> Groups:
    """Return the rows by code, each group's ascending."""
    # One word holds code and row: words all differ, so the fastest sort there is gives the same order everywhere.
    words = (codes << np.uint64(32)) | np.arange(len(codes), dtype=np.uint64)
    words.sort()
    kind: np.dtype[np.integer[Any]] = np.dtype(np.int32 if len(codes) < 2**31 else np.int64)
    members = (words & np.uint64(0xFFFFFFFF)).astype(kind)
    words >>= np.uint64(32)
    return Groups(_starts(words[1:] != words[:-1]), members)


def group_within(outer: NDArray[np.uint64], inner: NDArray[np.uint64]) -> tuple[Groups, Rows]:
    """Return the rows by outer code, each group's by inner code; and where its inner groups start.

    The second result is int64 [inner groups + 1], places among the members as `Groups.starts` are, all of which are
    among them.
    """
    by_inner = group(inner).members
    found = group(outer[by_inner])
    members = by_inner[found.members]
    ordered = inner[members]
    changes = ordered[1:] != ordered[:-1]
    changes[found.starts[1:-1] - 1] = True
    return Groups(found.starts, members), _starts(changes)


def _starts(changes: NDArray[np.bool_]) -> Rows:
    return np.concatenate([[0], np.flatnonzero(changes) + 1, [len(changes) + 1]])


def _number_integers(column: NDArray[Any]) -> NDArray[np.uint64]:
    least, most = int(column.min()), int(column.max())
    if most - least < 2**32:
        # Modulo 2**64, so that negative values and any type of integer do.
        numbers: NDArray[np.uint64] = column.astype(np.uint64) - np.uint64(least % 2**64)
        return numbers
    return np.unique(column, return_inverse=True)[1].astype(np.uint64)


def _number_objects(name: str, values: list[Any]) -> NDArray[np.uint64]:
    try:
        numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    except TypeError:
        raise CallError(f"column {name!r} holds lists or the like, which cannot stand for a class") from None
    # Only NaN, of whatever type, differs from itself.
    missing = {value for value in numbers if value is None or value != value}  # noqa: PLR0124
    if missing:
        _refuse_missing(name, sum(value in missing for value in values), len(values))
    return np.fromiter(map(numbers.__getitem__, values), np.uint64, len(values))


def _refuse_missing(name: str, missing: int, samples: int) -> None:
    if missing:
        raise CallError(
            f"{missing:,} of {samples:,} samples have no value in column {name!r}",
            hint="fill the column in the table that the dataset was made from",
        )
