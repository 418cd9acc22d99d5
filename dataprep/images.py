"""Pure: what some bytes are as an image, and whether they are whole. It must never open a file.

What an image *is* comes from its content: its name may say anything.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Validation = Literal["none", "header", "decode"]
VALIDATIONS: tuple[Validation, ...] = ("none", "header", "decode")

#: More pixels than this are taken for a decompression bomb, as Pillow does by default.
MAX_PIXELS = 178_956_970
#: A longer file is not read at all.
MAX_BYTES = 1 << 29

#: Reasons that `rejected.jsonl` gives, each with what it means.
REASONS = {
    "empty": "the file has no bytes",
    "not-an-image": "the content is no image format that is known here",
    "unsupported": "an image, but of a kind that DALI does not decode",
    "truncated": "the file ends before the image does",
    "corrupt": "the content contradicts itself or does not decode",
    "too-large": "more pixels or bytes than the limit",
    "unreadable": "the file system does not give the file's bytes",
    "bad-name": "the file's name is not valid UTF-8",
}

#: Extension in a WebDataset sample for each format that is kept.
EXTENSIONS = {"jpeg": "jpg", "png": "png", "webp": "webp", "bmp": "bmp", "tiff": "tif"}


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Format (a key of `EXTENSIONS`) and stored size in pixels, before EXIF orientation is applied."""

    format: str
    width: int
    height: int


class Rejected(Exception):  # noqa: N818  (an answer about an image, not an error of ours)
    """An image that must not go into a shard.

    Attributes:
        reason: a key of `REASONS`.
        detail: what exactly was found.

    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class MoreNeeded(Exception):  # noqa: N818
    """The header goes on past the bytes that were given."""


def inspect(data: bytes, validation: Validation = "header", max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Say what an encoded image is, and that it is whole.

    Args:
        data: the whole file.
        validation: ``header`` parses headers and looks for the end of the image; ``decode`` also
            decodes it, so that every byte of the entropy-coded stream is read; ``none`` asks only
            that a header with a size is there, since a record needs one.
        max_pixels: more than this are a decompression bomb.

    Raises:
        Rejected: it must not go into a shard.

    """
    try:
        info = parse_header(data)
    except MoreNeeded:
        raise Rejected("truncated", f"the header ends at byte {len(data)}") from None
    if info.width * info.height > max_pixels:
        raise Rejected("too-large", f"{info.width}x{info.height} pixels, the limit is {max_pixels}")
    if validation != "none":
        try:
            _WHOLE[info.format](data)
        except (struct.error, IndexError, MoreNeeded):
            raise Rejected("truncated", f"the {info.format} ends at byte {len(data)}") from None
    if validation == "decode":
        _decode(data, info)
    return info


def parse_header(data: bytes) -> ImageInfo:
    """Read format and size from the first bytes of an image.

    Raises:
        Rejected: it is no image, or one of a kind that DALI does not decode.
        MoreNeeded: the header goes on past `data`.

    """
    if data[:3] == b"\xff\xd8\xff":
        return _parse_jpeg(data)
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return _parse_png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _parse_webp(data)
        if data[:2] == b"BM":
            return _parse_bmp(data)
        if data[:4] in (b"II*\0", b"MM\0*"):
            return _parse_tiff(data)
    except (struct.error, IndexError):
        raise MoreNeeded from None
    raise _unknown(data)


# --- JPEG: ITU-T T.81, annex B ------------------------------------------------------------------

_SOF_BASELINE_TO_PROGRESSIVE = (0xC0, 0xC1, 0xC2)
_SOF_OTHER = {0xC3: "lossless", 0xC9: "arithmetic-coded", 0xCA: "arithmetic-coded", 0xCB: "lossless"}
_SOF_OTHER |= dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "hierarchical")
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})


def _parse_jpeg(data: bytes) -> ImageInfo:
    at, end = 2, len(data)
    while at + 9 < end:
        if data[at] != 0xFF:
            raise Rejected("corrupt", f"byte {at} of the JPEG is 0x{data[at]:02x} where a marker begins")
        marker = data[at + 1]
        if marker in _SOF_BASELINE_TO_PROGRESSIVE:
            return _jpeg_frame(data, at)
        if marker in _SOF_OTHER:
            raise Rejected("unsupported", f"{_SOF_OTHER[marker]} JPEG")
        if marker in (0xDA, 0xD9):
            raise Rejected("corrupt", f"the JPEG has no frame header before byte {at}")
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _STANDALONE:
            at += 2
        else:
            at += 2 + (data[at + 2] << 8 | data[at + 3])
    raise MoreNeeded


def _jpeg_frame(data: bytes, at: int) -> ImageInfo:
    precision = data[at + 4]
    height, width = data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8]
    if precision != 8:
        raise Rejected("unsupported", f"JPEG of {precision} bits a component")
    if not width or not height:
        raise Rejected("unsupported", f"JPEG that states its size as {width}x{height}")
    return ImageInfo("jpeg", width, height)


# A marker inside entropy-coded data: 0xFF followed by neither a stuffed zero, a restart, nor a fill byte.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")


def _jpeg_whole(data: bytes) -> None:
    if data[-2:] != b"\xff\xd9" and data.rstrip(b"\0")[-2:] != b"\xff\xd9":
        _jpeg_walk_to_end(data)


def _jpeg_walk_to_end(data: bytes) -> None:
    """Follow every marker to the end of image: the exact answer where garbage may follow it."""
    at = 2
    while (found := _MARKER.search(data, at)) is not None:
        at = found.start()
        marker = data[at + 1]
        if marker == 0xD9:
            return
        if at + 4 > len(data):
            break
        at += 2 + (data[at + 2] << 8 | data[at + 3])
    raise Rejected("truncated", f"the JPEG has no end-of-image marker in its {len(data)} bytes")


# --- PNG: ISO/IEC 15948 -------------------------------------------------------------------------


def _parse_png(data: bytes) -> ImageInfo:
    if len(data) >= 16 and data[12:16] != b"IHDR":
        raise Rejected("corrupt", "the PNG does not begin with IHDR")
    width, height = struct.unpack_from(">II", data, 16)
    if not width or not height:
        raise Rejected("corrupt", f"PNG of {width}x{height} pixels")
    return ImageInfo("png", width, height)


def _png_whole(data: bytes) -> None:
    at, pixels = 8, False
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IEND":
            if not pixels:
                raise Rejected("corrupt", "the PNG has no IDAT chunk")
            return
        pixels = pixels or kind == b"IDAT"
        at += 12 + length
    raise Rejected("truncated", f"the PNG has no IEND chunk in its {len(data)} bytes")


# --- WebP: RFC 9649 -----------------------------------------------------------------------------


def _parse_webp(data: bytes) -> ImageInfo:
    kind = data[12:16]
    if kind == b"VP8X":
        if data[20] & 0x02:
            raise Rejected("unsupported", "animated WebP")
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
        _ = data[29]
    elif kind == b"VP8L":
        if data[20] != 0x2F:
            raise Rejected("corrupt", "the lossless WebP lacks its signature")
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a" and len(data) >= 26:
            raise Rejected("corrupt", "the WebP lacks its start code")
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif len(kind) < 4:
        raise MoreNeeded
    else:
        raise Rejected("corrupt", f"WebP with a first chunk {kind!r}")
    return ImageInfo("webp", width, height)


def _webp_whole(data: bytes) -> None:
    stated = struct.unpack_from("<I", data, 4)[0] + 8
    if stated > len(data):
        raise Rejected("truncated", f"the WebP states {stated} bytes and has {len(data)}")


# --- BMP, TIFF ----------------------------------------------------------------------------------


def _parse_bmp(data: bytes) -> ImageInfo:
    header = struct.unpack_from("<I", data, 14)[0]
    if header == 12:
        width, height = struct.unpack_from("<HH", data, 18)
    elif 40 <= header <= 124:
        width, height = struct.unpack_from("<ii", data, 18)
    else:
        raise Rejected("not-an-image", f"begins with 'BM' and a header of {header} bytes, which no BMP has")
    if width <= 0 or not height:
        raise Rejected("corrupt", f"BMP of {width}x{height} pixels")
    return ImageInfo("bmp", width, abs(height))


def _bmp_whole(data: bytes) -> None:
    start = struct.unpack_from("<I", data, 10)[0]
    header = struct.unpack_from("<I", data, 14)[0]
    depth_at, compression = (24, 0) if header == 12 else (28, struct.unpack_from("<I", data, 30)[0])
    depth = struct.unpack_from("<H", data, depth_at)[0]
    info = _parse_bmp(data)
    row = (info.width * depth + 31) // 32 * 4
    # Run-length coded rows (1, 2) have no length that can be told from the header.
    needed = start + (row * info.height if compression in (0, 3, 6) else 1)
    if needed > len(data):
        raise Rejected("truncated", f"the BMP needs {needed} bytes and has {len(data)}")


_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257
_TIFF_OFFSETS, _TIFF_COUNTS = (273, 324), (279, 325)


def _tiff_tags(data: bytes) -> dict[int, tuple[int, ...]]:
    """Tags of the first directory whose values are integers (TIFF 6.0, section 2)."""
    order = "<" if data[:2] == b"II" else ">"
    directory = struct.unpack_from(order + "I", data, 4)[0]
    tags: dict[int, tuple[int, ...]] = {}
    for number in range(struct.unpack_from(order + "H", data, directory)[0]):
        entry = directory + 2 + 12 * number
        tag, kind, count = struct.unpack_from(order + "HHI", data, entry)
        if kind not in (3, 4) or tag not in (_TIFF_WIDTH, _TIFF_HEIGHT, *_TIFF_OFFSETS, *_TIFF_COUNTS):
            continue
        width = 2 if kind == 3 else 4
        at = entry + 8 if count * width <= 4 else struct.unpack_from(order + "I", data, entry + 8)[0]
        if at + count * width > len(data):
            raise MoreNeeded
        tags[tag] = struct.unpack_from(f"{order}{count}{'H' if kind == 3 else 'I'}", data, at)
    return tags


def _parse_tiff(data: bytes) -> ImageInfo:
    tags = _tiff_tags(data)
    if not tags.get(_TIFF_WIDTH) or not tags.get(_TIFF_HEIGHT):
        raise Rejected("corrupt", "the TIFF's first directory states no size")
    return ImageInfo("tiff", tags[_TIFF_WIDTH][0], tags[_TIFF_HEIGHT][0])


def _tiff_whole(data: bytes) -> None:
    tags = _tiff_tags(data)
    for offsets, counts in zip(_TIFF_OFFSETS, _TIFF_COUNTS, strict=True):
        ends = [at + n for at, n in zip(tags.get(offsets, ()), tags.get(counts, ()), strict=False)]
        if ends and max(ends) > len(data):
            raise Rejected("truncated", f"the TIFF needs {max(ends)} bytes and has {len(data)}")


_WHOLE: dict[str, Callable[[bytes], None]] = {
    "jpeg": _jpeg_whole,
    "png": _png_whole,
    "webp": _webp_whole,
    "bmp": _bmp_whole,
    "tiff": _tiff_whole,
}

# --- what is none of these ----------------------------------------------------------------------

_KNOWN_ELSEWHERE = (
    (0, b"GIF8", "GIF"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftypavis", "AVIF"),
    (4, b"ftyphei", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"8BPS", "Photoshop"),
    (0, b"\0\0\x01\0", "ICO"),
)


def _unknown(data: bytes) -> Rejected:
    if not data:
        return Rejected("empty", "0 bytes")
    for at, magic, name in _KNOWN_ELSEWHERE:
        if data[at : at + len(magic)] == magic:
            return Rejected("unsupported", f"{name}; convert it to JPEG, PNG or WebP first")
    start = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml", b"<svg")):
        return Rejected("not-an-image", "HTML or XML, a web page saved in place of an image")
    if not data.strip(b"\0"):
        return Rejected("not-an-image", f"{len(data)} zero bytes")
    return Rejected("not-an-image", f"begins with {data[:12]!r}")


# --- decoding -----------------------------------------------------------------------------------


def _decode(data: bytes, info: ImageInfo) -> None:
    if info.format == "jpeg":
        _decode_jpeg(data)
    else:
        _decode_with_pillow(data)


def _decode_jpeg(data: bytes) -> None:
    import simplejpeg

    try:
        # The least scale: libjpeg still reads the entire entropy-coded stream, and its warnings count.
        simplejpeg.decode_jpeg(data, min_height=1, min_width=1, strict=True)
    except ValueError as error:
        # simplejpeg makes no RGB of CMYK, and says so only after the header was read.
        if "CMYK" not in str(error) and "olorspace" not in str(error):
            raise Rejected("corrupt", str(error)) from None
        _decode_with_pillow(data)


def _decode_with_pillow(data: bytes) -> None:
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.load()
        except UnidentifiedImageError:
            raise Rejected("corrupt", "Pillow cannot identify it") from None
        except Image.DecompressionBombError as error:
            raise Rejected("too-large", str(error)) from None
        except (OSError, SyntaxError, ValueError, TypeError, EOFError, struct.error, Warning) as error:
            raise Rejected("corrupt", str(error) or type(error).__name__) from None
