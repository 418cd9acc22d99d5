"""Every value of an image of any kind as an array, and the statistics of its bands."""

from __future__ import annotations

import math

import numpy as np

from dataprep.arrays import AnyArray
from dataprep.images import other_formats
from dataprep.images.base import ImageInfo, Rejected, pixels_of
from dataprep.images.pixels import decode
from dataprep.images.validate import open_with_pillow
from dataprep.options import STATISTICS_COLUMNS
from manifests.pixels import RGB8


def read_values(data: bytes, info: ImageInfo) -> AnyArray:
    """Decode an image as the loader does: to the channels and the type that `info` states, [H, W, C].

    Args:
        data: the encoded image, which `check_image` has accepted, or raw pixels.
        info: its format, size and pixels.

    Raises:
        Rejected: the image does not decode, or nothing here decodes all bits of its format.

    """
    shape, dtype = (info.height, info.width, info.pixels.channels), info.pixels.dtype
    if info.format == "raw":
        return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(shape)
    if info.pixels == RGB8:
        with pixels_of(info, info.width, info.height):
            pixels = np.asarray(decode(data, info, info.width, info.height).image)
        if pixels.ndim == 2:  # gray
            pixels = np.repeat(pixels[..., None], 3, axis=2)
        return pixels
    if info.format == "tiff":
        return other_formats.tiff_values(data, info)
    with pixels_of(info):
        pixels = np.asarray(open_with_pillow(data, info))
        # Pillow has all bits of gray.
        if pixels.size == math.prod(shape) and pixels.dtype == dtype:
            return pixels.reshape(shape)
        if info.format != "png":
            detail = f"the values of {info.format.upper()} with {info.pixels} cannot be read here"
            raise Rejected("unsupported", detail)
        # Pillow keeps one byte of each value. Its reader of little-endian values keeps the other.
        high = np.asarray(open_with_pillow(data, info, "B"), dtype)
        low = np.asarray(open_with_pillow(data, info, "L"), dtype)
        values: AnyArray = high << 8 | low
        return values


def band_statistics(data: bytes, info: ImageInfo) -> dict[str, list[float | None]]:
    """Return the values of `STATISTICS_COLUMNS` for a stored image.

    Minimum, maximum, mean and standard deviation are `None` for a band without data.

    Raises:
        Rejected: the image does not decode.

    """
    values = read_values(data, info)
    nodata = other_formats.nodata_of(data) if info.format == "tiff" else math.nan
    # Floats that are no numbers are no data, whatever the file says.
    columns: list[list[float | None]] = []
    for band in range(info.pixels.channels):
        plane = values[..., band]
        used = plane[np.isfinite(plane) & (plane != nodata)].astype(np.float64)
        found: list[float | None] = [None] * 4
        if used.size:
            found = [float(each) for each in (used.min(), used.max(), used.mean(), used.std())]
        columns.append([*found, 1 - used.size / plane.size])
    # A list for each column, of a number for each band.
    return dict(zip(STATISTICS_COLUMNS, map(list, zip(*columns, strict=True)), strict=True))
