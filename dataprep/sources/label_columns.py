"""Convert the values of a column to labels of their type. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.sources.base import SourceOptions
from dataprep.sources.columns import Locate, is_text, number_labels
from dataprep.sources.label_lists import Lists, lists_of_column, parse_numbers, split_text
from dataprep.sources.label_types import FLOAT, REGRESSION_COLUMNS, SEPARATOR, detect_label_type
from manifests.errors import CallError, SourceError
from manifests.label_values import find_wrong_value
from manifests.labels import LabelType, arrow_type
from manifests.parquet_lists import is_list
from manifests.parquet_values import shorten_type
from manifests.text import cut_middle, plural, printable


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
    options: SourceOptions,
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
    options: SourceOptions,
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
    options: SourceOptions,
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
            f"column {name!r} has numbers with fractions, not classes", file=locate(0)[0]
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
