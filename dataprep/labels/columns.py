"""Columns of labels: detect what they are, and convert their values. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.arrays import BoolArray, Int32Array, Int64Array
from dataprep.options import LabelOptions
from manifests.errors import SourceError
from manifests.json_members import shorten
from manifests.labels import MAX_LABEL, LabelType
from manifests.parquet import is_list, shorten_type
from manifests.process.text import cut_middle, plural, printable
from manifests.records import record
from manifests.schema import DEFAULT_MAX_CLASSES

#: An integer, as text, and what has zeros in front of one, which are a part of a name.
INTEGER, ZEROS = r"^[+-]?[0-9]+$", r"^[+-]?0[0-9]"

#: What programs write for a cell without a value.
BLANK = r"^\s*(nan|NaN|NAN|None|null|NULL|n/a|N/A|#N/A|<NA>)\s*$"

#: Returns the file and the line that a row comes from. The line is `None` if the file has no lines.
Locate = Callable[[int], tuple[str, int | None]]


def row_error(locate: Locate, row: int, message: str, hint: str) -> SourceError:
    """Return an error about a row."""
    file, line = locate(row)
    return SourceError(message, file=file, line=line, hint=hint)


def check_filled(column: pa.Array | pa.ChunkedArray, name: str, locate: Locate) -> None:
    """Check that a column has a value in every row.

    Raises:
        SourceError: it is null, empty or blank in a row.

    """
    empty = np.flatnonzero(blank_rows(column))
    if len(empty):
        raise row_error(
            locate, int(empty[0]), f"column {name!r} is empty", "fill in a value, or remove the row"
        )


def blank_rows(column: pa.Array | pa.ChunkedArray) -> BoolArray:
    """Return which rows have no value, or a text without one, bool [n]."""
    empty = pc.is_null(column)
    if is_text(column.type):
        empty = pc.or_(empty, pc.equal(pc.utf8_trim_whitespace(pc.fill_null(column, "")), ""))
    return np.asarray(empty)


def every(checks: pa.Array) -> bool:
    """Return whether all values are true; also if there are none."""
    return bool(pc.all(checks, min_count=0).as_py())


def first_true(checks: pa.Array) -> int:
    """Return the first row whose value is true; -1 if there is none."""
    row: int = pc.index(checks, True).as_py()
    return row


def number_labels(
    text: pa.Array,
    classes: tuple[str, ...] | None,
    locate: Locate,
    *,
    max_classes: int = DEFAULT_MAX_CLASSES,
) -> tuple[Int32Array, tuple[str, ...]]:
    """Convert labels from text to numbers.

    Labels are class indices as `are_indices` says. Otherwise they are class names, numbered by their
    position in `classes`, or in sorted order.

    Args:
        text: large_string [n].
        classes: class names in label order; `None` takes them from `text`.
        locate: returns the file and line of a row, for errors.
        max_classes: class indices must be less than this if `classes` is `None`.

    Returns:
        The labels, int32 [n], and the class names.

    Raises:
        SourceError: a label is not in `classes`, or is out of range.

    """
    text = whole_numbers(text, classes)
    if are_indices(text, classes):
        return _integer_labels(text, classes, locate, max_classes)
    # In sorted order, the numbers do not depend on the order of the rows.
    names = named_classes(classes, pc.unique(text).to_pylist())
    label = pc.index_in(text, pa.array(names, pa.large_string()))
    row = first_true(pc.is_null(label))
    if row >= 0:
        message = f"label {shorten(text[row].as_py(), 80)} is not in --classes"
        raise row_error(locate, row, message, "add it to the class names")
    return np.asarray(label).astype(np.int32), names


def named_classes(classes: tuple[str, ...] | None, found: Collection[str]) -> tuple[str, ...]:
    """Return the names of classes, as a source writes them; without `classes`, the found ones in sorted order."""
    own = {*found}
    if classes is None:
        return tuple(sorted(own))
    if own.issubset(classes):
        return classes
    return tuple(own_spelling(name, own) for name in classes)


def own_spelling(name: str, known: Collection[str]) -> str:
    """Return the name of a class as a source writes it: perhaps with blanks around it."""
    if name in known:
        return name
    padded = [other for other in known if other.strip() == name]
    return padded[0] if len(padded) == 1 else name


def are_indices(text: pa.Array, classes: tuple[str, ...] | None) -> bool:
    """Return whether labels are class indices: all are integers.

    They are names if all of them are in `classes`, or one has leading zeros and there are no class
    names: 007 and 7 are two classes.
    """
    if not every(pc.match_substring_regex(text, INTEGER)):
        return False
    if classes is None:
        return not pc.any(pc.match_substring_regex(text, ZEROS)).as_py()
    return not (len(text) and every(pc.is_in(text, pa.array(classes, text.type))))


def whole_numbers(text: pa.Array, classes: tuple[str, ...] | None) -> pa.Array:
    """Return 3 for 3.0 if all labels are such numbers, as pandas writes a column with an empty cell.

    Blanks around numbers do not count.
    """
    trimmed = pc.utf8_trim_whitespace(text)
    whole = pc.replace_substring_regex(trimmed, r"^([0-9]+)\.0+$", r"\1")
    if not every(pc.match_substring_regex(whole, INTEGER)):
        return text
    are_names = every(pc.is_in(text, pa.array(classes or (), text.type)))
    return text if are_names else whole


def _integer_labels(
    text: pa.Array, classes: tuple[str, ...] | None, locate: Locate, max_classes: int
) -> tuple[Int32Array, tuple[str, ...]]:
    limit = len(classes) if classes is not None else max_classes
    # Text of ten digits and more may not fit into an int64: it is out of range anyway.
    digits = pc.replace_substring_regex(text, r"^\+?0*([0-9]+)$", r"\1")
    short = pc.less_equal(pc.utf8_length(digits), 9)
    value = np.asarray(pc.if_else(short, digits, "-1").cast(pa.int64()))
    wrong = np.flatnonzero((value < 0) | (value >= limit))
    if len(wrong):
        row = int(wrong[0])
        limited_by, hint = "", "number the classes from 0"
        if text[row].as_py().startswith("-"):
            hint += ", or list the labels as names with --classes"
        elif classes is None and max_classes <= MAX_LABEL:
            hint += f", or set --max-classes to a number up to {MAX_LABEL + 1:,}"
        if classes is not None:
            limited_by = f", because there are {plural(limit, 'class name')}"
            hint = "correct it, or give the names of all classes with --classes"
        raise row_error(
            locate,
            row,
            f"label {cut_middle(text[row].as_py(), 80)} is out of the range 0 to"
            f" {limit - 1}{limited_by} ({len(wrong):,} in total)",
            hint,
        )
    names = classes or tuple(map(str, range(int(value.max(initial=-1)) + 1)))
    return value.astype(np.int32), names


def is_text(column_type: pa.DataType) -> bool:
    """Return whether the values of a column are text."""
    return bool(pa.types.is_string(column_type) or pa.types.is_large_string(column_type))


def is_number(column_type: pa.DataType) -> bool:
    """Return whether the values of a column are integers or fractions."""
    return bool(pa.types.is_integer(column_type) or pa.types.is_floating(column_type))


# --- lists --------------------------------------------------------------------------------------


@record
class Lists:
    """The lists of n rows.

    Attributes:
        values: the items of all lists, one row after the other.
        counts: number of items of each row, int64 [n].

    """

    values: pa.Array
    counts: Int64Array

    def rows(self) -> Int64Array:
        """Return the row of each item, int64 [items]."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def as_array(self, list_type: pa.DataType) -> pa.Array:
        """Return the lists as an Arrow column of this type."""
        offsets = np.concatenate([[0], np.cumsum(self.counts)])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.values).cast(list_type)

    def multi_hot(self, classes: int | None) -> Lists | None:
        """Return the positions of the ones if the lists are 0 or 1 for each class; else `None`.

        Such lists have one length, of two at least, and only 0 and 1. A list of class indices has
        no index twice, so lists without a repeated item are indices if there are more classes.

        Args:
            classes: the number of classes, if it is known.

        """
        length = int(self.counts[0]) if len(self.counts) else 0
        if length < 2 > (classes or length) or length < 1 or (self.counts != length).any():
            return None
        text = self.values.cast(pa.large_string())
        if not every(pc.match_substring_regex(text, r"^[01](\.0*)?$")):
            return None
        # Each row has as many items, so they are a matrix.
        ones = np.asarray(pc.starts_with(text, "1")).reshape(-1, length)
        is_index = length == 2 and (ones.sum(axis=1) == 1).all()
        if classes not in (None, length) and is_index:
            return None
        return Lists(pa.array(np.nonzero(ones)[1], pa.int64()), ones.sum(1).astype(np.int64))

    def repeated(self, label: Int32Array) -> Int64Array:
        """Return the items whose label is in their list before, int64 [items]."""
        pairs = np.stack([self.rows(), label])
        _, first = np.unique(pairs, axis=1, return_index=True)
        return np.setdiff1d(np.arange(len(label)), first)

    def sorted_unique(self, label: Int32Array) -> Lists:
        """Return lists of these labels instead of the items: in ascending order, and each once."""
        # One number for row and label, so that one call sorts and counts both.
        labels = int(label.max(initial=0)) + 1
        row, unique = np.divmod(np.unique(self.rows() * labels + label), labels)
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


# --- read labels --------------------------------------------------------------------------------

#: How labels are shown that lists or columns of 0 and 1 state.
HOT = "0 or 1 for each class"

#: Separates the classes of an image in text, unless an option sets another separator.
SEPARATOR = "|"

_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"
FLOAT = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"


@record
class Labels:
    """The labels of n samples.

    Attributes:
        label_type: what they are.
        label: int32 [n]: class indices; zeros if the labels are not classes.
        classes: class names in label order. Empty if there are none.
        origin: where they come from, to show to the user.
        columns: the columns of `manifests.labels.LabelSchema.columns`, except ``label``.
        notices: messages for the user, one line each.
        kept: which samples have a label, bool [n]; the others are left out. `None` if all have one.

    """

    label_type: LabelType
    label: Int32Array
    classes: tuple[str, ...] = ()
    origin: str = ""
    columns: dict[str, pa.Array] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    kept: BoolArray | None = None


@record
class LabelColumn:
    """A column of a source that contains labels.

    Attributes:
        values: text, numbers, or lists of them, [n].
        name: its name.
        options: how to read it.
        locate: returns the file and line of a row, for errors.
        names: class names in label order that the source states; `options.classes` replaces them.

    """

    values: pa.Array
    name: str
    options: LabelOptions
    locate: Locate
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names in label order; `None` takes them from the values."""
        return self.options.classes or self.names or None

    @property
    def shown_type(self) -> str:
        """Arrow type of the values, for messages."""
        return shorten_type(self.values.type)

    @property
    def origin(self) -> str:
        """What is shown to the user about the column."""
        return origin_of(self.name)

    def labels(
        self,
        label_type: LabelType,
        columns: dict[str, pa.Array],
        notices: Sequence[str] = (),
        **others: Any,
    ) -> Labels:
        """Return what was read from this column; `others` are other fields of `Labels`."""
        given = {"label": np.zeros(len(self), np.int32), "origin": self.origin, **others}
        return Labels(label_type=label_type, columns=columns, notices=tuple(notices), **given)

    def error(self, what: str, row: int | None = None, hint: str = "") -> SourceError:
        """Return an error about the column, or about the value in a row."""
        file, line = self.locate(row or 0) if len(self) else ("", None)
        # Without a row, the whole column is wrong.
        line = None if row is None else line
        return SourceError(f"column {self.name!r} {what}", file=file, line=line, hint=hint)

    def lists(self, separator: str | None) -> Lists:
        """Return lists of the values: a column of lists, separated text, or one item in each row.

        Raises:
            SourceError: the values are neither text nor numbers, nor lists of these.

        """
        column = self.values
        # Lists are taken as they are; one value in each row is a list of one.
        if is_list(column.type):
            return self._checked_lists()
        if is_text(column.type) and separator is not None:
            return self._split(separator)
        if not is_text(column.type) and not is_number(column.type):
            raise self.error(
                f"has the type {self.shown_type}, which is neither text nor numbers",
                hint="choose another --label-column",
            )
        return Lists(column.drop_null(), np.asarray(pc.is_valid(column)).astype(np.int64))

    def _split(self, separator: str) -> Lists:
        """Return the parts of each text, without spaces around them; an empty text has none."""
        text = pc.fill_null(self.values, "")
        parts = pc.split_pattern(text, separator)
        counts = np.asarray(pc.list_value_length(parts)).astype(np.int64)
        values = pc.utf8_trim_whitespace(pc.list_flatten(parts))
        # An empty text is no class, not a class with an empty name.
        is_empty = np.asarray(pc.equal(pc.utf8_trim_whitespace(text), ""))
        keep = ~np.repeat(is_empty, counts)
        lists = Lists(values.filter(pa.array(keep)), np.where(is_empty, 0, counts))
        at = first_true(pc.equal(lists.values, ""))
        if at >= 0:
            row = int(lists.rows()[at])
            raise self.error(
                f"has an empty class between two {separator!r} ({shorten(text[row].as_py(), 80)})",
                row,
                hint="remove one of the separators, or set --label-separator",
            )
        return lists

    def numbers(self, lists: Lists) -> Lists:
        """Return the values, as `lists` returned them, as numbers: float64.

        Raises:
            SourceError: a text is not a number.

        """
        values = lists.values
        if is_text(values.type):
            values = pc.utf8_trim_whitespace(values)
            for text, number in (("true", "1"), ("false", "0")):
                values = pc.if_else(pc.equal(pc.utf8_lower(values), text), number, values)
            wrong = first_true(pc.invert(pc.match_substring_regex(values, _NUMBER)))
            if wrong >= 0:
                raise self.error(
                    f"contains {shorten(values[wrong].as_py(), 80)}, which is not a number",
                    int(lists.rows()[wrong]),
                    hint="write numbers with a decimal point, or give one column of names or numbers",
                )
        return Lists(values.cast(pa.float64()), lists.counts)

    def _checked_lists(self) -> Lists:
        """Return the values of a column of lists, without missing items."""
        lists = lists_of_column(self.values)
        item = lists.values.type
        if pa.types.is_dictionary(item):
            item = item.value_type
        if not (is_text(item) or is_number(item) or pa.types.is_null(item)):
            raise self.error(
                f"has lists of {shorten_type(item)}, which are neither text nor numbers",
                hint="write lists of class names or numbers",
            )
        missing = first_true(pc.is_null(lists.values))
        if missing >= 0:
            raise self.error(
                "has a list with an item without a value (null)",
                int(lists.rows()[missing]),
                hint="write a value, or remove the item",
            )
        return lists


def origin_of(name: str) -> str:
    """Return what is shown to the user about a column of labels."""
    return f"column {printable(name)}"
