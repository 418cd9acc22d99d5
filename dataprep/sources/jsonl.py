"""Read JSON Lines: an object per line, whose members are the columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.sources.json_stream import reason_of
from manifests.errors import SourceError
from manifests.files import SOURCE_TABLE, read_lines
from manifests.json_members import MAX_INTEGER, is_unicode, parse_members, shorten
from manifests.parquet import MAX_COLUMNS

#: Lines that are converted to columns at once.
_BATCH = 1 << 16

#: The kind of a value: its Python type, or that of the items of a list.
_NAMES: dict[Any, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list[str]: "a list of text",
    list[int]: "a list of integers",
    list[float]: "a list of numbers",
}
_TYPES: dict[Any, pa.DataType] = {
    str: pa.large_string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list[str]: pa.list_(pa.large_string()),
    list[int]: pa.list_(pa.int64()),
    list[float]: pa.list_(pa.float64()),
}
#: Kinds that occur together in a column, and the kind of both.
_WIDER = {frozenset((int, float)): float, frozenset((list[int], list[float])): list[float]}


def load_jsonl(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns; return them with the number of the line of each row.

    A missing member is null.

    Raises:
        SourceError: a line is not an object of text, numbers and booleans, or a column mixes them.

    """
    kinds = _Kinds(file)
    parts: list[dict[str, pa.Array]] = []
    lines: list[NDArray[np.int64]] = []
    objects = _objects(file)
    while batch := list(islice(objects, _BATCH)):
        numbers = [number for number, _ in batch]
        for number, members in batch:
            kinds.check(number, members)
        parts.append(
            {
                name: kinds.column(name, [members.get(name) for _, members in batch])
                for name in kinds.names
            }
        )
        lines.append(np.array(numbers, np.int64))
    schema = pa.schema([(name, kinds.type_of(name)) for name in kinds.names])
    tables = [
        pa.table(
            [part[name] if name in part else pa.nulls(len(rows)) for name in schema.names],
            names=schema.names,
        )
        for part, rows in zip(parts, lines, strict=True)
    ]
    table = pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])
    return table, np.concatenate([*lines, np.empty(0, np.int64)])


class _Kinds:
    """The kind of the values of each column, and the line that it was first seen on."""

    def __init__(self, file: str) -> None:
        self.names: dict[str, None] = {}
        self._file = file
        self._seen: dict[str, tuple[Any, int]] = {}
        #: Columns with lists, and the line of the first; the items of an empty list have no kind.
        self._lists: dict[str, int] = {}

    def check(self, line: int, members: dict[str, Any]) -> None:
        for name, value in members.items():
            if name not in self.names:
                self._add(line, name)
            kind: Any = type(value)
            if value is None or (
                self._seen.get(name, (None, 0))[0] is kind and kind is not int and kind is not str
            ):
                continue
            kind = (
                self._kind_of_list(line, name, value)
                if kind is list
                else self._checked(line, name, value)
            )
            if kind is None:
                continue
            seen, first = self._seen.setdefault(name, (kind, line))
            if wider := _WIDER.get(frozenset((seen, kind))):
                self._seen[name] = (wider, first)
            elif seen != kind:
                self._fail(
                    line,
                    f"member {shorten(name)} is {_NAMES[kind]}, but {_NAMES[seen]} in line {first}",
                )

    def _checked(self, line: int, name: str, value: Any) -> Any:
        """Return the kind of a value that is not a list."""
        kind = type(value)
        if kind not in _TYPES:
            self._fail(
                line, f"member {shorten(name)} is an object, not text, a number or a boolean"
            )
        if kind is int and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            self._fail(line, f"member {shorten(name)} is an integer of more than 64 bits")
        if kind is str and not is_unicode(value):
            self._fail(line, f"member {shorten(name)} is not valid Unicode")
        if name in self._lists:
            self._fail(
                line,
                f"member {shorten(name)} is {_NAMES[kind]}, but a list in line {self._lists[name]}",
            )
        return kind

    def _kind_of_list(self, line: int, name: str, values: list[Any]) -> Any:
        """Return the kind of a list of text or of numbers; `None` if it is empty."""
        self._lists.setdefault(name, line)
        kinds = {type(value) for value in values}
        kind = float if kinds == {int, float} else next(iter(kinds), None)
        if kind is not None and (
            kind not in (str, int, float) or (len(kinds) > 1 and kind is not float)
        ):
            self._fail(
                line, f"member {shorten(name)} is a list of other values than text or numbers"
            )
        for value in values:
            if kind is int and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
                self._fail(line, f"member {shorten(name)} has an integer of more than 64 bits")
            if kind is str and not is_unicode(value):
                self._fail(line, f"member {shorten(name)} is not valid Unicode")
        if name in self._seen and self._seen[name][0] in (str, int, float, bool):
            self._fail(
                line,
                f"member {shorten(name)} is a list, but {_NAMES[self._seen[name][0]]} in an earlier"
                " line",
            )
        return None if kind is None else list[kind]  # type: ignore[valid-type]

    def _add(self, line: int, name: str) -> None:
        if not is_unicode(name):
            self._fail(line, f"the name of member {shorten(name)} is not valid Unicode")
        self.names[name] = None
        if len(self.names) > MAX_COLUMNS:
            self._fail(line, f"the file has more than {MAX_COLUMNS:,} different members")

    def _fail(self, line: int, message: str) -> NoReturn:
        raise SourceError(
            message, file=self._file, line=line, hint="change this line, or remove the member"
        )

    def column(self, name: str, values: list[Any]) -> pa.Array:
        return pa.array(values, self.type_of(name))

    def type_of(self, name: str) -> pa.DataType:
        if name in self._seen:
            return _TYPES[self._seen[name][0]]
        return pa.list_(pa.large_string()) if name in self._lists else pa.null()


def _objects(file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the members of each line that is not empty."""
    for number, line in enumerate(read_lines(file, SOURCE_TABLE), 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        try:
            members = parse_members(text)
        except ValueError as error:
            raise SourceError(
                f"the line is not a JSON object ({reason_of(error)})",
                file=file,
                line=number,
                hint='write each line like {"path": "images/0001.jpg", "label": "cat"}',
            ) from None
        yield number, members
