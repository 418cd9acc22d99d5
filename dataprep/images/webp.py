"""WebP (RFC 9649): read the header and check the file length."""

from __future__ import annotations

import struct

from dataprep.images.base import ImageInfo, IncompleteHeader, Rejected


def parse_header(data: bytes) -> ImageInfo:
    """Read the size from the first chunk: extended, lossless or lossy.

    Raises:
        Rejected: the WebP is damaged or animated.
        IncompleteHeader, struct.error, IndexError: the header continues after `data`.

    """
    chunk_type = data[12:16]
    if chunk_type == b"VP8X":
        if data[20] & 0x02:
            raise Rejected("unsupported", "animated WebP")
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
        _ = data[29]  # raises IndexError if the header is incomplete; slices do not
    elif chunk_type == b"VP8L":
        if data[20] != 0x2F:
            raise Rejected("corrupt", "the lossless WebP does not have its signature")
        bits = struct.unpack_from("<I", data, 21)[0]
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif chunk_type == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a" and len(data) >= 26:
            raise Rejected("corrupt", "the WebP does not have its start code")
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif len(chunk_type) < 4:
        raise IncompleteHeader
    else:
        raise Rejected("corrupt", f"the WebP has an unknown first chunk {chunk_type!r}")
    if not width or not height:  # only a lossy WebP can state it
        raise Rejected("corrupt", f"WebP of {width}x{height} pixels")
    return ImageInfo("webp", width, height)


def check_complete(data: bytes) -> None:
    """Check that the file is as long as its RIFF header says.

    Raises:
        Rejected: the file is shorter.

    """
    expected = struct.unpack_from("<I", data, 4)[0] + 8
    if expected > len(data):
        raise Rejected("truncated", f"the WebP should be {expected} bytes, got {len(data)}")
