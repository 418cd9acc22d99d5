"""PNG (ISO/IEC 15948): read the header, and check the chunks and the compressed pixels."""

from __future__ import annotations

import struct
import zlib

from dataprep.images.base import ImageInfo, Rejected


def parse_header(data: bytes) -> ImageInfo:
    """Read the size from the IHDR chunk.

    Raises:
        Rejected: the PNG is damaged.
        struct.error: the header continues after `data`.

    """
    if len(data) >= 16 and data[12:16] != b"IHDR":
        raise Rejected("corrupt", "the first chunk of the PNG is not IHDR")
    width, height = struct.unpack_from(">II", data, 16)
    if not width or not height:
        raise Rejected("corrupt", f"PNG of {width}x{height} pixels")
    return ImageInfo("png", width, height)


def check_complete(data: bytes) -> None:
    """Follow the chunks to IEND and check the checksum of each critical chunk.

    Raises:
        Rejected: a chunk is missing or its checksum is wrong.

    """
    at, has_pixels = 8, False
    while at + 12 <= len(data):
        length, chunk_type = struct.unpack_from(">I4s", data, at)
        has_pixels = has_pixels or chunk_type == b"IDAT"
        critical = not chunk_type[0] & 0x20
        # libpng stops at a wrong checksum, so DALI does too. Pillow does not.
        if critical and at + 12 + length <= len(data):
            expected = struct.unpack_from(">I", data, at + 8 + length)[0]
            if zlib.crc32(memoryview(data)[at + 4 : at + 8 + length]) != expected:
                raise Rejected("corrupt", f"the PNG's chunk {chunk_type!r} at byte {at} does not match its checksum")
        at += 12 + length
        if chunk_type == b"IEND" and at <= len(data):
            if not has_pixels:
                raise Rejected("corrupt", "the PNG has no IDAT chunk")
            return
    raise Rejected("truncated", f"the PNG has no IEND chunk in its {len(data)} bytes")


#: Bytes that may follow the last row of pixels. A PNG with more is rejected as a decompression bomb.
_MAX_EXTRA_BYTES = 1 << 20
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
#: First column, first row and steps of the seven passes of an interlaced PNG (section 8.2).
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def check_pixels(data: bytes) -> None:
    """Decompress the pixels up to the last row and the checksum after it.

    DALI needs all rows and the checksum. Pillow fills missing rows with black if the stream ends properly, and does not
    check the checksum.

    Raises:
        Rejected: rows or the checksum are missing or damaged.

    """
    stream, at, produced, needed = zlib.decompressobj(), 8, 0, _count_pixel_bytes(data)
    try:
        while not stream.eof and at + 12 <= len(data):
            length, chunk_type = struct.unpack_from(">I4s", data, at)
            remaining = data[at + 8 : at + 8 + length] if chunk_type == b"IDAT" else b""
            while remaining and not stream.eof:
                if produced > needed + _MAX_EXTRA_BYTES:
                    raise Rejected("corrupt", "the PNG's pixels continue after the last row")
                produced += len(stream.decompress(remaining, 1 << 20))
                remaining = stream.unconsumed_tail
            at += 12 + length
    except zlib.error as error:
        raise Rejected("corrupt", f"the PNG's pixels do not decompress: {error}") from None
    if produced < needed:
        raise Rejected("corrupt", f"the PNG's pixels should be {needed} bytes, got {produced}")
    if not stream.eof:
        raise Rejected("corrupt", "the PNG has no checksum after its pixels")


def _count_pixel_bytes(data: bytes) -> int:
    """Return the decompressed size of the pixels: each row is padded to whole bytes and has a filter byte."""
    width, height, depth, color_type, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    total = 0
    for left, top, step_x, step_y in _ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // step_x), -(-(height - top) // step_y)
        if columns > 0 < rows:
            total += rows * (1 + (columns * depth * _CHANNELS[color_type] + 7) // 8)
    return total
