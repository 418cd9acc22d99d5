"""Read a CSV or TSV file as text, with the line number of each row. The delimiter is detected."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from manifests.errors import SourceError
from manifests.files import SOURCE_TABLE, read_lines
from manifests.json_members import shorten
from manifests.parquet import MAX_COLUMNS
from manifests.process.text import plural


def load_csv(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns as text; return them with the number of the line on which each row ends."""
    reader = csv.reader(_text_lines(file), delimiter=_detect_delimiter(file), strict=True)
    batches, lines = [], []
    try:
        rows_of_file = _rows(reader, file)
        header = next(rows_of_file, [])
        if len(header) > MAX_COLUMNS:
            message = f"the table has {len(header):,} columns, but the limit is {MAX_COLUMNS:,}"
            raise SourceError(
                message, file=file, line=1, hint="remove the columns that are not needed"
            )
        if not header:
            raise SourceError(
                "the table has no header",
                file=file,
                hint="write the names of the columns in line 1",
            )
        if len(set(header)) < len(header):
            repeated = next(name for name, count in Counter(header).items() if count > 1)
            message = f"two columns have the name {shorten(repeated)}"
            raise SourceError(message, file=file, line=1, hint="rename one of them")
        filled = ((reader.line_num, row) for row in rows_of_file if row)
        while rows := list(islice(filled, 1 << 16)):
            batches.append(_to_table(rows, header, file))
            lines.append(np.array([line for line, _ in rows], np.int64))
    except csv.Error as error:
        raise SourceError(
            f"the line is not valid CSV: {error}",
            file=file,
            line=reader.line_num,
            hint="check its quotation marks",
        ) from None
    empty = pa.table({name: pa.array([], pa.large_string()) for name in header})
    return pa.concat_tables([empty, *batches]), np.concatenate([*lines, np.empty(0, np.int64)])


def _rows(reader: Any, file: str) -> Iterator[list[str]]:
    """Iterate over the rows.

    In a TSV, a row is a line: an unbalanced quotation mark must not join two of them.
    """
    before = 0
    for row in reader:
        if reader.line_num > before + 1 and file.lower().endswith(".tsv"):
            raise SourceError(
                "a quotation mark opens here and closes in a later line",
                file=file,
                line=before + 1,
                hint="remove it",
            )
        before = reader.line_num
        yield row


#: What separates the columns, in the order of preference for a file that could be read in several
#: ways.
_DELIMITERS = (",", "\t", ";", "|")


def _detect_delimiter(file: str) -> str:
    """Return the delimiter that the name of the file stands for, unless the header has columns only with another."""
    line = next(_text_lines(file), "")
    usual = "\t" if file.lower().endswith(".tsv") else ","

    def columns(delimiter: str) -> int:
        try:
            return len(next(csv.reader([line], delimiter=delimiter, strict=True), []))
        except csv.Error:  # a quoted name with a line break, for example
            return 0

    if columns(usual) > 1:
        return usual
    best = max(_DELIMITERS, key=columns)
    return best if columns(best) > 1 else usual


def _text_lines(file: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(file, SOURCE_TABLE), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise SourceError(
                "the line is not valid UTF-8", file=file, line=number, hint="save the file as UTF-8"
            ) from None


def _to_table(rows: list[tuple[int, list[str]]], header: list[str], file: str) -> pa.Table:
    for line, row in rows:
        if len(row) != len(header):
            raise SourceError(
                f"the row has {plural(len(row), 'column')}, but the header has {len(header)}",
                file=file,
                line=line,
                hint="fix this row",
            )
    columns = zip(*(row for _, row in rows), strict=True)
    arrays = [pa.array(column, pa.large_string()) for column in columns]
    return pa.table(arrays, names=header)
