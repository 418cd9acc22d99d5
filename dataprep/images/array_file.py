"""Images in NumPy's files `.npy`. Only `dataprep.images.decoders` calls this."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np

from dataprep.arrays import UInt8Array
from dataprep.images.base import Rejected

#: Characters of a header, which is a literal of Python, and what NumPy reads at most by default.
_MAX_HEADER = 10_000

#: Readers by version. Version 3 has only names of fields, which pixels have none of.
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class _Header(NamedTuple):
    """The shape of an array, whether the first axis varies fastest, and where its values begin."""

    shape: tuple[int, ...]
    is_fortran: bool
    start: int


def measure(data: bytes) -> tuple[int, int]:
    """Return width and height.

    Raises:
        Rejected: the array is no image of 8 bits.

    """
    height, width, *_ = _read_header(data).shape
    return width, height


def decode(data: bytes) -> UInt8Array:
    """Return the values as they are: uint8 [H, W] of gray or [H, W, 3] of sRGB.

    Raises:
        Rejected: the array is no image of 8 bits, or is not complete.

    """
    header = _read_header(data)
    pixels = np.frombuffer(data, np.uint8, offset=header.start)
    pixels = pixels.reshape(header.shape, order="F" if header.is_fortran else "C")
    return pixels[..., 0] if header.shape[2:] == (1,) else pixels


def _read_header(data: bytes) -> _Header:
    """Read the header, and compare the length of the values with it. Nothing is unpickled."""
    file = io.BytesIO(data)
    read = _READERS.get(np.lib.format.read_magic(file))
    if read is None:
        raise Rejected("unsupported", "NumPy array of a version other than 1.0 and 2.0")
    shape, is_fortran, dtype = read(file, _MAX_HEADER)
    if dtype != np.uint8 or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)):
        kind = dtype if dtype.kind in "biufc" else "objects or records"
        raise Rejected(
            "unsupported",
            f"NumPy array of {kind} with the shape {shape}; write it as uint8 [height, width] or"
            " [height, width, 3] first",
        )
    missing = np.prod(shape, dtype=object) - (len(data) - file.tell())
    if missing:
        raise Rejected(
            "truncated" if missing > 0 else "corrupt",
            f"NumPy array of {shape} values, but the file has {len(data) - file.tell()}",
        )
    return _Header(shape, is_fortran, file.tell())
