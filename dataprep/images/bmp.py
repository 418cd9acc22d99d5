"""BMP: read the header and check that all pixels are in the file."""

from __future__ import annotations

import struct

from dataprep.images.base import MAX_RLE_PIXELS, ImageInfo, Rejected

# Values of the compression field.
_NONE, _RLE8, _BITFIELDS = 0, 1, 3
_DEPTHS = {_NONE: (1, 4, 8, 24, 32), _RLE8: (8,), _BITFIELDS: (32,)}


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
        raise Rejected(
            "not-an-image",
            f"starts with 'BM' like a BMP, but no BMP has a header of {header_size} bytes",
        )
    if width <= 0 or not height:
        raise Rejected("corrupt", f"BMP of {width}x{height} pixels")
    depth, compression, colors = _read_coding(data)
    if depth not in _DEPTHS.get(compression, ()):
        coding = f", compression {compression}" if compression else ""
        raise Rejected("unsupported", f"BMP with {depth} bits per pixel{coding}")
    if depth <= 8 and colors > 1 << depth:
        raise Rejected(
            "corrupt", f"BMP of {depth} bits per pixel with a palette of {colors} colors"
        )
    if compression == _RLE8 and width * abs(height) > MAX_RLE_PIXELS:
        detail = (
            f"run-length coded BMP of {width}x{abs(height)} pixels, but the limit is"
            f" {MAX_RLE_PIXELS} pixels"
        )
        raise Rejected("too-large", detail)
    return ImageInfo("bmp", width, abs(height))


def _read_coding(data: bytes) -> tuple[int, int, int]:
    """Return the bits per pixel, the compression, and the number of colors in the palette, 0 for the default."""
    if struct.unpack_from("<I", data, 14)[0] == 12:
        return struct.unpack_from("<H", data, 24)[0], _NONE, 0
    depth, compression = struct.unpack_from("<HI", data, 28)
    return depth, compression, struct.unpack_from("<I", data, 46)[0]


def check_complete(data: bytes) -> None:
    """Check that all rows of pixels are in the file.

    Raises:
        Rejected: the file is too short, or its runs of pixels contradict its size.
        struct.error: the header is incomplete.

    """
    start = struct.unpack_from("<I", data, 10)[0]
    depth, compression, colors = _read_coding(data)
    info = parse_header(data)
    _check_palette(data, depth, colors)
    if compression == _RLE8:
        _check_runs(data, start, info)
        return
    needed = start + (info.width * depth + 31) // 32 * 4 * info.height
    if needed > len(data):
        raise Rejected("truncated", f"the BMP should be {needed} bytes, got {len(data)}")


def _check_palette(data: bytes, depth: int, colors: int) -> None:
    """Check that the file has the whole palette, which OpenCV reads even if the pixels start before its end."""
    header_size = struct.unpack_from("<I", data, 14)[0]
    color_size = 3 if header_size == 12 else 4
    end = 14 + header_size + ((colors or 1 << depth) * color_size if depth <= 8 else 0)
    if end > len(data):
        raise Rejected(
            "truncated", f"the palette of the BMP should end at byte {end}, got {len(data)} bytes"
        )


def _check_runs(data: bytes, at: int, info: ImageInfo) -> None:
    """Follow the run-length coded rows.

    Like OpenCV, which decodes BMPs for DALI, reject a run that leaves its row.
    """
    x = y = 0
    ends_row = False  # the last run filled its row, so an end-of-row code after it does not skip another row
    while y < info.height:
        length, code = _read_code(data, at)
        at += 2
        if length or code > 2:  # a repeated pixel, or `code` different ones
            x += length or code
            if x > info.width:
                raise Rejected("corrupt", f"row {y} of the BMP is longer than {info.width} pixels")
            at += 0 if length else code + code % 2
            ends_row = x == info.width
        elif code == 1:  # end of the image
            return
        else:
            if code == 2:  # skip pixels and rows
                right, down = _read_code(data, at)
                x, at = x + right + down * info.width, at + 2
            elif x or not ends_row:
                x = info.width
            ends_row = False
        y, x = y + x // info.width, x % info.width
    if at > len(data):
        raise Rejected("truncated", f"the BMP should be {at} bytes, got {len(data)}")


def _read_code(data: bytes, at: int) -> tuple[int, int]:
    if at + 2 > len(data):
        raise Rejected("truncated", f"the rows of the BMP continue after its {len(data)} bytes")
    return data[at], data[at + 1]
