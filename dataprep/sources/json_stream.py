"""Read large JSON files of annotations item by item: a file of gigabytes takes the memory of its largest item."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from manifests.errors import SourceError
from manifests.files import SOURCE_ANNOTATIONS, open_file

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
