"""Columns of tables: find them by their names, keep them, and join them if their types differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.labels.columns import Labels, Locate, blank_rows, is_number, is_text
from dataprep.labels.kinds import KINDS
from dataprep.sources.arrays import array_column
from dataprep.sources.base import (
    MAX_COLUMN_NAME,
    RESERVED_COLUMNS,
    Integers,
    Names,
    Texts,
    one_array,
)
from dataprep.spool import is_numeric_list
from manifests.errors import CallError, SourceError
from manifests.json_members import shorten
from manifests.parquet import is_list, shorten_type
from manifests.process.text import agree, plural, suggest
from manifests.schema import COLUMN_PREFIX


def find_columns(
    option: str, given: str | None, searched: Iterable[str], columns: Names, file: str
) -> Texts:
    """Return the columns that an option names, or the first of the names to search for.

    Args:
        option: the option; ``--label-column`` can name several columns, separated by commas.
        given: its value, if it is set.
        searched: names of columns.
        columns: columns of the table.
        file: the table.

    Raises:
        CallError: the table does not have a column that the option names.

    """
    if given is None:
        return tuple(islice(filter(columns.__contains__, searched), 1))
    names = [given]
    if option == "--label-column" and given not in columns:
        names = [*map(str.strip, given.split(","))]
    for name in names:
        if name not in columns:
            raise CallError(
                f"{option} {given}: {file} has no such column", hint=suggest(name, columns)
            )
    return tuple(names)


def extra_columns(
    table: pa.Table, used: set[str], file: str, labels: Labels, locate: Locate
) -> pa.Table:
    """Return all columns that are not in `used`, as text, numbers, booleans or arrays.

    A column whose name the sample tables or records of this label type already use is called
    ``column:NAME``.
    """
    class_member = KINDS[labels.label_type].class_member or "class"
    taken = {*RESERVED_COLUMNS, *labels.columns, class_member}
    columns = {}
    for name in table.column_names:
        if name in used:
            continue
        own = name
        if name in taken or name.startswith("image/"):
            own = f"{COLUMN_PREFIX}{name}"
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
        columns[own] = _extra_column(one_array(table[name]), own, file, locate)
    return pa.table(columns)


#: JSON states no type of fractions.
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")


def _extra_column(column: pa.Array, name: str, file: str, locate: Locate) -> pa.Array:
    types, column_type = pa.types, column.type
    if is_numeric_list(column_type, fixed=False):
        return array_column(column, name, locate, rounds=file.lower().endswith(_JSON_SUFFIXES))
    if is_list(column_type):
        raise wrong_type(name, column_type, file)
    if types.is_dictionary(column_type) or types.is_temporal(column_type):
        try:
            return column.cast(pa.large_string())
        except pa.ArrowInvalid as error:  # for example, an unknown time zone
            reason = str(error).splitlines()[0][:200]
            raise SourceError(
                f"column {shorten(name)} cannot be converted to text ({reason})",
                file=file,
                hint="convert it, or remove it",
            ) from None
    if is_text(column_type) and file.lower().endswith((".csv", ".tsv")):
        return _infer_type(column)
    return column


#: Numbers without leading zeros: 007 stays text.
_TYPES_OF_TEXT = {
    r"^-?(0|[1-9][0-9]{0,17})$": pa.int64(),
    r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$": pa.float64(),
    r"^(true|false|True|False)$": pa.bool_(),
}


def _infer_type(column: pa.Array) -> pa.Array:
    """Convert a column of a CSV file to numbers or booleans if all of its values are.

    Empty cells become null, and a column without a value fits every type.
    """
    filled = column.filter(pc.not_equal(column, ""))
    if len(column) and not len(filled):
        return pa.nulls(len(column))
    for pattern, column_type in _TYPES_OF_TEXT.items():
        if not len(filled) or not pc.all(pc.match_substring_regex(filled, pattern)).as_py():
            continue
        number = pc.if_else(pc.equal(column, ""), None, column).cast(column_type)
        # Different texts must not become the same number: 1.10 and 1.1, or more digits than a
        # float keeps.
        same = pc.count_distinct(number) == pc.count_distinct(filled)
        # A number like 1e999 would become infinite.
        finite = column_type != pa.float64() or pc.all(pc.is_finite(number)).as_py()
        return number if same and finite else column
    return column


def without_index(table: pa.Table) -> tuple[pa.Table, Texts]:
    """Return a table without columns that have no name and number the rows or are empty, and notices.

    ``DataFrame.to_csv()`` writes such a column, and reads it as ``Unnamed: 0``.
    """
    columns, left_out = {}, 0
    for number, name in enumerate(table.column_names):
        own = name if name.strip() else f"Unnamed: {number}"
        if own.startswith("Unnamed: ") and _numbers_rows(table[name]):
            left_out += 1
        else:
            columns[own] = table[name]
    if not left_out:
        return table.rename_columns([*columns]), ()
    notice = f"left out {plural(left_out, 'column')} without a name, which {agree(left_out, 'numbers', 'number')} the rows or {agree(left_out, 'is', 'are')} empty"
    return pa.table(columns), (notice,)


def without_negatives(table: pa.Table, lines: Integers) -> tuple[pa.Table, Integers, Texts]:
    """Return a table of Open Images without the rows of classes that an image does not have, and notices."""
    names = {name.lower(): name for name in table.column_names}
    if not names.keys() >= {"imageid", "labelname", "confidence"}:
        return table, lines, ()
    confidence = table[names["confidence"]].cast(pa.large_string())
    kept = np.asarray(pc.invert(pc.match_substring_regex(confidence, r"^0(\.0*)?$")))
    notice = f"left out {plural(int((~kept).sum()), 'row')} with Confidence 0: the image does not have this class"
    return table.filter(pa.array(kept)), lines[kept], () if kept.all() else (notice,)


def _numbers_rows(column: pa.ChunkedArray) -> bool:
    """Return whether a column is empty, or numbers the rows one by one."""
    if blank_rows(column).all():
        return True
    if is_text(column.type) and pc.all(pc.match_substring_regex(column, "^[0-9]{1,18}$")).as_py():
        column = column.cast(pa.int64())
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    numbers = np.asarray(column)
    return bool((np.diff(numbers) == 1).all())


# --- types ---


def wrong_type(name: str, column_type: pa.DataType, file: str) -> SourceError:
    """Return the error about a column of another type than are read."""
    return SourceError(
        f"column {shorten(name)} has the type {shorten_type(value_type(column_type))}, which is"
        " not text, a number or a boolean",
        file=file,
        hint="convert it, remove it, or set --label-column if it has the labels",
    )


def is_readable_type(column_type: pa.DataType) -> bool:
    """Return whether a column contains text, numbers, booleans or times.

    Besides labels, only these are read.
    """
    values = value_type(column_type)
    return is_text(values) or pa.types.is_primitive(values) or pa.types.is_null(values)


def value_type(column_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column that may be dictionary-encoded."""
    return column_type.value_type if pa.types.is_dictionary(column_type) else column_type


# --- columns of one name --------------------------------------------------------------------------


def joined_type(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.DataType | None:
    """Return the type that has the values of all columns exactly; `None` if there is none.

    Null is a value of every type. Integers become fractions only if none of them is rounded.
    """
    own = {*(column.type for column in columns)}
    if len(own) == 1:
        return columns[0].type
    fields = [pa.schema([("", value_type(each))]) for each in own]
    try:
        candidates = [pa.unify_schemas(fields, promote_options="permissive").field("").type]
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        candidates = []
    # Arrow decides by the types alone; the values may fit into another one.
    if all(map(is_number, own)):
        candidates += [pa.int64(), pa.uint64(), pa.float64()]
    for candidate in candidates:
        try:
            for column in columns:
                column.cast(candidate)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        return candidate
    return None


def joined_columns(tables: Mapping[str, pa.Table], hint: str) -> list[pa.Table]:
    """Return tables whose columns of one name have one type; a column can be missing in some.

    Args:
        tables: the tables by the names of their files.
        hint: what to do if a column has no such type.

    Raises:
        SourceError: no type has the values of a column in all tables.

    """
    types: dict[str, pa.DataType] = {}
    found: dict[str, dict[str, Any]] = {}
    for file, table in tables.items():
        for name in table.column_names:
            found.setdefault(name, {})[file] = table[name]
    for name, columns in found.items():
        joined = joined_type([*columns.values()])
        if joined is None:
            raise column_error(name, columns, hint)
        types[name] = joined
    casts = []
    for table in tables.values():
        schema = pa.schema([(name, types[name]) for name in table.column_names])
        casts.append(table.cast(schema))
    return casts


def column_error(name: str, columns: Mapping[str, Any], hint: str) -> SourceError:
    """Return the error for a column that has no type in common; `columns` are by their files."""
    file = first = next(iter(columns))
    for first, file in combinations(columns, 2):
        if joined_type([columns[first], columns[file]]) is None:
            break
    types = [shorten_type(columns[each].type) for each in (file, first)]
    problem = f"has the type {types[0]}, but {types[1]} in {first}"
    if is_number(columns[file].type) and is_number(columns[first].type):
        problem += ", and no type has the numbers of both exactly"
    return SourceError(f"column {name} {problem}", file=file, hint=hint)
