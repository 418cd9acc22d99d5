"""Labels of a source: find their columns in a table, read them, and replace them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.labels.columns import (
    CAPTION_COLUMNS,
    MULTI_LABEL_COLUMNS,
    OTHER_LABEL_COLUMNS,
    REGRESSION_COLUMNS,
    Labels,
    Lists,
    Locate,
    detect_label_type,
    numbers_of,
    origin_of,
    parse_numbers,
    read_labels,
)
from dataprep.sources.base import LABEL_COLUMN_NAMES, Source, SourceOptions
from manifests.errors import CallError, SourceError
from manifests.labels import LABEL_COLUMNS, PLACED_TYPES, arrow_type
from manifests.parquet_lists import is_list
from manifests.process.text import suggest
from manifests.schema import COLUMN_PREFIX


def label_columns(table: pa.Table, options: SourceOptions, file: str) -> tuple[str, ...]:
    """Return the columns of labels: several if the option names several.

    None if the images have no labels.
    """
    if options.label_type == "none":
        return ()
    if options.label_type in PLACED_TYPES:
        raise CallError(
            f"--label-type {options.label_type} needs a source with such labels, but {file} is a"
            " table",
            hint=(
                "leave out --label-type, or give COCO or Pascal VOC, or a folder of masks or depth"
                " maps"
            ),
        )
    given, columns = options.label_column, table.column_names
    if given is not None:
        names = (given,) if given in columns else tuple(name.strip() for name in given.split(","))
        for name in names:
            if name not in columns:
                raise CallError(
                    f"--label-column {given}: {file} has no such column",
                    hint=suggest(name, columns),
                )
        return names
    known = {
        "caption": CAPTION_COLUMNS,
        "regression": REGRESSION_COLUMNS,
        "multi-label": MULTI_LABEL_COLUMNS,
    }
    others = OTHER_LABEL_COLUMNS if options.label_type is None else ()
    searched = (*known.get(options.label_type or "", ()), *LABEL_COLUMN_NAMES, *others)
    found = next((name for name in searched if name in columns), None)
    if found is None:
        raise CallError(
            f"{file} has none of the columns {', '.join(searched)}",
            hint=f"set --label-column or --unlabelled; its columns are {', '.join(columns)}",
        )
    return (found,)


def labels_of(
    table: pa.Table,
    names: Sequence[str],
    options: SourceOptions,
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
    columns = [one_array(table[name]) for name in names]
    if len(names) > 1:
        return _labels_of_columns(columns, names, options, locate)
    (column,), (name,) = columns, names
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if detect_label_type(column, name, options, classes) != "multi-label":
        check_filled(column, name, locate)
    return read_labels(column, name, options, locate, classes)


def _labels_of_columns(
    columns: Sequence[pa.Array], names: Sequence[str], options: SourceOptions, locate: Locate
) -> Labels:
    """Return the labels in several columns of numbers: 0 or 1 for each class, or else the values of a regression."""
    for column, name in zip(columns, names, strict=True):
        check_filled(column, name, locate)
    numbers = [parse_numbers(Lists(column, np.ones(len(column), np.int64)), name, locate).values
               for column, name in zip(columns, names, strict=True)]  # fmt: skip
    values = np.stack([np.asarray(each) for each in numbers], axis=1)
    shown = f"{names[0]} to {names[-1]}"
    is_hot = bool(np.isin(values, (-1, 0, 1)).all())
    if options.label_type == "multi-label" or (options.label_type is None and is_hot):
        if not is_hot:
            row = int(np.flatnonzero(~np.isin(values, (-1, 0, 1)).all(1))[0])
            file, line = locate(row)
            message = f"one of the columns {shown} is neither 0 nor 1, but each column is a class"
            raise SourceError(
                message, file=file, line=line, hint="set --label-type regression for numbers"
            )
        hot = values == 1
        lists = Lists(pa.array(np.nonzero(hot)[1], pa.int64()), hot.sum(1).astype(np.int64))
        column = lists.as_array(arrow_type("integers"))
        labels = read_labels(
            column,
            shown,
            replace(options, label_type="multi-label", classes=options.classes or tuple(names)),
            locate,
        )
        return replace(labels, origin=f"columns {shown}, 0 or 1 each")
    flat = Lists(pa.array(values.reshape(-1)), np.full(len(values), len(names), np.int64))
    return replace(numbers_of(flat, shown, locate), origin=f"columns {shown}")


def not_kept(table: pa.Table, names: Sequence[str], labels: Labels) -> set[str]:
    """Return the columns of labels that are not also kept as extra columns.

    Lists and captions are not, and neither is a column with a general name. A specific one, such as
    `identity`, is.
    """
    general: tuple[str, ...] = LABEL_COLUMN_NAMES
    if labels.label_type != "class":
        general = (*general, *OTHER_LABEL_COLUMNS, *CAPTION_COLUMNS)
    return {name for name in names if name in general or is_list(table.schema.field(name).type)}


def check_filled(column: pa.ChunkedArray, name: str, locate: Locate) -> None:
    """Check that a column has a value in every row.

    Raises:
        SourceError: it is null, empty or blank in a row.

    """
    empty = pc.is_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        empty = pc.or_kleene(empty, pc.equal(pc.utf8_trim_whitespace(column), ""))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        file, line = locate(row)
        raise SourceError(
            f"column {name!r} is empty",
            file=file,
            line=line,
            hint="fill in a value, or remove the row",
        )


def one_array(column: Any) -> pa.Array:
    """Return a column of a table as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# --- replace the labels of a source ---------------------------------------------------------------


def without_labels(source: Source) -> Source:
    """Return a source without its labels."""
    used = [name for name in LABEL_COLUMNS[source.label_type] if name in source.extra.column_names]
    return replace(
        source,
        label=np.zeros(len(source), np.int32),
        classes=(),
        extra=source.extra.drop_columns(used),
        label_type="none",
        label_origin="",
    )


def with_label_type(source: Source, options: SourceOptions) -> Source:
    """Return a source with the label type that the options name: the names of its classes are the values.

    Raises:
        CallError: the source has labels of another type.
        SourceError: the name of a class is not such a value.

    """
    if options.label_type == "none":
        return without_labels(source)
    if options.label_type is None or options.label_type == source.label_type:
        return source
    if source.label_type != "class" or source.prepared:
        raise CallError(
            f"--label-type {options.label_type}: the labels of the source are of the type"
            f" {source.label_type}",
            hint="leave out --label-type",
        )
    text = pa.array(source.classes, pa.large_string()).take(pa.array(source.label))
    labels = read_labels(
        text, "label", options, lambda row: (f"{source.root}/{source.path[row]}", None)
    )
    return with_labels(
        source, replace(labels, origin=labels.origin.replace(origin_of("label"), "the class names"))
    )


def with_labels(source: Source, labels: Labels) -> Source:
    """Return a source with other labels."""
    extra = pa.table(
        {**{name: source.extra[name] for name in source.extra.column_names}, **labels.columns}
    )
    return replace(
        source,
        label=labels.label,
        classes=labels.classes,
        extra=extra,
        label_type=labels.label_type,
        label_origin=labels.origin,
        notices=(*source.notices, *labels.notices),
    )


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name under which sample tables keep a column of the source: ``column:NAME`` if they use its name."""
    return f"{COLUMN_PREFIX}{name}" if name in taken else name
