"""Identify an encoded image by its content, not its file name, and check that it is complete."""

from __future__ import annotations

import io
import math
import struct
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from dataprep.images import foreign, jpeg, jpeg2000, other_formats, png, tiff
from dataprep.images.base import (
    MAX_SIDE,
    MIN_COUNTED_BYTES,
    PIXELS_PER_BYTE,
    ImageInfo,
    IncompleteHeader,
    Rejected,
    check_pixel_kind,
    failed,
    pixels_of,
    rejects_failures,
)
from dataprep.options import MAX_PIXELS, Validation
from manifests.pixels import RGB8, PixelKind

if TYPE_CHECKING:
    from PIL.Image import Image


#: An image with two sides of at most this has no more pixels than the lowest limit that depends on
#: the size of the file.
_SMALL = math.isqrt(min(PIXELS_PER_BYTE.values()) * MIN_COUNTED_BYTES)


def check_image(
    data: bytes,
    validation: Validation = "header",
    max_pixels: int = MAX_PIXELS,
    pixels: PixelKind | None = RGB8,
) -> ImageInfo:
    """Return the format and size of an encoded image, and check it.

    Args:
        data: the whole file.
        validation: ``"none"`` only reads the header, because every record needs the size.
            ``"header"`` also checks that the image is complete. ``"decode"`` also decodes it, which
            reads every byte of the compressed pixels.
        max_pixels: images with more pixels are rejected as decompression bombs.
        pixels: images with pixels of another kind are rejected. `None` accepts every kind.

    Raises:
        Rejected: the image must not go into a shard.

    """
    try:
        info = _parse_header(data)
        kind, width, height = info[:3]
        if width > _SMALL or height > _SMALL or kind == "tiff" or width * height > max_pixels:
            check_size(data, info, max_pixels)
        if pixels is not None and info.pixels != pixels:
            check_pixel_kind(info, pixels)
        if validation != "none":
            _check_complete(data, info)
        if validation == "decode":
            check_decodes(data, info)
    except (Rejected, MemoryError):
        raise
    except IncompleteHeader:
        raise Rejected("truncated", f"the header is incomplete at byte {len(data)}") from None
    except Exception as error:
        raise failed(error) from error
    return info


def check_size(data: bytes, info: ImageInfo, max_pixels: int) -> None:
    """Check the number of pixels to decode.

    A user who raises `max_pixels` above its default has large images, so the limit that depends on
    the size of the file no longer applies.

    Raises:
        Rejected: there are too many.

    """
    kind, width, height = info[:3]
    pixels = width * height
    limit = PIXELS_PER_BYTE[kind] * max(len(data), MIN_COUNTED_BYTES)
    size = f"{width}x{height} pixels"
    if kind == "tiff":
        tiles = tiff.decoded_pixels(data, info)
        if tiles > pixels:
            pixels, size = tiles, f"{size} in tiles of {tiles} pixels"
    # Pixels of more bytes count as several.
    limit //= -(-info.pixels.size // RGB8.size)
    if pixels > max_pixels:
        raise Rejected("too-large", f"{size}, but the limit is {max_pixels}")
    if pixels > limit and max_pixels <= MAX_PIXELS:
        detail = (
            f"{size} in {len(data)} bytes, but the limit is {limit}; a --max-pixels above"
            f" {MAX_PIXELS} accepts it"
        )
        raise Rejected("too-large", detail)
    if max(width, height) > MAX_SIDE:
        raise Rejected("too-large", f"{size}, but the limit is {MAX_SIDE} per side")


#: What comes before a block of EXIF, and the bytes between them.
_EXIF_CHUNKS = {"png": (b"eXIf", 0), "webp": (b"EXIF", 4)}
#: Orientations of EXIF above this one swap the sides of an image.
_TRANSPOSED = 4


def turns_on_side(data: bytes, info: ImageInfo) -> bool:
    """Return whether decoders swap the sides of an image, as EXIF says. DALI ignores XMP here."""
    if not info.may_turn:
        return False
    block = data  # a TIFF is a block of EXIF
    if info.format == "jpeg":
        try:
            block = jpeg.read_metadata(data).get("exif", b"")
        except Rejected:  # decoding reports it
            return False
    elif info.format in _EXIF_CHUNKS:
        name, between = _EXIF_CHUNKS[info.format]
        block = data.partition(name)[2][between:]
    return tiff.orientation_of({"exif": block}) > _TRANSPOSED


@rejects_failures
def parse_header(data: bytes) -> ImageInfo:
    """Read the format and size from the first bytes of an image.

    Raises:
        Rejected: this is not an image, or DALI does not decode images of this kind.
        IncompleteHeader: the header continues after `data`.

    """
    return _parse_header(data)


def name_format(data: bytes, info: ImageInfo) -> str:
    """Return the format of an image; of a JPEG, its kind: see `jpeg.name_kind`."""
    return jpeg.name_kind(data) if info.format == "jpeg" else info.format


def _parse_header(data: bytes) -> ImageInfo:
    if data[:3] == b"\xff\xd8\xff":
        return jpeg.parse_header(data)
    parse: Callable[[bytes], ImageInfo] | None = None
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        parse = png.parse_header
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        parse = other_formats.parse_webp
    elif data[:2] == b"BM":
        parse = other_formats.parse_bmp
    # The bytes of a file that is a TIFF and a DICOM have the tags of the patient.
    elif data[:4] in tiff.STARTS and not foreign.is_dicom(data):
        parse = tiff.parse_header
    elif data[:1] == b"P" and data[1:2] in b"123456" and data[2:3].isspace():
        parse = other_formats.parse_ppm
    elif data.startswith((jpeg2000.SIGNATURE, jpeg2000.CODESTREAM)):
        parse = jpeg2000.parse_header
    if parse is None:
        raise _unknown_format(data)
    try:
        return parse(data)
    except (struct.error, IndexError):
        raise IncompleteHeader from None


_CHECKS: dict[str, Callable[[bytes], None]] = {
    "jpeg": jpeg.check_complete,
    "png": png.check_complete,
    "webp": other_formats.check_webp,
    "bmp": other_formats.check_bmp,
    "tiff": tiff.check_complete,
    "ppm": other_formats.check_ppm,
    "jp2": jpeg2000.check_complete,
}


def _check_complete(data: bytes, info: ImageInfo) -> None:
    """Follow the structure of the file to the end of the image."""
    try:
        _CHECKS[info.format](data)
    except (struct.error, IndexError, IncompleteHeader):
        detail = f"the {info.format} is incomplete at byte {len(data)}"
        raise Rejected("truncated", detail) from None


#: Formats that neither DALI nor `--transcode` decodes: offset, bytes that identify the format, and
#: name.
_OTHER_FORMATS = (
    (0, b"8BPS", "Photoshop"),
    (0, b"\0\0\x01\0", "ICO"),
    (0, b"P7\n", "PAM"),
    (0, b"PF\n", "PFM"),
    (0, b"Pf\n", "PFM"),
)


def _unknown_format(data: bytes) -> Rejected:
    if not data:
        return Rejected("empty", "0 bytes")
    if found := foreign.identify(data):
        return foreign.unsupported(found)
    for at, magic, name in _OTHER_FORMATS:
        if data[at : at + len(magic)] == magic:
            return Rejected("unsupported", f"{name}; convert it to JPEG, PNG or WebP first")
    start = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    detail = f"starts with {data[:12]!r}"
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml", b"<svg")):
        detail = "HTML or XML: a web page saved in place of an image"
    elif start.startswith(b"version https://git-lfs"):
        detail = "a pointer of Git LFS: `git lfs pull` downloads the image"
    elif not data.strip(b"\0"):
        detail = f"{len(data)} zero bytes"
    return Rejected("not-an-image", detail)


# --- decoding -------------------------------------------------------------------------------------


def check_decodes(data: bytes, info: ImageInfo) -> None:
    """Decode an image at the smallest scale that still reads all of its compressed pixels.

    Raises:
        Rejected: the image does not decode, or the decoder warns about it.

    """
    if info.format == "tiff" and not tiff.is_photograph(data):
        data, info = tiff.as_gray(data, info)
    if info.format == "jpeg":
        try:
            jpeg.check_segments(data)
            jpeg.decode_jpeg(data, 1, 1)
        except jpeg.UnknownSubsampling:
            open_with_pillow(data, info)
    else:
        with pixels_of(info):
            open_with_pillow(data, info)
        if info.format == "png":
            png.check_pixels(data)


#: `warnings.catch_warnings` and Pillow's limit affect the whole process, so only one thread at a
#: time may use them.
_PILLOW_LOCK = threading.Lock()


#: Pillow's modules for the formats, and its name for one. If a module is not imported, `Image.open` imports all its 70 modules.
_PLUGINS = {
    "bmp": "Bmp",
    "jpeg": "Jpeg",
    "png": "Png",
    "ppm": "Ppm",
    "tiff": "Tiff",
    "webp": "WebP",
    "jp2": "Jpeg2K",
}
_PILLOW_NAMES = {"jp2": "JPEG2000"}


def open_with_pillow(data: bytes, info: ImageInfo, order: str = "") -> Image:
    """Open an image with Pillow and decode it.

    Of RGB and RGBA of 16 bits in a PNG, Pillow keeps one byte of each value: the first one as
    `order` "B" (big-endian), and the second one as "L".

    Raises:
        Rejected: Pillow does not decode the image, warns about it, or finds another size than
            `info`.

    """
    from PIL import Image, UnidentifiedImageError

    import_module(f"PIL.{_PLUGINS[info.format]}ImagePlugin")
    if info.format == "tiff":
        tiff.silence_decoder()
    with _PILLOW_LOCK, warnings.catch_warnings():
        warnings.simplefilter("error")
        # `inspect` has checked the number of pixels.
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            if info.format in _CHANGES:
                data = _CHANGES[info.format](data)
            name = _PILLOW_NAMES.get(info.format, info.format)
            image = Image.open(io.BytesIO(data), formats=(name,))
            _check_same_size(image, info)
            if order:
                image.tile = [image.tile[0]._replace(args=f"{image.mode};16{order}")]
            image.load()
        except (Rejected, MemoryError):
            raise
        except UnidentifiedImageError:
            raise Rejected("corrupt", "Pillow cannot identify the image") from None
        except Exception as error:  # damaged images raise many kinds, for example ZeroDivisionError
            raise Rejected("corrupt", str(error) or type(error).__name__) from None
        finally:
            Image.MAX_IMAGE_PIXELS = limit
    return image


def _check_same_size(image: Image, info: ImageInfo) -> None:
    # Pillow applies the orientation of a TIFF, so width and height may be swapped.
    if sorted(image.size) != sorted((info.width, info.height)):
        size = "x".join(map(str, image.size))
        raise Rejected(
            "corrupt", f"the image states two sizes: {info.width}x{info.height} and {size} pixels"
        )


#: How the data is changed for Pillow: what it would ignore, read at great expense, or refuse without
#: need.
_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "jpeg": jpeg.without_metadata,
    "png": png.without_large_texts,
    "webp": other_formats.with_alpha_flag,
    "tiff": tiff.as_classic,
}
