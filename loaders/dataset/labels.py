"""Labels that are lists in the sample tables: several classes, numbers, boxes. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifests.errors import TableError
from manifests.process.text import plural


@dataclass(frozen=True, slots=True, eq=False)
class ListColumn:
    """A column of lists: the list of row r is ``values[starts[r] : starts[r + 1]]``.

    Attributes:
        values: the items of all lists, [items] or [items, 4] for boxes.
        starts: int64 [rows + 1].

    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the items of some rows, one row after the other, and the number of items of each row."""
        first = self.starts[rows]
        counts: NDArray[np.int64] = self.starts[rows + 1] - first
        ends = np.cumsum(counts)
        within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return self.values[np.repeat(first, counts) + within], counts

    def objects(self) -> NDArray[Any]:
        """Return the lists as Python objects, [rows]."""
        values, starts = self.values.tolist(), self.starts.tolist()
        return np.fromiter(
            (values[first:end] for first, end in pairwise(starts)), object, len(self)
        )


def concat_lists(parts: Sequence[ListColumn]) -> ListColumn:
    """Return the rows of several columns, one after the other."""
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ListColumn(np.concatenate([part.values for part in parts]), starts)


def check_lengths(name: str, parts: Sequence[ListColumn], files: Sequence[str]) -> None:
    """Check that all tables have lists of the same length; the lists of one table have.

    Args:
        name: name of the column.
        parts: the column in each table; none is empty.
        files: paths of the tables.

    Raises:
        TableError: they have not.

    """
    lengths = [int(part.starts[1]) for part in parts]
    for length, file in zip(lengths, files, strict=True):
        if length != lengths[0]:
            raise TableError(
                f"column {name!r} has {plural(length, 'number')} for each sample, but {lengths[0]}"
                f" in {files[0]}",
                file=file,
                hint="join only datasets with as many numbers for each sample",
            )


def multi_hot(column: ListColumn, rows: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
    """Return the classes of some rows as float32 [B, classes]: 1 for each class that a sample has, else 0."""
    labels, counts = column.take(rows)
    hot = np.zeros((len(rows), classes), np.float32)
    hot[np.repeat(np.arange(len(rows)), counts), labels] = 1
    return hot


def numbers(column: ListColumn, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the numbers of some rows as float32 [B, numbers].

    All rows have the same number of them.
    """
    values, _ = column.take(rows)
    return values.reshape(len(rows), -1).astype(np.float32, copy=False)
