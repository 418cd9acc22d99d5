"""The pixels of an image: decode it, and resize it.

An encoded image becomes 8-bit sRGB or gray pixels, no larger than needed. DALI decodes the same
colors from an image stored unchanged: the alpha channel is dropped and the other channels stay
unchanged, and CMYK without a profile becomes RGB as (255 - C)(255 - K) / 255. CMYK values in a JPEG
are assumed to be inverted, as Adobe stores them.

Resizing is fast, with a result close to a filter over all pixels. A large image is first reduced, by averaging blocks of pixels, to at least twice the target size.
The filter then resizes it to the target. Averaging blurs, so a final step sharpens by the same
amount. The box filter is applied to all pixels instead.

The filters of Pillow are computed by the library fast_image_resize with integers: the same
bytes on every CPU.
"""

from __future__ import annotations

import io
import math
import struct
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from cykooz_resizer import (
    CropBox,
    FilterType,
    ImageData,
    PixelType,
    ResizeAlg,
    ResizeOptions,
    Resizer,
)
from PIL import Image, ImageCms

from dataprep.arrays import UInt8Array
from dataprep.images import transcode
from dataprep.images.base import EXTENSIONS, MAX_PROFILE_STAGES, ImageInfo, Rejected
from dataprep.images.jpeg import UnknownSubsampling, decode_jpeg, read_metadata
from dataprep.images.png import check_palette, check_pixels
from dataprep.images.tiff import orientation_of
from dataprep.images.validate import open_with_pillow
from dataprep.options import NO_CHOICE, Choice, Filter

#: The averaged image has at least this many times the target's pixels per side, so that no loss is
#: visible.
REDUCING_GAP = 2.0


def sufficient_size(size: tuple[int, int], resampling: Filter) -> tuple[int, int]:
    """Return the (width, height) above which a larger decoded image does not improve the result.

    Args:
        size: target width and height.
        resampling: the filter. ``"box"`` needs all pixels: from an image of twice the target size,
            a box would take two or three whole pixels per side.

    """
    width, height = (round(min(_gap(resampling) * side, _LARGEST_SIDE)) for side in size)
    return width, height


def _gap(resampling: Filter) -> float:
    """Return how many times the target's pixels per side the averaged image has at least."""
    if resampling == "box":
        return math.inf
    return REDUCING_GAP


#: Longer than the side of any image.
_LARGEST_SIDE = 1 << 20


def resample(
    image: Image.Image | UInt8Array,
    size: tuple[int, int],
    resampling: Filter,
    *,
    box: tuple[float, float, float, float] | None = None,
    averaging: float = 1.0,
) -> UInt8Array:
    """Resize an image, or a box of it, with a result close to the filter over all pixels.

    Args:
        image: mode ``"L"`` or ``"RGB"``; or uint8 [H, W] or [H, W, 3].
        size: target width and height.
        resampling: the filter.
        box: left, top, right, bottom; `None` is the whole image.
        averaging: pixels per side that were already averaged: each pixel of `image` is the mean of
            `averaging` x `averaging` pixels.

    Returns:
        uint8 [H, W] or [H, W, 3].

    """
    box = box or (0, 0, *size_of(image))
    left, top, right, bottom = box
    ratios = (right - left) / size[0], (bottom - top) / size[1]
    x, y = (max(1, int(ratio / _gap(resampling))) for ratio in ratios)
    if x > 1 or y > 1:
        image = as_image(image).reduce((x, y))
        box = left / x, top / y, right / x, bottom / y
    resized = _filter(np.asarray(image), size, resampling, box)
    averaged = averaging * min(x, y)
    if averaged == 1:
        return resized
    return sharpen(resized, _strength(averaged, min(ratios) * averaging))


def size_of(image: Image.Image | UInt8Array) -> tuple[int, int]:
    """Return width and height."""
    return image.size if isinstance(image, Image.Image) else (image.shape[1], image.shape[0])


def as_image(image: Image.Image | UInt8Array) -> Image.Image:
    """Return an array as an image of Pillow."""
    return image if isinstance(image, Image.Image) else Image.fromarray(image)


# --- the filter over all pixels -------------------------------------------------------------------

_FILTERS = {
    "lanczos": FilterType.lanczos3,
    "bicubic": FilterType.catmull_rom,
    "bilinear": FilterType.bilinear,
    "box": FilterType.box,
}


class _Kept(threading.local):
    """The resizer of a thread: its buffers save half of the time for a small image."""

    def __init__(self) -> None:
        self.resizer = Resizer()


_kept = _Kept()
#: The buffers for larger images are not worth their memory.
_MAX_KEPT_PIXELS = 1 << 22


def _filter(
    pixels: UInt8Array,
    size: tuple[int, int],
    resampling: Filter,
    box: tuple[float, float, float, float],
) -> UInt8Array:
    height, width = pixels.shape[:2]
    pixel_type = PixelType.U8 if pixels.ndim == 2 else PixelType.U8x3
    source = ImageData(width, height, pixel_type, pixels.tobytes())
    target = ImageData(*size, pixel_type)
    options = ResizeOptions(ResizeAlg.convolution(_FILTERS[resampling]))
    if box != (0, 0, width, height):
        left, top, right, bottom = box
        options.crop_box = CropBox(left, top, min(right, width) - left, min(bottom, height) - top)
    resizer = _kept.resizer
    if width * height > _MAX_KEPT_PIXELS:
        resizer = Resizer()
    resizer.resize(source, target, options)
    return np.frombuffer(target.get_buffer(), np.uint8).reshape(size[1], size[0], *pixels.shape[2:])


# --- sharpening -----------------------------------------------------------------------------------


def _strength(averaged: float, ratio: float) -> float:
    """Return the sharpening that compensates for averaging `averaged` pixels per side.

    The image is reduced by `ratio`.

    The mean of n samples scales a frequency of f cycles per sample by sin(n pi f) / (n sin(pi f)).
    The kernel restores that loss exactly at a quarter of a cycle per pixel of the result, half of
    the highest frequency it can show.
    """
    angle = math.pi / 4 / ratio
    kept = math.sin(averaged * angle) / (averaged * math.sin(angle))
    return min((1 / kept - 1) / 2, _MAX_STRENGTH)


#: Only images a few pixels wide, scaled by whole blocks of a JPEG, would need a larger strength.
_MAX_STRENGTH = 0.015


#: Rows to process at a time, so that they stay in the CPU's cache.
_ROWS = 64
_BITS = 11


def sharpen(pixels: UInt8Array, strength: float) -> UInt8Array:
    """Add to each pixel `strength` times the sum of its differences from its four neighbors.

    Border pixels do not have four neighbors and do not change.

    Args:
        pixels: uint8 [H, W] or [H, W, C].
        strength: 0 to 0.015.

    """
    height, depth = len(pixels), math.prod(pixels.shape[2:])
    rows = pixels.reshape(height, -1)
    out = rows.copy()
    step = round(strength * (1 << _BITS))
    for top in range(1, height - 1, _ROWS):
        near = rows[top - 1 : min(top + _ROWS, height - 1) + 1].astype(np.int16)
        middle = near[1:-1, depth:-depth]
        change = middle << 2
        change -= near[:-2, depth:-depth]  # above
        change -= near[2:, depth:-depth]  # below
        change -= near[1:-1, : -2 * depth]  # to the left
        change -= near[1:-1, 2 * depth :]  # to the right
        change *= step
        change += 1 << (_BITS - 1)
        change >>= _BITS
        change += middle
        np.clip(change, 0, 255, out=change)
        out[top : top + len(change), depth:-depth] = change
    return out.reshape(pixels.shape)


# --- decode ---------------------------------------------------------------------------------------


class Decoded(NamedTuple):
    """A decoded image, before its EXIF orientation is applied.

    Attributes:
        image: sRGB in mode ``"RGB"``, or gray in mode ``"L"``; or the same as an array, uint8 [H,
            W, 3] or [H, W].
        orientation: EXIF orientation, 1 to 8.
        subsampling: chroma subsampling of the encoded JPEG, for example ``"420"``; ``""`` for other
            formats.
        repairs: the conversions that were necessary: ``"rgb"`` (from CMYK, a palette, 16 bits, or 1
            bit), ``"alpha"`` (the alpha channel is dropped), ``"icc"`` (from a profile other than
            sRGB). For images that DALI does not decode, also ``"frame"`` and ``"turned"``.
        averaging: pixels per side that were averaged: each pixel of `image` is the mean of
            `averaging` x `averaging` pixels of the encoded image.

    """

    image: Image.Image | UInt8Array
    orientation: int
    subsampling: str
    repairs: tuple[str, ...]
    averaging: float


def decode(
    data: bytes, info: ImageInfo, width: int, height: int, choice: Choice = NO_CHOICE
) -> Decoded:
    """Decode an image; a JPEG at the smallest of libjpeg's scales that is sufficient.

    Args:
        data: the encoded image.
        info: its format and size.
        width: width that the decoded JPEG has at least.
        height: height that the decoded JPEG has at least.
        choice: `Options.choice`.

    Raises:
        Rejected: the image is damaged, or its colors cannot be converted to RGB.

    """
    image: Image.Image | UInt8Array
    subsampling = ""
    if info.format not in EXTENSIONS:
        image, changes, _ = transcode.decode(data, info, choice)
        return Decoded(image, 1, "", changes, 1.0)
    if info.format == "jpeg":
        image, subsampling = _decode_jpeg(data, info, width, height)
        metadata: Mapping[Any, Any] = read_metadata(data)
    else:
        image = open_with_pillow(data, info)
        metadata = image.info
        if info.format == "png":
            check_palette(data)
            if metadata.get("interlace") or not _has_last_row(image):
                # This takes half as long as decoding, so it runs only if rows may be missing.
                check_pixels(data)
    scale = max(info.width, info.height) / max(size_of(image))
    averaging = 1.0
    if round(8 / scale) in _AVERAGING_EIGHTHS:
        averaging = scale
    pixels, repairs = to_srgb_or_gray(image, metadata.get("icc_profile"))
    return Decoded(pixels, orientation_of(metadata), subsampling, repairs, averaging)


#: Scales, in eighths, at which libjpeg's pixels are close to means. Sharpening them as means brings
#: the result 0.1 to 1 dB closer to the filter over all pixels. At three eighths libjpeg keeps the
#: detail that means lose, and sharpening would move the result away from the filter by as much.
_AVERAGING_EIGHTHS = (1, 2, 4)


def _has_last_row(image: Image.Image) -> bool:
    """Return whether the last row has a nonzero value: Pillow leaves missing rows at zero."""
    return image.crop((0, image.height - 1, image.width, image.height)).getbbox() is not None


def _decode_jpeg(
    data: bytes, info: ImageInfo, width: int, height: int
) -> tuple[Image.Image | UInt8Array, str]:
    """Return the pixels and the chroma subsampling."""
    try:
        pixels, mode, subsampling = decode_jpeg(data, width, height)
    except UnknownSubsampling:
        return open_with_pillow(data, info), ""
    if mode == "CMYK":
        size = pixels.shape[1], pixels.shape[0]
        return Image.frombuffer(mode, size, pixels, "raw", "CMYK;I", 0, 1), subsampling
    if mode == "L":
        pixels = pixels[..., 0]
    return pixels, subsampling


# --- colors ---------------------------------------------------------------------------------------


def to_srgb_or_gray(
    image: Image.Image | UInt8Array, profile: bytes | None
) -> tuple[Image.Image | UInt8Array, tuple[str, ...]]:
    """Convert an image to 8-bit gray or RGB; return it with the repairs.

    An array has these colors already.

    Raises:
        Rejected: the colors cannot be converted.

    """
    if not isinstance(image, Image.Image) and not profile:
        return image, ()
    pixels, repairs = _to_8_bits(as_image(image))
    mode = pixels.mode
    transform = _to_srgb(bytes(profile), mode) if profile else None
    if transform:
        pixels, repairs = transform.apply(pixels), (*repairs, "icc")
    # A profile makes RGB of gray. CMYK that has no profile is converted.
    target = "L" if mode == "L" else "RGB"
    if pixels.mode != target:
        pixels = pixels.convert(target)
    return pixels, repairs


def _to_8_bits(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Convert an image to 8-bit gray, RGB or CMYK; return it with the repairs.

    CMYK already counts as the repair ``"rgb"``: the caller converts it, with the image's profile if
    there is one.
    """
    alpha = ("alpha",) * image.has_transparency_data
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
        # Converting a palette directly to RGB may blend colors with the transparent one.
        return image.convert("RGBA").convert("RGB"), ("rgb", *alpha)
    except ValueError as error:
        raise Rejected("unsupported", str(error)) from None


#: What Pillow raises for damaged profiles. The pixels are usable without them.
_PROFILE_ERRORS = (OSError, SyntaxError, ValueError, TypeError, ImageCms.PyCMSError)

#: A profile that changes colors by at most this many levels of 255 is sRGB, apart from rounding.
_ROUNDING = 2


@lru_cache(maxsize=8)
def _to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Make an ICC transform to sRGB.

    Returns:
        The transform. `None` if it changes nothing, if the profile is damaged, or if it is for
        another mode.

    Raises:
        Rejected: the profile has too many processing stages.

    """
    check_stages(profile)
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        target = ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(source, target, mode, "RGB")
        if mode == "CMYK":
            return transform
        sample = Image.fromarray(_COLOR_GRID).convert(mode)
        change = np.asarray(transform.apply(sample), int) - np.asarray(sample.convert("RGB"), int)
    except _PROFILE_ERRORS:
        return None
    if np.abs(change).max() <= _ROUNDING:
        return None
    return transform


#: A regular grid of colors in the RGB cube, uint8 [256, 16, 3].
_COLOR_GRID = np.stack(np.meshgrid(*[np.arange(0, 256, 17, dtype=np.uint8)] * 3), -1).reshape(
    256, 16, 3
)


# --- color profiles: bound what it costs to apply one ---------------------------------------------

_TAG_TABLE = 128


def check_stages(profile: bytes) -> None:
    """Check the number of processing stages and curve segments.

    Each stage takes memory, and visits each color of a grid. Stages and curves of a profile may
    share their data, so a small profile could have very many.

    Raises:
        Rejected: there are more than `MAX_PROFILE_STAGES`.

    """
    total = 0
    try:
        for number in _stages(profile):
            total += number
            if total > MAX_PROFILE_STAGES:
                raise Rejected(
                    "too-large",
                    f"a color profile of over {MAX_PROFILE_STAGES} processing stages and curve"
                    " segments",
                )
    except struct.error:  # the profile is truncated, and will not be used
        return


def _stages(profile: bytes) -> Iterator[int]:
    """Yield 1 for each processing element, and the number of segments of each curve.

    ICC.1:2022, section 10.17.
    """
    for _, tag, _ in _table(profile, _TAG_TABLE + 4, _number(profile, _TAG_TABLE), "4sII"):
        if profile[tag : tag + 4] != b"mpet":
            continue
        for offset, _ in _table(profile, tag + 16, _number(profile, tag + 12), "II"):
            element = tag + offset
            yield 1
            if profile[element : element + 4] == b"cvst":
                (curves,) = struct.unpack_from(">H", profile, element + 8)
                for curve, _ in _table(profile, element + 12, curves, "II"):
                    yield max(1, *struct.unpack_from(">H", profile, element + curve + 8))


def _number(profile: bytes, at: int) -> int:
    number: int = struct.unpack_from(">I", profile, at)[0]
    return number


def _table(profile: bytes, at: int, rows: int, columns: str) -> Iterator[tuple[int, ...]]:
    size = struct.calcsize(">" + columns)
    for row in range(rows):
        yield struct.unpack_from(">" + columns, profile, at + row * size)
