"""WebP (RFC 9649): read the header and check the file length."""

from __future__ import annotations

import struct

from dataprep.images.base import ImageInfo, IncompleteHeader, Rejected

#: Flags of the chunk VP8X.
_HAS_ALPHA, _HAS_EXIF = 0x10, 0x08


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
    """Check that the file is as long as its RIFF header says, and that DALI finds its EXIF block.

    Raises:
        Rejected: the file is shorter, or DALI does not decode it.

    """
    expected = struct.unpack_from("<I", data, 4)[0] + 8
    if expected > len(data):
        raise Rejected("truncated", f"the WebP should be {expected} bytes, got {len(data)}")
    if data[12:16] == b"VP8X" and data[20] & _HAS_EXIF:
        _check_exif(data)


def _check_exif(data: bytes) -> None:
    """Look for the EXIF block as DALI does: it does not skip the byte of padding after a chunk of odd length."""
    at = 12
    while data[at : at + 4] != b"EXIF":
        if at + 8 > len(data):
            detail = (
                "a WebP whose EXIF block is missing or follows a chunk of odd length; remove its"
                " metadata first"
            )
            raise Rejected("unsupported", detail)
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")


def with_alpha_flag(data: bytes) -> bytes:
    """Return the file with the flag that its chunk of alpha values needs.

    Without it, Pillow ignores the chunk. DALI decodes it, and fails if it is damaged.
    """
    if data[12:16] != b"VP8X" or data[20] & _HAS_ALPHA or not _has_chunk(data, b"ALPH"):
        return data
    return data[:20] + bytes([data[20] | _HAS_ALPHA]) + data[21:]


def _has_chunk(data: bytes, name: bytes) -> bool:
    at = 12
    while at + 8 <= len(data):
        if data[at : at + 4] == name:
            return True
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + length + length % 2
    return False
