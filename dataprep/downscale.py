"""Pure: an image as it came -> as it is to be stored: smaller, as raw pixels, untouched. It must never open a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import simplejpeg
from PIL import Image

from dataprep.images import ImageInfo, Rejected, check_decodes, inspect
from dataprep.options import CHANGE_COLUMNS, Downscale, Options, Raw
from dataprep.pixels import Decoded, decode

#: Times the target that an image must have, on each side, for the filter to go on with without visible loss.
GAP = 2.0
#: Pixels of a side that a JPEG can have.
MAX_SIDE = 65_500


class Prepared(NamedTuple):
    """An image as it is to be stored.

    Attributes:
        data: its bytes.
        info: what they are; the format ``raw`` is uint8 RGB [H, W, 3].
        further: what it was and what was done to it, a value for each of `CHANGE_COLUMNS`. ``change`` is empty where
            nothing was; else words: ``resized``, ``cropped``, ``padded``, ``turned`` upright, and those of
            `dataprep.pixels.Decoded.repairs`.

    """

    data: bytes
    info: ImageInfo
    further: dict[str, str | int]


def prepare(data: bytes, options: Options) -> Prepared:
    """Inspect an image and make of it what is to be stored.

    Raises:
        Rejected: it must not go into a shard.

    """
    # What is decoded here need not be decoded before.
    info = inspect(data, "none" if options.validate == "none" else "header", options.max_pixels)
    if options.raw:
        stored, info_stored, change = _as_raw(data, info, options.raw)
    elif options.downscale and (size := shrunk(info.width, info.height, options.downscale)):
        stored, info_stored, change = _as_jpeg(data, info, size, options.downscale)
    else:
        if options.validate == "decode":
            check_decodes(data, info)
        stored, info_stored, change = data, info, []
    values = (info.width, info.height, info.format, " ".join(change))
    return Prepared(stored, info_stored, dict(zip(CHANGE_COLUMNS, values, strict=True)))


def shrunk(width: int, height: int, to: Downscale) -> tuple[int, int] | None:
    """Give the size to which an image is to be brought; none where it stays as it is."""
    short, long = min(width, height), max(width, height)
    if to.only_above is not None and (short if to.shorter else long) <= to.only_above:
        return None
    factor = min((to.shorter or short) / short, (to.longest or long) / long)
    if factor >= 1:
        return None
    return max(1, round(width * factor)), max(1, round(height * factor))


# --- smaller ------------------------------------------------------------------------------------


def _as_jpeg(data: bytes, info: ImageInfo, size: tuple[int, int], to: Downscale) -> tuple[bytes, ImageInfo, list[str]]:
    if max(size) > MAX_SIDE:
        detail = f"{size[0]}x{size[1]} pixels after resizing, and a JPEG has {MAX_SIDE} a side at most; see --max-side"
        raise Rejected("unsupported", detail)
    image, decoded = resized(data, info, size, to)
    jpeg = _encode(image, to, decoded.subsampling)
    return jpeg, ImageInfo("jpeg", *image.size), ["resized", *_repairs(decoded)]


def resized(data: bytes, info: ImageInfo, size: tuple[int, int], to: Downscale) -> tuple[Image.Image, Decoded]:
    """Bring an image to a size, given as its own header has its sides, and turn it upright.

    Raises:
        Rejected: it does not decode.

    """
    decoded = decode(data, info, round(GAP * size[0]), round(GAP * size[1]))
    image = decoded.image.resize(_as_decoded(size, decoded, info), _filter(to.filter), reducing_gap=GAP)
    return upright(image, decoded.orientation), decoded


def _encode(image: Image.Image, to: Downscale, subsampling: str) -> bytes:
    pixels = np.asarray(image)
    if image.mode == "L":
        return bytes(simplejpeg.encode_jpeg(pixels[..., None], to.quality, "GRAY", "Gray"))
    if to.subsampling != "keep":
        subsampling = to.subsampling
    elif subsampling not in _SUBSAMPLINGS:
        subsampling = "444"
    return bytes(simplejpeg.encode_jpeg(pixels, to.quality, "RGB", subsampling))


_SUBSAMPLINGS = ("444", "422", "420", "440", "411")


# --- raw ----------------------------------------------------------------------------------------


def _as_raw(data: bytes, info: ImageInfo, raw: Raw) -> tuple[bytes, ImageInfo, list[str]]:
    side = (min if raw.fit == "crop" else max)(info.width, info.height)
    width, height = (max(1, round(length * raw.size / side)) for length in (info.width, info.height))
    decoded = decode(data, info, round(GAP * width), round(GAP * height))
    image = _cropped(decoded.image, raw) if raw.fit == "crop" else _contained(decoded.image, raw)
    image = upright(image.convert("RGB"), decoded.orientation)
    change = ["resized"] if side != raw.size else []
    if info.width != info.height:
        change.append("cropped" if raw.fit == "crop" else "padded")
    return image.tobytes(), ImageInfo("raw", raw.size, raw.size), [*change, *_repairs(decoded)]


def _cropped(image: Image.Image, raw: Raw) -> Image.Image:
    """Resize no more than what stays: of a long narrow image, the whole would take any amount of memory."""
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((raw.size, raw.size), _filter(raw.filter), box=box, reducing_gap=GAP)


def _contained(image: Image.Image, raw: Raw) -> Image.Image:
    width, height = (max(1, round(length * raw.size / max(image.size))) for length in image.size)
    square = Image.new(image.mode, (raw.size, raw.size))
    inside = image.resize((width, height), _filter(raw.filter), reducing_gap=GAP)
    square.paste(inside, ((raw.size - width) // 2, (raw.size - height) // 2))
    return square


# --- both ---------------------------------------------------------------------------------------

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Turn an image as its EXIF orientation, 1 to 8, says (CIPA DC-008, tag 0x0112)."""
    return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


def _as_decoded(size: tuple[int, int], decoded: Decoded, info: ImageInfo) -> tuple[int, int]:
    """Give a size with its sides as the decoded image has them: Pillow turns a TIFF by itself."""
    return size[::-1] if decoded.image.size == (info.height, info.width) else size


def _filter(name: str) -> Image.Resampling:
    return Image.Resampling[name.upper()]


def _repairs(decoded: Decoded) -> list[str]:
    return ["turned"] * (decoded.orientation != 1) + list(decoded.repairs)
