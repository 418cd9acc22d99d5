"""Pure: what the first bytes of an image say, and whether its last are there. It must never decode a pixel.

Each format has two functions: one reads its size, one follows its structure to its end.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

#: A longer image is not read at all.
MAX_BYTES = 1 << 29

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
        pixels = pixels or kind == b"IDAT"
        critical = not kind[0] & 0x20
        if critical and at + 12 + length <= len(data):  # libpng, and so DALI, stops at a wrong one; Pillow does not
            stated = struct.unpack_from(">I", data, at + 8 + length)[0]
            if zlib.crc32(memoryview(data)[at + 4 : at + 8 + length]) != stated:
                raise Rejected("corrupt", f"the PNG's chunk {kind!r} at byte {at} does not match its checksum")
        at += 12 + length
        if kind == b"IEND" and at <= len(data):
            if not pixels:
                raise Rejected("corrupt", "the PNG has no IDAT chunk")
            return
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
    depth = struct.unpack_from("<H", data, 24 if header == 12 else 28)[0]
    if depth not in (1, 4, 8, 24, 32):
        raise Rejected("unsupported", f"BMP of {depth} bits a pixel")
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


_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_BITS, _TIFF_COMPRESSION, _TIFF_SAMPLES, _TIFF_KIND = 256, 257, 258, 259, 277, 339
_TIFF_OFFSETS, _TIFF_COUNTS = (273, 324), (279, 325)
#: Bytes of a value of each type (TIFF 6.0, section 2).
_TIFF_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}


def _tiff_tags(data: bytes) -> dict[int, tuple[int, ...]]:
    """Read the tags of the first directory whose values are unsigned integers; all must lie in the file."""
    order = "<" if data[:2] == b"II" else ">"
    directory = struct.unpack_from(order + "I", data, 4)[0]
    tags: dict[int, tuple[int, ...]] = {}
    count = struct.unpack_from(order + "H", data, directory)[0]
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, kind, items = struct.unpack_from(order + "HHI", data, entry)
        if kind not in _TIFF_SIZES:
            raise Rejected("corrupt", f"the TIFF's tag {tag} has the unknown type {kind}")
        length = _TIFF_SIZES[kind] * items
        at = entry + 8 if length <= 4 else struct.unpack_from(order + "I", data, entry + 8)[0]
        if at + length > len(data):
            raise MoreNeeded
        if kind in (3, 4):
            tags[tag] = struct.unpack_from(f"{order}{items}{'H' if kind == 3 else 'I'}", data, at)
    if struct.unpack_from(order + "I", data, directory + 2 + 12 * count)[0]:
        raise Rejected("unsupported", "TIFF of several pages")
    return tags


def _parse_tiff(data: bytes) -> ImageInfo:
    tags = _tiff_tags(data)
    width, height = ((tags.get(tag) or (0,))[0] for tag in (_TIFF_WIDTH, _TIFF_HEIGHT))
    if not width or not height:
        raise Rejected("corrupt", "the TIFF's first directory states no size")
    bits, kinds = set(tags.get(_TIFF_BITS, (1,))), set(tags.get(_TIFF_KIND, (1,)))
    if not bits <= {8, 16} or kinds != {1}:
        depth = ", ".join(map(str, sorted(bits)))
        raise Rejected("unsupported", f"TIFF of {depth} bits a sample{'' if kinds == {1} else ', not unsigned'}")
    return ImageInfo("tiff", width, height)


def _tiff_whole(data: bytes) -> None:
    tags, info = _tiff_tags(data), _parse_tiff(data)
    stored = 0
    for offsets, counts in zip(_TIFF_OFFSETS, _TIFF_COUNTS, strict=True):
        parts = list(zip(tags.get(offsets, ()), tags.get(counts, ()), strict=False))
        stored += sum(length for _, length in parts)
        if parts and (end := max(at + length for at, length in parts)) > len(data):
            raise Rejected("truncated", f"the TIFF needs {end} bytes and has {len(data)}")
    samples = tags.get(_TIFF_SAMPLES, (1,))[0]
    needed = info.width * info.height * samples * tags[_TIFF_BITS][0] // 8 if _TIFF_BITS in tags else 0
    compressed = tags.get(_TIFF_COMPRESSION, (1,))[0] != 1
    if not stored or (not compressed and stored < needed):
        raise Rejected("corrupt", f"the TIFF's strips hold {stored} bytes, its size needs {needed}")


def check_whole(data: bytes, info: ImageInfo) -> None:
    """Follow an image's structure to its end.

    Raises:
        Rejected: it ends before that, or contradicts itself on the way.

    """
    try:
        _WHOLE[info.format](data)
    except (struct.error, IndexError, MoreNeeded):
        raise Rejected("truncated", f"the {info.format} ends at byte {len(data)}") from None


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
