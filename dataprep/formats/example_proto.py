"""``tf.train.Example`` on the wire: encode features, and locate features without reading their values.

Written by hand for two things that protobuf libraries cannot do: report at which byte a value is,
and skip an image without reading it. The messages (``tensorflow/core/example/example.proto``)::

    Example   { Features features = 1; }
    Features  { map<string, Feature> feature = 1; }
    Feature   { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }
    ...List   { repeated value = 1; }

`locate_features` knows the layout that TensorFlow and most other writers use. For any other layout
it follows the rules of protobuf (https://protobuf.dev/programming-guides/encoding): fields come in
any order, unknown ones are skipped, a message that occurs twice is merged, the last of several
equal keys counts, and numbers are packed or not.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from dataprep.formats.base import MAX_TEXT, ByteView, read_bytes
from manifests.parquet import read_varint

#: Location of the single value of a feature: (kind, first byte, end). The kind is the field number
#: of the list in ``Feature``: `BYTES`, `FLOATS` or `INTS`. It is 0 if the list has several values.
Value = tuple[int, int, int]
BYTES, FLOATS, INTS = 1, 2, 3
#: What a feature contains: its location, or its value if that is small. `None` is a small value
#: that is neither an integer nor a text, or several values.
Content = Value | int | str | None

#: Tag of field 1 with a length: ``Example.features``, an item of the map, its key, the value of a
#: list.
_FIELD_1 = b"\x0a"
#: Tag of field 2 with a length: the value of a map item, ``Feature.float_list``.
_FIELD_2 = b"\x12"
#: Tag of field 3 with a length: ``Feature.int64_list``.
_FIELD_3 = b"\x1a"

_FLOAT_MAX = (2 - 2**-23) * 2.0**127  # of float32

# --- encode -------------------------------------------------------------------------------------


def example_head(features: bytes, size: int) -> bytes:
    """Return the bytes of an Example before the last value.

    Args:
        features: the encoded features. The last one is a `bytes_head`.
        size: length in bytes of the value that follows the head.

    """
    return _FIELD_1 + _varint(len(features) + size) + features


def bytes_head(
    name: bytes, size: int, tags: tuple[bytes, ...] = (_FIELD_1, _FIELD_1, _FIELD_2)
) -> bytes:
    """Encode a feature up to its values, which have `size` bytes.

    `tags` name the messages in an item of ``map<string, Feature>`` that contain the values, the
    innermost first. By default, they are the tags of a bytes feature with one value.
    """
    head = b""
    for tag in tags:
        head = tag + _varint(len(head) + size) + head
    head = _key(name) + head
    return _FIELD_1 + _varint(len(head) + size) + head


def _item(data: bytes) -> bytes:
    length = len(data)
    return _FIELD_1 + (_SHORT_VARINTS[length] if length < 0x80 else _varint(length)) + data


#: The same for names of features, which recur.
_key = lru_cache(1 << 10)(_item)


#: The same for features of texts: their lengths recur.
_short_head = lru_cache(1 << 10)(bytes_head)


def bytes_feature(name: bytes, data: bytes) -> bytes:
    """Encode a bytes feature with one value."""
    return _short_head(name, len(data)) + data


def bytes_list_feature(name: bytes, values: Iterable[bytes]) -> bytes:
    """Encode a bytes feature with any number of values."""
    items = b"".join([_item(value) for value in values])
    return bytes_head(name, len(items), (_FIELD_1, _FIELD_2)) + items


def int_list_feature(name: bytes, values: Iterable[int]) -> bytes:
    """Encode an int64 feature with any number of values."""
    packed = b"".join([_varint(value & (1 << 64) - 1) for value in values])
    return bytes_head(name, len(packed), (_FIELD_1, _FIELD_3, _FIELD_2)) + packed


def float_list_feature(name: bytes, values: Iterable[float]) -> bytes:
    """Encode a float feature. A value that does not fit into a float32 is infinite."""
    packed = b""
    for value in values:
        fits = not abs(value) > _FLOAT_MAX
        packed += struct.pack("<f", value if fits else math.copysign(math.inf, value))
    return bytes_head(name, len(packed), (_FIELD_1, _FIELD_2, _FIELD_2)) + packed


def column_feature(name: bytes, value: Any) -> bytes:
    """Encode one value: an integer or a float as a number, anything else as UTF-8 text."""
    if isinstance(value, int):
        return int_list_feature(name, [value])
    if isinstance(value, float):
        return float_list_feature(name, [value])
    return bytes_feature(name, str(value).encode())


#: Encodes a value that recurs, such as a class, an image format, a width or a height.
cached_feature = lru_cache(1 << 14)(column_feature)


_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


def _varint(value: int) -> bytes:
    # Every image has lengths of one to three bytes; each has an expression of its own.
    if value < 0x80:
        return _SHORT_VARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + _varint(value >> 7)


# --- locate -------------------------------------------------------------------------------------

#: Errors that the functions below raise on bytes that are not an Example.
MALFORMED = (IndexError, struct.error, ValueError)

#: Bytes to read for the tags, the lengths and the name of one feature, if the name has at most 127
#: bytes. A feature of at most 127 bytes fits, too.
_FEATURE_HEAD = 512

#: Small features of a shard that are remembered.
_MAX_KNOWN = 1 << 14

#: Tags of the lists in a ``Feature``: bytes, floats, integers.
_LISTS = frozenset((0x0A, 0x12, 0x1A))


class FeatureReader:
    """Reads features of the Examples of one shard.

    Most features are small and recur from record to record, such as a class, a width or an image
    format. Each of them is parsed once, and then recognized by its bytes.

    Args:
        view: the shard.
        image: name of the feature that is only located.
        wanted: names of the other features.

    """

    def __init__(self, view: ByteView, image: bytes, wanted: Iterable[bytes]) -> None:
        self._view, self._image, self._wanted = view, image, frozenset((image, *wanted))
        self._known: dict[bytes, tuple[bytes, Content]] = {}

    def read(self, at: int, end: int) -> dict[bytes, Content]:
        """Return the features of the Example in bytes `at` to `end`.

        Small features that recur are read: an integer, a text, or `None` for anything else. All
        others are located.

        Raises:
            IndexError, ValueError: the payload is not an Example (see `MALFORMED`).

        """
        try:
            return self._read_usual(at, end)
        except MALFORMED:
            return {**locate_features(self._view, at, end, self._wanted)}

    def _read_usual(self, at: int, end: int) -> dict[bytes, Content]:
        """Read an Example of the usual layout; raise one of `MALFORMED` for any other."""
        values: dict[bytes, Content] = {}
        view, known = self._view, self._known
        data, i = view(at, min(_FEATURE_HEAD, end - at))
        # Positions in the shard are `base` larger than positions in the buffer `data`.
        base, stop, last_head = at - i, end - at + i, len(data) - _FEATURE_HEAD
        tag = data[i]
        length, i = read_varint(data, i + 1)
        if tag != 0x0A or i + length != stop:
            raise ValueError("not the usual layout")
        while i < stop:
            if i > last_head:
                at = base + i
                data, i = view(at, min(_FEATURE_HEAD, stop - i))
                base, stop, last_head = at - i, end - at + i, len(data) - _FEATURE_HEAD
            after = i + 2 + data[i + 1]
            feature = known.get(data[i:after])
            if feature is None:
                name, values[name], i = self._read_feature(data, base, i)
            else:
                name, values[name] = feature
                i = after
        if i != stop:
            raise ValueError("a feature ends after its message")
        return values

    def _read_feature(self, data: Any, base: int, at: int) -> tuple[bytes, Content, int]:
        """Parse the feature at position `at` of a buffer; return its name, its value and its end."""
        length, i = _length(data, at + 1)
        end = i + length
        name_end = i + 2 + data[i + 1]
        if data[at] != 0x0A or data[i] != 0x0A or name_end >= i + 0x82:
            raise ValueError("not the usual layout")
        name = data[i + 2 : name_end]
        if not name.isascii():
            name.decode()  # protobuf refuses other names than UTF-8; UnicodeDecodeError is a ValueError
        value: Content = None
        if name in self._wanted:
            kind, first = _find_value(data, name_end, end)
            value = (kind, base + first, base + end)
            if name == self._image or length >= 0x80:
                return name, value, end
            value = _decoded(kind, data[first:end])
        else:
            length_of_value, i = _length(data, name_end + 1)
            if data[name_end] != 0x12 or i + length_of_value != end:
                raise ValueError("not the usual layout")
        if length < 0x80 and len(self._known) < _MAX_KNOWN and end <= len(data):
            self._known[data[at:end]] = name, value
        return name, value, end


def _find_value(data: Any, i: int, end: int) -> tuple[int, int]:
    """Return the kind and the first byte of the value in a map item: a ``Feature`` with a list of one value.

    The value field of the map item is in bytes `i` to `end` of the buffer `data`, and the value ends
    there.
    """
    if 6 < end - i < 0x80:  # the common case: every length is one byte
        value, outer, kind, middle, item, inner = data[i : i + 6]
        if (
            value == 0x12
            and item == 0x0A
            and kind in _LISTS
            and outer == end - i - 2 == middle + 2 == inner + 4
        ):
            return kind >> 3, i + 6
    if 0x4010 < end - i < 0x200000:  # of most images, every length is three bytes
        outer, middle, inner = end - i - 4, end - i - 8, end - i - 12
        head = bytes(
            (
                *(0x12, outer & 0x7F | 0x80, outer >> 7 & 0x7F | 0x80, outer >> 14),
                *(0x0A, middle & 0x7F | 0x80, middle >> 7 & 0x7F | 0x80, middle >> 14),
                *(0x0A, inner & 0x7F | 0x80, inner >> 7 & 0x7F | 0x80, inner >> 14),
            )
        )
        if data[i : i + 12] == head:
            return BYTES, i + 12
    tags = []
    # The value of the map item, the list, and the value in it.
    for allowed in (b"\x12", _LISTS, b"\x0a"):
        tags.append(data[i])
        length, i = _length(data, i + 1)
        if i + length != end or tags[-1] not in allowed:
            raise ValueError("not the usual layout")
    return tags[1] >> 3, i


def _decoded(kind: int, value: bytes) -> int | str | None:
    if kind == BYTES:
        return value.decode("utf-8", "replace")
    return _integer(value) if kind == INTS else None


def _integer(value: bytes) -> int | None:
    """Decode the only value of a packed list of integers; `None` if there are several."""
    number, after = read_varint(value, 0)
    return _signed(number) if after == len(value) else None


def _length(data: Any, i: int) -> tuple[int, int]:
    length = data[i]
    if length >= 0x80:
        return read_varint(data, i)
    return length, i + 1


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def read_int(view: ByteView, value: Content) -> int | None:
    """Return an integer value.

    `None` if the feature is missing, of another kind, or has several values.
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str) or value[0] != INTS:
        return None
    return _integer(read_bytes(view, value[1], value[2] - value[1]))


def read_text(view: ByteView, value: Content, max_bytes: int = MAX_TEXT) -> str | None:
    """Return a text value.

    `None` if the feature is missing, of another kind, or longer than `max_bytes`.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) or value[0] != BYTES or value[2] - value[1] > max_bytes:
        return None
    return read_bytes(view, value[1], value[2] - value[1]).decode("utf-8", "replace")


# --- locate in any valid layout -------------------------------------------------------------------

_VARINT, _FIXED_64, _LENGTH, _GROUP, _GROUP_END, _FIXED_32 = range(6)

#: Bytes of a field by its wire type, if it does not state them.
_LENGTHS = {_FIXED_64: 8, _GROUP: 0, _GROUP_END: 0, _FIXED_32: 4}
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


def locate_features(
    view: ByteView, at: int, end: int, wanted: Container[bytes] | None = None
) -> dict[bytes, Value]:
    """Locate features of the Example in bytes `at` to `end`, without reading their values.

    Args:
        view: the shard.
        at: first byte of the payload.
        end: end of the payload.
        wanted: names of the features to locate. Default: all.

    Raises:
        IndexError, ValueError, struct.error: the payload is not an Example (see `MALFORMED`).

    """
    values: dict[bytes, Value] = {}
    for name, lists in _entries(view, at, end, wanted):
        values.pop(name, None)
        value = _single_value(view, lists)
        if value is not None:
            values[name] = value
    return values


def read_lists(
    view: ByteView, at: int, end: int, wanted: Container[bytes]
) -> dict[bytes, list[Any]]:
    """Return all values of features of the Example in bytes `at` to `end`, by name: bytes, floats or integers.

    Raises:
        IndexError, ValueError, struct.error: the payload is not an Example.

    """
    values: dict[bytes, list[Any]] = {}
    for name, lists in _entries(view, at, end, wanted):
        values[name] = []
        for each in lists:
            values[name] += _values(view, each)
    return values


def _values(view: ByteView, values: _Field) -> Iterator[Any]:
    for field in _fields(view, values.start, values.end):
        if field.number != 1:
            continue
        part = read_bytes(view, field.start, field.end - field.start)
        if values.number == BYTES:
            yield part
        elif values.number == FLOATS:
            yield from struct.unpack(f"<{len(part) // 4}f", part)
        else:
            at = 0
            while at < len(part):
                number, at = read_varint(part, at)
                yield _signed(number)


def _entries(
    view: ByteView, at: int, end: int, wanted: Container[bytes] | None
) -> Iterator[tuple[bytes, list[_Field]]]:
    """Iterate over the items of the map of features with a name that is wanted."""
    for features in _messages(view, at, end):
        for item in _messages(view, features.start, features.end):
            name, lists = _entry(view, item)
            if wanted is None or name in wanted:
                yield name, lists


def _entry(view: ByteView, entry: _Field) -> tuple[bytes, list[_Field]]:
    """Return the name in a map item, cut at `_MAX_NAME`, and its lists."""
    name = b""
    lists: list[_Field] = []
    for field in _fields(view, entry.start, entry.end):
        if field.wire_type != _LENGTH:
            continue
        if field.number == 1:
            length = min(field.end - field.start, _MAX_NAME + 1)
            name = read_bytes(view, field.start, length)
            if length <= _MAX_NAME:
                name.decode()  # UnicodeDecodeError is a ValueError
        elif field.number == 2:
            for part in _fields(view, field.start, field.end):
                if part.wire_type == _LENGTH and part.number in (BYTES, FLOATS, INTS):
                    # Lists of one kind are joined. A list of another kind replaces them.
                    lists = [*(each for each in lists if each.number == part.number), part]
    return name, lists


def _single_value(view: ByteView, lists: list[_Field]) -> Value | None:
    """Return the only value in the lists: kind 0 for several values, `None` without a value."""
    values = []
    for each in lists:
        for field in _fields(view, each.start, each.end):
            is_packed = field.wire_type == _LENGTH and (
                each.number == BYTES or field.end > field.start
            )
            if field.number == 1 and (is_packed or field.wire_type == _UNPACKED.get(each.number)):
                values.append((each.number, field.start, field.end))
                if len(values) > 1:
                    return 0, values[0][1], field.end
    return next(iter(values), None)


def _messages(view: ByteView, at: int, end: int) -> Iterator[_Field]:
    """Iterate over the occurrences of field 1, which is a message."""
    for field in _fields(view, at, end):
        if field.number == 1 and field.wire_type == _LENGTH:
            yield field


def _fields(view: ByteView, at: int, end: int) -> Iterator[_Field]:
    """Iterate over the fields of the message in bytes `at` to `end`."""
    groups = []
    while at < end:
        field = _read_field(view, at, end)
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


def _read_field(view: ByteView, at: int, end: int) -> _Field:
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
    elif wire_type in _LENGTHS:
        length = _LENGTHS[wire_type]
    else:
        raise ValueError("an unknown wire type")
    if not 0 < tag >> 3 < 1 << 29:
        raise ValueError("not the number of a field")
    if start + length > end:
        raise ValueError("a field ends after its message")
    return _Field(tag >> 3, wire_type, start, start + length)
