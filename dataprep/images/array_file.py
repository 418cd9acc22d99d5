"""Images in NumPy's files `.npy`. Only `dataprep.images.decoders` calls this."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

from dataprep.arrays import AnyArray
from dataprep.images.base import Rejected
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind, PixelType

#: Characters of a header, which is a literal of Python, and what NumPy reads at most by default.
_MAX_HEADER = 10_000

#: Readers by version. Version 3 has only names of fields, which pixels have none of.
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class _Header(NamedTuple):
    """Shape and type of an array, whether the first axis varies fastest, and where its values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    start: int


#: Types of arrays, each with the smallest type of pixels for them.
_TYPES: dict[str, PixelType] = {
    "uint8": "uint8",
    "uint16": "uint16",
    "int8": "float32",
    "int16": "float32",
    "float16": "float32",
    "float32": "float32",
}


def measure(data: bytes) -> tuple[int, int, PixelKind]:
    """Return width and height, and what a pixel is.

    Raises:
        Rejected: the array is no image.

    """
    shape, dtype, *_ = _read_header(data)
    height, width, channels = (*shape, 1)[:3]
    kind = PixelKind(channels, _TYPES[dtype.name])
    if kind == (1, "uint8"):
        kind = RGB8
    return width, height, kind


def decode(data: bytes) -> AnyArray:
    """Return the values as they are: [H, W], or [H, W, C] of several channels.

    Raises:
        Rejected: the array is no image, or is not complete.

    """
    header = _read_header(data)
    pixels = np.frombuffer(data, header.dtype, offset=header.start)
    pixels = pixels.reshape(header.shape, order="F" if header.is_fortran else "C")
    pixels = pixels.astype(_TYPES[header.dtype.name])
    return pixels[..., 0] if header.shape[2:] == (1,) else pixels


def _read_header(data: bytes) -> _Header:
    """Read the header, and compare the length of the values with it. Nothing is unpickled."""
    file = io.BytesIO(data)
    read = _READERS.get(np.lib.format.read_magic(file))
    if read is None:
        raise Rejected("unsupported", "NumPy array of a version other than 1.0 and 2.0")
    shape, is_fortran, dtype = read(file, _MAX_HEADER)
    is_image = len(shape) == 2 or (len(shape) == 3 and 1 <= shape[2] <= MAX_CHANNELS)
    if not is_image or dtype.name not in _TYPES:
        kind = dtype if dtype.kind in "biufc" else "objects or records"
        raise Rejected(
            "unsupported",
            f"NumPy array of {kind} with the shape {shape}; write it as uint8, uint16 or float32"
            " [height, width] or [height, width, channels] first",
        )
    missing = np.prod(shape, dtype=object) * dtype.itemsize - (len(data) - file.tell())
    if missing:
        raise Rejected(
            "truncated" if missing > 0 else "corrupt",
            f"NumPy array of {shape} values, but the file has {len(data) - file.tell()} bytes",
        )
    return _Header(shape, dtype, is_fortran, file.tell())
