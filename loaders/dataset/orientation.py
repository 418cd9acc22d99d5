"""Which images decoding turns on their side: the sample tables have sizes before EXIF orientation."""

from __future__ import annotations

import io
import logging
import warnings

import numpy as np

from loaders.arrays import Array, Bools, Ints
from loaders.dataset.images import open_images
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables

#: EXIF's tag of the orientation, and its values that swap height and width.
_ORIENTATION, _SIDEWAYS = 274, (5, 6, 7, 8)

#: Bytes of a JPEG that contain its header, unless it has for example a long color profile.
_HEAD = 1 << 18

_AT_ONCE = 1000

_SILENT = logging.NullHandler()


def turned(split: OpenSplit, tables: SampleTables, rows: Ints) -> Bools:
    """Return which images decoding turns on their side: bool [rows].

    ``dataprep convert`` has stored it. Of other shards, the headers are read, except in an object
    store: there, no image counts as turned.
    """
    on_side, is_known = np.zeros((2, int(split.ends[-1])), bool)
    for own, end, count in zip(tables.turned(), split.ends, split.counts, strict=True):
        if own is not None:
            is_known[end - count : end] = True
            on_side[end - count + own] = True
    unknown = rows[~is_known[rows]]
    if len(unknown) and not split.is_remote:
        on_side[unknown] = read_headers(split, tables, unknown)
    return on_side[rows]


def read_headers(split: OpenSplit, tables: SampleTables, rows: Ints) -> Bools:
    """Read which images are turned. One whose header cannot be read is not; decoding reports it."""
    images = open_images(split, tables, mmap=True, tolerant=True)
    found = np.zeros(len(rows), bool)
    try:
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            for place, data in enumerate(images.images(part)):
                found[start + place] = is_turned(data)
    finally:
        images.close()
    return found


def is_turned(data: Array) -> bool:
    """Return whether decoding turns an encoded image on its side, as EXIF says."""
    from PIL import Image

    # Pillow logs that it does not decode a TIFF of many channels, which has no orientation.
    logging.getLogger("PIL").addHandler(_SILENT)
    is_jpeg = data[:2].tobytes() == b"\xff\xd8"
    for head in (data[:_HEAD], data) if is_jpeg else (data,):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a damaged EXIF block or many pixels, for example
                image = Image.open(io.BytesIO(head.tobytes()))
                for xmp in ("xmp", "XML:com.adobe.xmp"):  # Pillow reads it, but DALI does not
                    image.info.pop(xmp, None)
                return image.getexif().get(_ORIENTATION, 1) in _SIDEWAYS
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            continue
    return False


def upright_sizes(
    split: OpenSplit, tables: SampleTables, heights: Array, widths: Array
) -> tuple[Array, Array]:
    """Return the heights and widths of images as decoding returns them, [samples] each."""
    if split.manifest.pixels is not None:  # raw pixels are upright
        return heights, widths
    # A square image looks the same in a table.
    rows = np.flatnonzero(heights != widths)
    on_side = np.zeros(len(heights), bool)
    on_side[rows] = turned(split, tables, rows)
    return np.where(on_side, widths, heights), np.where(on_side, heights, widths)
