"""BMP, PPM, WebP and TIFF: read the header, and check that all pixels are in the file. EXIF orientation."""

from __future__ import annotations

import ctypes
import logging
import math
import operator
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dataprep.images.base import MAX_RLE_PIXELS, MAX_TAGS, ImageInfo, IncompleteHeader, Rejected
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind, PixelType

if TYPE_CHECKING:
    from dataprep.arrays import AnyArray

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


# --- TIFF 6.0 -------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_ORIENTATION, _SAMPLES, _ROWS_PER_STRIP, _PLANAR, _PREDICTOR = 274, 277, 278, 284, 317
_TILE_WIDTH, _TILE_HEIGHT, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 322, 323, 338, 339
#: Tags of strips, and of tiles.
_STRIPS, _TILES = (273, 279), (324, 325)

#: Tags that have one value for the whole image, and tags that have one for each sample or part of
#: it.
_SINGLE = frozenset(
    {
        _WIDTH,
        _HEIGHT,
        _COMPRESSION,
        _PHOTOMETRIC,
        _FILL_ORDER,
        _SAMPLES,
        _ROWS_PER_STRIP,
        _PLANAR,
        _PREDICTOR,
    }
    | {_TILE_WIDTH, _TILE_HEIGHT, _ORIENTATION}
)
_LISTS = frozenset({_BITS, _EXTRA_SAMPLES, _SAMPLE_FORMAT, *_STRIPS, *_TILES})
#: Tags that DALI reads only with 16 bits per value.
_SHORTS = frozenset({_BITS, _SAMPLE_FORMAT})

#: Size in bytes of a value of each type (section 2), and the format of the types that are unsigned
#: integers.
_ORDERS = {b"II": "<", b"MM": ">"}
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_INTEGERS = {3: "H", 4: "I"}
_SHORT = 3

_CHUNKY, _SEPARATE = 1, 2
_NO_COMPRESSION = 1
#: Compressions that DALI decodes: none, LZW, JPEG, Deflate by both of its numbers, PackBits, ZSTD.
_DECODED = (_NO_COMPRESSION, 5, 7, 8, 32946, 32773, 50000)

_Tags = dict[int, tuple[int, ...]]


def parse_tiff(data: bytes) -> ImageInfo:
    """Read the size and the kind of pixels from the first directory.

    Raises:
        Rejected: the TIFF is damaged, or DALI does not decode TIFFs of this kind.
        IncompleteHeader, struct.error, IndexError: the directory continues after `data`.

    """
    tags = _read_tags(data)
    width, height = _single(tags, _WIDTH, 0), _single(tags, _HEIGHT, 0)
    if not width or not height:
        raise Rejected("corrupt", "the TIFF's first directory has no width or height")
    bits, sample_formats = set(tags.get(_BITS, (1,))), set(tags.get(_SAMPLE_FORMAT, (1,)))
    is_float = (bits, sample_formats) == ({32}, {_FLOAT})
    if not is_float and (bits not in ({8}, {16}) or sample_formats != {1}):
        depth = ", ".join(map(str, sorted(bits)[:8]))
        sample_kind = "" if sample_formats == {1} else ", not unsigned integers"
        raise Rejected("unsupported", f"TIFF with {depth} bits per sample{sample_kind}")
    coding = _single(tags, _COMPRESSION, _NO_COMPRESSION)
    if coding not in _DECODED:
        raise Rejected("unsupported", f"TIFF with compression {coding}; save it with Deflate first")
    return ImageInfo("tiff", width, height, _tiff_pixels(tags), may_turn=True)


#: Color models (tag 262), and the samples of a pixel of 8 bits of which decoders make RGB: gray,
#: inverted or not; RGB; a palette; CMYK, YCbCr and CIELab. Alpha values follow.
_COLOR_SAMPLES = {0: (1,), 1: (1, 3), 2: (3,), 3: (1,), 5: (4,), 6: (3,), 8: (3,)}
_RGB = 2
#: Meanings of a further sample (tag 338): alpha values that the colors are multiplied with, or not.
_ALPHA = (1, 2)
_TIFF_TYPES: dict[int, PixelType] = {8: "uint8", 16: "uint16", 32: "float32"}
#: Value of tag 339.
_FLOAT = 3
#: What DALI returns bit for bit, if pixels are not RGB of 8 bits.
_EXACT_MODELS, _EXACT_CODINGS, _EXACT_PREDICTORS = (1, _RGB), (_NO_COMPRESSION, 8, 32946), (1, 2)
#: The predictor that stores the difference of each value from the value to its left.
_DIFFERENCES = 2
#: Tag of the value without data, as text.
_GDAL_NODATA = 42113


def _tiff_pixels(tags: _Tags) -> PixelKind:
    """Return what a pixel of a TIFF is.

    A fourth sample that is not alpha is a channel, for example near infrared.
    """
    kind = PixelKind(_single(tags, _SAMPLES, 1), _TIFF_TYPES[_single(tags, _BITS, 8)])
    model, extra = _single(tags, _PHOTOMETRIC, 1), tags.get(_EXTRA_SAMPLES, ())
    colors = kind.channels
    # Decoders read gray with alpha as RGB without a gap between its pixels.
    if model == _RGB and len(extra) == 1 and extra[0] in _ALPHA:
        colors -= 1
    if kind.dtype == "uint8" and colors in _COLOR_SAMPLES.get(model, ()):
        return RGB8
    problem = ""
    if kind.channels > MAX_CHANNELS or model not in _EXACT_MODELS:
        problem = f"color model {model}"
    elif kind.channels > 1 and _single(tags, _PLANAR, _CHUNKY) != _CHUNKY:
        problem = "a plane for each channel; write the channels of a pixel side by side first"
    elif _single(tags, _COMPRESSION, _NO_COMPRESSION) not in _EXACT_CODINGS:
        problem = "another compression than Deflate; save it with Deflate or without first"
    elif _single(tags, _PREDICTOR, 1) not in _EXACT_PREDICTORS:
        problem = "a predictor for floats; save it without first"
    elif _single(tags, _ORIENTATION, 1) != 1:
        problem = "an orientation; turn the pixels first"
    if problem:
        raise Rejected("unsupported", f"TIFF with {kind} and {problem}")
    return kind


def tiff_values(data: bytes, info: ImageInfo) -> AnyArray:
    """Decode a TIFF whose pixels are not RGB of 8 bits, [H, W, C].

    Raises:
        Rejected: a part is damaged or too short.

    """
    import numpy as np  # most runs only read headers

    tags, dtype = _read_tags(data), np.dtype(info.pixels.dtype)
    parts, stored = _read_layout(tags, info), f"{_ORDERS[data[:2]]}{dtype.kind}{dtype.itemsize}"
    width, height, across = parts.width, parts.height, parts.across
    # Floats are subtracted as integers, too.
    bits, is_difference = f"u{dtype.itemsize}", _single(tags, _PREDICTOR, 1) == _DIFFERENCES
    shape = (parts.down * height, across * width, info.pixels.channels)
    values = np.zeros(shape, dtype)
    for number, part in enumerate(_parts(data, info)):
        content = b"".join(part)
        rows = len(content) // (width * info.pixels.size)
        pixels = np.frombuffer(content, stored).astype(dtype).reshape(rows, width, shape[2])
        if is_difference:
            pixels = np.cumsum(pixels.view(bits), axis=1, dtype=bits).view(dtype)
        top, left = number // across * height, number % across * width
        values[top : top + rows, left : left + width] = pixels
    return values[: info.height, : info.width]


def nodata_of(data: bytes) -> float:
    """Return the value of pixels without data that GDAL has written into a TIFF; NaN if it has not."""
    order = _ORDERS[data[:2]]
    directory = struct.unpack_from(order + "I", data, 4)[0]
    for tag, _, items, at in _entries(data, order, directory):
        if tag == _GDAL_NODATA:
            start = struct.unpack_from(order + "I", data, at)[0] if items > 4 else at
            with suppress(ValueError):
                return float(data[start : start + items].rstrip(b"\0 "))
    return math.nan


#: Bytes to decompress at a time.
_STEP = 1 << 18


def check_parts(data: bytes, info: ImageInfo) -> None:
    """Decompress the strips or tiles of a TIFF whose pixels are not RGB of 8 bits.

    Raises:
        Rejected: a part is damaged or too short.

    """
    for part in _parts(data, info):
        for _ in part:
            pass


def _parts(data: bytes, info: ImageInfo) -> Iterator[Iterator[bytes]]:
    """Yield the pieces of the strips or tiles of such a TIFF. All are as long as they should be."""
    tags = _read_tags(data)
    coding, parts = _single(tags, _COMPRESSION, _NO_COMPRESSION), _read_layout(tags, info)
    offsets, lengths = (tags[tag][: parts.number] for tag in parts.tags)
    for number, (at, length) in enumerate(zip(offsets, lengths, strict=False)):
        rows = parts.height
        if parts.tags is _STRIPS:
            rows = min(rows, info.height - number % parts.down * rows)
        needed = rows * parts.width * info.pixels.size
        if coding == _NO_COMPRESSION:
            # `check_tiff` has compared the lengths.
            yield iter([data[at : at + needed]])
        else:
            yield _inflated(data[at : at + length], needed, number)


def _inflated(rest: bytes, needed: int, number: int) -> Iterator[bytes]:
    stream, produced = zlib.decompressobj(), 0
    try:
        while rest and produced < needed:
            piece = stream.decompress(rest, min(_STEP, needed - produced))
            produced += len(piece)
            yield piece
            rest = stream.unconsumed_tail
    except zlib.error as error:
        raise Rejected("corrupt", f"part {number} of the TIFF does not decode: {error}") from None
    if produced < needed:
        detail = f"part {number} of the TIFF should be {needed} bytes, got {produced}"
        raise Rejected("corrupt", detail)


def decoded_pixels(data: bytes, info: ImageInfo) -> int:
    """Return the number of pixels to decode, which includes the padding of the tiles."""
    parts = _read_layout(_read_tags(data), info)
    if parts.tags is _STRIPS:
        return info.width * info.height
    return parts.across * parts.down * parts.width * parts.height


def check_tiff(data: bytes) -> None:
    """Check that all strips or tiles are in the file, and that uncompressed ones are complete.

    Raises:
        Rejected: pixels are missing, or the tags contradict each other.
        IncompleteHeader, struct.error, IndexError: the directory is incomplete.

    """
    tags, info = _read_tags(data), parse_tiff(data)
    _check_colors(tags)
    parts = _read_layout(tags, info)
    offsets, lengths = (tags.get(tag, ())[: parts.number] for tag in parts.tags)
    found = min(len(offsets), len(lengths))
    if found < parts.number:
        kind = "tiles" if parts.tags is _TILES else "strips"
        raise Rejected("corrupt", f"the TIFF should have {parts.number} {kind}, got {found}")
    end = max(map(operator.add, offsets, lengths))
    if end > len(data):
        raise Rejected("truncated", f"the TIFF should be {end} bytes, got {len(data)}")
    if _single(tags, _COMPRESSION, _NO_COMPRESSION) == _NO_COMPRESSION:
        _check_uncompressed(parts, info, _single(tags, _BITS, 1), lengths)
    elif not all(lengths):
        raise Rejected(
            "corrupt", f"a part of the TIFF's pixels has no bytes, number {lengths.index(0)}"
        )


#: Samples per pixel that a color model (tag 262) needs in libtiff: CMYK, YCbCr, CIELab.
_NEEDED_SAMPLES = {5: 4, 6: 3, 8: 3}


def _check_colors(tags: _Tags) -> None:
    if _PHOTOMETRIC not in tags and _SAMPLES not in tags:
        raise Rejected(
            "corrupt", "the TIFF states neither its color model nor its samples per pixel"
        )
    model, samples = _single(tags, _PHOTOMETRIC, 1), _single(tags, _SAMPLES, 1)
    if samples < _NEEDED_SAMPLES.get(model, 1):
        raise Rejected("corrupt", f"TIFF of color model {model} with {samples} samples per pixel")


class _Layout(NamedTuple):
    """How the pixels are divided into strips or tiles.

    Attributes:
        tags: the tags of the offsets and lengths of the parts, `_STRIPS` or `_TILES`.
        width: pixels per row of a part.
        height: rows of a part; the last strip may have fewer.
        across: parts side by side.
        down: parts from top to bottom.
        samples: samples of a pixel in a part.
        number: number of parts: each sample has its own if parts have one sample of a pixel.

    """

    tags: tuple[int, int]
    width: int
    height: int
    across: int
    down: int
    samples: int
    number: int


def _read_layout(tags: _Tags, info: ImageInfo) -> _Layout:
    samples, planar = _single(tags, _SAMPLES, 1), _single(tags, _PLANAR, _CHUNKY)
    if planar not in (_CHUNKY, _SEPARATE) or not samples:
        raise Rejected(
            "corrupt", f"TIFF with {samples} samples per pixel and planar configuration {planar}"
        )
    if _TILE_WIDTH in tags or _TILE_HEIGHT in tags:
        kind = _TILES
        width, height = _single(tags, _TILE_WIDTH, 0), _single(tags, _TILE_HEIGHT, 0)
    else:
        kind = _STRIPS
        width = info.width
        height = min(_single(tags, _ROWS_PER_STRIP, info.height), info.height)
    if not width or not height:
        raise Rejected("corrupt", f"TIFF with parts of {width}x{height} pixels")
    across, down = -(-info.width // width), -(-info.height // height)
    planes = {_CHUNKY: 1, _SEPARATE: samples}[planar]
    return _Layout(
        tags=kind,
        width=width,
        height=height,
        across=across,
        down=down,
        samples=samples // planes,
        number=across * down * planes,
    )


def _check_uncompressed(
    parts: _Layout, info: ImageInfo, bits: int, lengths: tuple[int, ...]
) -> None:
    row = (parts.width * bits * parts.samples + 7) // 8
    for number, length in enumerate(lengths):
        rows = parts.height
        if parts.tags is _STRIPS:
            rows = min(rows, info.height - number % parts.down * rows)
        if length < row * rows:
            raise Rejected(
                "corrupt",
                f"part {number} of the TIFF's pixels should be {row * rows} bytes, got {length}",
            )


def _single(tags: _Tags, tag: int, default: int) -> int:
    """Return the first value of a tag."""
    return tags.get(tag, (default,))[0]


def _read_tags(data: bytes) -> _Tags:
    """Read the tags of the first directory that describe the pixels.

    All values must be in the file.

    Raises:
        Rejected: the TIFF has several pages, or a tag is damaged, or there are more values than fit
            into the file.

    """
    order = _ORDERS[data[:2]]
    directory = struct.unpack_from(order + "I", data, 4)[0]
    tags = {}
    count = struct.unpack_from(order + "H", data, directory)[0]
    if count > MAX_TAGS:
        raise Rejected("too-large", f"TIFF with {count} tags, but the limit is {MAX_TAGS}")
    total = end = 0
    for tag, value_type, items, at in _entries(data, order, directory):
        if value_type not in _TYPE_SIZES:
            raise Rejected("corrupt", f"the TIFF's tag {tag} has the unknown type {value_type}")
        length = _TYPE_SIZES[value_type] * items
        # Longer values are elsewhere in the file.
        start = struct.unpack_from(order + "I", data, at)[0] if length > 4 else at
        total, end = total + length, max(end, start + length)
        if tag in tags:
            raise Rejected("corrupt", f"the TIFF has its tag {tag} twice")
        if tag in _SINGLE or tag in _LISTS:
            _check_kind(tag, value_type, items)
            tags[tag] = _read_integers(data, start, items, order + _INTEGERS[value_type])
    if struct.unpack_from(order + "I", data, directory + 2 + 12 * count)[0]:
        raise Rejected("unsupported", "TIFF with several pages")
    if end > len(data):
        raise IncompleteHeader
    # Then values overlap: a reader that copies each value could need much more memory than the file.
    if total > end:
        raise Rejected(
            "too-large",
            f"the tags of the TIFF state {total} bytes of values in the first {end} bytes",
        )
    return tags


def _entries(data: bytes, order: str, directory: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the tag, the type, the number of values and the place of the value of each entry."""
    count = struct.unpack_from(order + "H", data, directory)[0]
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, value_type, items = struct.unpack_from(order + "HHI", data, entry)
        yield tag, value_type, items, entry + 8


def _check_kind(tag: int, value_type: int, items: int) -> None:
    """Check the type and the number of values of a tag that describes the pixels."""
    if value_type not in _INTEGERS or not items or (tag in _SINGLE and items > 1):
        raise Rejected(
            "corrupt",
            f"the TIFF's tag {tag} should be an integer, got {items} values of type {value_type}",
        )
    if tag in _SHORTS and value_type != _SHORT:
        raise Rejected("unsupported", f"TIFF whose tag {tag} has values of more than 16 bits")


def _read_integers(data: bytes, at: int, items: int, kind: str) -> tuple[int, ...]:
    if at + items * struct.calcsize(kind) > len(data):
        raise IncompleteHeader
    return struct.unpack_from(f"{kind[0]}{items}{kind[1]}", data, at)


@cache
def silence_decoder() -> None:
    """Stop libtiff and Pillow from printing to standard error: they raise an error too."""
    from PIL import _imaging

    logging.getLogger("PIL").addHandler(logging.NullHandler())
    pillow = ctypes.CDLL(_imaging.__file__)
    for function in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
        # A Pillow may hide the functions of the libraries that it is linked with.
        if hasattr(pillow, function):
            getattr(pillow, function)(None)


# --- EXIF orientation (CIPA DC-008): a block of EXIF is a TIFF ------------------------------------

_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def orientation_of(metadata: Mapping[Any, Any]) -> int:
    """Return the orientation, 1 to 8, from an image's ``exif`` block or else its ``xmp`` block.

    1 if it has none.
    """
    orientation = _read_exif(_exif_block(metadata))
    if orientation is None and (match := _XMP.search(_as_bytes(metadata.get("xmp", b"")))):
        orientation = int(match[1])
    if orientation is None or not 1 <= orientation <= 8:
        return 1
    return orientation


def _exif_block(metadata: Mapping[Any, Any]) -> bytes:
    if "exif" in metadata:
        return _as_bytes(metadata["exif"])
    try:  # ImageMagick writes this text into PNGs: three lines of headings, then hexadecimal digits
        return bytes.fromhex(
            "".join(str(metadata.get("Raw profile type exif", "")).split("\n")[3:])
        )
    except ValueError:
        return b""


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "replace")


def _read_exif(block: bytes) -> int | None:
    """Return the value of the tag in the first directory.

    `None` if there is none, 0 if it has another type.
    """
    block = re.sub(b"^(?:Exif\0\0){1,2}", b"", block)
    order = _ORDERS.get(block[:2])
    if order is None:
        return None
    with suppress(struct.error):
        directory = struct.unpack_from(order + "I", block, 4)[0]
        for tag, value_type, items, at in _entries(block, order, directory):
            if tag == _ORIENTATION:
                if items != 1 or value_type not in _INTEGERS:
                    return 0
                value: int = struct.unpack_from(order + _INTEGERS[value_type], block, at)[0]
                return value
    return None
