"""Read the EXIF orientation of an image (CIPA DC-008, tag 0x0112), and nothing else of its metadata."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

_TAG, _SHORT, _LONG = 0x0112, 3, 4
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def orientation_of(metadata: Mapping[Any, Any]) -> int:
    """Return the orientation, 1 to 8, from an image's ``exif`` block or else its ``xmp`` block.

    1 if it has none.
    """
    orientation = _read_exif(_exif_block(metadata))
    if orientation is None and (match := _XMP.search(_as_bytes(metadata.get("xmp", b"")))):
        orientation = int(match[1])
    return orientation if orientation is not None and 1 <= orientation <= 8 else 1


def _exif_block(metadata: Mapping[Any, Any]) -> bytes:
    if "exif" in metadata:
        return _as_bytes(metadata["exif"])
    try:  # ImageMagick writes this text into PNGs: three lines of headings, then hexadecimal digits
        return bytes.fromhex(
            "".join(str(metadata.get("Raw profile type exif", "")).split("\n")[3:])
        )
    except ValueError:
        return b""


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _read_exif(block: bytes) -> int | None:
    """Return the value of the tag in the first directory.

    `None` if there is none, 0 if it has another type.
    """
    block = re.sub(b"^(?:Exif\0\0){1,2}", b"", block)
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return None
    try:
        directory = struct.unpack_from(order + "I", block, 4)[0]
        count = struct.unpack_from(order + "H", block, directory)[0]
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, value_type, items = struct.unpack_from(order + "HHI", block, entry)
            if tag == _TAG:
                if items != 1 or value_type not in (_SHORT, _LONG):
                    return 0
                return int(
                    struct.unpack_from(
                        order + ("H" if value_type == _SHORT else "I"), block, entry + 8
                    )[0]
                )
    except struct.error:
        pass
    return None
