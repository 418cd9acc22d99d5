"""The georeference of a GeoTIFF (OGC 19-008r4): where its pixels are on the Earth."""

from __future__ import annotations

import struct
from typing import Any

from dataprep.images.base import Rejected
from dataprep.images.foreign import is_dicom
from dataprep.images.tiff import STARTS, find_values
from dataprep.options import GEO_COLUMNS

#: Tags with numbers of 64 bits: tie points, size of a pixel, matrix. They are in the order of
#: `GEO_COLUMNS`, which has the EPSG code first.
_NUMBERS = (33922, 33550, 34264)
_KEYS = 34735
#: Keys of the EPSG codes of a projected and of a geographic coordinate system, the better one first.
_CODES = (3072, 2048)
#: 0 is undefined, and larger codes are the user's own.
_MAX_CODE = 32766


def georeference_of(data: bytes, page: int | None = None) -> dict[str, Any]:
    """Return a value for each of `GEO_COLUMNS`, `None` for what a page does not state.

    Nothing at all if the image is not a TIFF.

    Raises:
        Rejected: a tag is damaged.

    """
    if not data.startswith(STARTS) or is_dicom(data):
        return {}
    found = find_values(data, {*_NUMBERS, _KEYS}, page)
    values: list[Any] = []
    try:
        for tag in _NUMBERS:
            order, content = found.get(tag, ("<", b""))
            values.append(
                [number for (number,) in struct.iter_unpack(f"{order}d", content)] or None
            )
        order, content = found.get(_KEYS, ("<", b""))
        # Each key is four numbers: its own, where its value is, how many there are, and the value.
        keys = {}
        for key, place, _, value in [*struct.iter_unpack(f"{order}4H", content)][1:]:
            if not place and 0 < value <= _MAX_CODE:
                keys[key] = value
    except struct.error:
        raise Rejected("corrupt", "the georeference of the TIFF is incomplete") from None
    codes = [keys[key] for key in _CODES if key in keys]
    return dict(zip(GEO_COLUMNS, [(codes or [None])[0], *values], strict=True))
