"""PNG (ISO/IEC 15948): read the header, and check the chunks and the compressed pixels."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from dataprep.images.base import MAX_EXTRA_BYTES, MAX_TEXT_BYTES, ImageInfo, Rejected
from manifests.pixels import RGB8, PixelKind

#: Allowed bits per sample, and samples per pixel, of each color type (section 11.2.1).
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_PALETTE = 3
_GRAY_ALPHA = 2
#: Bits of a sample that do not fit into a byte.
_DEEP = 16
_PALETTE_SIZES = range(3, 3 * 256 + 1, 3)
#: Of a background: an index of the palette, a gray sample, or three samples.
_BACKGROUND_SIZES = (1, 2, 6)
#: Bit of a letter that makes it lowercase. In the first letter of a chunk's type it means that a
#: decoder need not know the chunk; in the third it is reserved (section 5.4).
_ANCILLARY = _RESERVED = 0x20


def parse_header(data: bytes) -> ImageInfo:
    """Read the size and the kind of pixels from the IHDR chunk.

    Raises:
        Rejected: the PNG is damaged.
        struct.error: the header continues after `data`.

    """
    if len(data) >= 16 and data[12:16] != b"IHDR":
        raise Rejected("corrupt", "the first chunk of the PNG is not IHDR")
    width, height = struct.unpack_from(">II", data, 16)
    if not width or not height:
        raise Rejected("corrupt", f"PNG of {width}x{height} pixels")
    depth, color_type = struct.unpack_from("BB", data, 24)
    pixels = RGB8
    if depth == _DEEP and color_type in _CHANNELS:
        pixels = PixelKind(_CHANNELS[color_type], "uint16")
    if pixels.channels == _GRAY_ALPHA:
        raise Rejected("unsupported", f"PNG with {pixels}, gray and alpha; remove alpha first")
    return ImageInfo("png", width, height, pixels, may_turn=True)


def check_complete(data: bytes) -> None:
    """Follow the chunks to IEND and check the checksum of each critical chunk.

    Raises:
        Rejected: a chunk is missing or contradicts another, or its checksum is wrong.

    """
    _check_coding(data)
    check_palette(data)
    has_pixels = False
    for chunk in _chunks(data):
        _check_type(chunk)
        if chunk.type in (b"acTL", b"fcTL"):
            _check_animation(data, chunk)
        # OpenCV, with which DALI decodes on the CPU, refuses pixels after such a background.
        is_background = chunk.type == b"bKGD" and not has_pixels
        if is_background and len(chunk.content) not in _BACKGROUND_SIZES:
            raise Rejected("corrupt", f"the PNG's {chunk} has {len(chunk.content)} bytes")
        if not chunk.type[0] & _ANCILLARY:
            # libpng stops at a wrong checksum, so DALI does too. Pillow does not.
            if chunk.end <= len(data):
                expected = int.from_bytes(data[chunk.end - 4 : chunk.end], "big")
                if zlib.crc32(chunk.content, zlib.crc32(chunk.type)) != expected:
                    raise Rejected("corrupt", f"the PNG's {chunk} does not match its checksum")
            has_pixels = has_pixels or chunk.type == b"IDAT"
            if chunk.type == b"IEND" and chunk.end <= len(data):
                if not has_pixels:
                    raise Rejected("corrupt", "the PNG has no IDAT chunk")
                return
    raise Rejected("truncated", f"the PNG has no IEND chunk in its {len(data)} bytes")


def _check_type(chunk: _Chunk) -> None:
    """Check the type of a chunk as libpng does: four letters, the third uppercase.

    Known if the chunk is critical.
    """
    known = chunk.type in (b"PLTE", b"IDAT", b"IEND") or (
        chunk.type == b"IHDR" and chunk.start == 8
    )
    is_skipped = (
        chunk.type.isalpha() and chunk.type[0] & _ANCILLARY and not chunk.type[2] & _RESERVED
    )
    if not known and not is_skipped:
        raise Rejected("corrupt", f"the PNG's {chunk} has no place in a PNG")


def _check_animation(data: bytes, chunk: _Chunk) -> None:
    """Check the chunks that count and place the frames of an animated PNG.

    DALI decodes the first frame. OpenCV, which does it on the CPU, refuses a PNG whose other frames
    are impossible.
    """
    content = chunk.content
    if chunk.type == b"acTL":
        valid = len(content) == 8 and content[:4] != bytes(4)
    elif valid := len(content) == 26:
        _, width, height, left, top, _, _, dispose, blend = struct.unpack(">IIIIIHHBB", content)
        columns, rows = struct.unpack_from(">II", data, 16)
        valid = left + width <= columns and top + height <= rows and dispose <= 2 and blend <= 1
    if not valid:
        raise Rejected("corrupt", f"the PNG's {chunk} states an impossible animation")


def _check_coding(data: bytes) -> None:
    """Check the rest of the IHDR chunk."""
    depth, color_type, compression, filters, interlaced = struct.unpack_from(">5B", data, 24)
    if depth not in _DEPTHS.get(color_type, ()):
        raise Rejected("corrupt", f"PNG with color type {color_type} and {depth} bits per sample")
    if compression or filters or interlaced > 1 or data[8:12] != b"\0\0\0\r":
        detail = f"compression {compression}, filter {filters} and interlacing {interlaced}"
        raise Rejected("corrupt", f"PNG with the unknown {detail}")


def check_palette(data: bytes) -> None:
    """Check that a PNG whose pixels are indexes of a palette has one.

    Raises:
        Rejected: the PNG has no valid palette before its pixels, or more than one.

    """
    before_pixels = takewhile(lambda chunk: chunk.type != b"IDAT", _chunks(data))
    sizes = [chunk.end - chunk.start - 12 for chunk in before_pixels if chunk.type == b"PLTE"]
    palettes = (
        sum(chunk.type == b"PLTE" for chunk in _chunks(data))
        if data[25] == _PALETTE
        else len(sizes)
    )
    if palettes > 1:
        raise Rejected("corrupt", f"the PNG has {palettes} palettes")
    if 0 in sizes:
        raise Rejected("corrupt", "the PNG has a palette without colors")
    if data[25] == _PALETTE and (not sizes or sizes[0] not in _PALETTE_SIZES):
        found = f"its palette has {sizes[0]} bytes" if sizes else "it has no palette before them"
        raise Rejected("corrupt", f"the PNG's pixels are indexes of a palette, but {found}")


class _Chunk(NamedTuple):
    """A chunk: its type, the byte where it starts, the byte after its checksum, and its content."""

    type: bytes
    start: int
    end: int
    content: memoryview

    def __str__(self) -> str:
        return f"chunk {self.type!r} at byte {self.start}"


def _chunks(data: bytes) -> Iterator[_Chunk]:
    """Yield the chunks in order. The last one may end after `data`."""
    view, at = memoryview(data), 8
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        yield _Chunk(data[at + 4 : at + 8], at, end, view[at + 8 : end - 4])
        at = end


#: First column, first row and steps of the seven passes of an interlaced PNG (section 8.2).
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
#: Bytes to decompress at a time, and at most as many to pass to zlib, which copies what it leaves.
_STEP = 1 << 18


def check_pixels(data: bytes) -> None:
    """Decompress the pixels up to the last row and the checksum after it.

    DALI needs all rows and the checksum. Pillow fills missing rows with black if the stream ends
    properly, and does not check the checksum.

    Raises:
        Rejected: rows or the checksum are missing or damaged.

    """
    stream, produced, needed = zlib.decompressobj(), 0, _count_pixel_bytes(data)
    try:
        for part in _pixel_parts(data):
            remaining: bytes | memoryview = part
            while remaining and not stream.eof:
                if produced > needed + MAX_EXTRA_BYTES:
                    raise Rejected("corrupt", "the PNG's pixels continue after the last row")
                produced += len(stream.decompress(remaining, _STEP))
                remaining = stream.unconsumed_tail
            if stream.eof:
                break
    except zlib.error as error:
        raise Rejected("corrupt", f"the PNG's pixels do not decompress: {error}") from None
    if produced < needed:
        raise Rejected("corrupt", f"the PNG's pixels should be {needed} bytes, got {produced}")
    if not stream.eof:
        raise Rejected("corrupt", "the PNG has no checksum after its pixels")


def _pixel_parts(data: bytes) -> Iterator[memoryview]:
    """Yield the compressed pixels in parts of up to `_STEP` bytes."""
    for chunk in _chunks(data):
        if chunk.type == b"IDAT":
            for at in range(0, len(chunk.content), _STEP):
                yield chunk.content[at : at + _STEP]


def _count_pixel_bytes(data: bytes) -> int:
    """Return the decompressed size of the pixels.

    Each row is padded to whole bytes and has a filter byte.
    """
    width, height, depth, color_type, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    total = 0
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    for left, top, step_x, step_y in passes:
        columns, rows = -(-(width - left) // step_x), -(-(height - top) // step_y)
        if columns > 0 < rows:
            total += rows * (1 + (columns * depth * _CHANNELS[color_type] + 7) // 8)
    return total


#: Chunks with compressed data, and chunks of an animation. A decoder of the first image needs
#: neither.
_TEXTS = (b"iCCP", b"zTXt", b"iTXt", b"tEXt")
_ANIMATION = (b"acTL", b"fcTL", b"fdAT")


def without_large_texts(data: bytes) -> bytes:
    """Leave out large texts and color profiles, which Pillow would refuse, and animation frames.

    Returns:
        `data` itself if there are none.

    """
    view, kept, copied, texts = memoryview(data), [], 0, 0
    for chunk in _chunks(data):
        if chunk.type in _TEXTS:
            size = _text_size(chunk) if texts <= 8 * MAX_TEXT_BYTES else 0
            texts += size
            drop = size >= MAX_TEXT_BYTES or texts > 8 * MAX_TEXT_BYTES
        else:
            drop = chunk.type in _ANIMATION
        if drop:
            kept.append(view[copied : chunk.start])
            copied = chunk.end
    if not copied:
        return data
    return b"".join([*kept, view[copied:]])


def _text_size(chunk: _Chunk) -> int:
    """Return the decompressed size of a text or color profile, at most `MAX_TEXT_BYTES`."""
    content = bytes(chunk.content)
    text = content.partition(b"\0")[2]  # after the keyword
    if chunk.type == b"iTXt" and text[:1] == b"\1":
        # The text is after the language and the translated keyword.
        packed = text[2:].partition(b"\0")[2].partition(b"\0")[2]
    elif chunk.type in (b"iCCP", b"zTXt"):
        packed = text[1:]
    else:
        return len(content)
    try:
        return len(zlib.decompressobj().decompress(packed, MAX_TEXT_BYTES))
    except zlib.error:
        return len(content)
