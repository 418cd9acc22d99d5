"""Locate the features of any valid ``tf.train.Example``, by the rules of protobuf's wire format.

`dataprep.formats.example_proto` is faster, but only knows the layout that TensorFlow and most other
writers use. The rules (https://protobuf.dev/programming-guides/encoding): fields come in any order,
unknown ones are skipped, a message that occurs twice is merged, the last of several equal keys
counts, and numbers are packed or not.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from dataprep.formats.base import View
from manifests.varint import read_varint

#: Location of the single value of a feature: (kind, first byte, end). The kind is the field number
#: of the list in ``Feature``: `BYTES`, `FLOATS` or `INTS`. It is 0 if the list has several values.
Value = tuple[int, int, int]
BYTES, FLOATS, INTS = 1, 2, 3

_VARINT, _FIXED_64, _LENGTH, _GROUP, _GROUP_END, _FIXED_32 = range(6)

#: Wire type of a list's value if it is not packed.
_UNPACKED = {FLOATS: _FIXED_32, INTS: _VARINT}

#: Longest tag and length together, in bytes.
_HEAD = 20
#: A feature with a longer name, in bytes, is never found.
_MAX_NAME = 4096
#: Deepest nesting of unknown groups, as in protobuf's own parsers.
_MAX_DEPTH = 100


class _Field(NamedTuple):
    number: int
    wire_type: int
    start: int
    end: int


def locate_features_of_any(
    view: View, at: int, end: int, wanted: Container[bytes]
) -> dict[bytes, Value]:
    """Locate features; see `dataprep.formats.example_proto.locate_features`."""
    values: dict[bytes, Value] = {}
    for features in _messages(view, at, end, 1):
        for entry in _messages(view, features.start, features.end, 1):
            name, lists = _entry(view, entry)
            if name in wanted:
                values.pop(name, None)
                if (value := _single_value(view, lists)) is not None:
                    values[name] = value
    return values


def read_lists(view: View, at: int, end: int, wanted: Container[bytes]) -> dict[bytes, list[Any]]:
    """Return all values of features of the Example in bytes `at` to `end`, by name: bytes, floats or integers.

    Raises:
        IndexError, ValueError, struct.error: the payload is not an Example.

    """
    values: dict[bytes, list[Any]] = {}
    for features in _messages(view, at, end, 1):
        for entry in _messages(view, features.start, features.end, 1):
            name, lists = _entry(view, entry)
            if name in wanted:
                values[name] = [value for each in lists for value in _values(view, each)]
    return values


def _values(view: View, values: _Field) -> Iterator[Any]:
    for field in _fields(view, values.start, values.end):
        if field.number != 1:
            continue
        data, i = view(field.start, field.end - field.start)
        part = bytes(data[i : i + field.end - field.start])
        if values.number == BYTES:
            yield part
        elif values.number == FLOATS:
            yield from struct.unpack(f"<{len(part) // 4}f", part)
        else:
            at = 0
            while at < len(part):
                number, at = read_varint(part, at)
                yield number - (1 << 64) if number >> 63 else number


def _entry(view: View, entry: _Field) -> tuple[bytes, list[_Field]]:
    """Return the name in a map item, cut at `_MAX_NAME`, and its lists."""
    name = b""
    lists: list[_Field] = []
    for field in _fields(view, entry.start, entry.end):
        if field.wire_type != _LENGTH:
            continue
        if field.number == 1:
            length = min(field.end - field.start, _MAX_NAME + 1)
            data, i = view(field.start, length)
            name = bytes(data[i : i + length])
            if length <= _MAX_NAME:
                name.decode()  # UnicodeDecodeError is a ValueError
        elif field.number == 2:
            for part in _fields(view, field.start, field.end):
                if part.wire_type == _LENGTH and part.number in (BYTES, FLOATS, INTS):
                    # Lists of one kind are joined. A list of another kind replaces them.
                    lists = [*(each for each in lists if each.number == part.number), part]
    return name, lists


def _single_value(view: View, lists: list[_Field]) -> Value | None:
    """Return the only value in the lists: kind 0 for several values, `None` without a value."""
    values: list[Value] = []
    for each in lists:
        for field in _fields(view, each.start, each.end):
            is_packed = field.wire_type == _LENGTH and (
                each.number == BYTES or field.end > field.start
            )
            if field.number == 1 and (is_packed or field.wire_type == _UNPACKED.get(each.number)):
                values.append((each.number, field.start, field.end))
                if len(values) > 1:
                    return 0, values[0][1], field.end
    return values[0] if values else None


def _messages(view: View, at: int, end: int, number: int) -> Iterator[_Field]:
    """Iterate over the occurrences of a field that is a message."""
    return (
        field
        for field in _fields(view, at, end)
        if field.number == number and field.wire_type == _LENGTH
    )


def _fields(view: View, at: int, end: int) -> Iterator[_Field]:
    """Iterate over the fields of the message in bytes `at` to `end`."""
    groups: list[int] = []
    while at < end:
        field = _field(view, at, end)
        if field.wire_type == _GROUP:
            groups.append(field.number)
            if len(groups) > _MAX_DEPTH:
                raise ValueError("groups are nested too deeply")
        elif field.wire_type == _GROUP_END:
            if not groups or groups.pop() != field.number:
                raise ValueError("the end of a group that did not start")
        elif not groups:
            yield field
        at = field.end
    if groups:
        raise ValueError("a group without its end")


def _field(view: View, at: int, end: int) -> _Field:
    data, i = view(at, min(_HEAD, end - at))
    base = at - i
    tag, i = read_varint(data, i)
    wire_type, length = tag & 7, 0
    start = base + i
    if wire_type == _VARINT:
        length = read_varint(data, i)[1] - i
    elif wire_type == _LENGTH:
        length, i = read_varint(data, i)
        start = base + i
    elif wire_type in (_FIXED_64, _FIXED_32):
        length = 8 if wire_type == _FIXED_64 else 4
    elif wire_type not in (_GROUP, _GROUP_END):
        raise ValueError("an unknown wire type")
    if not 0 < tag >> 3 < 1 << 29:
        raise ValueError("not the number of a field")
    if start + length > end:
        raise ValueError("a field ends after its message")
    return _Field(tag >> 3, wire_type, start, start + length)
