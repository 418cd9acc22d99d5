"""Labels in one or several columns of a table: values, 0 or 1 for each class, and cells without a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.arrays import BoolArray
from dataprep.labels.columns import (
    LabelColumn,
    Labels,
    Lists,
    Locate,
    blank_rows,
    check_filled,
    row_error,
)
from dataprep.labels.kinds import MULTI_LABEL, REGRESSION, SINGLE_CLASS, read_labels
from dataprep.options import LabelOptions
from manifests.labels import arrow_type
from manifests.process.text import plural


def labels_of(
    table: pa.Table,
    names: Sequence[str],
    options: LabelOptions,
    locate: Locate,
    classes: tuple[str, ...] | None = None,
) -> Labels:
    """Return the labels in columns of a table.

    Args:
        table: the table.
        names: its columns of labels: one; several with a number each; or none.
        options: the label type and the classes apply.
        locate: returns the file and line of a row, for errors.
        classes: class names that the source states.

    Raises:
        SourceError: a value is missing, or cannot be a label.

    """
    if not names:
        return Labels("none", np.zeros(len(table), np.int32))
    columns = []
    for name in names:
        column = table[name].combine_chunks()
        # A dictionary only compresses its values.
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        columns.append(column)
    if len(names) > 1:
        return _labels_of_columns(columns, names, options, locate)
    column = LabelColumn(columns[0], names[0], options, locate, classes)
    kept = ~blank_rows(column.values)
    if options.blank_labels != "drop" or kept.all() or not kept.any():
        return read_labels(column)
    rows = np.flatnonzero(kept)
    values = column.values.take(pa.array(rows))
    labels = read_labels(replace(column, values=values, locate=lambda row: locate(int(rows[row]))))
    return _with_gaps(labels, kept)


def _with_gaps(labels: Labels, kept: BoolArray) -> Labels:
    """Return labels of the rows that are kept as labels of all rows; the others are left out."""
    # The rows without a label have the label of the row before.
    rows = np.maximum(np.cumsum(kept) - 1, 0)
    columns = {name: column.take(pa.array(rows)) for name, column in labels.columns.items()}
    notice = f"left out {plural(int((~kept).sum()), 'image')} without a label"
    notices = (*labels.notices, notice)
    return replace(labels, label=labels.label[rows], columns=columns, kept=kept, notices=notices)


def _labels_of_columns(
    columns: Sequence[pa.Array], names: Sequence[str], options: LabelOptions, locate: Locate
) -> Labels:
    """Return the labels in several columns of numbers: 0 or 1 for each class, or else the values of a regression."""
    values = np.full((len(columns[0]), len(names)), np.nan)
    for number, (column, name) in enumerate(zip(columns, names, strict=True)):
        filled = ~blank_rows(column)
        given = Lists(column.filter(pa.array(filled)), filled.astype(np.int64))
        numbers = LabelColumn(column, name, options, locate).numbers(given)
        values[filled, number] = np.asarray(numbers.values)
    shown = f"{names[0]} to {names[-1]}"
    is_hot = (np.isin(values, (-1, 0, 1)) | np.isnan(values)).all(axis=1)
    if options.label_type == REGRESSION.name or (options.label_type is None and not is_hot.all()):
        for column, name in zip(columns, names, strict=True):
            check_filled(column, name, locate)
        flat = Lists(pa.array(values.reshape(-1)), np.full(len(values), len(names), np.int64))
        column = flat.as_array(pa.list_(pa.float64()))
        labels = REGRESSION.of_lists(LabelColumn(column, shown, options, locate), flat)
        return replace(labels, origin=f"columns {shown}")
    if not is_hot.all():
        raise row_error(
            locate,
            int(is_hot.argmin()),
            f"one of the columns {shown} is neither 0 nor 1, but each column is a class",
            "set --label-type regression for numbers",
        )
    hot, kept = _settled(values, shown, options, locate)
    rows, hot = np.flatnonzero(kept), hot[kept]
    counts = hot.sum(axis=1)
    lists = Lists(pa.array(np.nonzero(hot)[1], pa.int64()), counts.astype(np.int64))
    column = lists.as_array(arrow_type("integers"))
    read = MULTI_LABEL.read
    if options.label_type == SINGLE_CLASS.name:
        wrong = np.flatnonzero(counts != 1)
        if len(wrong):
            raise row_error(
                locate,
                int(rows[wrong[0]]),
                f"{counts[wrong[0]]} of the columns {shown} are 1, but one class needs exactly one"
                f" ({len(wrong):,} in total)",
                "set --label-type multi-label",
            )
        column, read = pa.array(hot.argmax(axis=1)), SINGLE_CLASS.read
    labels = read(LabelColumn(column, shown, options, locate, tuple(names)))
    if options.label_type is None and (counts == 1).all():
        note = "each image has one class; set --label-type class to store it as such"
        labels = replace(labels, notices=(*labels.notices, note))
    labels = replace(labels, origin=f"columns {shown}, 0 or 1 each")
    return labels if kept.all() else _with_gaps(labels, kept)


def _settled(
    values: NDArray[np.float64], shown: str, options: LabelOptions, locate: Locate
) -> tuple[BoolArray, BoolArray]:
    """Return which values are positive, and which rows are kept, by the options for unclear labels.

    Raises:
        SourceError: no option says what they mean.

    """
    hot, kept = values == 1, np.ones(len(values), np.bool_)
    # CelebA has -1 for 0; beside 0 or blank cells, -1 is neither.
    is_blank, is_negative = np.isnan(values), values == -1
    if not (is_blank.any() or (values == 0).any()):
        is_negative[:] = False
    unclear = (
        ("blank", is_blank, options.blank_labels),
        ("uncertain (-1)", is_negative, options.uncertain_labels),
    )
    for what, cells, meaning in unclear:
        rows = np.flatnonzero(cells.any(axis=1))
        if not len(rows):
            continue
        if meaning is None:
            raise row_error(
                locate,
                int(rows[0]),
                f"{int(cells.sum()):,} of {values.size:,} values in the columns {shown} are {what},"
                f" in {len(rows):,} of {plural(len(values), 'image')}",
                f"set --{what.split()[0]}-labels to negative, to positive, or to drop, which leaves"
                " these images out",
            )
        if meaning == "drop":
            kept[rows] = False
        hot[cells] = meaning == "positive"
    if not kept.any():
        raise row_error(
            locate,
            0,
            f"no image has a label in all columns {shown}",
            "set --blank-labels and --uncertain-labels to negative or positive",
        )
    return hot, kept
