"""Lists of labels as two arrays: all items, and the number of items of each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.sources.columns import Locate
from manifests.errors import SourceError
from manifests.json_members import shorten


@dataclass(frozen=True)
class Lists:
    """The lists of n rows.

    Attributes:
        values: the items of all lists, one row after the other.
        counts: number of items of each row, int64 [n].

    """

    values: pa.Array
    counts: NDArray[np.int64]

    def rows(self) -> NDArray[np.int64]:
        """Return the row of each item, int64 [items]."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def as_array(self, list_type: pa.DataType) -> pa.Array:
        """Return the lists as an Arrow column of this type."""
        offsets = np.concatenate([[0], np.cumsum(self.counts)])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.values).cast(list_type)

    def multi_hot(self) -> Lists | None:
        """Return the positions of the ones if the lists are 0 or 1 for each class; else `None`.

        Lists of class indices have no index twice, and rarely the same length.
        """
        length = int(self.counts[0]) if len(self.counts) else 0
        if length < 3 or (self.counts != length).any():
            return None
        zero_or_one = pa.array(["0", "1"], pa.large_string())
        text = self.values.cast(pa.large_string())
        if not pc.all(pc.is_in(text, zero_or_one)).as_py():
            return None
        ones = np.asarray(pc.equal(text, "1")).reshape(-1, length)
        return Lists(pa.array(np.nonzero(ones)[1], pa.int64()), ones.sum(1).astype(np.int64))

    def sorted_unique(self, label: NDArray[np.int32]) -> Lists:
        """Return lists of these labels instead of the items: in ascending order, and each once."""
        if not len(label):
            return Lists(pa.array([], pa.int64()), self.counts)
        pairs = np.unique(self.rows() * (int(label.max()) + 1) + label)
        row, unique = np.divmod(pairs, int(label.max()) + 1)
        return Lists(
            pa.array(unique, pa.int64()),
            np.bincount(row, minlength=len(self.counts)).astype(np.int64),
        )


def lists_of_column(column: pa.Array) -> Lists:
    """Return a column of lists. A row without a value has an empty list."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    return Lists(pc.list_flatten(column), counts)


def count_numbers(values: pa.ChunkedArray) -> int:
    """Return how many numbers each row of the column ``values`` has; 0 if it has no rows."""
    return int(pc.list_value_length(values)[0].as_py()) if len(values) else 0


def split_text(column: pa.Array, separator: str, name: str, locate: Locate) -> Lists:
    """Return the parts of each text between separators, without spaces around them.

    Of an empty text, there are none.

    Raises:
        SourceError: a part is empty.

    """
    text = pc.fill_null(column, "")
    parts = pc.split_pattern(text, separator)
    counts = np.asarray(pc.list_value_length(parts)).astype(np.int64)
    values = pc.utf8_trim_whitespace(pc.list_flatten(parts))
    is_empty = np.asarray(pc.equal(pc.utf8_trim_whitespace(text), ""))
    keep = ~np.repeat(is_empty, counts)
    lists = Lists(values.filter(pa.array(keep)), np.where(is_empty, 0, counts))
    at = pc.index(lists.values, pa.scalar("", lists.values.type)).as_py()
    if at >= 0:
        row = int(lists.rows()[at])
        file, line = locate(row)
        message = (
            f"column {name!r} has an empty class between two {separator!r}"
            f" ({shorten(text[row].as_py(), 80)})"
        )
        raise SourceError(
            message,
            file=file,
            line=line,
            hint="remove one of the separators, or set --label-separator",
        )
    return lists


def parse_numbers(lists: Lists, name: str, locate: Locate) -> Lists:
    """Return lists of text as lists of numbers, and lists of numbers as they are.

    Raises:
        SourceError: a text is not a number, or a value is missing.

    """
    values = lists.values
    wrong = pc.index(pc.is_null(values), True).as_py()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
        is_number = pc.match_substring_regex(
            values, r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
        )
        wrong = max(wrong, pc.index(pc.fill_null(is_number, False), False).as_py())
    if wrong >= 0:
        file, line = locate(int(lists.rows()[wrong]))
        shown = shorten(values[wrong].as_py(), 80)
        message = f"column {name!r} contains {shown}, which is not a number"
        raise SourceError(message, file=file, line=line, hint="write numbers, or set --label-type")
    return Lists(values.cast(pa.float64()), lists.counts)
