"""Read CSV, TSV and JSON Lines with the line number of each row, and large JSON files item by item."""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, repeat
from types import NoneType
from typing import Any, NoReturn, get_origin

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from manifests.errors import SourceError
from manifests.files import (
    IMAGE_SUFFIXES,
    SOURCE_ANNOTATIONS,
    SOURCE_TABLE,
    VIDEO_SUFFIXES,
    FileKind,
    open_file,
    read_lines,
)
from manifests.json_members import MAX_INTEGER, is_unicode, parse_members, shorten
from manifests.parquet import MAX_COLUMNS
from manifests.process.text import plural

#: Rows that are Python objects at a time.
_BATCH = 1 << 16


def table_of(rows: Iterator[Sequence[Any]], names: Sequence[str], types: Sequence[Any]) -> pa.Table:
    """Return rows as a table, with the names and Arrow types of its columns."""
    schema = pa.schema(zip(names, types, strict=True))
    parts = [schema.empty_table()]
    while batch := list(islice(rows, _BATCH)):
        parts.append(pa.table([*zip(*batch, strict=True)], schema=schema))
    return pa.concat_tables(parts)


def load_csv(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns as text; return them with the number of the line on which each row ends."""
    reader = csv.reader(text_lines(file), strict=True, **_dialect(file))
    try:
        rows = _rows(reader, file)
        _, *names = next(rows, [0])
        header = _column_names([*map(str, names)], file)
        if len(header) > MAX_COLUMNS:
            raise SourceError(
                f"the table has {len(header):,} columns, but the limit is {MAX_COLUMNS:,}",
                file=file,
                line=1,
                hint="remove the columns that are not needed",
            )
        if not header:
            raise SourceError(
                "the table has no header",
                file=file,
                hint="write the names of the columns in line 1",
            )
        table = table_of(
            rows,
            ["", *header],
            [pa.int64(), *repeat(pa.large_string(), len(header))],
        )
    except csv.Error as error:
        problem, hint = f"the line is not valid CSV: {error}", "check its quotation marks"
        if "new-line" in problem:
            problem = "a carriage return is in the line, as at the end of each line of old Macs"
            hint = "save the file with the line ends of Unix or Windows, or quote the cell"
        raise SourceError(problem, file=file, line=reader.line_num, hint=hint) from None
    return table.remove_column(0), np.asarray(table.column(0))


def _column_names(header: Sequence[str], file: str) -> list[str]:
    """Return the names in a header without blanks around them; columns without a name are numbered, as pandas does."""
    names = [name.strip() for name in header]
    if header and header[0].lower().startswith("sep="):
        raise SourceError(
            f"the line {shorten(header[0])} is not the names of the columns, but tells Excel what"
            " separates them",
            file=file,
            line=1,
            hint="remove this line",
        )
    suffixes = {os.path.splitext(name)[1].lower() for name in names}
    if suffixes & (IMAGE_SUFFIXES | VIDEO_SUFFIXES):
        raise SourceError(
            "the line has the path of an image where names of columns are expected",
            file=file,
            line=1,
            hint="write a line with the names of the columns, such as path,label, above it",
        )
    for number, name in enumerate(names):
        if not name:
            names[number] = f"Unnamed: {number}" + "_" * (f"Unnamed: {number}" in names)
        if name and names.count(name) > 1:
            raise SourceError(
                f"two columns have the name {shorten(name)}",
                file=file,
                line=1,
                hint="rename one of them",
            )
    return names


def _rows(reader: Any, file: str) -> Iterator[list[Any]]:
    """Yield the number of the line and the cells of each row that is not empty, the header first."""
    before = columns = 0
    for row in reader:
        # In a TSV, a row is a line: an unbalanced quotation mark must not join two of them.
        if reader.line_num > before + 1 and file.lower().endswith(".tsv"):
            raise SourceError(
                "a quotation mark opens here and closes in a later line",
                file=file,
                line=before + 1,
                hint="remove it",
            )
        columns = columns or len(row)
        if row and len(row) != columns:
            raise SourceError(
                f"the row has {plural(len(row), 'column')}, but the header has {columns}",
                file=file,
                line=reader.line_num,
                hint="fix this row",
            )
        if row or not before:
            yield [reader.line_num, *row]
        before = reader.line_num


#: What separates the columns, in the order of preference for a file that could be read in several
#: ways.
_DELIMITERS = (",", "\t", ";", "|")


def _dialect(file: str) -> dict[str, Any]:
    """Return how cells are separated: by what the name of the file stands for, unless the header has columns only with another.

    If there is a blank before each name in the header, blanks before cells do not count.
    """
    line = next(text_lines(file), "")
    usual = "\t" if file.lower().endswith(".tsv") else ","

    def columns(delimiter: str) -> list[str]:
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True), [])
        except csv.Error:  # a quoted name with a line break, for example
            return []

    best = max((usual, *_DELIMITERS), key=lambda each: len(columns(each)))
    if len(columns(usual)) > 1:
        best = usual
    names = columns(best)[1:]
    has_blanks = bool(names) and all(name.startswith(" ") for name in names)
    return {"delimiter": best, "skipinitialspace": has_blanks}


def text_lines(file: str, kind: FileKind = SOURCE_TABLE) -> Iterator[str]:
    """Iterate over the lines of a file in UTF-8; the first may begin with a byte order mark.

    Raises:
        SourceError: a line is not valid UTF-8.

    """
    for number, line in enumerate(byte_lines(file, kind), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(
                f"the line is not valid UTF-8 ({error.reason} at byte {error.start} of the line)",
                file=file,
                line=number,
                hint="save the file as UTF-8",
            ) from None


def byte_lines(file: str, kind: FileKind) -> Iterator[bytes]:
    """Iterate over the lines of a file, which is not in UTF-16, as spreadsheets write it.

    Raises:
        SourceError: it is.

    """
    for number, line in enumerate(read_lines(file, kind), 1):
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise SourceError(
                "the file is text in UTF-16, which is not valid UTF-8",
                file=file,
                line=1,
                hint="save it as UTF-8, for example with `iconv -f UTF-16 -t UTF-8 OLD > NEW`",
            )
        yield line


# --- JSON Lines -----------------------------------------------------------------------------------


class _Large(int):
    """An integer that a fraction beside it would round."""


_LARGEST = 1 << 53

#: The kind of a value: its Python type, or a list of such a type; `list` of an empty list, and
#: `NoneType` of null. For each, its name in messages, and the type of a column.
_KINDS: dict[Any, tuple[str, pa.DataType]] = {
    NoneType: ("null", pa.null()),
    str: ("text", pa.large_string()),
    int: ("an integer", pa.int64()),
    _Large: ("an integer above 2**53", pa.int64()),
    float: ("a number", pa.float64()),
    bool: ("a boolean", pa.bool_()),
    list: ("a list", pa.list_(pa.large_string())),
    list[str]: ("a list of text", pa.list_(pa.large_string())),
    list[int]: ("a list of integers", pa.list_(pa.int64())),
    list[_Large]: ("a list of integers above 2**53", pa.list_(pa.int64())),
    list[float]: ("a list of numbers", pa.list_(pa.float64())),
}
_SCALARS = (str, int, _Large, float, bool)
#: Kinds that occur together in a column, and the kind of both.
_WIDER: dict[Any, Any] = {
    frozenset((int, float)): float,
    frozenset((int, _Large)): _Large,
    frozenset((list[int], list[float])): list[float],
    frozenset((list[int], list[_Large])): list[_Large],
    **{frozenset((list, kind)): kind for kind in _KINDS if get_origin(kind) is list},
    **{frozenset((NoneType, kind)): kind for kind in _KINDS},
}


def load_jsonl(
    file: str, aside: Mapping[str, list[Any]] | None = None
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns; return them with the number of the line of each row.

    A missing member is null.

    Args:
        file: the file.
        aside: receives the values of members that are objects, by their names; `None` without.

    Raises:
        SourceError: a line is not an object of text, numbers and booleans, or a column mixes them.

    """
    return _table_of(_objects(file, aside or {}), file)


def load_json(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read a list of objects, or an object with a member for each image, as `load_jsonl` reads lines.

    Returns:
        The columns, and the number of the item of each row, from 1. A member becomes the column
        `path`; its value is the column `label`, or an object with the other columns.

    Raises:
        SourceError: as `load_jsonl`, or the file is not valid JSON.

    """
    with open_file(file, SOURCE_TABLE) as opened:
        return _table_of(_items(_Reader(opened, file), file), file)


def _table_of(
    objects: Iterator[tuple[str, int, dict[str, Any]]], file: str
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the columns of objects, and their numbers.

    Args:
        objects: "line" or "item", its number, and the members.
        file: the file, for errors.

    """
    seen: dict[str, tuple[Any, str]] = {}
    parts, lines = [], array("q")

    def checked() -> Iterator[tuple[int, dict[str, Any]]]:
        for word, number, members in objects:
            place = f"{word} {number}"
            try:
                _note_kinds(seen, place, members)
            except ValueError as error:
                raise SourceError(
                    str(error) if word == "line" else f"{place}: {error}",
                    file=file,
                    line=number if word == "line" else None,
                    hint=f"change this {word}, or remove the member",
                ) from None
            yield number, members

    rows_in_order = checked()
    while batch := list(islice(rows_in_order, _BATCH)):
        numbers, members = zip(*batch, strict=True)
        lines.extend(numbers)
        parts.append(pa.array(members, _row_type(seen)))
    # A column may be missing, or be narrower, in the batches before its first or its widest value.
    row_type = _row_type(seen)
    rows = pa.chunked_array([part.cast(row_type) for part in parts], row_type)
    return pa.Table.from_struct_array(rows), np.array(lines)


def _row_type(seen: dict[str, tuple[Any, str]]) -> pa.StructType:
    """Return the Arrow type of an object with all columns."""
    return pa.struct([(name, _KINDS[kind][1]) for name, (kind, _) in seen.items()])


def _objects(
    file: str, aside: Mapping[str, list[Any]]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield "line", its number and the members of each line that is not empty.

    Args:
        file: the file.
        aside: as in `load_jsonl`.

    """
    for number, line in enumerate(byte_lines(file, SOURCE_TABLE), 1):
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
        for name, values in aside.items():
            if isinstance(members.get(name), (dict, list, NoneType)):
                values.append(members.pop(name, None))
        yield "line", number, members


def _items(reader: _Reader, file: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield "item", its number and its members for each object of a list or member of an object."""
    if reader.accept("["):
        for number, value in enumerate(reader.values("]"), 1):
            if not isinstance(value, dict):
                raise SourceError(
                    f"item {number} of the list is not an object",
                    file=file,
                    hint='write each item like {"path": "images/0001.jpg", "label": "cat"}',
                )
            yield "item", number, value
    else:
        reader.expect("{")
        for number, name in enumerate(reader.names(), 1):
            value = reader.value()
            if not isinstance(value, dict):
                value = {"label": value}
            yield "item", number, {**value, "path": name}
    if reader.peek():
        reader.fail("something follows the last item")


def _note_kinds(seen: dict[str, tuple[Any, str]], place: str, members: dict[str, Any]) -> None:
    """Note the kinds of the values of a line or an item.

    Raises:
        ValueError: a value is of no kind, or its column has values of another kind.

    """
    for name, value in members.items():
        if name not in seen:
            if not is_unicode(name):
                raise ValueError(f"the name of member {shorten(name)} is not valid Unicode")
            seen[name] = NoneType, place
            if len(seen) > MAX_COLUMNS:
                raise ValueError(f"the file has more than {MAX_COLUMNS:,} different members")
        known, first = seen[name]
        try:
            kind = _kind_of(value)
        except ValueError as error:
            raise ValueError(f"member {shorten(name)} {error}") from None
        if kind == known:
            continue
        # Integers and numbers may mix, and so may empty lists and others.
        wider = _WIDER.get(frozenset((known, kind)))
        if wider is None:
            raise ValueError(f"member {shorten(name)} is {_difference(kind, known, first)}")
        if wider != known:
            seen[name] = wider, place if known in (NoneType, list) else first


def _kind_of(value: Any) -> Any:
    if not isinstance(value, list):
        return _kind_of_item(value, "is")
    item = None
    for each in value:
        own = _kind_of_item(each, "has")
        item = own if item in (None, own) else _WIDER.get(frozenset((item, own)))
        if item in (None, NoneType, bool, list):
            raise ValueError("is a list of other values than text or numbers")
    return list[item] if item else list  # type: ignore[valid-type]


def _kind_of_item(value: Any, verb: str) -> Any:
    kind: Any = type(value)
    if kind not in (NoneType, list, *_SCALARS):
        raise ValueError(f"{verb} an object, not text, a number or a boolean")
    if kind is int:
        if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            raise ValueError(f"{verb} an integer of more than 64 bits")
        return kind if -_LARGEST <= value <= _LARGEST else _Large
    if kind is str and not is_unicode(value):
        raise ValueError("is not valid Unicode")
    return kind


def _difference(kind: Any, known: Any, place: str) -> str:
    """Return what a value is, and what a line or item before it has."""
    if (kind in _SCALARS) == (known in _SCALARS):
        return f"{_KINDS[kind][0]}, but {_KINDS[known][0]} in {place}"
    if kind in _SCALARS:
        return f"{_KINDS[kind][0]}, but a list in {place}"
    return f"a list, but {_KINDS[known][0]} before"


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
    seen = set()
    with open_file(file, SOURCE_ANNOTATIONS) as opened:
        reader = _Reader(opened, file)
        reader.expect("{")
        for name in reader.names():
            if name in names and name in seen:
                raise SourceError(
                    f"the member {name!r} occurs twice", file=file, hint="keep one of them"
                )
            seen.add(name)
            if reader.accept("["):
                for number, value in enumerate(reader.values("]")):
                    if name in names:
                        yield name, number, value
            elif name in names:
                raise SourceError(
                    f"{name} must be an array",
                    file=file,
                    hint="write the annotations as COCO has them",
                )
            else:
                reader.value()
        if reader.peek():
            reader.fail("something follows the object")
    missing = sorted({*required} - seen)
    if missing:
        raise SourceError(
            f"the file has no member {missing[0]!r}, so it has no annotations of this kind",
            file=file,
            hint="choose another file, or write the annotations as COCO has them",
        )


class _Reader:
    """The text of a file, of which only a part is in memory."""

    def __init__(self, opened: Any, file: str) -> None:
        self._opened = opened
        self._file = file
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder(parse_constant=_refuse)
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
        for name in self.values("}"):
            if not isinstance(name, str):
                self.fail("a name of a member is expected")
            self.expect(":")
            yield name

    def values(self, end: str) -> Iterator[Any]:
        """Yield the values of an array or object whose bracket was read, up to the one that ends it."""
        is_first = True
        while not self.accept(end):
            if not is_first:
                self.expect(",")
            is_first = False
            yield self.value()

    def value(self) -> Any:
        """Return the value that comes next."""
        self.peek()
        size = _READ
        while True:
            is_long = len(self._text) - self._at > _MAX_ITEM
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except RecursionError:
                if self._ended or is_long:
                    self.fail("it is nested too deeply")
            except ValueError as error:
                if self._ended:
                    self.fail(reason_of(error))
                if is_long:
                    self.fail(
                        f"an item is longer than {_MAX_ITEM:,} characters, or is not complete"
                    )
            else:
                # A number may continue behind the text that was read: 0 of 0.5, and 1 of 1e-3.
                if self._ended or _NUMBER.fullmatch(self._text, end) is None:
                    self._at = end
                    return value
                if is_long:
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


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def reason_of(error: Exception) -> str:
    """Return what is wrong with JSON, without the position that Python's message ends with."""
    return (
        str(error)
        .split(": line ", maxsplit=1)[0]
        .removesuffix(" at")
        .removesuffix(" starting")[:200]
    )
