"""Pure: an encoded image -> its pixels in sRGB, no more than are needed. It must never know what becomes of them.

What DALI makes of an image that is stored untouched is the measure: transparency is dropped and what lies under it
shows, of 16 bits the upper 8 are taken, CMYK without a profile becomes RGB as (255 - C)(255 - K) / 255. CMYK in a
JPEG is taken for inverted, as Adobe stores it and all do.
"""

from __future__ import annotations

import io
import struct
import warnings
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageCms
from PIL.JpegImagePlugin import JpegImageFile

from dataprep.images.inspect import ImageInfo, NotPlainJpeg, Rejected, check_stream, decode_jpeg, open_with_pillow


class Decoded(NamedTuple):
    """A decoded image, not yet turned upright.

    Attributes:
        image: mode RGB or L (gray), uint8, in sRGB.
        orientation: as EXIF has it, 1 to 8.
        subsampling: of the chroma as it was stored, as in ``420``; empty where it was no JPEG.
        repairs: what had to be done: ``rgb`` (from CMYK, a palette, 16 bits, one bit), ``alpha`` (transparency
            dropped), ``icc`` (from a profile other than sRGB).
        mean_of: of how many pixels a side each of its own is the mean.

    """

    image: Image.Image
    orientation: int
    subsampling: str
    repairs: tuple[str, ...]
    mean_of: float


def decode(data: bytes, info: ImageInfo, width: int, height: int) -> Decoded:
    """Decode an image; a JPEG at the least of libjpeg's scales that gives at least `width` x `height` pixels.

    Raises:
        Rejected: it is damaged, or its colours have no way to RGB.

    """
    try:
        image, about, subsampling = _decode_jpeg(data, width, height) if info.format == "jpeg" else _opened(data, info)
    except NotPlainJpeg:
        image, about, subsampling = _opened(data, info)
    plain, repairs = _plain(image)
    profile = about.info.get("icc_profile") if about else None
    if profile and (transform := _to_srgb(bytes(profile), plain.mode)):
        rgb = transform.apply(plain)
        plain, repairs = rgb.convert("L") if plain.mode == "L" else rgb, (*repairs, "icc")
    elif plain.mode == "CMYK":
        plain = plain.convert("RGB")
    shrunk = max(info.width, info.height) / max(image.size)
    mean_of = shrunk if round(8 / shrunk) in _MEANS else 1.0
    return Decoded(plain, _orientation(about) if about else 1, subsampling, repairs, mean_of)


#: Eighths of a JPEG's size at which libjpeg's pixels are as means of its own: sharpened as such, they are 0.1 to 1 dB
#: nearer to the filter over all pixels. At three eighths they keep what means would lose, and would be as much farther.
_MEANS = (1, 2, 4)


def _opened(data: bytes, info: ImageInfo) -> tuple[Image.Image, Image.Image, str]:
    image = open_with_pillow(data, info)
    if info.format == "png" and (image.info.get("interlace") or not _has_last_row(image)):
        check_stream(data)  # which takes half as long as decoding
    return image, image, ""


def _has_last_row(image: Image.Image) -> bool:
    """Tell whether anything is in it, which there is not where it is missing."""
    return image.crop((0, image.height - 1, image.width, image.height)).getbbox() is not None


def _decode_jpeg(data: bytes, width: int, height: int) -> tuple[Image.Image, Image.Image | None, str]:
    """Decode; give the pixels, what stands beside them where that can be read, and the chroma's subsampling."""
    pixels, mode, subsampling = decode_jpeg(data, width, height)
    inverted = "CMYK;I" if mode == "CMYK" else mode
    image = Image.frombuffer(mode, (pixels.shape[1], pixels.shape[0]), pixels, "raw", inverted, 0, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return image, JpegImageFile(io.BytesIO(data)), subsampling
    except _ODD:
        return image, None, subsampling


#: What Pillow makes of EXIF blocks and profiles that are damaged; the image is sound without them.
_ODD = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error, ImageCms.PyCMSError)
_ORIENTATION = 0x0112


def _orientation(about: Image.Image) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = about.getexif().get(_ORIENTATION)
    except _ODD:
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


# --- colours ------------------------------------------------------------------------------------


def _plain(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Bring an image to 8 bits of gray, RGB or CMYK; say what was done, or is to be done."""
    alpha = ("alpha",) if image.has_transparency_data else ()
    if image.mode in ("L", "RGB"):
        return image, alpha
    if image.mode == "CMYK":
        return image, ("rgb",)
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)), ("rgb",)
    if image.mode in ("LA", "RGBA"):
        return image.convert(image.mode[:-1]), alpha
    try:
        if image.mode == "1":
            return image.convert("L"), ("rgb",)
        # Not at once to RGB: that may mix colours with the one that stands for transparent.
        return image.convert("RGBA").convert("RGB"), ("rgb", *alpha)
    except ValueError as error:
        raise Rejected("unsupported", str(error)) from None


#: Levels by which sRGB may differ from sRGB when it went through a profile of its own.
_ROUNDING = 2


@lru_cache(maxsize=8)
def _to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Make an ICC transform to sRGB; none where that changes nothing, or the profile is damaged or of another mode."""
    try:
        source, target = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(source, target, mode, "RGB")
        if mode == "CMYK":
            return transform
        sample = Image.fromarray(_LATTICE).convert(mode)
        change = np.asarray(transform.apply(sample), int) - np.asarray(sample.convert("RGB"), int)
    except _ODD:
        return None
    return transform if np.abs(change).max() > _ROUNDING else None


#: Colours all over the cube, uint8 [256, 16, 3].
_LATTICE = np.stack(np.meshgrid(*[np.arange(0, 256, 17, dtype=np.uint8)] * 3), -1).reshape(256, 16, 3)
