"""BMP, PPM and WebP: read the header, and check that all pixels are in the file."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from dataprep.images.base import MAX_RLE_PIXELS, ImageInfo, IncompleteHeader, Rejected
from manifests.pixels import PixelKind

if TYPE_CHECKING:
    pass

# --- BMP ------------------------------------------------------------------------------------------

# Values of the compression field.
_NONE, _RLE8, _BITFIELDS = 0, 1, 3
_DEPTHS = {_NONE: (1, 4, 8, 24, 32), _RLE8: (8,), _BITFIELDS: (32,)}


class _Bmp(NamedTuple):
    """The second header of a BMP.

    Attributes:
        length: bytes of the header.
        color_size: bytes of a color of the palette.
        width: pixels; not positive if the BMP is damaged.
        height: pixels; negative if the first row is the top one.
        depth: bits per pixel.
        compression: 0 for none.
        colors: number of colors in the palette, 0 for the default.

    """

    length: int
    color_size: int
    width: int
    height: int
    depth: int
    compression: int
    colors: int


def _read_bmp(data: bytes) -> _Bmp:
    length = struct.unpack_from("<I", data, 14)[0]
    if length == 12:
        width, height, depth = struct.unpack_from("<HHxxH", data, 18)
        return _Bmp(length, 3, width, height, depth, _NONE, 0)
    if not 40 <= length <= 124:
        raise Rejected(
            "not-an-image",
            f"starts with 'BM' like a BMP, but no BMP has a header of {length} bytes",
        )
    return _Bmp(length, 4, *struct.unpack_from("<iixxHI12xI", data, 18))


def parse_bmp(data: bytes) -> ImageInfo:
    """Read the size from the file's second header.

    Raises:
        Rejected: the file is not a BMP, is damaged, or DALI does not decode BMPs of this kind.
        struct.error: the header continues after `data`.

    """
    bmp = _read_bmp(data)
    width, height, depth = bmp.width, abs(bmp.height), bmp.depth
    if width <= 0 or not height:
        raise Rejected("corrupt", f"BMP of {width}x{bmp.height} pixels")
    if depth not in _DEPTHS.get(bmp.compression, ()):
        coding = f", compression {bmp.compression}" if bmp.compression else ""
        raise Rejected("unsupported", f"BMP with {depth} bits per pixel{coding}")
    if depth <= 8 and bmp.colors > 1 << depth:
        raise Rejected(
            "corrupt", f"BMP of {depth} bits per pixel with a palette of {bmp.colors} colors"
        )
    if bmp.compression == _RLE8 and width * height > MAX_RLE_PIXELS:
        raise Rejected(
            "too-large",
            f"run-length coded BMP of {width}x{height} pixels, but the limit is"
            f" {MAX_RLE_PIXELS} pixels",
        )
    return ImageInfo("bmp", width, height)


def check_bmp(data: bytes) -> None:
    """Check that the palette and all rows of pixels are in the file.

    Raises:
        Rejected: the file is too short, or its runs of pixels contradict its size.
        struct.error: the header is incomplete.

    """
    start, bmp = struct.unpack_from("<I", data, 10)[0], _read_bmp(data)
    width, height, depth = bmp.width, abs(bmp.height), bmp.depth
    # OpenCV reads the whole palette even if the pixels start before its end.
    colors = (bmp.colors or 1 << depth) if depth <= 8 else 0
    end = 14 + bmp.length + colors * bmp.color_size
    if end > len(data):
        raise Rejected(
            "truncated", f"the palette of the BMP should end at byte {end}, got {len(data)} bytes"
        )
    if bmp.compression == _RLE8:
        _check_runs(data, start, width, height)
        return
    needed = start + (width * depth + 31) // 32 * 4 * height
    if needed > len(data):
        raise Rejected("truncated", f"the BMP should be {needed} bytes, got {len(data)}")


def _check_runs(data: bytes, at: int, width: int, height: int) -> None:
    """Follow the run-length coded rows.

    Like OpenCV, which decodes BMPs for DALI, reject a run that leaves its row.
    """
    x = y = 0
    # The last run filled its row: an end-of-row code after it does not skip another row.
    ends_row = False
    while y < height:
        length, code = _read_code(data, at)
        at += 2
        if length or code > 2:  # a repeated pixel, or `code` different ones
            x += length or code
            if x > width:
                raise Rejected("corrupt", f"row {y} of the BMP is longer than {width} pixels")
            at += 0 if length else code + code % 2
            ends_row = x == width
        elif code == 1:  # end of the image
            return
        else:
            if code == 2:  # skip pixels and rows
                right, down = _read_code(data, at)
                x, at = x + right + down * width, at + 2
            elif x or not ends_row:
                x = width
            ends_row = False
        y, x = y + x // width, x % width
    if at > len(data):
        raise Rejected("truncated", f"the BMP should be {at} bytes, got {len(data)}")


def _read_code(data: bytes, at: int) -> tuple[int, int]:
    if at + 2 > len(data):
        raise Rejected("truncated", f"the rows of the BMP continue after its {len(data)} bytes")
    return data[at], data[at + 1]


# --- PBM, PGM and PPM (https://netpbm.sourceforge.net/doc/) ------------------------------------------

#: The header: a digit for the kind, width, height and, but for bitmaps, the largest value. The
#: pixels follow after one byte of whitespace.
_PPM_GAP = rb"\s(?:\s|#[^\r\n]*[\r\n])*+"
_PPM = re.compile(
    rb"P(?:([14])%b(\d{1,9})%b(\d{1,9})|([2356])%b(\d{1,9})%b(\d{1,9})%b(\d{1,9}))\s"
    % ((_PPM_GAP,) * 5)
)

#: A longer header is not one.
_MAX_PPM_HEADER = 4096

_MAX_BYTE = 255

#: Bits per pixel of each kind whose pixels are not text, if the largest value is 255.
_PPM_BITS = {4: 1, 5: 8, 6: 24}


def parse_ppm(data: bytes) -> ImageInfo:
    """Read the size from the header.

    Raises:
        Rejected: the file is not a PPM, or DALI does not decode PPMs of this kind.
        IncompleteHeader: the header continues after `data`.

    """
    kind, width, height, largest, _ = _read_ppm(data)
    if kind not in _PPM_BITS:
        raise Rejected("unsupported", "PPM with pixels as text; convert it to a PPM of bytes first")
    if largest not in (1, 255, 65535):
        # DALI takes values as they are, so the image would be too dark.
        raise Rejected(
            "unsupported", f"PPM with values from 0 to {largest}; convert it to values to 255 first"
        )
    if not width or not height:
        raise Rejected("corrupt", f"PPM of {width}x{height} pixels")
    if largest > _MAX_BYTE:
        pixels = PixelKind(_PPM_BITS[kind] // 8, "uint16")
        raise Rejected("unsupported", f"PPM with {pixels}; convert it to a PNG first")
    return ImageInfo("ppm", width, height)


def check_ppm(data: bytes) -> None:
    """Check that all rows of pixels are in the file.

    Raises:
        Rejected: the file is too short.

    """
    kind, width, height, largest, start = _read_ppm(data)
    bits = width * _PPM_BITS[kind] * (1 + (largest > _MAX_BYTE))
    needed = start + (bits + 7) // 8 * height
    if needed > len(data):
        raise Rejected("truncated", f"the PPM should be {needed} bytes, got {len(data)}")


def _read_ppm(data: bytes) -> tuple[int, int, int, int, int]:
    """Return kind, width, height, largest value (1 of a bitmap), and the byte at which pixels start."""
    match = _PPM.match(data, 0, _MAX_PPM_HEADER)
    if match is None:
        text = re.sub(rb"#[^\r\n]*", b"", data[:_MAX_PPM_HEADER])
        if len(data) < _MAX_PPM_HEADER and not text.strip(b"P0123456789 \t\r\n\v\f"):
            raise IncompleteHeader
        raise Rejected("not-an-image", "starts like a PPM, but has no valid header")
    numbers = [int(each) for each in match.groups() if each is not None]
    kind, width, height, largest = (*numbers, 1)[:4]  # a bitmap does not state it
    return kind, width, height, largest, match.end()


# --- WebP (RFC 9649) ------------------------------------------------------------------------------

#: Flags of the chunk VP8X.
_HAS_ALPHA, _HAS_EXIF = 0x10, 0x08


def parse_webp(data: bytes) -> ImageInfo:
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
    return ImageInfo("webp", width, height, may_turn=True)


def check_webp(data: bytes) -> None:
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
    """Look for the EXIF block as DALI does: without padding after a chunk of odd length."""
    at = 12
    while data[at : at + 4] != b"EXIF":
        if at + 8 > len(data):
            raise Rejected(
                "unsupported",
                "a WebP whose EXIF block is missing or follows a chunk of odd length; remove its"
                " metadata first",
            )
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
