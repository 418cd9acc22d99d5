"""Pure: an image as it came -> as it is to be stored: smaller, as raw pixels, untouched. It must never open a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from dataprep.images.inspect import ImageInfo, Rejected, check_decodes, inspect
from dataprep.images.pixels import Decoded, decode
from dataprep.images.resampling import enough, resample
from dataprep.options import CHANGE_COLUMNS, Downscale, Options, Raw

#: Pixels of a side that a JPEG can have.
MAX_SIDE = 65_500


class Prepared(NamedTuple):
    """An image as it is to be stored.

    Attributes:
        data: its bytes.
        info: what they are; the format ``raw`` is uint8 RGB [H, W, 3].
        further: what it was and what was done to it, a value for each of `CHANGE_COLUMNS`. ``change`` is empty where
            nothing was; else words: ``resized``, ``cropped``, ``padded``, ``turned`` upright, and those of
            `dataprep.images.pixels.Decoded.repairs`.

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
    pixels, decoded = resized(data, info, size, to)
    height, width = pixels.shape[:2]
    jpeg = _encode(pixels, to, decoded.subsampling)
    return jpeg, ImageInfo("jpeg", width, height), ["resized", *_repairs(decoded)]


def resized(data: bytes, info: ImageInfo, size: tuple[int, int], to: Downscale) -> tuple[NDArray[np.uint8], Decoded]:
    """Bring an image to a size, given as its own header has its sides, and turn it upright.

    Returns:
        Its pixels, uint8 [H, W] of gray or [H, W, 3] of sRGB, and what they were made of.

    Raises:
        Rejected: it does not decode.

    """
    decoded = decode(data, info, *enough(size, _filter(to.filter)))
    pixels = resample(decoded.image, _as_decoded(size, decoded, info), _filter(to.filter), mean_of=decoded.mean_of)
    return upright(pixels, decoded.orientation), decoded


def _encode(pixels: NDArray[np.uint8], to: Downscale, subsampling: str) -> bytes:
    pixels = np.ascontiguousarray(pixels)
    if pixels.ndim == _GRAY:
        return bytes(simplejpeg.encode_jpeg(pixels[..., None], to.quality, "GRAY", "Gray"))
    if to.subsampling != "keep":
        subsampling = to.subsampling
    elif subsampling not in _SUBSAMPLINGS:
        subsampling = "444"
    return bytes(simplejpeg.encode_jpeg(pixels, to.quality, "RGB", subsampling))


#: Dimensions of gray pixels, which have no channels.
_GRAY = 2
_SUBSAMPLINGS = ("444", "422", "420", "440", "411")


# --- raw ----------------------------------------------------------------------------------------


def _as_raw(data: bytes, info: ImageInfo, raw: Raw) -> tuple[bytes, ImageInfo, list[str]]:
    side = (min if raw.fit == "crop" else max)(info.width, info.height)
    width, height = (max(1, round(length * raw.size / side)) for length in (info.width, info.height))
    decoded = decode(data, info, *enough((width, height), _filter(raw.filter)))
    if raw.fit == "crop":
        pixels = _cropped(decoded, raw)
    else:
        pixels = _contained(decoded, _as_decoded((width, height), decoded, info), raw)
    pixels = upright(pixels, decoded.orientation)
    if pixels.ndim == _GRAY:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    change = ["resized"] if side != raw.size else []
    if info.width != info.height:
        change.append("cropped" if raw.fit == "crop" else "padded")
    return pixels.tobytes(), ImageInfo("raw", raw.size, raw.size), [*change, *_repairs(decoded)]


def _cropped(decoded: Decoded, raw: Raw) -> NDArray[np.uint8]:
    """Resize no more than what stays: of a long narrow image, the whole would take any amount of memory."""
    image = decoded.image
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return resample(image, (raw.size, raw.size), _filter(raw.filter), box=box, mean_of=decoded.mean_of)


def _contained(decoded: Decoded, size: tuple[int, int], raw: Raw) -> NDArray[np.uint8]:
    width, height = size
    inside = resample(decoded.image, size, _filter(raw.filter), mean_of=decoded.mean_of)
    square = np.zeros((raw.size, raw.size, *inside.shape[2:]), np.uint8)
    left, top = (raw.size - width) // 2, (raw.size - height) // 2
    square[top : top + height, left : left + width] = inside
    return square


# --- both ---------------------------------------------------------------------------------------


def upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn an image [H, W, ...] as its EXIF orientation, 1 to 8, says (CIPA DC-008, tag 0x0112)."""
    if orientation > 4:  # what is stored as rows are columns
        pixels = pixels.swapaxes(0, 1)
    if orientation in _UPSIDE_DOWN:
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in _MIRRORED else pixels


#: Orientations whose rows, and whose columns, run backwards, once columns are columns.
_UPSIDE_DOWN = (3, 4, 7, 8)
_MIRRORED = (2, 3, 6, 7)


def _as_decoded(size: tuple[int, int], decoded: Decoded, info: ImageInfo) -> tuple[int, int]:
    """Give a size with its sides as the decoded image has them: Pillow turns a TIFF by itself."""
    return size[::-1] if decoded.image.size == (info.height, info.width) else size


def _filter(name: str) -> Image.Resampling:
    return Image.Resampling[name.upper()]


def _repairs(decoded: Decoded) -> list[str]:
    return ["turned"] * (decoded.orientation != 1) + list(decoded.repairs)
