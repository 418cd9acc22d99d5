"""Where an image that is resized, cropped, padded or rotated upright for a shard shows the pixels of its source.

Masks and boxes refer to the upright source image: as viewers and DALI show it, with its EXIF
orientation applied.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.jpeg import read_metadata
from dataprep.images.orientation import orientation_of
from dataprep.options import Raw

#: A pair for the horizontal and the vertical direction.
Pair = tuple[float, float]

#: What a PNG or a WebP with an orientation contains.
_METADATA = (b"eXIf", b"EXIF", b"XMP ", b"Raw profile type exif", b"XML:com.adobe.xmp")


@dataclass(frozen=True, slots=True)
class Placement:
    """A coordinate of the upright source image times `scale` plus `offset` is the one in the upright stored image.

    Attributes:
        source: width and height of the upright source image.
        stored: width and height of the upright stored image.
        scale: factors.
        offset: pixels; negative if the image is cropped.

    """

    source: tuple[int, int]
    stored: tuple[int, int]
    scale: Pair = (1.0, 1.0)
    offset: Pair = (0.0, 0.0)

    @property
    def is_identity(self) -> bool:
        """Whether the stored image shows the same pixels at the same places."""
        return self.source == self.stored and self.scale == (1, 1) and self.offset == (0, 0)


def find_placement(
    data: bytes, info: ImageInfo, stored: ImageInfo, raw: Raw | None, *, changed: bool
) -> Placement:
    """Return where the stored image shows the source image.

    Args:
        data: the encoded source image.
        info: its format and size, before its orientation is applied.
        stored: format and size as stored.
        raw: how pixels were made, if the stored image is not encoded.
        changed: whether the stored image is another one, which is upright.

    Raises:
        Rejected: the metadata of the image is damaged.

    """
    try:
        orientation = _orientation(data, info)
    except MemoryError:
        raise
    except Exception as error:  # damaged images raise many kinds
        raise Rejected(
            "corrupt", f"its orientation cannot be read ({error or type(error).__name__})"
        ) from None
    width, height = source = (
        (info.height, info.width) if orientation > _TRANSPOSED else (info.width, info.height)
    )
    if not changed:
        return Placement(source, source)
    if raw is None:
        return Placement(
            source, (stored.width, stored.height), (stored.width / width, stored.height / height)
        )
    square = (raw.size, raw.size)
    if raw.fit == "crop":
        side = min(width, height)
        scale = raw.size / side
        return Placement(
            source,
            square,
            (scale, scale),
            (-(width - side) / 2 * scale, -(height - side) / 2 * scale),
        )
    left, top, shown_width, shown_height = _padded(info, raw.size, orientation)
    return Placement(source, square, (shown_width / width, shown_height / height), (left, top))


#: Orientations above this one swap width and height.
_TRANSPOSED = 4
#: Orientations that mirror the rows or the columns, after those above 4 are transposed.
_MIRRORED_ROWS, _MIRRORED_COLUMNS = (3, 4, 7, 8), (2, 3, 6, 7)


def _padded(info: ImageInfo, size: int, orientation: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a padded image in its square, after its orientation is applied."""
    side = max(info.width, info.height)
    width, height = (max(1, round(length * size / side)) for length in (info.width, info.height))
    left, top = (size - width) // 2, (size - height) // 2
    if orientation > _TRANSPOSED:
        left, top, width, height = top, left, height, width
    if orientation in _MIRRORED_ROWS:
        top = size - height - top
    if orientation in _MIRRORED_COLUMNS:
        left = size - width - left
    return left, top, width, height


def _orientation(data: bytes, info: ImageInfo) -> int:
    """Return the EXIF orientation of an encoded image, 1 to 8."""
    if info.format == "jpeg":
        return orientation_of(read_metadata(data))
    if info.format == "tiff":
        return _tiff_orientation(data)
    if info.format in ("png", "webp") and any(each in data for each in _METADATA):
        with Image.open(io.BytesIO(data), formats=(info.format,)) as image:
            metadata: Mapping[Any, Any] = image.info
            return orientation_of(metadata)
    return 1


def _tiff_orientation(data: bytes) -> int:
    with Image.open(io.BytesIO(data), formats=("tiff",)) as image:
        orientation = image.getexif().get(0x0112, 1)
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1
