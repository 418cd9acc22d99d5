"""Labels of a table: in one or several columns, in cells without a label, in several rows about one image."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.arrays import BoolArray, Int64Array
from dataprep.labels.columns import (
    LabelColumn,
    Labels,
    Lists,
    Locate,
    blank_rows,
    check_filled,
    lists_of_column,
    row_error,
)
from dataprep.labels.kinds import (
    CAPTION,
    CAPTIONS,
    MULTI_LABEL,
    REGRESSION,
    SINGLE_CLASS,
    kind_of,
    read_labels,
)
from dataprep.options import LabelOptions
from manifests.errors import SourceError
from manifests.json_members import shorten
from manifests.labels import arrow_type
from manifests.parquet import is_list
from manifests.process.text import cut_middle, plural

#: Label types of which an image can have several in rows of its own, without an option for captions.
_JOINED = ("multi-label", "caption", "captions", "none")


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
    if is_list(column.values.type) and kind_of(column) is CAPTIONS:
        kept &= lists_of_column(column.values).counts > 0
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


# --- several rows about one image -----------------------------------------------------------------


@dataclass(frozen=True)
class _Images:
    """The rows of a table by the images that they are about.

    Attributes:
        path: the path in each row, large_string [n].
        first: the first row about the image of each row, int64 [n].
        order: the rows about one image after the other, int64 [n].
        counts: number of rows about each image, int64 [images].
        locate: returns the file and line of a row, for errors.

    """

    path: pa.Array
    first: Int64Array
    order: Int64Array
    counts: Int64Array
    locate: Locate

    def varying(self, column: pa.ChunkedArray) -> Int64Array:
        """Return the rows with another value than the first row about their image."""
        values = column.combine_chunks()
        if is_list(values.type):
            values = pa.array(map(str, values.to_pylist()), pa.string())
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        codes = np.asarray(pc.fill_null(values.indices, -1))
        return np.flatnonzero(codes != codes[self.first])


def _by_image(path: pa.Array, locate: Locate) -> _Images:
    group = np.asarray(path.dictionary_encode().indices)
    order, counts = np.argsort(group, kind="stable"), np.bincount(group)
    firsts = order[np.cumsum(counts) - counts]
    return _Images(path, firsts[group], order, counts, locate)


def joined_rows(
    table: pa.Table,
    path: pa.Array,
    labels: Sequence[str],
    label_type: str | None,
    locate: Locate,
    *,
    one: Collection[str],
    places: Collection[str],
    more: Collection[str] = (),
) -> tuple[pa.Table, Int64Array, tuple[str, ...]]:
    """Return a table with one row for each path, the first row of each path, and notices.

    The labels of an image become a list, and so do its captions, or the lines of one text if the
    label type is a caption. Other columns stay if they have one value for each image.

    Args:
        table: the table.
        path: its paths, large_string [n].
        labels: the columns of labels.
        label_type: the label type that an option names.
        locate: returns the file and line of a row, for errors.
        one: columns that must have one value for each image, such as its split.
        places: columns that say where a row comes from; the first row counts.
        more: columns with the other images of each sample.

    Raises:
        SourceError: an image has rows with different labels, and no option says that it has several;
            or it is in two splits.

    """
    images = _by_image(path, locate)
    every = np.arange(len(path))
    if len(images.counts) == len(path):
        return table, every, ()
    firsts = images.order[np.cumsum(images.counts) - images.counts]
    _refuse_other_images(images, table, more)
    others = [name for name in table.column_names if name not in places]
    if label_type is None and {name.lower() for name in labels} & {*CAPTION.column_names}:
        label_type = "captions"
    if label_type not in _JOINED or len(labels) > 1:
        _refuse_several(images, table, labels, {*others} - {*one})
        return table, every, ()
    columns, dropped = {}, []
    for name in table.column_names:
        rows = every[:0]
        if name in others:
            rows = images.varying(table[name])
        if name in labels:
            columns[name] = _joined(table[name].combine_chunks(), images, label_type)
        elif not len(rows):
            columns[name] = table[name].take(pa.array(firsts))
        elif name in one:
            raise _two_values(images, int(rows[0]), table[name], name)
        else:
            dropped.append(name)
    notices = [f"{plural(len(path), 'row')} are about {plural(len(firsts), 'image')}"]
    if dropped:
        shown = ", ".join(dropped[:5])
        notices.append(f"left out columns with several values for an image: {shown}")
    return pa.table(columns), firsts, tuple(notices)


def _joined(column: pa.Array, images: _Images, label_type: str) -> pa.Array:
    """Return the labels of each image, without rows that have none."""
    filled = ~blank_rows(column)[images.order]
    # The number of labels before each image.
    before = np.concatenate([[0], np.cumsum(filled)])
    offsets = pa.array(before[np.concatenate([[0], np.cumsum(images.counts)])], pa.int32())
    values = column.take(pa.array(images.order[filled]))
    if label_type != "caption":
        return pa.ListArray.from_arrays(offsets, values)
    lines = pc.replace_substring_regex(values.cast(pa.string()), r"\s*[\r\n]+\s*", " ")
    return pc.binary_join(pa.ListArray.from_arrays(offsets, lines), "\n")


def _two_values(
    images: _Images,
    row: int,
    column: pa.ChunkedArray,
    name: str,
    hint: str = "write the same value in all rows of an image",
) -> SourceError:
    """Return the error about an image with two values in a column that has one for each image."""
    here, before = (shorten(str(column[at].as_py())) for at in (row, int(images.first[row])))
    return row_error(
        images.locate,
        row,
        f"image {shorten(images.path[row].as_py(), 300)} has {name} {here} here, but"
        f" {before} in an earlier row",
        hint,
    )


def _refuse_other_images(images: _Images, table: pa.Table, names: Collection[str]) -> None:
    """Refuse samples that have the same first image, and another image in one of these columns."""
    for name in names:
        rows = images.varying(table[name])
        if len(rows):
            raise _two_values(
                images,
                int(rows[0]),
                table[name],
                name,
                "a sample is known by its first image: begin --image-columns with a column whose"
                " images are all different",
            )


def _refuse_several(
    images: _Images, table: pa.Table, labels: Sequence[str], others: Collection[str]
) -> None:
    """Refuse several rows about an image that differ; equal rows are a mistake, which is found later."""
    rows = [images.varying(table[name]) for name in (*labels, *others)]
    varying = np.concatenate([*rows, np.zeros(0, np.int64)])
    if not len(varying):
        return
    row = int(varying[0])
    shown = f"image {shorten(images.path[row].as_py(), 300)} is listed twice"
    hint = "write one row for each image"
    if len(labels) == 1:
        both = [str(table[labels[0]][at].as_py()) for at in (int(images.first[row]), row)]
        shown += f", with the labels {' and '.join(cut_middle(each, 80) for each in both)}"
        hint = (
            "set --label-type multi-label (or captions) if an image has several labels (or"
            " captions), in a row each; or write one row for each image"
        )
    file, line = images.locate(int(images.first[row]))
    total = (
        f"{plural(int((images.counts > 1).sum()), 'such image')}, first in {os.path.basename(file)}"
    )
    if line is not None:
        total += f", line {line}"
    raise row_error(images.locate, row, f"{shown} ({total})", hint)
