"""Prepare an encoded image for a shard: shrink it, transcode it, make raw pixels, or keep its bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
from PIL import Image

from dataprep.arrays import UInt8Array
from dataprep.images import transcode
from dataprep.images.base import (
    ImageInfo,
    Rejected,
    check_pixel_kind,
    pixels_of,
    rejects_failures,
)
from dataprep.images.foreign import Foreign, identify
from dataprep.images.jpeg import read_metadata
from dataprep.images.pixels import Decoded, decode, resample, size_of, sufficient_size
from dataprep.images.tiff import has_alpha_values, orientation_of
from dataprep.images.validate import check_decodes, check_image
from dataprep.images.values import read_values
from dataprep.options import CHANGE_COLUMNS, NO_CHOICE, Choice, Downscale, Options, Raw
from manifests.pixels import RGB8
from manifests.records import record

#: Longest side, in pixels, that libjpeg encodes.
MAX_SIDE = 65_500


class StoredImage(NamedTuple):
    """An image as it is stored.

    Attributes:
        data: its bytes.
        info: its format and size. Format ``"raw"`` is [H, W, C].
        extra: a value for each of `Options.measured_columns` and `CHANGE_COLUMNS`: the original
            width, height and format, and the
            changes. ``change`` is empty if there are no changes. Otherwise, it lists ``resized``,
            ``transcoded``, ``cropped``, ``padded``, ``turned`` (the EXIF orientation is applied),
            and the values of `dataprep.images.pixels.Decoded.repairs`.

    """

    data: bytes
    info: ImageInfo
    extra: dict[str, Any]


@rejects_failures
def prepare(data: bytes, options: Options) -> StoredImage:
    """Validate an image, and apply the options to it that change images.

    Raises:
        Rejected: the image must not go into a shard.

    """
    # Images that are decoded below are not also decoded for validation.
    validation = options.validate
    if validation == "decode":
        validation = "header"
    found = identify(data, options.page) if options.transcode else None
    columns: dict[str, Any] = dict.fromkeys(options.measured_columns)
    if found:
        info = transcode.measure(data, found, options)
        if not options.to_rgb8:
            check_pixel_kind(info, options.pixels)
        if options.raw and not options.to_rgb8 and info.pixels != RGB8:
            detail = f"{found.name} with {info.pixels}; convert it without --store raw first"
            raise Rejected("unsupported", detail)
    else:
        kind = None if options.to_rgb8 else options.pixels
        info = check_image(data, validation, options.max_pixels, kind)
    if info.pixels != RGB8 and options.to_rgb8:
        return _prepare_as_rgb8(data, info, found, options)
    if options.raw:
        stored, stored_info, change = _to_raw(data, info, options.raw, options.choice)
    elif options.downscale and (size := target_size(info.width, info.height, options.downscale)):
        stored, stored_info, change = _to_jpeg(data, info, size, options.downscale, options.choice)
    elif found:
        stored, stored_info, change, measured = _transcode(data, info, options)
        columns |= measured
    else:
        if options.validate == "decode":
            check_decodes(data, info)
        stored, stored_info, change = data, info, []
    values = (info.width, info.height, info.format, " ".join(change))
    # In the order of the sample table, from which `verify` writes a record again.
    columns = dict(zip(CHANGE_COLUMNS, values, strict=True)) | columns
    return StoredImage(stored, stored_info, columns)


@rejects_failures
def prepare_frame(data: bytes, codec: str, options: Options) -> StoredImage:
    """Prepare a frame of a video, which is a PPM until it is stored.

    Raises:
        Rejected: the frame must not go into a shard.

    """
    prepared = prepare(data, options)
    stored, info, columns = prepared
    if stored is data:
        pixels = read_values(data, info)
        stored = transcode.encode(pixels, replace(options, transcode=options.transcode or "jpeg"))
        info = check_image(stored, "header", options.max_pixels, options.pixels)
    changes = ["transcoded", *columns["change"].split()]
    return StoredImage(
        stored, info, {**columns, "original_format": codec, "change": " ".join(changes)}
    )


def target_size(width: int, height: int, downscale: Downscale) -> tuple[int, int] | None:
    """Return the (width, height) of an image after downscaling; `None` if it is not resized."""
    short, long = sorted((width, height))
    measured = short if downscale.shorter else long
    if downscale.only_above is not None and measured <= downscale.only_above:
        return None
    factor = min((downscale.shorter or short) / short, (downscale.longest or long) / long)
    if downscale.pixels is not None:
        factor = math.sqrt(downscale.pixels / (short * long))
    if factor >= 1:
        return None
    if downscale.pixels is not None:
        # Sides that are both rounded up can have a few pixels too many.
        short = max(1, round(short * factor))
        short, long = sorted((short, min(round(long * factor), downscale.pixels // short)))
        return (long, short) if width > height else (short, long)
    return max(1, round(width * factor)), max(1, round(height * factor))


# --- a smaller JPEG -------------------------------------------------------------------------------


def _to_jpeg(
    data: bytes,
    info: ImageInfo,
    size: tuple[int, int],
    downscale: Downscale,
    choice: Choice,
) -> tuple[bytes, ImageInfo, list[str]]:
    if max(size) > MAX_SIDE:
        raise Rejected(
            "unsupported",
            f"{size[0]}x{size[1]} pixels after resizing, but a JPEG has at most {MAX_SIDE} per"
            " side; set --max-side",
        )
    pixels, decoded = resize_image(data, info, size, downscale, choice)
    height, width = pixels.shape[:2]
    jpeg = _encode(pixels, downscale, decoded.subsampling)
    return jpeg, ImageInfo("jpeg", width, height), ["resized", *_repairs(decoded)]


def _encode(pixels: UInt8Array, downscale: Downscale, subsampling: str) -> bytes:
    pixels, colors = np.ascontiguousarray(pixels), "RGB"
    if pixels.ndim == _GRAY_DIMENSIONS:
        pixels, colors, subsampling = pixels[..., None], "GRAY", "Gray"
    elif downscale.subsampling != "keep":
        subsampling = downscale.subsampling
    elif subsampling not in _SUBSAMPLINGS:
        subsampling = "444"
    return bytes(simplejpeg.encode_jpeg(pixels, downscale.quality, colors, subsampling))


#: Gray pixels have no channel axis.
_GRAY_DIMENSIONS = 2
_SUBSAMPLINGS = ("444", "422", "420", "440", "411")


# --- another format -------------------------------------------------------------------------------


def _transcode(
    data: bytes, info: ImageInfo, options: Options
) -> tuple[bytes, ImageInfo, list[str], dict[str, float]]:
    with pixels_of(info):
        pixels, changes, columns = transcode.decode(data, info, options.choice)
        stored = transcode.encode(pixels, options)
    # `verify` will check it like any other image of its format.
    stored_info = check_image(stored, "header", options.max_pixels, options.pixels)
    return stored, stored_info, ["transcoded", *changes], columns


# --- RGB of 8 bits --------------------------------------------------------------------------------

#: 16-bit values for each value of 8 bits: 65,535 becomes 255.
_RGB8_SCALE = 257
_RGBA = 4


def _prepare_as_rgb8(
    data: bytes, info: ImageInfo, found: Foreign | None, options: Options
) -> StoredImage:
    """Prepare an image with other pixels as if it was one of 8 bits in the format that is stored."""
    pixels, change = _to_rgb8(data, info, found, options)
    target = options.transcode or "png"
    if options.raw or (
        options.downscale and target_size(info.width, info.height, options.downscale)
    ):
        target = "png"  # nothing is lost before the image is resized
    encoded = transcode.encode(pixels, replace(options, transcode=target))
    stored = prepare(encoded, options)
    change = ["transcoded", *stored.extra["change"].split(), *change]
    values = (info.width, info.height, info.format, " ".join(change))
    return stored._replace(extra=stored.extra | dict(zip(CHANGE_COLUMNS, values, strict=True)))


def _to_rgb8(
    data: bytes, info: ImageInfo, found: Foreign | None, options: Options
) -> tuple[UInt8Array, list[str]]:
    """Return upright gray or RGB of 8 bits, and the changes. Colors with a profile keep their values."""
    channels, dtype = info.pixels
    has_alpha = info.format == "png" and channels == _RGBA
    if info.format in ("tiff", "tiff-page"):
        has_alpha = has_alpha_values(data, options.page if found else None)
    colors = channels - has_alpha
    if colors not in (1, RGB8.channels) or dtype == "float32" or info.format == "dicom":
        rest = "takes only gray and RGB of 8 and 16 bits, with or without alpha values"
        if info.format == "dicom":
            rest = "does not know its black and white; set them with --window CENTER,WIDTH"
        raise Rejected("unsupported", f"{info.format.upper()} with {info.pixels}; --to-rgb8 {rest}")
    change = ["rgb", *["alpha"] * has_alpha]
    if found:
        with pixels_of(info):
            values, changes, _ = transcode.decode(data, info, options.choice)
        change += changes
    else:
        orientation = _orientation(data, info)
        values = apply_orientation(read_values(data, info), orientation)
        change += ["turned"] * (orientation != 1)
    values = np.atleast_3d(values)[..., :colors]
    if dtype == "uint16":
        values = (values.astype(np.uint32) + _RGB8_SCALE // 2) // _RGB8_SCALE
    pixels = np.ascontiguousarray(values, np.uint8)
    return pixels[..., 0] if colors == 1 else pixels, change


# --- raw pixels -----------------------------------------------------------------------------------


def _to_raw(
    data: bytes, info: ImageInfo, raw: Raw, choice: Choice
) -> tuple[bytes, ImageInfo, list[str]]:
    if info.pixels != RGB8:
        return _to_raw_values(data, info, raw.size)
    size = _raw_size(info, raw)
    pixels, decoded = resize_image(data, info, size, raw, choice)
    if pixels.ndim == _GRAY_DIMENSIONS:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    change = []
    if size != (info.width, info.height):
        change.append("resized")
    if info.width != info.height:
        change.append({"crop": "cropped", "pad": "padded"}[raw.fit])
    return pixels.tobytes(), ImageInfo("raw", raw.size, raw.size), [*change, *_repairs(decoded)]


def _to_raw_values(data: bytes, info: ImageInfo, side: int) -> tuple[bytes, ImageInfo, list[str]]:
    """Store the values of other pixels, little-endian; they are not resized."""
    if (info.width, info.height) != (side, side):
        detail = f"{info.width}x{info.height} pixels of {info.pixels}, which are not resized to"
        raise Rejected("unsupported", f"{detail} --raw-size {side}")
    values = read_values(data, info)
    stored = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return stored.tobytes(), info._replace(format="raw"), []


def _raw_size(info: ImageInfo, raw: Raw) -> tuple[int, int]:
    """Return the (width, height) of an image that is not cropped or padded yet."""
    side = {"crop": min, "pad": max}[raw.fit](info.width, info.height)
    return (
        max(1, round(info.width * raw.size / side)),
        max(1, round(info.height * raw.size / side)),
    )


# --- shared ---------------------------------------------------------------------------------------


def resize_image(
    data: bytes,
    info: ImageInfo,
    size: tuple[int, int],
    options: Downscale | Raw,
    choice: Choice = NO_CHOICE,
) -> tuple[UInt8Array, Decoded]:
    """Decode and resize an image, crop or pad it to raw pixels, then apply its EXIF orientation.

    Args:
        data: the encoded image.
        info: its format and size.
        size: target width and height, before the orientation is applied.
        options: the filter; and how to make raw pixels.
        choice: `Options.choice`.

    Returns:
        The pixels, uint8 [H, W] of gray or [H, W, 3] of sRGB, and how the image was decoded, with
        the pixels before its orientation was applied.

    Raises:
        Rejected: the image does not decode.

    """
    sufficient = sufficient_size(size, options.filter)
    with pixels_of(info, *sufficient):
        decoded = decode(data, info, *sufficient, choice)
        width, height = size_of(decoded.image)
        if (width, height) == (info.height, info.width):
            size = size[::-1]  # Pillow applies the orientation of a TIFF, which may swap the sides
        box = None
        if isinstance(options, Raw) and options.fit == "crop":
            # The center square only: the whole of a long, narrow image could take too much memory.
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            box, size = (left, top, left + side, top + side), (options.size, options.size)
        pixels = resample(decoded.image, size, options.filter, box=box, averaging=decoded.averaging)
        if isinstance(options, Raw) and options.fit == "pad":
            pixels = _pad(pixels, options.size)
        decoded = decoded._replace(image=pixels)  # frees the larger image
    return apply_orientation(pixels, decoded.orientation), decoded


def _pad(pixels: UInt8Array, side: int) -> UInt8Array:
    """Center pixels on a black square."""
    height, width = pixels.shape[:2]
    square = np.zeros((side, side, *pixels.shape[2:]), np.uint8)
    left, top = (side - width) // 2, (side - height) // 2
    square[top : top + height, left : left + width] = pixels
    return square


#: Orientations above this one swap width and height.
_TRANSPOSED = 4
#: Orientations that mirror the rows or the columns, after orientations above 4 are transposed.
_MIRRORED_ROWS, _MIRRORED_COLUMNS = (3, 4, 7, 8), (2, 3, 6, 7)


def apply_orientation(pixels: UInt8Array, orientation: int) -> UInt8Array:
    """Rotate or mirror pixels [H, W, ...] by their EXIF orientation, 1 to 8 (CIPA DC-008)."""
    if orientation > _TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    if orientation in _MIRRORED_ROWS:
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in _MIRRORED_COLUMNS else pixels


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


@record
class Placement:
    """Where a stored image shows the source image, both of them upright.

    A coordinate of the source image times `scale` plus `offset` is the one in the stored image.

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
        orientation = _orientation(data, info, is_copied=not changed)
    except MemoryError:
        raise
    except Exception as error:  # damaged images raise many kinds
        raise Rejected(
            "corrupt", f"its orientation cannot be read ({error or type(error).__name__})"
        ) from None
    width, height = source = _upright(info.width, info.height, orientation)
    if not changed:
        return Placement(source, source)
    scale, offset = (stored.width / width, stored.height / height), (0.0, 0.0)
    if raw is not None and raw.fit == "crop":
        factor = raw.size / min(source)
        scale = factor, factor
        offset = -(width - min(source)) / 2 * factor, -(height - min(source)) / 2 * factor
    elif raw is not None:
        left, top, shown_width, shown_height = _padded(info, raw, orientation)
        scale, offset = (shown_width / width, shown_height / height), (left, top)
    return Placement(source, (stored.width, stored.height), scale, offset)


def _upright(width: int, height: int, orientation: int) -> tuple[int, int]:
    return (height, width) if orientation > _TRANSPOSED else (width, height)


def _padded(info: ImageInfo, raw: Raw, orientation: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a padded image in its upright square."""
    width, height = _upright(*_raw_size(info, raw), orientation)
    left, top = (raw.size - width) // 2, (raw.size - height) // 2
    if orientation in _MIRRORED_ROWS:
        top = raw.size - height - top
    if orientation in _MIRRORED_COLUMNS:
        left = raw.size - width - left
    return left, top, width, height


def _orientation(data: bytes, info: ImageInfo, *, is_copied: bool = False) -> int:
    """Return the orientation of an encoded image, 1 to 8, by which DALI turns it if it is copied."""
    metadata: Mapping[Any, Any] = {}
    if info.format == "jpeg":
        metadata = read_metadata(data)
    elif info.format != "tiff" and _has_metadata(data, info):
        with Image.open(io.BytesIO(data), formats=(info.format,)) as image:
            metadata = image.info
    if info.format == "tiff":
        metadata = {"exif": data}  # an EXIF block is a TIFF
    if is_copied:
        metadata = {**metadata, "xmp": b""}  # DALI does not read it
    return orientation_of(metadata)


def _has_metadata(data: bytes, info: ImageInfo) -> bool:
    return info.format in ("png", "webp") and any(each in data for each in _METADATA)
