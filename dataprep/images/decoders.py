"""Decode what DALI does not decode. Only the process of `dataprep.images.isolated` calls this.

`measure` reads the header, so that the caller can refuse an image that is too large. `decode` returns
upright pixels.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from dataprep.arrays import AnyArray
from dataprep.images import array_file, dicom
from dataprep.images.base import Rejected
from dataprep.images.downscale import apply_orientation
from dataprep.images.pixels import to_srgb_or_gray
from dataprep.images.tiff import (
    as_classic,
    at_page,
    count_pages,
    is_photograph,
    orientation_of,
)
from manifests.pixels import RGB8, VALUE_BYTES

Values = dict[str, Any]


def describe(error: Exception) -> str:
    """Return the text of a decoder's error."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def measure(data: bytes, kind: str, *, windowed: bool = False) -> tuple[Values, bytes]:
    """Return the width and height of an image, upright, and what its pixels are."""
    orientation, pixels = 1, RGB8
    if kind == "dicom":
        width, height, pixels = dicom.measure(data, windowed=windowed)
    elif kind == "npy":
        width, height, pixels = array_file.measure(data)
    elif kind == "jxl":
        width, height, orientation = _measure_jxl(data)
    else:
        image = _open(data, kind)
        (width, height), orientation = image.size, _orientation(image, kind)
    if orientation > _TRANSPOSED:
        width, height = height, width
    return {"width": width, "height": height, "pixels": pixels}, b""


def decode(
    data: bytes, kind: str, window: tuple[float, float] | None = None, page: int | None = None
) -> tuple[Values, bytes]:
    """Return the pixels of an image, and the changes that were made to get them.

    The pixels are uint8 [H, W] of gray or [H, W, 3] of sRGB, or of another kind: see `PixelKind`.
    """
    changes = []
    if kind == "dicom":
        values, profile, rescale = dicom.decode(data, window)
        pixels, repairs = to_srgb_or_gray(values, profile)
        changes = ["window"] if window and values.ndim == _GRAY_DIMENSIONS else []
        answer, content = _answer(np.asarray(pixels), [*changes, *repairs])
        return {**answer, "columns": rescale}, content
    if kind == "npy":
        return _answer(array_file.decode(data), [])
    if kind == "tiff-page":
        changes = ["frame"] * (count_pages(data) > 1)
        is_other, data = not is_photograph(data, page), at_page(data, page)
        if is_other:
            return _answer(*_decode_page(data, changes))
        data = as_classic(data)
    image = _open(data, kind)
    if kind != "tiff-page" and getattr(image, "is_animated", False):
        changes.append("frame")
    image.load()
    profile = image.info.get("icc_profile")
    if not profile:
        _check_colors(data, kind, image.info)
    orientation = _orientation(image, kind)
    pixels, repairs = to_srgb_or_gray(image, profile)
    if orientation != 1:
        changes.append("turned")
    changes += repairs
    return _answer(apply_orientation(np.asarray(pixels), orientation), changes)


#: Gray pixels have no channel axis.
_GRAY_DIMENSIONS = 2


def _answer(pixels: AnyArray, changes: list[str]) -> tuple[Values, bytes]:
    return {"shape": pixels.shape, "dtype": pixels.dtype.name, "changes": changes}, pixels.tobytes()


def _decode_page(data: bytes, changes: list[str]) -> tuple[AnyArray, list[str]]:
    """Return the values of the first page [H, W, C] or [H, W] by tifffile, upright, and the changes."""
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        part: Any = file.pages[0]
        pixels = part.asarray(maxworkers=1)
    if part.axes.startswith("S"):  # a plane for each channel
        pixels = np.moveaxis(pixels, 0, -1)
    if part.photometric == tifffile.PHOTOMETRIC.MINISWHITE and pixels.dtype.kind == "u":
        pixels = np.iinfo(pixels.dtype).max - pixels
    dtype: Any = pixels.dtype.newbyteorder("=")
    if dtype.name not in VALUE_BYTES:
        dtype = np.float32
    orientation = part.tags.get(_ORIENTATION)
    if orientation is not None and orientation.value != 1:
        pixels = apply_orientation(pixels, orientation.value)
        changes.append("turned")
    return pixels.astype(dtype, casting="safe"), changes


#: TIFF's tag of the orientation.
_ORIENTATION = 274


#: Functions by name, for `dataprep.images.isolated`.
STEPS: Mapping[str, Callable[..., tuple[Values, bytes]]] = {"measure": measure, "decode": decode}


# --- AVIF, HEIC, JPEG XL and GIF by Pillow and its plugins ------------------------------------------

#: EXIF orientations above this one swap width and height.
_TRANSPOSED = 4


def _open(data: bytes, kind: str) -> Image.Image:
    """Open an image with one thread: several would not make a run with many workers faster."""
    _OPENERS[kind]()
    Image.MAX_IMAGE_PIXELS = None  # the caller checks the number of pixels
    try:
        return Image.open(io.BytesIO(data), formats=(_NAMES[kind],))
    except UnidentifiedImageError:
        raise Rejected("corrupt", "the decoder cannot identify the image") from None


def _use_avif() -> None:
    from PIL import AvifImagePlugin

    AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def _use_heif() -> None:
    import pillow_heif

    pillow_heif.register_heif_opener(decode_threads=1, thumbnails=False)


def _use_jxl() -> None:
    from pillow_jxl import JpegXLImagePlugin

    JpegXLImagePlugin.DECODE_THREADS = 0


def _use_gif() -> None:
    from PIL import GifImagePlugin  # noqa: F401  (registers the format)


def _use_tiff() -> None:
    from PIL import TiffImagePlugin  # noqa: F401  (registers the format)


_OPENERS = {"avif": _use_avif, "heif": _use_heif, "jxl": _use_jxl, "gif": _use_gif}
_OPENERS["tiff-page"] = _use_tiff
_NAMES = {"avif": "AVIF", "heif": "HEIF", "jxl": "JXL", "gif": "GIF", "tiff-page": "TIFF"}


def _orientation(image: Image.Image, kind: str) -> int:
    """Return the orientation that the decoder has not applied.

    pillow-heif and libjxl apply it, but not libjxl to a JPEG that is stored in a JPEG XL. Pillow
    applies it to a TIFF.
    """
    if kind in ("heif", "tiff-page") or (kind == "jxl" and not getattr(image, "jpeg", False)):
        return 1
    return orientation_of(image.info)


#: The box ``colr`` that states colors by the numbers of ITU-T H.273: primaries, transfer.
_NCLX = re.compile(rb"colrnclx(..)(..)", re.DOTALL)
#: Primaries close to the primaries of sRGB: unspecified, BT.709, BT.601.
_SRGB_PRIMARIES = (1, 2, 5, 6)
#: Transfers of images with a high dynamic range.
_HDR = {16: "PQ", 18: "HLG"}


def _check_colors(data: bytes, kind: str, info: Mapping[Any, Any]) -> None:
    """Refuse colors that are neither sRGB nor described by an ICC profile.

    Raises:
        Rejected: the image would look pale.

    """
    primaries, transfer = 1, 1
    if kind == "avif" and (match := _NCLX.search(data)):
        primaries, transfer = (struct.unpack(">H", each)[0] for each in match.groups())
    elif kind == "heif" and (stated := info.get("nclx_profile")):
        primaries, transfer = stated["color_primaries"], stated["transfer_characteristics"]
    if transfer in _HDR:
        raise Rejected(
            "unsupported", f"high dynamic range ({_HDR[transfer]}); convert it to sRGB first"
        )
    if primaries not in _SRGB_PRIMARIES:
        raise Rejected(
            "unsupported",
            f"colors with the primaries {primaries} of ITU-T H.273 and without an ICC profile;"
            " convert it to sRGB first",
        )


# --- the header of a JPEG XL (ISO/IEC 18181-1, annex D) ---------------------------------------------

#: Bits of a side, by its selector.
_SIDE_BITS = (9, 13, 18, 30)
#: Width to height, by number; 0 means that the width is stated.
_RATIOS = ((1, 1), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def _measure_jxl(data: bytes) -> tuple[int, int, int]:
    """Return width, height and orientation: pillow-jxl-plugin decodes an image when it opens it."""
    start = _codestream(data)
    bits = int.from_bytes(data[start + 2 : start + 34], "little")

    def take(number: int) -> int:
        nonlocal bits
        value = bits & (1 << number) - 1
        bits >>= number
        return value

    small = take(1)

    def side() -> int:
        if small:
            return 8 * (1 + take(5))
        return 1 + take(_SIDE_BITS[take(2)])

    height = side()
    ratio = take(3)
    if ratio:
        across, down = _RATIOS[ratio]
        width = height * across // down
    else:
        width = side()
    orientation = 1
    is_default = take(1)
    if not is_default and take(1):
        orientation = 1 + take(3)
    return width, height, orientation


def _codestream(data: bytes) -> int:
    """Return where the codestream begins: at once, or in the first box ``jxlc`` or ``jxlp``."""
    at = 0
    while data[at : at + 2] != b"\xff\x0a":
        length, name = struct.unpack_from(">I4s", data, at)
        head = 8
        if length == 1:
            length, head = struct.unpack_from(">Q", data, at + 8)[0], 16
        if name == b"jxlc":
            return at + head
        if name == b"jxlp":
            return at + head + 4
        if length < head:
            break
        at += length
    else:
        return at
    raise Rejected("corrupt", "the JPEG XL has no codestream")
