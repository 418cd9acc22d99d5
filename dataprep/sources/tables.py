"""Tables with named columns: CSV, TSV, Parquet. What is neither path, label nor split is carried along."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dataprep.sources.columns import (
    LABEL_COLUMNS,
    MAX_NAME,
    RESERVED,
    Source,
    SourceOptions,
    Where,
    checked,
    number_labels,
    sizes,
)
from manifests.errors import CallError, SourceError
from manifests.schema import SPLIT_ALIASES, split_order

PATH_COLUMNS = ("path", "image", "file", "filename", "filepath", "image_path")


def read_table(file: str, options: SourceOptions) -> Source:
    """Read a table with a column of paths, one of labels and perhaps one of splits."""
    table, lines = _load_parquet(file) if file.lower().endswith(".parquet") else _load_csv(file)
    path_name = _column(table, options.path_column, PATH_COLUMNS, "--path-column", file)
    label_name = _column(table, options.label_column, LABEL_COLUMNS, "--label-column", file)
    split_name = options.split_column or ("split" if "split" in table.column_names else None)
    if split_name is not None:
        _column(table, split_name, (), "--split-column", file)

    def where(row: int) -> tuple[str, int]:
        return file, int(lines[row])

    for name in {path_name, label_name, *([split_name] if split_name else [])}:
        _check_filled(table[name], name, where)
    root = options.image_root or os.path.dirname(file) or "."
    paths = _text_column(table, path_name, file).to_pylist()
    path = pa.array([os.path.normpath(name) for name in paths], pa.large_string())
    label, classes = number_labels(_label_column(table, label_name, file), options.classes, where)
    splits, split = _table_splits(table, split_name, file)
    source = Source(
        root=root,
        layout="table",
        classes=classes,
        splits=splits,
        path=path,
        label=label,
        split=split,
        size=sizes(root, path),
        # A label of a telling name, an identity say, is carried along under that name too.
        extra=_further_columns(table, {path_name, split_name, *({label_name} & {*LABEL_COLUMNS})}, file),
    )
    return checked(source, where)


# --- reading ------------------------------------------------------------------------------------


def _load_parquet(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns as they are; rows count from 1."""
    try:
        table = pq.ParquetFile(file).read()
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"is no Parquet table ({str(error).splitlines()[0]})", file=file) from None
    return table, np.arange(1, len(table) + 1)


def _load_csv(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns as text, and the line that each row ends on."""
    reader = csv.reader(_text_lines(file), delimiter="\t" if file.lower().endswith(".tsv") else ",", strict=True)
    chunks, lines = [], []
    try:
        header = next(reader, [])
        if not header:
            raise SourceError("holds no image, not even a header", file=file)
        filled = ((reader.line_num, row) for row in reader if row)
        while rows := list(islice(filled, 1 << 16)):
            chunks.append(_chunk(rows, header, file))
            lines.append(np.array([line for line, _ in rows], np.int64))
    except csv.Error as error:
        raise SourceError(f"is no CSV: {error}", file=file, line=reader.line_num) from None
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise SourceError(f"names the column {twice!r} twice", file=file, line=1, hint="rename one")
    empty = pa.table({name: pa.array([], pa.large_string()) for name in header})
    return pa.concat_tables([empty, *chunks]), np.concatenate([*lines, np.empty(0, np.int64)])


def _text_lines(file: str) -> Iterator[str]:
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise SourceError("is not valid UTF-8", file=file, line=number, hint="save it as UTF-8") from None


def _chunk(rows: list[tuple[int, list[str]]], header: list[str], file: str) -> pa.Table:
    for line, row in rows:
        if len(row) != len(header):
            raise SourceError(
                f"expected {len(header)} columns, got {len(row)}", file=file, line=line, hint="hint that row"
            )
    columns = zip(*(row for _, row in rows), strict=True)
    arrays = [pa.array(column, pa.large_string()) for column in columns]
    return pa.table(arrays, names=header)


# --- columns ------------------------------------------------------------------------------------


def _check_filled(column: pa.ChunkedArray, name: str, where: Where) -> None:
    empty = pc.is_null(column)
    if _is_text(column.type):
        empty = pc.or_kleene(empty, pc.equal(pc.utf8_trim_whitespace(column), ""))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        file, line = where(row)
        raise SourceError(f"column {name!r} is empty", file=file, line=line, hint="fill it or remove the row")


def _further_columns(table: pa.Table, used: set[str | None], file: str) -> pa.Table:
    """Give what a table has beside path, label and split, as text, whole numbers, floats or booleans."""
    names = [name for name in table.column_names if name not in used]
    columns = {}
    for name in names:
        if name in RESERVED or name.startswith("image/"):
            raise SourceError(
                f"column {name!r} has a name that sample tables use themselves", file=file, hint="rename it"
            )
        if not name or len(name.encode()) > MAX_NAME:
            raise SourceError(f"column {name[:40]!r} has no name of 1 to {MAX_NAME} bytes", file=file, hint="rename it")
        columns[name] = _plain(_one_array(table[name]), name, file)
    return pa.table(columns)


def _plain(column: pa.Array, name: str, file: str) -> pa.Array:
    types, kind = pa.types, column.type
    if types.is_dictionary(kind) or types.is_temporal(kind):
        return column.cast(pa.large_string())
    if _is_text(kind):
        return _inferred(column) if file.lower().endswith((".csv", ".tsv")) else column
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind):
        return column
    raise SourceError(
        f"column {name!r} has the type {kind}; further columns hold text or numbers",
        file=file,
        hint="leave it out or convert it",
    )


#: Numbers as a computer writes them: 007 is a name.
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_BOOLEAN = r"^(true|false|True|False)$"
_FLOAT = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


def _inferred(column: pa.Array) -> pa.Array:
    """Make numbers of a CSV's column if all of it are numbers; an empty cell is none."""
    filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    for pattern, kind in ((_INTEGER, pa.int64()), (_FLOAT, pa.float64()), (_BOOLEAN, pa.bool_())):
        if filled.null_count < len(filled) and pc.all(pc.match_substring_regex(filled, pattern)).as_py():
            number = filled.cast(kind)
            # Two names must not become one number: 1.10 and 1.1, or digits beyond what a float holds.
            same = pc.count_distinct(number).as_py() == pc.count_distinct(filled).as_py()
            return number if same else column
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _column(table: pa.Table, given: str | None, known: Sequence[str], option: str, file: str) -> str:
    names = [given] if given else [name for name in known if name in table.column_names]
    if names and names[0] in table.column_names:
        return names[0]
    raise CallError(
        f"{option}: {file} has no column {given or ' or '.join(known)}",
        hint=f"its columns are {', '.join(table.column_names)}",
    )


def _text_column(table: pa.Table, name: str, file: str) -> pa.Array:
    if not _is_text(table[name].type):
        raise SourceError(f"column {name!r} has the type {table[name].type}, not text", file=file)
    return table[name].combine_chunks().cast(pa.large_string())


def _label_column(table: pa.Table, name: str, file: str) -> pa.Array:
    kind = table[name].type
    if not (pa.types.is_integer(kind) or _is_text(kind) or pa.types.is_dictionary(kind)):
        raise SourceError(f"column {name!r} has the type {kind}, and labels are integers or names", file=file)
    return _one_array(table[name].cast(pa.large_string()))


def _table_splits(table: pa.Table, name: str | None, file: str) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    if name is None:
        return ("train",), np.zeros(len(table), np.int8)
    given = _text_column(table, name, file).to_pylist()
    words = {word: SPLIT_ALIASES.get(word.lower(), word) for word in set(given)}
    for word in sorted(words):
        if not word.replace("_", "").replace("-", "").isalnum() or not word.isascii():
            raise SourceError(f"split {word!r} cannot be part of a file name", file=file, hint="use letters and digits")
    splits = split_order(set(words.values()))
    if len(splits) > 127:
        raise SourceError(f"column {name!r} names {len(splits)} splits", file=file, hint="check --split-column")
    number = {word: splits.index(split) for word, split in words.items()}
    return splits, np.array([number[word] for word in given], np.int8)


def _one_array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
