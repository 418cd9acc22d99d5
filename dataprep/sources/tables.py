"""Tables: CSV, TSV, JSON Lines, Parquet.

Columns other than path, label and split are kept as extra columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.formats.label_features import CLASS_MEMBERS
from dataprep.labels.columns import Labels, Locate, is_text
from dataprep.sources.base import (
    MAX_COLUMN_NAME,
    RESERVED_COLUMNS,
    Source,
    SourceOptions,
)
from dataprep.sources.columns import check_paths, file_stats, normalize_paths
from dataprep.sources.delimited import load_csv
from dataprep.sources.jsonl import load_jsonl
from dataprep.sources.label_columns import (
    check_filled,
    free_name,
    label_columns,
    labels_of,
    not_kept,
    one_array,
    with_labels,
)
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_TABLE, open_file
from manifests.json_members import shorten
from manifests.parquet import BoundedParquet
from manifests.parquet_errors import ParquetError
from manifests.parquet_lists import is_list
from manifests.parquet_values import shorten_type
from manifests.process.text import printable, suggest
from manifests.remote import parent_folder
from manifests.schema import COLUMN_PREFIX, MAX_SPLIT_NAME, SPLIT_ALIASES, split_order

#: A table may have this many rows for each of its bytes, and some more. Generated paths, compressed
#: by Zstandard, need about half a byte each.
ROWS_PER_BYTE = 2.0

#: Suffixes of JSON Lines, and of all tables.
JSON_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", *JSON_SUFFIXES)

PATH_COLUMNS = ("path", "image", "file", "filename", "filepath", "image_path", "file_name")


def read_table(file: str, options: SourceOptions) -> Source:
    """Read a table with a column of paths, a column of labels and, optionally, a column of splits.

    Raises:
        CallError: a column does not exist.
        SourceError: the table is damaged, a value or a column is not valid, or an image is missing
            or listed twice.

    """
    table, lines = _load(file)
    path_name = _find_column(table, options.path_column, PATH_COLUMNS, "--path-column", file)
    label_names = label_columns(table, options, file)
    split_name = options.split_column or ("split" if "split" in table.column_names else None)
    if split_name is not None:
        _find_column(table, split_name, (), "--split-column", file)

    def locate(row: int) -> tuple[str, int]:
        return file, int(lines[row])

    for name in {path_name, *([split_name] if split_name else [])}:
        check_filled(table[name], name, locate)
        _check_one_line(table[name], name, locate)
    root = options.image_root or parent_folder(file) or "."
    path = normalize_paths(_text_column(table, path_name, file), locate)
    labels = labels_of(table, label_names, options, locate)
    if labels.label_type == "class":
        for name in label_names:
            _check_one_line(table[name], name, locate)
    splits, split = _number_splits(table, split_name, file)
    stats = file_stats(root, path)
    source = Source(
        root=root,
        layout="table",
        classes=(),
        splits=splits,
        path=path,
        label=labels.label,
        split=split,
        size=stats[:, 0],
        stamp=stats[:, 1:],
        extra=extra_columns(
            table, {path_name, split_name, *not_kept(table, label_names, labels)}, file, labels
        ),
    )
    check_paths(source, locate)
    return with_labels(source, labels)


# --- reading ------------------------------------------------------------------------------------


def _load(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    suffix = os.path.splitext(file)[1].lower()
    if suffix == ".parquet":
        return _load_parquet(file)
    return load_jsonl(file) if suffix in JSON_SUFFIXES else load_csv(file)


def _load_parquet(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns with their types; return them with the row numbers, from 1."""
    try:
        with open_file(file, SOURCE_TABLE) as opened:
            parquet = BoundedParquet(opened, rows_per_byte=ROWS_PER_BYTE, threads=True)
            for name in parquet.names:
                _check_type(parquet.schema.field(name).type, name, file)
            table = parquet.read(parquet.names)
    except ParquetError as error:
        raise SourceError(
            f"the file is not a valid Parquet table ({error})",
            file=file,
            hint="write the file again",
        ) from None
    return table, np.arange(1, len(table) + 1)


def _check_type(column_type: pa.DataType, name: str, file: str) -> None:
    if not (is_readable_type(column_type) or is_list(column_type)):
        raise _wrong_type(
            name,
            column_type.value_type if pa.types.is_dictionary(column_type) else column_type,
            file,
        )


def _wrong_type(name: str, column_type: pa.DataType, file: str) -> SourceError:
    return SourceError(
        f"column {shorten(name)} has the type {shorten_type(column_type)}, which is not text, a"
        " number or a boolean",
        file=file,
        hint="convert it, remove it, or set --label-column if it has the labels",
    )


def is_readable_type(column_type: pa.DataType) -> bool:
    """Return whether a column contains text, numbers, booleans or times.

    Besides labels, only these are read.
    """
    types = pa.types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    return bool(
        is_text(column_type)
        or types.is_integer(column_type)
        or types.is_floating(column_type)
        or types.is_boolean(column_type)
        or types.is_null(column_type)
        or types.is_temporal(column_type)
    )


def _check_one_line(column: pa.ChunkedArray, name: str, locate: Locate) -> None:
    if not is_text(column.type):
        return
    row = pc.index(pc.match_substring_regex(column, r"[\r\n]"), True).as_py()
    if row >= 0:
        file, line = locate(row)
        message = f"column {name!r} contains a line break"
        raise SourceError(
            message, file=file, line=line, hint="check the quotation marks above this line"
        )


# --- columns ------------------------------------------------------------------------------------


def _find_column(
    table: pa.Table, given: str | None, known: Sequence[str], option: str, file: str
) -> str:
    """Return the name of a column: `given`, or the first of `known` that the table has."""
    names: list[str] = table.column_names
    if given and given not in names:
        raise CallError(f"{option} {given}: {file} has no such column", hint=suggest(given, names))
    column_name = given or next((name for name in known if name in names), None)
    if column_name is None:
        raise CallError(
            f"{file} has none of the columns {', '.join(known)}",
            hint=f"set {option}; its columns are {', '.join(names)}",
        )
    return column_name


def _text_column(table: pa.Table, name: str, file: str) -> pa.Array:
    if not is_text(table[name].type):
        raise SourceError(
            f"column {name!r} has the type {shorten_type(table[name].type)}, not text",
            file=file,
            hint="convert it to text",
        )
    return table[name].combine_chunks().cast(pa.large_string())


def _number_splits(
    table: pa.Table, name: str | None, file: str
) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    """Return the split names, and the split of each row as an index into them, int8 [n]."""
    if name is None:
        return ("train",), np.zeros(len(table), np.int8)
    given = _text_column(table, name, file).to_pylist()
    split_of = {text: SPLIT_ALIASES.get(text.lower(), text) for text in set(given)}
    check_split_names(split_of, file)
    splits = split_order(set(split_of.values()))
    if len(splits) > 127:
        raise SourceError(
            f"column {name!r} has {len(splits)} splits, but the limit is 127",
            file=file,
            hint="check --split-column",
        )
    number = {text: splits.index(split) for text, split in split_of.items()}
    return splits, np.array([number[text] for text in given], np.int8)


def check_split_names(names: Iterable[str], file: str) -> None:
    """Check that the names of splits can be parts of file names.

    Raises:
        SourceError: one cannot.

    """
    for text in sorted(names):
        if (
            not text.replace("_", "").replace("-", "").isalnum()
            or not text.isascii()
            or len(text) > MAX_SPLIT_NAME
        ):
            raise SourceError(
                f"split {shorten(text)} cannot be part of a file name",
                file=file,
                hint=f"use at most {MAX_SPLIT_NAME} letters, digits, - and _",
            )


def extra_columns(table: pa.Table, used: set[str | None], file: str, labels: Labels) -> pa.Table:
    """Return all columns that are not in `used`, as text, numbers or booleans.

    A column whose name the sample tables or records of this label type already use is called
    ``column:NAME``.
    """
    taken = (
        *RESERVED_COLUMNS,
        *labels.columns,
        *(CLASS_MEMBERS[t] for t in CLASS_MEMBERS if t == labels.label_type),
    )
    columns: dict[str, pa.Array] = {}
    for name in (name for name in table.column_names if name not in used):
        own = free_name(name, taken) if not name.startswith("image/") else f"{COLUMN_PREFIX}{name}"
        if not name or len(own.encode()) > MAX_COLUMN_NAME:
            raise SourceError(
                f"column {name[:40]!r} has a name of {len(name.encode())} bytes, not 1 to"
                f" {MAX_COLUMN_NAME}",
                file=file,
                hint="rename it",
            )
        if own in columns or (own != name and own in table.column_names):
            raise SourceError(
                f"columns {name!r} and {own!r} would have the same name",
                file=file,
                hint="rename one",
            )
        columns[own] = _extra_column(one_array(table[name]), name, file)
    return pa.table(columns)


def _extra_column(column: pa.Array, name: str, file: str) -> pa.Array:
    types, column_type = pa.types, column.type
    if is_list(column_type):
        raise _wrong_type(name, column_type, file)
    if types.is_dictionary(column_type) or types.is_temporal(column_type):
        return _as_text(column, name, file)
    if is_text(column_type):
        return _infer_type(column) if file.lower().endswith((".csv", ".tsv")) else column
    return column


def _as_text(column: pa.Array | pa.ChunkedArray, name: str, file: str) -> pa.Array:
    try:
        return one_array(column.cast(pa.large_string()))
    except pa.ArrowInvalid as error:  # for example, an unknown time zone
        reason = printable(str(error).splitlines()[0][:200])
        message = f"column {shorten(name)} cannot be converted to text ({reason})"
        raise SourceError(message, file=file, hint="convert it, or remove it") from None


#: Numbers without leading zeros: 007 stays text.
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_BOOLEAN = r"^(true|false|True|False)$"
_FLOAT = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


def _infer_type(column: pa.Array) -> pa.Array:
    """Convert a column of a CSV file to numbers or booleans if all of its values are.

    Empty cells become null.
    """
    filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    for pattern, column_type in (
        (_INTEGER, pa.int64()),
        (_FLOAT, pa.float64()),
        (_BOOLEAN, pa.bool_()),
    ):
        if (
            filled.null_count < len(filled)
            and pc.all(pc.match_substring_regex(filled, pattern)).as_py()
        ):
            number = filled.cast(column_type)
            # Different texts must not become the same number: 1.10 and 1.1, or more digits than a
            # float keeps.
            same = pc.count_distinct(number).as_py() == pc.count_distinct(filled).as_py()
            # A number like 1e999 would become infinite.
            finite = column_type != pa.float64() or pc.all(pc.is_finite(number)).as_py()
            return number if same and finite else column
    return column
