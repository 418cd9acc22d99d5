"""Decode stored images to show them. Training decodes them with DALI; this uses Pillow."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from loaders.preview.preview import Pixels

#: Longest side of a shown original, in pixels.
MAX_SIDE = 320
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")


def show_original(data: NDArray[np.uint8], raw: tuple[int, int, int] | None) -> Pixels | None:
    """Decode a stored image to uint8 [H, W, 3], upright, of at most `MAX_SIDE` per side.

    Args:
        data: the stored bytes.
        raw: height, width and channels if they are pixels; `None` for an encoded image.

    Returns:
        The pixels; `None` if Pillow cannot decode the image.

    """
    if raw is not None:
        return _small(Image.fromarray(data.reshape(raw)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged EXIF block, for example
            image: Any = Image.open(io.BytesIO(data.tobytes()), formats=_FORMATS)
            image.draft("RGB", (2 * MAX_SIDE, 2 * MAX_SIDE))
            return _small(ImageOps.exif_transpose(image))
    except MemoryError:
        raise
    except Exception:  # damaged images raise many kinds
        return None


def _small(image: Image.Image) -> Pixels:
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image = image.convert("RGB")
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return np.asarray(image)
