"""Every value of an image of any kind as an array, and the statistics of its bands."""

from __future__ import annotations

import math

import numpy as np

from dataprep.arrays import AnyArray
from dataprep.images import tiff
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
        return _tiff_values(data, info)
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


def _tiff_values(data: bytes, info: ImageInfo) -> AnyArray:
    """Return the values of a TIFF whose pixels are not RGB of 8 bits, [H, W, C]."""
    order, predictor, step = tiff.coding_of(data, info)
    dtype, channels = np.dtype(info.pixels.dtype), info.pixels.channels
    gray, gray_info = tiff.as_gray(data, info)
    with pixels_of(gray_info):
        rows = np.asarray(open_with_pillow(gray, gray_info))
    # A predictor begins again in each row of a strip or tile.
    if predictor == _FLOAT_DIFFERENCES:
        rows = rows.reshape(info.height, -1, step * dtype.itemsize, channels)
        rows = np.cumsum(rows, axis=2, dtype=np.uint8)
        # The highest bytes of all values come first.
        rows = rows.reshape(info.height, -1, dtype.itemsize, step * channels).swapaxes(2, 3)
        order = ">"
    stored = np.dtype(f"{order}u{dtype.itemsize}")
    values: AnyArray = (
        np.ascontiguousarray(rows).reshape(-1).view(stored).astype(stored.newbyteorder("="))
    )
    values = values.reshape(info.height, -1, step, channels)
    if predictor == _DIFFERENCES:  # of floats as integers, too
        values = np.cumsum(values, axis=2, dtype=values.dtype)
    return values.view(dtype).reshape(info.height, -1, channels)[:, : info.width]


#: Predictors of a TIFF: the difference of each value from the one to its left, also byte by byte.
_DIFFERENCES, _FLOAT_DIFFERENCES = 2, 3


def band_statistics(data: bytes, info: ImageInfo) -> dict[str, list[float | None]]:
    """Return the values of `STATISTICS_COLUMNS` for a stored image.

    Minimum, maximum, mean and standard deviation are `None` for a band without data.

    Raises:
        Rejected: the image does not decode.

    """
    values = read_values(data, info)
    nodata = tiff.nodata_of(data) if info.format == "tiff" else math.nan
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
