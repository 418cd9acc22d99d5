"""Prepare an encoded image for a shard: downscale it to a smaller JPEG, decode it to raw pixels, or keep its bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from dataprep.images.base import ImageInfo, Rejected, failed
from dataprep.images.jpeg import orientation_of, read_metadata
from dataprep.images.pixel_memory import pixels_of
from dataprep.images.pixels import Decoded, decode
from dataprep.images.resampling import resample, size_of, sufficient_size
from dataprep.images.validate import check_decodes, inspect
from dataprep.options import CHANGE_COLUMNS, Downscale, Options, Raw

#: Longest side, in pixels, that libjpeg encodes.
MAX_SIDE = 65_500


class StoredImage(NamedTuple):
    """An image as it is stored.

    Attributes:
        data: its bytes.
        info: its format and size. Format ``"raw"`` is uint8 RGB [H, W, 3].
        extra: a value for each of `CHANGE_COLUMNS`: the original width, height and format, and the
            changes. ``change`` is empty if there are no changes. Otherwise, it lists ``resized``,
            ``cropped``, ``padded``, ``turned`` (the EXIF orientation is applied), and the values of
            `dataprep.images.pixels.Decoded.repairs`.

    """

    data: bytes
    info: ImageInfo
    extra: dict[str, str | int]


def prepare(data: bytes, options: Options) -> StoredImage:
    """Validate an image and apply `options.raw` or `options.downscale` to it.

    Raises:
        Rejected: the image must not go into a shard.

    """
    try:
        return _prepare(data, options)
    except (Rejected, MemoryError):
        raise
    except Exception as error:
        raise failed(error) from error


def _prepare(data: bytes, options: Options) -> StoredImage:
    # Images that are decoded below are not also decoded for validation.
    info = inspect(data, "none" if options.validate == "none" else "header", options.max_pixels)
    if options.raw:
        stored, stored_info, change = _to_raw(data, info, options.raw)
    elif options.downscale and (size := target_size(info.width, info.height, options.downscale)):
        stored, stored_info, change = _to_jpeg(data, info, size, options.downscale)
    else:
        if options.validate == "decode":
            check_decodes(data, info)
        stored, stored_info, change = data, info, []
    values = (info.width, info.height, info.format, " ".join(change))
    return StoredImage(stored, stored_info, dict(zip(CHANGE_COLUMNS, values, strict=True)))


def target_size(width: int, height: int, downscale: Downscale) -> tuple[int, int] | None:
    """Return the (width, height) of an image after downscaling; `None` if it is not resized."""
    short, long = min(width, height), max(width, height)
    if (
        downscale.only_above is not None
        and (short if downscale.shorter else long) <= downscale.only_above
    ):
        return None
    factor = min((downscale.shorter or short) / short, (downscale.longest or long) / long)
    if factor >= 1:
        return None
    return max(1, round(width * factor)), max(1, round(height * factor))


# --- a smaller JPEG -----------------------------------------------------------------------------


def _to_jpeg(
    data: bytes, info: ImageInfo, size: tuple[int, int], downscale: Downscale
) -> tuple[bytes, ImageInfo, list[str]]:
    if max(size) > MAX_SIDE:
        detail = (
            f"{size[0]}x{size[1]} pixels after resizing, but a JPEG has at most {MAX_SIDE} per"
            " side; set --max-side"
        )
        raise Rejected("unsupported", detail)
    pixels, decoded = resize_image(data, info, size, downscale)
    height, width = pixels.shape[:2]
    jpeg = _encode(pixels, downscale, decoded.subsampling)
    return jpeg, ImageInfo("jpeg", width, height), ["resized", *_repairs(decoded)]


def resize_image(
    data: bytes, info: ImageInfo, size: tuple[int, int], downscale: Downscale
) -> tuple[NDArray[np.uint8], Decoded]:
    """Decode and resize an image, then apply its EXIF orientation.

    Args:
        data: the encoded image.
        info: its format and size.
        size: target width and height, before the orientation is applied.
        downscale: its `filter` is used.

    Returns:
        The pixels, uint8 [H, W] of gray or [H, W, 3] of sRGB, and how the image was decoded, with
        the pixels before its orientation was applied.

    Raises:
        Rejected: the image does not decode.

    """
    sufficient = sufficient_size(size, downscale.filter)
    with pixels_of(info, *sufficient):
        decoded = decode(data, info, *sufficient)
        target = _as_decoded(size, decoded, info)
        pixels = resample(decoded.image, target, downscale.filter, averaging=decoded.averaging)
        decoded = decoded._replace(image=pixels)  # frees the larger image
    return apply_orientation(pixels, decoded.orientation), decoded


def _encode(pixels: NDArray[np.uint8], downscale: Downscale, subsampling: str) -> bytes:
    pixels = np.ascontiguousarray(pixels)
    if pixels.ndim == _GRAY_DIMENSIONS:
        return bytes(simplejpeg.encode_jpeg(pixels[..., None], downscale.quality, "GRAY", "Gray"))
    if downscale.subsampling != "keep":
        subsampling = downscale.subsampling
    elif subsampling not in _SUBSAMPLINGS:
        subsampling = "444"
    return bytes(simplejpeg.encode_jpeg(pixels, downscale.quality, "RGB", subsampling))


#: Gray pixels have no channel axis.
_GRAY_DIMENSIONS = 2
_SUBSAMPLINGS = ("444", "422", "420", "440", "411")


# --- raw pixels ---------------------------------------------------------------------------------


def _to_raw(data: bytes, info: ImageInfo, raw: Raw) -> tuple[bytes, ImageInfo, list[str]]:
    side = (min if raw.fit == "crop" else max)(info.width, info.height)
    width, height = (
        max(1, round(length * raw.size / side)) for length in (info.width, info.height)
    )
    sufficient = sufficient_size((width, height), raw.filter)
    with pixels_of(info, *sufficient):
        decoded = decode(data, info, *sufficient)
        if raw.fit == "crop":
            pixels = _crop(decoded, raw)
        else:
            pixels = _pad(decoded, _as_decoded((width, height), decoded, info), raw)
        decoded = decoded._replace(image=pixels)  # frees the larger image
    pixels = apply_orientation(pixels, decoded.orientation)
    if pixels.ndim == _GRAY_DIMENSIONS:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    change = ["resized"] if side != raw.size else []
    if info.width != info.height:
        change.append("cropped" if raw.fit == "crop" else "padded")
    return pixels.tobytes(), ImageInfo("raw", raw.size, raw.size), [*change, *_repairs(decoded)]


def _crop(decoded: Decoded, raw: Raw) -> NDArray[np.uint8]:
    """Resize the center square only: resizing the whole of a long, narrow image could take too much memory."""
    width, height = size_of(decoded.image)
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return resample(
        decoded.image, (raw.size, raw.size), raw.filter, box=box, averaging=decoded.averaging
    )


def _pad(decoded: Decoded, size: tuple[int, int], raw: Raw) -> NDArray[np.uint8]:
    """Resize to `size` (width, height) and center the result on a black square."""
    width, height = size
    resized = resample(decoded.image, size, raw.filter, averaging=decoded.averaging)
    square = np.zeros((raw.size, raw.size, *resized.shape[2:]), np.uint8)
    left, top = (raw.size - width) // 2, (raw.size - height) // 2
    square[top : top + height, left : left + width] = resized
    return square


# --- shared -------------------------------------------------------------------------------------


def apply_orientation(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Rotate or mirror pixels [H, W, ...] by their EXIF orientation, 1 to 8 (CIPA DC-008, tag 0x0112)."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    if orientation in _FLIPPED_VERTICALLY:
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in _FLIPPED_HORIZONTALLY else pixels


#: Orientations that need a flip, after orientations 5 to 8 are transposed.
_FLIPPED_VERTICALLY = (3, 4, 7, 8)
_FLIPPED_HORIZONTALLY = (2, 3, 6, 7)


def _as_decoded(size: tuple[int, int], decoded: Decoded, info: ImageInfo) -> tuple[int, int]:
    """Swap the sides of `size` if decoding swapped the sides of the image: Pillow applies the orientation of a TIFF."""
    return size[::-1] if size_of(decoded.image) == (info.height, info.width) else size


def _repairs(decoded: Decoded) -> list[str]:
    return ["turned"] * (decoded.orientation != 1) + list(decoded.repairs)


# --- where the pixels of the source are in a stored image -----------------------------------------
#
# Masks and boxes refer to the upright source image: as viewers and DALI show it, with its EXIF
# orientation applied.

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
