"""Read the table of classes in ``meta.mat`` of ImageNet's development kit: a struct array in a MAT file of level 5.

Format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf. Only numbers and text are
read, and nothing else of the file is interpreted.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

#: Bytes of the file after decompression.
MAX_BYTES = 64 << 20

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _CHAR = 2, 4
#: Python's format of each numeric type.
_NUMBERS = {
    1: "b",
    2: "B",
    3: "h",
    4: "H",
    5: "i",
    6: "I",
    7: "f",
    9: "d",
    12: "q",
    13: "Q",
    16: "B",
    17: "H",
}
_MAX_STRUCTS = 100_000

Value = str | float | None


class _Element(NamedTuple):
    kind: int
    data: bytes
    end: int


def read_structs(content: bytes) -> list[dict[str, Value]]:
    """Return the first struct array of a MAT file: for each struct its fields, text or a number.

    `None` for others.

    Raises:
        ValueError: the file is damaged, or contains no struct array.

    """
    if content[126:128] != b"IM" or len(content) < _HEADER_BYTES:
        raise ValueError("it is not a MAT file of level 5 in little-endian order")
    at = _HEADER_BYTES
    while at < len(content):
        element = _element(content, at)
        at = element.end
        if element.kind == _COMPRESSED:
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(element.data, MAX_BYTES)
            except zlib.error as error:
                raise ValueError(f"it cannot be decompressed: {error}") from None
            if inflater.unconsumed_tail:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes after decompression")
            element = _element(data, 0)
        if element.kind == _MATRIX and (structs := _structs(element.data)) is not None:
            return structs
    raise ValueError("it contains no struct array")


def _element(data: bytes, at: int) -> _Element:
    """Return the data element at a byte: a small one of 8 bytes, or a tag of 8 bytes with the data behind it."""
    if at + 8 > len(data):
        raise ValueError(f"it ends within an element at byte {at}")
    kind, length = struct.unpack_from("<II", data, at)
    if kind >> 16:
        return _Element(kind & 0xFFFF, data[at + 4 : at + 4 + min(4, kind >> 16)], at + 8)
    if at + 8 + length > len(data):
        raise ValueError(f"it ends within an element at byte {at}")
    padded = length if kind == _COMPRESSED else (length + 7) // 8 * 8
    return _Element(kind, data[at + 8 : at + 8 + length], at + 8 + padded)


def _structs(matrix: bytes) -> list[dict[str, Value]] | None:
    flags = _element(matrix, 0)
    dimensions = _element(matrix, flags.end)
    if not flags.data or flags.data[0] != _STRUCT:
        return None
    count = 1
    for size in _numbers(dimensions):
        count *= int(size)
    name = _element(matrix, dimensions.end)
    width = _element(matrix, name.end)
    names = _element(matrix, width.end)
    length = int(next(iter(_numbers(width)), 0))
    if not 0 < length <= 64 or not 0 <= count <= _MAX_STRUCTS:
        raise ValueError("its struct array has an implausible size")
    fields = [
        names.data[start : start + length].split(b"\0", 1)[0].decode("ascii", "replace")
        for start in range(0, len(names.data), length)
    ]
    structs: list[dict[str, Value]] = []
    at = names.end
    for _ in range(count):
        values: dict[str, Value] = {}
        for field in fields:
            cell = _element(matrix, at)
            values[field], at = _value(cell.data), cell.end
        structs.append(values)
    return structs


def _value(matrix: bytes) -> Value:
    """Return the text or the first number of a matrix; `None` if it is empty or of another kind."""
    if not matrix:
        return None
    flags = _element(matrix, 0)
    dimensions = _element(matrix, flags.end)
    name = _element(matrix, dimensions.end)
    if name.end >= len(matrix) or not flags.data:
        return None
    content = _element(matrix, name.end)
    if flags.data[0] == _CHAR:
        return "".join(map(chr, map(int, _numbers(content))))
    return next(iter(_numbers(content)), None)


def _numbers(element: _Element) -> tuple[float, ...]:
    code = _NUMBERS.get(element.kind)
    if code is None:
        return ()
    size = struct.calcsize(code)
    return struct.unpack(
        f"<{len(element.data) // size}{code}", element.data[: len(element.data) // size * size]
    )
