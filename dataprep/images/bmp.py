"""BMP: read the header and check the file length."""

from __future__ import annotations

import struct

from dataprep.images.base import ImageInfo, Rejected


def parse_header(data: bytes) -> ImageInfo:
    """Read the size from the file's second header.

    Raises:
        Rejected: the file is not a BMP, is damaged, or DALI does not decode BMPs of this kind.
        struct.error: the header continues after `data`.

    """
    header_size = struct.unpack_from("<I", data, 14)[0]
    if header_size == 12:
        width, height = struct.unpack_from("<HH", data, 18)
    elif 40 <= header_size <= 124:
        width, height = struct.unpack_from("<ii", data, 18)
    else:
        raise Rejected("not-an-image", f"starts with 'BM' like a BMP, but no BMP has a header of {header_size} bytes")
    if width <= 0 or not height:
        raise Rejected("corrupt", f"BMP of {width}x{height} pixels")
    depth = struct.unpack_from("<H", data, 24 if header_size == 12 else 28)[0]
    if depth not in (1, 4, 8, 24, 32):
        raise Rejected("unsupported", f"BMP with {depth} bits per pixel")
    return ImageInfo("bmp", width, abs(height))


def check_complete(data: bytes) -> None:
    """Check that all rows of pixels are in the file.

    Raises:
        Rejected: the file is too short.
        struct.error: the header is incomplete.

    """
    start = struct.unpack_from("<I", data, 10)[0]
    header_size = struct.unpack_from("<I", data, 14)[0]
    depth_at, compression = (24, 0) if header_size == 12 else (28, struct.unpack_from("<I", data, 30)[0])
    depth = struct.unpack_from("<H", data, depth_at)[0]
    info = parse_header(data)
    row = (info.width * depth + 31) // 32 * 4
    # The header does not give the length of run-length coded rows (compression 1 and 2).
    needed = start + (row * info.height if compression in (0, 3, 6) else 1)
    if needed > len(data):
        raise Rejected("truncated", f"the BMP should be {needed} bytes, got {len(data)}")
