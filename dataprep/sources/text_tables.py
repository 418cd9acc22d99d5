"""Read CSV, TSV and JSON Lines with the line number of each row, and large JSON files item by item."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from manifests.errors import SourceError
from manifests.files import SOURCE_ANNOTATIONS, SOURCE_TABLE, open_file, read_lines
from manifests.json_members import MAX_INTEGER, is_unicode, parse_members, shorten
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


# --- JSON Lines -----------------------------------------------------------------------------------


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


# --- large JSON files -----------------------------------------------------------------------------


#: Longest item in characters. The polygons of an object take some kilobytes.
_MAX_ITEM = 64 << 20

#: Bytes to read at first, and doubled until an item is complete.
_READ = 1 << 18

#: What a part of a number consists of.
_NUMBER = re.compile(r"[-+.eE0-9]*")

_SPACES = " \t\r\n"


def read_arrays(
    file: str, names: Collection[str], required: Collection[str] = ()
) -> Iterator[tuple[str, int, Any]]:
    """Yield the items of some arrays of the object that a file contains.

    Args:
        file: the file.
        names: names of the members. Such a member that is not an array is an error; others are
            skipped.
        required: names of the members that must be there.

    Yields:
        The name of the member, the number of the item, and the item.

    Raises:
        SourceError: the file is not valid JSON, or not an object, or has one of the members twice,
            or a required one not at all.

    """
    with open_file(file, SOURCE_ANNOTATIONS) as opened:
        reader = _Reader(opened, file)
        yield from _members(reader, file, names, required)


def _members(
    reader: _Reader, file: str, names: Collection[str], required: Collection[str]
) -> Iterator[tuple[str, int, Any]]:
    seen: set[str] = set()
    reader.expect("{")
    for name in reader.names():
        if name in names and name in seen:
            raise SourceError(
                f"the member {name!r} occurs twice", file=file, hint="keep one of them"
            )
        seen.add(name)
        if reader.accept("["):
            for number, value in enumerate(reader.items()):
                if name in names:
                    yield name, number, value
        elif name in names:
            raise SourceError(
                f"{name} must be an array", file=file, hint="write the annotations as COCO has them"
            )
        else:
            reader.value()
    if reader.peek():
        reader.fail("something follows the object")
    missing = sorted({*required} - seen)
    if missing:
        message = f"the file has no member {missing[0]!r}, so it has no annotations of this kind"
        raise SourceError(
            message,
            file=file,
            hint="choose another file, or write the annotations as COCO has them",
        )


class _Reader:
    """The text of a file, of which only a part is in memory."""

    def __init__(self, opened: Any, file: str) -> None:
        self._opened = opened
        self._file = file
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder(parse_constant=self._refuse)
        self._text = ""
        self._at = 0
        self._before = 0
        self._ended = False

    def peek(self) -> str:
        """Return the next character that is not whitespace, without reading it.

        Empty at the end of the file.
        """
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACES:
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read(_READ)

    def accept(self, character: str) -> bool:
        """Move on if this character comes next."""
        found = self.peek() == character
        self._at += found
        return found

    def expect(self, character: str) -> None:
        """Move on; it is an error if another character comes next."""
        if not self.accept(character):
            self.fail(f"{character!r} is expected")

    def names(self) -> Iterator[str]:
        """Yield the names of the members of an object whose first brace was read.

        Read each value before the next.
        """
        if self.accept("}"):
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                self.fail("a name of a member is expected")
            self.expect(":")
            yield name
            if self.accept("}"):
                return
            self.expect(",")

    def items(self) -> Iterator[Any]:
        """Yield the items of an array whose first bracket was read."""
        if self.accept("]"):
            return
        while True:
            yield self.value()
            if self.accept("]"):
                return
            self.expect(",")

    def value(self) -> Any:
        """Return the value that comes next."""
        self.peek()
        size = _READ
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if self._ended or len(self._text) - self._at > _MAX_ITEM:
                    self._refused(error)
            else:
                # A number may continue behind the text that was read: 0 of 0.5, and 1 of 1e-3.
                if self._ended or _NUMBER.fullmatch(self._text, end) is None:
                    self._at = end
                    return value
                if len(self._text) - self._at > _MAX_ITEM:
                    self.fail(f"a number is longer than {_MAX_ITEM:,} characters")
            self._read(size)
            size *= 2

    def fail(self, message: str) -> NoReturn:
        """Raise an error: the file is not valid at this place."""
        raise SourceError(
            f"the file is not valid JSON: {message}",
            file=self._file,
            byte=self._before + self._at,
            hint="download the file again, or export it again",
        )

    def _refused(self, error: Exception) -> NoReturn:
        if isinstance(error, RecursionError):
            self.fail("it is nested too deeply")
        if not self._ended:
            self.fail(f"an item is longer than {_MAX_ITEM:,} characters, or is not complete")
        self.fail(reason_of(error))

    def _refuse(self, name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    def _read(self, size: int) -> None:
        data = self._opened.read(size)
        try:
            more = self._utf8.decode(data, final=not data)
        except UnicodeDecodeError:
            self.fail("it is not UTF-8")
        self._before += self._at
        self._text = self._text[self._at :] + more
        self._at = 0
        self._ended = not data


def reason_of(error: Exception) -> str:
    """Return what is wrong with JSON, without the position that Python's message ends with."""
    return (
        str(error)
        .split(": line ", maxsplit=1)[0]
        .removesuffix(" at")
        .removesuffix(" starting")[:200]
    )
