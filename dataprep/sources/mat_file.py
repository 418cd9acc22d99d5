"""MAT files of level 5: numbers, text, cells and structs, without MATLAB and SciPy.

Format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes of a file after decompression.
MAX_BYTES = 64 << 20

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
#: The class of a matrix, which is the first byte of its flags.
_CELLS, _STRUCTS, _TEXT = 1, 2, 4
#: NumPy's code of each type of numbers or characters.
_TYPES = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17), "bBhHiIfdqQBH", strict=True))
#: The encoding of each type of characters; others have two bytes each.
_ENCODINGS = {1: "latin-1", 2: "latin-1", 16: "utf-8"}
_MAX_VALUES = 1_000_000
_MAX_DEPTH = 8


def read_mat(content: bytes) -> dict[str, Any]:
    """Return the variables of a MAT file by their names.

    A matrix of one number is the number, and other numbers are an array in the order of the file.
    Cells are a list, structs a list of dictionaries. `None` stands for an empty matrix, and for
    what is none of these.

    Raises:
        ValueError: the file is damaged, or of another level.

    """
    if content[124:128] != b"\0\1IM":
        raise ValueError("it is not a MAT file of level 5 in little-endian order")
    variables = {}
    left = MAX_BYTES
    for kind, data in _elements(content, _HEADER_BYTES):
        # MATLAB compresses each variable by itself.
        if kind == _COMPRESSED:
            inflater = zlib.decompressobj()
            try:
                inflated = inflater.decompress(data, left + 1)
            except zlib.error as error:
                raise ValueError(f"it cannot be decompressed: {error}") from None
            left -= len(inflated)
            if left < 0:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes after decompression")
            kind, data, _ = _element(inflated, 0)  # noqa: PLW2901
        if kind == _MATRIX:
            name, value = _matrix(data)
            variables[name] = value
    return variables


def _elements(data: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each data element from byte `at` to the end."""
    while at < len(data):
        kind, content, at = _element(data, at)
        yield kind, content


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return the type, the content and the end of the data element at a byte.

    A small element takes 8 bytes; others are a tag of 8 bytes with the content behind it.
    """
    kind, length = struct.unpack("<II", data[at : at + 8].ljust(8))
    small, start = kind >> 16, at + 8
    end = start if small else start + length
    if end > len(data):
        raise ValueError(f"it ends within an element at byte {at}")
    if small:
        return kind & 0xFFFF, data[at + 4 : at + 4 + min(4, small)], end
    padding = 0 if kind == _COMPRESSED else -length % 8
    return kind, data[start:end], end + padding


def _matrix(data: bytes, depth: int = 0) -> tuple[str, Any]:
    """Return the name and the value of a matrix."""
    elements = _elements(data)
    # The flags, the dimensions and the name are before the content.
    header = [*islice(elements, 3)]
    if len(header) < 3 or depth > _MAX_DEPTH:
        return "", None
    (_, flags), sides, (_, raw_name) = header
    name = raw_name.decode("ascii", "replace")
    shape, code = _numbers(*sides).tolist(), next(iter(flags), 0)
    count = math.prod(shape)
    if not 0 <= count <= _MAX_VALUES:
        raise ValueError("it has a matrix of an implausible size")
    if code in (_CELLS, _STRUCTS):
        fields = _fields(elements) if code == _STRUCTS else [""]
        values = []
        for _, cell in islice(elements, count * len(fields)):
            values.append(_matrix(cell, depth + 1)[1])
        if len(values) < count * len(fields):
            raise ValueError("a matrix ends before its last cell")
        if code == _CELLS:
            return name, values
        structs = []
        for at in range(0, len(values), len(fields)):
            structs.append(dict(zip(fields, values[at : at + len(fields)], strict=True)))
        return name, structs
    kind, content = next(elements, (0, b""))
    numbers = _numbers(kind, content)
    if code == _TEXT:
        return name, content.decode(_ENCODINGS.get(kind, "utf-16-le"), "replace")
    return name, numbers if len(numbers) > 1 else next(iter(numbers.tolist()), None)


def _fields(elements: Iterator[tuple[int, bytes]]) -> list[str]:
    """Return the names of the fields of structs: texts of equal length, filled up with zeros."""
    width, (_, names) = [*islice(elements, 2), (0, b""), (0, b"")][:2]
    length = int(next(iter(_numbers(*width)), 0))
    if not 0 < length <= 64:
        raise ValueError("the names of the fields have an implausible length")
    fields = []
    for start in range(0, len(names), length):
        fields.append(names[start : start + length].split(b"\0", 1)[0].decode("ascii", "replace"))
    return fields


def _numbers(kind: int, content: bytes) -> NDArray[Any]:
    """Return the numbers of an element; none if it is of another type."""
    dtype = np.dtype(f"<{_TYPES.get(kind, 'B')}")
    length = len(content) // dtype.itemsize if kind in _TYPES else 0
    return np.frombuffer(content, dtype, length)
