"""Tables with named columns: CSV, TSV, Parquet. What is neither path, label nor split is carried along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from manifests.errors import CallError, SourceError
from manifests.schema import SPLIT_ALIASES, TABLE_COLUMNS, split_order
from manifests.sources.columns import Source, SourceOptions, checked, number_labels, sizes

PATH_COLUMNS = ("path", "image", "file", "filename", "filepath", "image_path")
LABEL_COLUMNS = ("label", "class", "target")


def read_table(file: str, options: SourceOptions) -> Source:
    """Read a table with a column of paths, one of labels and perhaps one of splits."""
    table = _load_table(file)
    path_name = _column(table, options.path_column, PATH_COLUMNS, "--path-column", file)
    label_name = _column(table, options.label_column, LABEL_COLUMNS, "--label-column", file)
    split_name = options.split_column or ("split" if "split" in table.column_names else None)
    if split_name is not None:
        _column(table, split_name, (), "--split-column", file)

    def where(row: int) -> tuple[str, int]:
        return file, row + (1 if file.lower().endswith(".parquet") else 2)

    for name in {path_name, label_name, *([split_name] if split_name else [])}:
        if table[name].null_count:
            row = pc.index(pc.is_null(table[name]), True).as_py()
            raise SourceError(f"column {name!r} is empty", file=where(row)[0], line=where(row)[1])
    root = options.image_root or os.path.dirname(file) or "."
    path = _text_column(table, path_name, file)
    path = pa.array([os.path.normpath(name) for name in path.to_pylist()], pa.large_string())
    label, classes = number_labels(_label_column(table, label_name, file), options.classes, where)
    splits, split = _table_splits(table, split_name, file)
    extra = [name for name in table.column_names if name not in (path_name, label_name, split_name)]
    if taken := [name for name in extra if name in TABLE_COLUMNS or name.startswith("image/")]:
        raise SourceError(
            f"column {taken[0]!r} has a name that sample tables use themselves", file=file, mend="rename it"
        )
    for name in extra:
        if not _is_plain(table[name].type):
            raise SourceError(
                f"column {name!r} has the type {table[name].type}; further columns hold text or numbers",
                file=file,
                mend="leave it out or convert it",
            )
    source = Source(
        root=root,
        layout="table",
        classes=classes,
        splits=splits,
        path=path,
        label=label,
        split=split,
        size=sizes(root, path),
        extra=table.select(extra).combine_chunks(),
    )
    return checked(source, where)


def _is_plain(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        or types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind)
    )  # fmt: skip


def _load_table(file: str) -> pa.Table:
    try:
        if file.lower().endswith(".parquet"):
            import pyarrow.parquet as pq

            return pq.ParquetFile(file).read()
        import pyarrow.csv as pacsv

        delimiter = "\t" if file.lower().endswith(".tsv") else ","
        parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        return pacsv.read_csv(file, parse_options=parse)
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(str(error).splitlines()[0], file=file, mend="mend that row") from None


def _column(table: pa.Table, given: str | None, known: Sequence[str], option: str, file: str) -> str:
    names = [given] if given else [name for name in known if name in table.column_names]
    if names and names[0] in table.column_names:
        return names[0]
    raise CallError(
        f"{option}: {file} has no column {given or ' or '.join(known)}",
        mend=f"its columns are {', '.join(table.column_names)}",
    )


def _text_column(table: pa.Table, name: str, file: str) -> pa.Array:
    if not (pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)):
        raise SourceError(f"column {name!r} has the type {table[name].type}, not text", file=file)
    return table[name].combine_chunks().cast(pa.large_string())


def _label_column(table: pa.Table, name: str, file: str) -> pa.Array:
    kind = table[name].type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise SourceError(f"column {name!r} has the type {kind}, and labels are integers or names", file=file)
    return _one_array(table[name].cast(pa.large_string()))


def _table_splits(table: pa.Table, name: str | None, file: str) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    if name is None:
        return ("train",), np.zeros(len(table), np.int8)
    given = _text_column(table, name, file).to_pylist()
    words = {word: SPLIT_ALIASES.get(word.lower(), word) for word in set(given)}
    for word in sorted(words):
        if not word.replace("_", "").replace("-", "").isalnum() or not word.isascii():
            raise SourceError(f"split {word!r} cannot be part of a file name", file=file, mend="use letters and digits")
    splits = split_order(set(words.values()))
    if len(splits) > 127:
        raise SourceError(f"column {name!r} names {len(splits)} splits", file=file, mend="check --split-column")
    number = {word: splits.index(split) for word, split in words.items()}
    return splits, np.array([number[word] for word in given], np.int8)


def _one_array(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
