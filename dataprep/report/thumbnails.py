"""Decode an image to a thumbnail, whatever it contains: untrusted images take bounded memory and time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from dataprep.images.base import MAX_PIXELS, Rejected
from dataprep.images.pixels import decode
from dataprep.images.resampling import as_image
from dataprep.images.validate import inspect

#: Longest side of a thumbnail in pixels, a multiple of the 16 pixels of a JPEG's blocks.
SIDE = 112
_QUALITY = 82

#: Pillow's transposition for each EXIF orientation.
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Thumbnail(NamedTuple):
    """A small, upright picture of an image.

    Attributes:
        pixels: uint8 [H, W, 3], at most `SIDE` on each side.
        format: format of the image.

    """

    pixels: NDArray[np.uint8]
    format: str


def make_thumbnail(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> Thumbnail:
    """Decode an encoded image to a thumbnail. A JPEG is decoded at a fraction of its size.

    Raises:
        Rejected: it is not an image, is damaged, or exceeds a limit.

    """
    data = bytes(data)
    info = inspect(data, "none", max_pixels)
    scale = SIDE / max(info.width, info.height)
    size = (max(1, round(info.width * scale)), max(1, round(info.height * scale)))
    decoded = decode(
        data, info, *(min(pair) for pair in zip(size, (info.width, info.height), strict=True))
    )
    return Thumbnail(shrink(as_image(decoded.image), decoded.orientation), info.format)


def make_raw_thumbnail(data: bytes | memoryview, pixels: tuple[int, int, int]) -> Thumbnail:
    """Shrink pixels of the store ``"raw"``, uint8 [H, W, 3].

    Raises:
        Rejected: there are not as many bytes as pixels.

    """
    if len(data) != pixels[0] * pixels[1] * pixels[2]:
        raise Rejected("truncated", f"{len(data)} bytes instead of {'x'.join(map(str, pixels))}")
    return Thumbnail(
        shrink(Image.fromarray(np.frombuffer(data, np.uint8).reshape(pixels)), 1), "raw"
    )


def encode_thumbnail(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a thumbnail as JPEG. The same pixels give the same bytes."""
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), _QUALITY, "RGB", "420"))


def decode_thumbnail(data: bytes) -> NDArray[np.uint8]:
    """Decode what `encode_thumbnail` returned."""
    return np.asarray(simplejpeg.decode_jpeg(data))


def shrink(image: Image.Image, orientation: int) -> NDArray[np.uint8]:
    """Shrink an image to at most `SIDE` pixels per side, then apply its EXIF orientation.

    Uint8 [H, W, 3].
    """
    image = image.convert("RGB")
    scale = SIDE / max(image.size)
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(
            size,
            Image.Resampling.BOX if scale < 0.5 else Image.Resampling.BILINEAR,
            reducing_gap=2.0,
        )
    if orientation in _TRANSPOSE:
        image = image.transpose(_TRANSPOSE[orientation])
    return np.asarray(image)
