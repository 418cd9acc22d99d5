"""TFRecord shards of ``tf.train.Example``: the only file that knows their bytes.

A record is ``length u64 | masked CRC-32C of it u32 | payload | masked CRC-32C of the payload u32``, all
little-endian (TensorFlow, ``core/lib/io/record_writer.h``). The payload is a protobuf, written and
walked here by hand for two things a protobuf library cannot do: say at which byte a field lies, and
skip an image without reading it. Small features stand before the image, so that one page holds them all.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from typing import Any

from awscrt.checksums import combine_crc32c, crc32c

from dataprep.formats.base import PendingSample, Record, RecordDamage, ScanOptions, View, image_header
from dataprep.images.base import Rejected
from manifests.errors import CallError, ShardError
from manifests.schema import Components

SUFFIX = ".tfrecord"
SUFFIXES: tuple[str, ...] = (".tfrecord", ".tfrecords", ".tfrec", ".record")
END = b""
COMPONENTS = Components(image=("image/encoded",), label="image/class/label")
RAW = Components(image=("image/raw",), label="image/class/label")

_FLOAT_MAX = (2 - 2**-23) * 2.0**127
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_PREFIX = struct.Struct("<QI")
_OVERHEAD = _PREFIX.size + _CRC.size
_TRUNCATED = "the file was cut short: copy or make it again"
_DAMAGED = "the file is damaged: copy or make it again"
_NOT_EXAMPLE = "is no tf.train.Example"


def masked(crc: int) -> int:
    """Mask a CRC-32C as TFRecord stores it (``core/lib/hash/crc32c.h``)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- writing ------------------------------------------------------------------------------------


def frame(draft: PendingSample) -> tuple[bytes, bytes]:
    """Give the bytes before and after the image in a record."""
    features = b"".join(
        (
            *(_extra_feature(name, value) for name, value in draft.extra.items() if value is not None),
            _recurring(b"image/class/text", draft.class_name),
            _recurring(b"image/class/label", draft.label),
            _bytes_feature(b"image/filename", draft.source.encode()),
            _recurring(b"image/format", draft.info.format.upper()),
            _recurring(b"image/height", draft.info.height),
            _recurring(b"image/width", draft.info.width),
            _around(b"image/raw" if draft.info.format == "raw" else b"image/encoded", draft.size),
        )
    )
    head = b"\x0a" + _varint(len(features) + draft.size) + features
    payload_crc = combine_crc32c(crc32c(head), draft.crc32c, draft.size)
    length = _LENGTH.pack(len(head) + draft.size)
    return length + _CRC.pack(masked(crc32c(length))) + head, _CRC.pack(masked(payload_crc))


def index_line(start: int, draft: PendingSample, frame: tuple[bytes, bytes]) -> str:
    """Give a record's line in the DALI index."""
    return f"{start} {len(frame[0]) + draft.size + len(frame[1])}"


def index_bytes(lines: list[str]) -> bytes:
    """Give the DALI index: ``offset size`` a line, the size with all 16 bytes around the payload."""
    return "".join(line + "\n" for line in lines).encode()


def index_starts(index: bytes) -> list[int]:
    """Read where each record begins out of a DALI index."""
    return [int(line.split()[0]) for line in index.splitlines()]


_SHORT = tuple(bytes((value,)) for value in range(0x80))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data


@lru_cache(1 << 14)  # classes, formats, widths and heights recur
def _recurring(name: bytes, value: str | int) -> bytes:
    return _int_feature(name, value) if isinstance(value, int) else _bytes_feature(name, value.encode())


def _feature(name: bytes, value: bytes) -> bytes:
    """Write an item of ``map<string, Feature>``: a message of key (1) and value (2)."""
    return _field(b"\x0a", _field(b"\x0a", name) + _field(b"\x12", value))


def _bytes_feature(name: bytes, data: bytes) -> bytes:
    return _around(name, len(data)) + data


def _int_feature(name: bytes, value: int) -> bytes:
    return _feature(name, _field(b"\x1a", _field(b"\x0a", _varint(value & (1 << 64) - 1))))


def _float_feature(name: bytes, value: float) -> bytes:
    if abs(value) > _FLOAT_MAX:  # as float32 has it
        value = math.copysign(math.inf, value)
    return _feature(name, _field(b"\x12", _field(b"\x0a", struct.pack("<f", value))))


def _extra_feature(name: str, value: Any) -> bytes:
    if isinstance(value, int):
        return _int_feature(name.encode(), value)
    if isinstance(value, float):
        return _float_feature(name.encode(), value)
    return _bytes_feature(name.encode(), str(value).encode())


def _around(name: bytes, size: int) -> bytes:
    """Write a bytes feature's own bytes, up to where its `size` bytes of data begin."""
    item = b"\x0a" + _varint(size)
    bytes_list = b"\x0a" + _varint(len(item) + size) + item
    value = b"\x12" + _varint(len(bytes_list) + size) + bytes_list
    key = b"\x0a" + _varint(len(name)) + name
    return b"\x0a" + _varint(len(key) + len(value) + size) + key + value


# --- reading ------------------------------------------------------------------------------------


#: The one item of a feature's list: its kind, first byte and end. The kind is the list's field in ``Feature``:
#: 1 bytes, 2 floats, 3 ints; 0 stands for several items.
_Item = tuple[int, int, int]


def scan(view: View, size: int, file: str, want: ScanOptions) -> Iterator[Record]:
    """Walk a shard's records by their headers; see `RecordFormat.scan`."""
    component = want.components.image[0]
    image_name = component.encode()
    label_name = want.components.label.encode() if want.components.label else b""
    texts = _TEXTS if want.texts else ()
    wanted = frozenset((image_name, label_name, *texts))
    class_name = source = ""
    at = number = 0
    while at < size:
        end = _record_end(view, at, size, file, number)
        try:
            items = _walk(view, at + _PREFIX.size, end - _CRC.size, wanted)
            image = items.get(image_name)
            if image is None or image[0] != 1:
                every = _walk(view, at + _PREFIX.size, end - _CRC.size)
                raise ShardError(_lacks(image_name, every), file=file, record=number, byte=at)
            label = _int_of(view, items.get(label_name))
            if texts:
                class_name, source = (_text_of(view, items.get(name)) for name in texts)
        except (IndexError, struct.error, ValueError):
            raise ShardError(_NOT_EXAMPLE, file=file, record=number, byte=at, hint=_DAMAGED) from None
        _, start, stop = image
        line = f"{at} {end - at}"
        yield Record(at, end, line, "", start, stop - start, component, label, class_name, source)
        at = end
        number += 1


_TEXTS = (b"image/class/text", b"image/filename")


def _record_end(view: View, at: int, size: int, file: str, number: int) -> int:
    if size - at < _OVERHEAD:
        raise ShardError(
            f"ends within a record's header ({size - at} bytes are left)",
            file=file, record=number, byte=at, hint=_TRUNCATED,
        )  # fmt: skip
    data, i = view(at, _PREFIX.size)
    length, crc = _PREFIX.unpack_from(data, i)
    if masked(crc32c(data[i : i + 8])) != crc:
        raise ShardError("has a record length whose CRC is wrong", file=file, record=number, byte=at, hint=_DAMAGED)
    end: int = at + length + _OVERHEAD
    if end > size:
        raise ShardError(
            f"ends at byte {size}, and this record would end at {end}",
            file=file, record=number, byte=at, hint=_TRUNCATED,
        )  # fmt: skip
    return end


def _read_varint(data: Any, i: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[i]
        i += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, i
        shift += 7
        if shift > 63:
            raise ValueError("varint of more than ten bytes")


#: A longer class name or file name is not read.
MAX_TEXT = 4096

#: Enough for one feature's tags, lengths and name; a longer name makes the record unreadable here.
_ROOM = 512


class _All:
    def __contains__(self, _: object) -> bool:
        return True


_ALL = _All()


def _walk(view: View, at: int, end: int, wanted: Container[bytes] = _ALL) -> dict[bytes, _Item]:
    """Find the wanted features of an Example in the payload [at, end), without reading what they hold."""
    found: dict[bytes, _Item] = {}
    while at < end:
        data, i = view(at, min(_ROOM, end - at))
        base, tag = at - i, data[i]
        length, i = _read_varint(data, i + 1)
        at = base + i + length
        if tag != 0x0A or at > end:
            raise ValueError("not an Example")
        _walk_features(view, base + i, at, wanted, found)
    return found


def _walk_features(view: View, at: int, end: int, wanted: Container[bytes], found: dict[bytes, _Item]) -> None:
    data, i = view(at, min(_ROOM, end - at))
    base, room = at - i, len(data) - _ROOM
    while base + i < end:
        if i > room:
            at = base + i
            data, i = view(at, min(_ROOM, end - at))
            base, room = at - i, len(data) - _ROOM
        if data[i] != 0x0A:
            raise ValueError("not a map of features")
        length = data[i + 1]
        i += 2
        if length >= 0x80:
            length, i = _read_varint(data, i - 1)
        if data[i] != 0x0A or base + i + length > end:
            raise ValueError("not a feature")
        # A name is shorter than 128 bytes, or what is taken for its end is no tag of a value.
        name_end = i + 2 + data[i + 1]
        name = data[i + 2 : name_end]
        i += length
        if name in wanted and (item := _item(data, name_end, base, i)) is not None:
            found[name] = item


def _item(data: Any, i: int, base: int, end: int) -> _Item | None:
    """Take the value of a map item apart: ``Feature`` around a list around one item; none if nothing is set."""
    if end - i < 0x80 and end - i > 6:  # as nearly all are: every length is one byte
        value, outer, kind, middle, item, inner = data[i : i + 6]
        if value == 0x12 and item == 0x0A and outer == end - i - 2 == middle + 2 == inner + 4:
            return kind >> 3, base + i + 6, base + end
    if i == end:
        return None
    if data[i] != 0x12:
        raise ValueError("a feature without a value")
    _, i = _length(data, i + 1)
    if i == end:
        return None
    kind = data[i] >> 3
    length, i = _length(data, i + 1)
    if i + length != end:
        raise ValueError("a feature with two values")
    if i == end:
        return None
    start = _list_item(data, i, end, kind)
    return (0, base + i, base + end) if start is None else (kind, base + start, base + end)


def _list_item(data: Any, i: int, end: int, kind: int) -> int | None:
    """Find where the item of a list begins: text, packed numbers, one number that is not packed; none if several."""
    if data[i] == 0x0A:
        length, i = _length(data, i + 1)
        if i + length == end:
            return i
        if kind == 1 and i + length < end:
            return None
        raise ValueError("a length that does not fit")
    if kind == 3 and data[i] == 0x08:
        return i + 1
    raise ValueError("a list of another kind")


def _length(data: Any, i: int) -> tuple[int, int]:
    length = data[i]
    return (length, i + 1) if length < 0x80 else _read_varint(data, i)


def _int_of(view: View, item: _Item | None) -> int | None:
    if item is None or item[0] != 3:
        return None
    data, i = view(item[1], min(10, item[2] - item[1]))
    number, after = _read_varint(data, i)
    if after - i != item[2] - item[1]:
        return None  # several
    return number - (1 << 64) if number >> 63 else number


def _text_of(view: View, item: _Item | None) -> str:
    if item is None or item[0] != 1 or item[2] - item[1] > MAX_TEXT:
        return ""
    length = item[2] - item[1]
    data, i = view(item[1], length)
    return data[i : i + length].decode("utf-8", "replace")


def _lacks(name: bytes, features: Mapping[bytes, _Item]) -> str:
    known = ", ".join(sorted(feature.decode("utf-8", "replace") for feature in features)) or "none"
    return f"has no image under the feature {name.decode()!r}; its features are: {known}"


def fault(view: View, record: Record, file: str) -> RecordDamage | None:  # noqa: ARG001
    """Check the CRC over the payload; that over the length was checked by `scan`."""
    start, end = record.start + _PREFIX.size, record.end - _CRC.size
    crc, at = 0, start
    while at < end:  # piece by piece: a record may be of any length
        data, i = view(at, min(1 << 20, end - at))
        length = min(len(data) - i, end - at)
        crc = crc32c(memoryview(data)[i : i + length], crc)
        at += length
    data, i = view(end, _CRC.size)
    if masked(crc) != _CRC.unpack_from(data, i)[0]:
        return RecordDamage("the CRC of the record's payload is wrong", start)
    return None


def find_end(view: View, at: int, size: int, file: str) -> int:  # noqa: ARG001
    """Give where the records end; nothing may follow them."""
    return at


def find_components(view: View, size: int, file: str, image: str | None) -> Components:
    """Look into the first record for where image and label lie."""
    if not size:
        raise ShardError("is empty", file=file, byte=0, hint="remove it")
    end = _record_end(view, 0, size, file, 0)
    try:
        features = _walk(view, _PREFIX.size, end - _CRC.size)
        names = [image.encode()] if image else _images_in(view, features)
    except (IndexError, struct.error, ValueError):
        raise ShardError(_NOT_EXAMPLE, file=file, record=0, byte=0, hint=_DAMAGED) from None
    known = ", ".join(sorted(name.decode("utf-8", "replace") for name in features))
    if image and features.get(names[0], (0,))[0] != 1:
        raise CallError(
            f"--image {image}: {file} has no image of that name in its first record; its features are: {known}",
            hint="name the feature that holds the image",
        )
    if len(names) != 1:
        what = "more than one feature holds an image" if len(names) > 1 else "no such feature holds an image"
        raise ShardError(f"{what}; its features are: {known}", file=file, record=0, hint="name one with --image")
    label = next((name for name in _LABELS if name.encode() in features), None)
    return Components(image=(names[0].decode(),), label=label)


_LABELS = ("image/class/label", "label", "image/label", "class", "cls")


def _images_in(view: View, features: Mapping[bytes, _Item]) -> list[bytes]:
    if b"image/encoded" in features:
        return [b"image/encoded"]
    return [name for name, item in features.items() if item[0] == 1 and _is_image(view, item)]


def _is_image(view: View, item: _Item) -> bool:
    try:
        image_header(view, item[1], item[2] - item[1])
    except Rejected:
        return False
    return True
