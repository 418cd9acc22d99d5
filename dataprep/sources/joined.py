"""Tables in text, CSV and MAT files, with the file and the line of each row, and joined by their columns.

Datasets as they are published have several such files, which name the images, their classes and
their splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.labels.columns import Locate, first_true, row_error
from dataprep.sources.base import Names, one_array, text_array
from dataprep.sources.columns import find_columns
from dataprep.sources.mat_file import MAX_BYTES, read_mat
from dataprep.sources.text_tables import load_csv, text_lines
from manifests.errors import SourceError
from manifests.files import SOURCE_ANNOTATIONS, SOURCE_LIST, read_file
from manifests.json_members import shorten

TEXT = pa.large_string()


def load(root: str, name: str, columns: str) -> pa.Table:
    """Return columns of a file as text, with the columns `file` and `line`.

    Args:
        root: the folder of the file.
        name: its name. A CSV file has a header, the words of a text file are columns.
        columns: the names of the columns, separated by blanks. ``NAME=FIELD`` is a column of a CSV
            file, or a variable or a field of a MAT file. ``*`` are all names of the header.

    """
    file = f"{root}/{name}"
    names, fields = [], []
    for word in columns.split():
        own, _, field = word.partition("=")
        names.append(own)
        fields.append(field)
    if name.endswith(".mat"):
        return _placed(_load_mat(file, dict(zip(names, fields, strict=True))), file)
    if name.endswith(".csv"):
        table, lines = load_csv(file)
        header = table.column_names
        if names[-1] == "*":
            names = [names[0], *header[1:]]
        # Without the names of fields, the order counts.
        fields = [*filter(None, fields)] or header[: len(names)]
        for field in fields:
            find_columns("the column", field, (), header, file)
        return _placed(table.select(fields).rename_columns(names), file, lines)
    skip = 0
    if names[-1] == "*":
        # The first line has the number of images.
        *_, header_line = islice(text_lines(file, SOURCE_LIST), 2)
        names, skip = [names[0], *header_line.split()], 2
    return load_text(file, names, skip)


def load_text(file: str, names: Names, skip: int = 0) -> pa.Table:
    """Return the words of each line of a text file; the last column has the rest of the line.

    The first `skip` lines, empty lines, and lines that begin with ``#`` are left out.
    """
    try:
        text = read_file(file, SOURCE_LIST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "save the file as UTF-8"
        message = "the file is not valid UTF-8"
        raise SourceError(message, file=file, byte=error.start, hint=hint) from None
    lines = pc.list_flatten(pc.split_pattern(text_array([text]), "\n"))
    lines = pc.ascii_trim_whitespace(lines).slice(skip)
    kept = pc.invert(pc.match_substring_regex(lines, "^(#|$)"))
    number = pa.array(np.flatnonzero(np.asarray(kept)) + skip + 1)
    words = pc.ascii_split_whitespace(lines.filter(kept), max_splits=len(names) - 1)
    short = first_true(pc.less(pc.list_value_length(words), len(names)))
    if short >= 0:
        raise SourceError(
            f"the line does not have the form `{' '.join(names)}`",
            file=file,
            line=number[short].as_py(),
            hint="unpack the file again, or correct the line",
        )
    columns = [pc.list_element(words, at) for at in range(len(names))]
    return _placed(pa.table(columns, names=[*names]), file, number)


def _load_mat(file: str, fields: Mapping[str, str]) -> pa.Table:
    """Return variables of a MAT file, or fields of its structs; a name alone counts from 1."""
    columns: dict[str, list[Any]] = {}
    try:
        variables = read_mat(read_file(file, SOURCE_ANNOTATIONS)[:MAX_BYTES])
        for name, field in fields.items():
            if field in variables:
                value = variables[field]
                columns[name] = value if isinstance(value, list) else np.atleast_1d(value).tolist()
            elif field:
                columns[name] = [row[field] for row in variables["annotations"]]
            else:
                columns[name] = [*range(1, len(columns["label"]) + 1)]
        for name, values in columns.items():
            columns[name] = [each if isinstance(each, str) else f"{each:.0f}" for each in values]
        return pa.table({name: text_array(each) for name, each in columns.items()})
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"the file is damaged: {error}", file=file, hint="download it again"
        ) from None


def in_folders(root: str, path: pa.Array, pattern: str) -> pa.Table:
    """Return the images whose paths match a pattern, with its named groups as columns."""
    groups = pc.extract_regex(path, pattern)
    fits = pc.is_valid(groups)
    table = pa.Table.from_struct_array(groups.filter(fits))
    return _placed(with_columns(table, path=path.filter(fits)), root)


# --- columns --------------------------------------------------------------------------------------


def locate(table: pa.Table) -> Locate:
    """Return a function that locates a row."""
    return lambda row: (table["file"][row].as_py(), table["line"][row].as_py())


def _placed(table: pa.Table, file: str, line: Any = None) -> pa.Table:
    """Return a table with the columns `file` and `line`, for errors."""
    if "label" in table.column_names:
        # The names of scenes begin with the folder of their first letter.
        table = with_columns(table, label=substitute(table["label"], "^/./", ""))
    lines = pa.nulls(len(table), pa.int64()) if line is None else pa.array(line, pa.int64())
    return with_columns(table, file=pa.repeat(pa.scalar(file, TEXT), len(table)), line=lines)


def with_columns(table: pa.Table, **columns: Any) -> pa.Table:
    """Return a table with columns that are new or replace others."""
    return pa.table({**dict(zip(table.column_names, table.columns, strict=True)), **columns})


def substitute(column: Any, pattern: str, text: str) -> Any:
    """Return a column of text with a pattern replaced."""
    return pc.replace_substring_regex(column, pattern, text)


def found(table: pa.Table, column: str, values: pa.Array, what: str, hint: str) -> pa.Array:
    """Return the place of each value of a column in `values`, in which it must be."""
    at = pc.index_in(table[column], values).combine_chunks()
    row = first_true(pc.is_null(at))
    if row >= 0:
        text = shorten(table[column][row].as_py(), 300)
        message = f"{column} {text} {what} ({at.null_count:,} in total)"
        raise row_error(locate(table), row, message, f"{hint}, or remove the line")
    return at


def joined(table: pa.Table, other: pa.Table, what: str) -> pa.Table:
    """Return a table with the columns of another, which has each value of a common column once."""
    key = next(name for name in other.column_names if name in table.column_names)
    check_once(other, key)
    added = other.take(found(table, key, one_array(other[key]), what, "unpack the files again"))
    new = [name for name in other.column_names if name not in table.column_names]
    return with_columns(table, **{name: added[name] for name in new})


def check_once(table: pa.Table, key: str) -> None:
    """Check that no value of a column occurs twice."""
    coded = one_array(table[key]).dictionary_encode()
    if len(coded.dictionary) < len(table):
        first = np.unique(np.asarray(coded.indices), return_index=True)[1]
        row = int(np.delete(np.arange(len(table)), first)[0])
        text = shorten(table[key][row].as_py(), 300)
        hint = "remove one of the lines"
        raise row_error(locate(table), row, f"{key} {text} is listed twice", hint)
