"""Columns of labels: detect what they are, and convert their values. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.options import LabelOptions
from manifests.errors import CallError, SourceError
from manifests.json_members import shorten
from manifests.label_values import find_wrong_value
from manifests.labels import LabelType, arrow_type
from manifests.parquet import is_list, shorten_type
from manifests.process.text import cut_middle, plural, printable
from manifests.schema import DEFAULT_MAX_CLASSES, MAX_LABEL

#: Returns the file and the line that a row comes from. The line is `None` if the file has no lines.
Locate = Callable[[int], tuple[str, int | None]]


def number_labels(
    text: pa.Array,
    classes: tuple[str, ...] | None,
    locate: Locate,
    *,
    max_classes: int = DEFAULT_MAX_CLASSES,
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Convert labels from text to numbers.

    If all labels are integers, they are class indices, unless all of them are in `classes`.
    Otherwise they are class names, numbered by their position in `classes`, or in sorted order.

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
    integers = bool(pc.all(pc.match_substring_regex(text, r"^[+-]?[0-9]+$"), min_count=0).as_py())
    are_names = classes is not None and bool(
        pc.all(pc.is_in(text, pa.array(classes, text.type))).as_py()
    )
    if integers and not are_names:
        return _integer_labels(text, classes, locate, max_classes)
    names = classes or tuple(sorted(pc.unique(text).to_pylist()))
    label = pc.index_in(text, pa.array(names, pa.large_string()))
    if label.null_count:
        row = pc.index(pc.is_null(label), True).as_py()
        file, line = locate(row)
        raise SourceError(
            f"label {shorten(text[row].as_py(), 80)} is not in --classes",
            file=file,
            line=line,
            hint="add it to the class names",
        )
    return np.asarray(label).astype(np.int32), names


def _integer_labels(
    text: pa.Array, classes: tuple[str, ...] | None, locate: Locate, max_classes: int
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    limit = len(classes) if classes is not None else max_classes
    digits = pc.replace_substring_regex(text, r"^\+?0*([0-9]+)$", r"\1")
    short = pc.less_equal(pc.utf8_length(digits), 9)
    value = np.asarray(pc.if_else(short, digits, "-1").cast(pa.int64()))
    wrong = np.flatnonzero((value < 0) | (value >= limit))
    if len(wrong):
        file, line = locate(int(wrong[0]))
        limited_by = (
            f", because there are {plural(limit, 'class name')}" if classes is not None else ""
        )
        raise SourceError(
            f"label {cut_middle(text[int(wrong[0])].as_py(), 80)} is out of the range 0 to"
            f" {limit - 1}{limited_by} ({len(wrong):,} in total)",
            file=file,
            line=line,
            hint=(
                "correct it, or give the names of all classes with --classes"
                if classes is not None
                else _label_hint(max_classes)
            ),
        )
    names = classes or tuple(str(number) for number in range(int(value.max(initial=-1)) + 1))
    return value.astype(np.int32), names


def _label_hint(max_classes: int) -> str:
    raise_limit = (
        f", or set --max-classes to a number up to {MAX_LABEL + 1:,}"
        if max_classes <= MAX_LABEL
        else ""
    )
    return f"number the classes from 0{raise_limit}"


def is_text(column_type: pa.DataType) -> bool:
    """Return whether the values of a column are text."""
    return bool(pa.types.is_string(column_type) or pa.types.is_large_string(column_type))


# --- lists ------------------------------------------------------------------------------------------


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


# --- detect the label type --------------------------------------------------------------------------


#: Separates the classes of an image in text, unless an option sets another separator.
SEPARATOR = "|"

#: Names of columns with labels that are not classes. They decide only where the values leave a
#: choice.
CAPTION_COLUMNS = ("caption", "captions", "text", "sentence", "description", "prompt")
REGRESSION_COLUMNS = ("values", "value", "age", "score", "rating", "price")
MULTI_LABEL_COLUMNS = ("labels", "tags")

#: The columns that are searched for labels if there is none called ``label``, ``class`` or
#: ``target``.
OTHER_LABEL_COLUMNS = (
    *MULTI_LABEL_COLUMNS,
    "values",
    "caption",
    "captions",
    "age",
    "score",
    "rating",
)

FLOAT = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
_HAS_POINT = r"[.eE]"


def detect_label_type(
    column: pa.Array, name: str, options: LabelOptions, names: tuple[str, ...] | None = None
) -> LabelType:
    """Return the label type that an option names, or else the one that fits the values and the name of a column.

    Args:
        column: the labels.
        name: name of the column.
        options: `label_type`, `label_separator` and `classes` apply.
        names: class names that the source states.

    """
    if options.label_type is not None:
        return options.label_type
    label_type = _detect(column, name, options)
    # What has names of classes is neither a number nor a caption.
    has_names = bool(options.classes or names) and not is_list(column.type)
    return "class" if has_names and label_type in ("regression", "caption") else label_type


def _detect(column: pa.Array, name: str, options: LabelOptions) -> LabelType:
    if is_list(column.type):
        return "regression" if pa.types.is_floating(column.type.value_type) else "multi-label"
    if options.label_separator is not None:
        return "multi-label"
    if is_text(column.type):
        return _detect_in_text(column, name)
    is_number = pa.types.is_integer(column.type) and name.lower() in REGRESSION_COLUMNS
    return "regression" if is_number or pa.types.is_floating(column.type) else "class"


def _detect_in_text(column: pa.Array, name: str) -> LabelType:
    if name.lower() in CAPTION_COLUMNS:
        return "caption"
    if pc.any(pc.match_substring(column, SEPARATOR), min_count=0).as_py():
        return "multi-label"
    if not len(column) or not pc.all(pc.match_substring_regex(column, FLOAT)).as_py():
        return "class"
    has_point = pc.any(pc.match_substring_regex(column, _HAS_POINT)).as_py()
    return "regression" if has_point or name.lower() in REGRESSION_COLUMNS else "class"


# --- read labels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """The labels of n samples.

    Attributes:
        label_type: what they are.
        label: int32 [n]: class indices; zeros if the labels are not classes.
        classes: class names in label order. Empty if there are none.
        origin: where they come from, to show to the user.
        columns: the columns of `manifests.labels.LABEL_COLUMNS` for the label type, except
            ``label``.
        notices: messages for the user, one line each.

    """

    label_type: LabelType
    label: NDArray[np.int32]
    classes: tuple[str, ...] = ()
    origin: str = ""
    columns: dict[str, pa.Array] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def read_labels(
    column: pa.Array,
    name: str,
    options: LabelOptions,
    locate: Locate,
    names: tuple[str, ...] | None = None,
) -> Labels:
    """Read the labels of a source from one column.

    Args:
        column: text, numbers, or lists of them, [n].
        name: name of the column.
        options: `label_type`, `label_separator`, `classes` and `max_classes` apply.
        locate: returns the file and line of a row, for errors.
        names: class names in label order that the source states; `options.classes` replaces them.

    Raises:
        SourceError: a value cannot be a label of this type.

    """
    label_type = detect_label_type(column, name, options, names)
    classes = options.classes or names or None
    if label_type == "class":
        return _classes(column, name, options, locate, classes)
    zeros = np.zeros(len(column), np.int32)
    if label_type == "none":
        return Labels("none", zeros)
    if label_type == "caption":
        return Labels(
            "caption",
            zeros,
            origin=origin_of(name),
            columns={"caption": _captions(column, name, locate)},
        )
    if label_type == "multi-label":
        return _multi_label(column, name, options, locate, classes, are_indices=names is not None)
    if label_type == "regression":
        lists = _lists(column, name, options.label_separator, locate)
        labels = numbers_of(lists, name, locate)
        doubtful = (
            options.label_type is None
            and name.lower() not in REGRESSION_COLUMNS
            and _are_integers(labels)
        )
        notice = (
            f"the numbers in column {printable(name)} are integers; if they are classes, set"
            " --label-type class"
        )
        return replace(labels, notices=(*labels.notices, notice)) if doubtful else labels
    raise CallError(
        f"--label-type {label_type} needs a source with such labels, but column {name!r} has"
        " others",
        hint="leave out --label-type, or give a folder of this layout",
    )


def _are_integers(labels: Labels) -> bool:
    values = pc.list_flatten(labels.columns["values"])
    return bool(pc.all(pc.equal(values, pc.round(values))).as_py())


def numbers_of(lists: Lists, name: str, locate: Locate) -> Labels:
    """Return lists of numbers as labels.

    Raises:
        SourceError: a value is not a finite number, or a row has another number of them.

    """
    exact = parse_numbers(lists, name, locate)
    values = exact.values.cast(pa.float32(), safe=False)
    column = Lists(values, exact.counts).as_array(arrow_type("floats"))
    if wrong := find_wrong_value(column, "floats"):
        file, line = locate(wrong.row)
        hint = "give every image the same number of finite numbers"
        raise SourceError(f"column {name!r} {wrong.message}", file=file, line=line, hint=hint)
    notices = []
    if (
        pa.types.is_integer(lists.values.type)
        and pc.any(pc.not_equal(values.cast(pa.float64()), exact.values), min_count=0).as_py()
    ):
        notices.append(
            f"column {printable(name)}: numbers of more than 7 digits are rounded to float32"
        )
    count = int(exact.counts[0]) if len(exact.counts) else 0
    low, high = pc.min_max(values).as_py().values()
    origin = (
        f"{origin_of(name)}, {low:g} to {high:g}"
        if count == 1
        else f"{origin_of(name)}, {count} numbers each"
    )
    zeros = np.zeros(len(column), np.int32)
    return Labels(
        "regression", zeros, origin=origin, columns={"values": column}, notices=tuple(notices)
    )


# --- one label type -----------------------------------------------------------------------------


def _classes(
    column: pa.Array,
    name: str,
    options: LabelOptions,
    locate: Locate,
    classes: tuple[str, ...] | None,
) -> Labels:
    if not (
        pa.types.is_integer(column.type)
        or is_text(column.type)
        or pa.types.is_dictionary(column.type)
    ):
        raise SourceError(
            f"column {name!r} has the type {shorten_type(column.type)}, but labels are integers or"
            " names",
            file=locate(0)[0] if len(column) else "",
            hint="convert it, or set --label-column or --label-type",
        )
    text = column.cast(pa.large_string())
    label, found = number_labels(text, classes, locate, max_classes=options.max_classes)
    integers = pc.all(pc.match_substring_regex(text, r"^[+-]?[0-9]+$"), min_count=0).as_py()
    notices = []
    if integers and classes is None and 10 <= len(np.unique(label)) < len(found):
        notices.append(
            f"the integers in column {printable(name)} are taken as classes; if they are numbers"
            " such as ages, set --label-type regression"
        )
    numeric = np.asarray(pc.match_substring_regex(text, FLOAT))
    if not integers and len(text) > numeric.sum() >= max(1, len(text) / 2):
        row = int(np.argmin(numeric))
        mixed = (
            f"column {printable(name)}: {int(numeric.sum()):,} of {plural(len(text), 'label')} are"
            f" numbers, but {cut_middle(printable(text[row].as_py()), 80)} is not"
        )
        if options.label_type is None and classes is None:
            file, line = locate(row)
            hint = "correct it, or set --label-type class to take all labels as names of classes"
            raise SourceError(mixed, file=file, line=line, hint=hint)
        notices.append(f"{mixed}, so all are taken as names of classes")
    for separator in (";", ","):
        if not integers and classes is None and _recombines(text, separator):
            notices.append(
                f"labels contain {separator!r}; if each has several classes, set --label-separator"
                f" {separator!r}"
            )
    return Labels("class", label, found, origin_of(name), notices=tuple(notices))


def _recombines(text: pa.Array, separator: str) -> bool:
    """Return whether labels look like lists of classes: split, they have fewer different parts than before."""
    unique = pc.unique(text)
    if not pc.any(pc.match_substring(unique, separator), min_count=0).as_py():
        return False
    parts = {part.strip() for value in unique.to_pylist() for part in value.split(separator)}
    return len(parts) < len(unique)


def _multi_label(
    column: pa.Array,
    name: str,
    options: LabelOptions,
    locate: Locate,
    classes: tuple[str, ...] | None,
    *,
    are_indices: bool,
) -> Labels:
    separator = options.label_separator or SEPARATOR
    lists = _lists(column, name, separator, locate)
    origin = (
        f"{origin_of(name)}, separated by {separator!r}"
        if is_text(column.type)
        else origin_of(name)
    )
    if not are_indices and (hot := lists.multi_hot()):
        origin += ", 0 or 1 for each class"
        length = int(lists.counts[0])
        if classes is not None and len(classes) != length:
            file, line = locate(0)
            message = (
                f"column {name!r} has {length} numbers for each image, but there are"
                f" {plural(len(classes), 'class')}"
            )
            raise SourceError(message, file=file, line=line, hint="check --classes")
        classes = classes or tuple(map(str, range(length)))
        lists = hot
    values = lists.values
    if pa.types.is_floating(values.type):
        raise SourceError(
            f"column {name!r} has numbers with fractions, not classes",
            file=locate(0)[0],
            hint="set --label-type regression",
        )
    rows = lists.rows()
    label, found = number_labels(
        values.cast(pa.large_string()),
        classes,
        lambda item: locate(int(rows[item])),
        max_classes=options.max_classes,
    )
    labels = lists.sorted_unique(label)
    empty = int(np.count_nonzero(labels.counts == 0))
    notices = [f"{plural(empty, 'image')} without a class"] if empty else []
    return Labels(
        "multi-label",
        np.zeros(len(column), np.int32),
        found,
        origin,
        {"labels": labels.as_array(arrow_type("integers"))},
        tuple(notices),
    )


def _captions(column: pa.Array, name: str, locate: Locate) -> pa.Array:
    if not is_text(column.type):
        raise SourceError(
            f"column {name!r} has the type {shorten_type(column.type)}, but captions are text",
            file=locate(0)[0],
            hint="write one caption for each image, or choose another --label-column",
        )
    return column.cast(pa.string())


def _lists(column: pa.Array, name: str, separator: str | None, locate: Locate) -> Lists:
    if is_list(column.type):
        return _checked_lists(column, name, locate)
    if is_text(column.type) and separator is not None:
        return split_text(column, separator, name, locate)
    if not (
        is_text(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
    ):
        raise SourceError(
            f"column {name!r} has the type {shorten_type(column.type)}, which is neither text nor"
            " numbers",
            file=locate(0)[0],
            hint="choose another --label-column",
        )
    return Lists(column.drop_null(), np.asarray(pc.is_valid(column)).astype(np.int64))


def _checked_lists(column: pa.Array, name: str, locate: Locate) -> Lists:
    """Return a column of lists of text or numbers, without missing items."""
    lists, types = lists_of_column(column), pa.types
    item = (
        lists.values.type.value_type
        if types.is_dictionary(lists.values.type)
        else lists.values.type
    )
    if not (
        is_text(item) or types.is_integer(item) or types.is_floating(item) or types.is_null(item)
    ):
        message = (
            f"column {name!r} has lists of {shorten_type(item)}, which are neither text nor numbers"
        )
        raise SourceError(message, file=locate(0)[0], hint="write lists of class names or numbers")
    if (at := pc.index(pc.is_null(lists.values), True).as_py()) >= 0:
        file, line = locate(int(lists.rows()[at]))
        message = f"column {name!r} has a list with an item without a value (null)"
        raise SourceError(message, file=file, line=line, hint="write a value, or remove the item")
    return lists


def origin_of(name: str) -> str:
    """Return what is shown to the user about a column of labels."""
    return f"column {printable(name)}"
