"""Decode as much as possible of an image that was rejected, to show it to people.

Training never sees the result.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageFile

from dataprep.images import jpeg
from dataprep.images.base import IncompleteHeader, Rejected
from dataprep.report.thumbnails import SIDE, make_thumbnail, shrink

#: Images with more pixels are not decoded for their picture.
_MAX_PIXELS = 50_000_000

#: Formats of Pillow that are tried, all without external programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "JPEG2000", "ICO")


def salvage(data: bytes) -> NDArray[np.uint8]:
    """Decode an image leniently to a thumbnail; uint8 [H, W, 3].

    Raises:
        Rejected: nothing of it can be decoded, or it exceeds a limit.

    """
    try:
        return make_thumbnail(data, _MAX_PIXELS).pixels
    except Rejected as error:
        if error.reason == "too-large":
            raise
    if data[:3] == b"\xff\xd8\xff":
        try:
            jpeg.check_scans(data)
            return shrink(
                Image.fromarray(
                    simplejpeg.decode_jpeg(data, min_height=SIDE, min_width=SIDE, strict=False)
                ),
                1,
            )
        except IncompleteHeader:
            raise Rejected("truncated", "the file ends before the frame header") from None
        except ValueError as error:
            raise Rejected("corrupt", str(error)) from None
    return shrink(_open(data), 1)


def _open(data: bytes) -> Image.Image:
    lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Image.init()
            image = Image.open(
                io.BytesIO(data), formats=[name for name in _FORMATS if name in Image.OPEN]
            )
            _check_pixels(image)
            image.load()
            return image
    except (Rejected, MemoryError):
        raise
    except Exception as error:  # damaged images raise many kinds
        raise Rejected("corrupt", str(error) or type(error).__name__) from None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > _MAX_PIXELS:
        raise Rejected("too-large", f"{image.width}x{image.height} pixels")
