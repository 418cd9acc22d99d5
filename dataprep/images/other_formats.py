"""BMP, WebP and TIFF: read the header, and check that all pixels are in the file."""

from __future__ import annotations

import ctypes
import logging
import struct
from typing import NamedTuple

from dataprep.images.base import MAX_RLE_PIXELS, MAX_TAGS, ImageInfo, IncompleteHeader, Rejected

# --- BMP ------------------------------------------------------------------------------------------

# Values of the compression field.
_NONE, _RLE8, _BITFIELDS = 0, 1, 3
_DEPTHS = {_NONE: (1, 4, 8, 24, 32), _RLE8: (8,), _BITFIELDS: (32,)}


def parse_bmp(data: bytes) -> ImageInfo:
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


def check_bmp(data: bytes) -> None:
    """Check that all rows of pixels are in the file.

    Raises:
        Rejected: the file is too short, or its runs of pixels contradict its size.
        struct.error: the header is incomplete.

    """
    start = struct.unpack_from("<I", data, 10)[0]
    depth, compression, colors = _read_coding(data)
    info = parse_bmp(data)
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
    return ImageInfo("webp", width, height)


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


# --- TIFF 6.0 -------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_ORIENTATION, _SAMPLES, _ROWS_PER_STRIP, _PLANAR, _PREDICTOR = 274, 277, 278, 284, 317
_TILE_WIDTH, _TILE_HEIGHT, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 322, 323, 338, 339
#: Tags of strips, and of tiles.
_STRIPS, _TILES = (273, 279), (324, 325)

#: Tags that have one value for the whole image, and those that have one for each sample or part of
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
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_INTEGERS = {3: "H", 4: "I"}
_SHORT = 3

_CHUNKY, _SEPARATE = 1, 2
_NO_COMPRESSION = 1

_Tags = dict[int, tuple[int, ...]]


def parse_tiff(data: bytes) -> ImageInfo:
    """Read the size from the first directory.

    Raises:
        Rejected: the TIFF is damaged, or DALI does not decode TIFFs of this kind.
        IncompleteHeader, struct.error, IndexError: the directory continues after `data`.

    """
    tags = _read_tags(data)
    width, height = ((tags.get(tag) or (0,))[0] for tag in (_WIDTH, _HEIGHT))
    if not width or not height:
        raise Rejected("corrupt", "the TIFF's first directory has no width or height")
    bits, sample_formats = set(tags.get(_BITS, (1,))), set(tags.get(_SAMPLE_FORMAT, (1,)))
    if not bits <= {8, 16} or sample_formats != {1}:
        depth = ", ".join(map(str, sorted(bits)[:8]))
        sample_kind = "" if sample_formats == {1} else ", not unsigned integers"
        raise Rejected("unsupported", f"TIFF with {depth} bits per sample{sample_kind}")
    return ImageInfo("tiff", width, height)


def decoded_pixels(data: bytes, info: ImageInfo) -> int:
    """Return the number of pixels to decode, which includes the padding of the tiles."""
    parts = _read_layout(_read_tags(data), info)
    tiles = parts.across * parts.down * parts.width * parts.height
    return tiles if parts.tags is _TILES else info.width * info.height


def check_tiff(data: bytes) -> None:
    """Check that all strips or tiles are in the file, and that uncompressed ones have a byte for every sample.

    Raises:
        Rejected: pixels are missing, or the tags contradict each other.
        IncompleteHeader, struct.error, IndexError: the directory is incomplete.

    """
    tags, info = _read_tags(data), parse_tiff(data)
    _check_colors(tags)
    parts = _read_layout(tags, info)
    needed = parts.across * parts.down * (parts.samples if parts.planar == _SEPARATE else 1)
    offsets, lengths = tags.get(parts.tags[0], ()), tags.get(parts.tags[1], ())
    if min(len(offsets), len(lengths)) < needed:
        kind = "tiles" if parts.tags is _TILES else "strips"
        raise Rejected(
            "corrupt",
            f"the TIFF should have {needed} {kind}, got {min(len(offsets), len(lengths))}",
        )
    end = max(at + length for at, length in zip(offsets[:needed], lengths[:needed], strict=True))
    if end > len(data):
        raise Rejected("truncated", f"the TIFF should be {end} bytes, got {len(data)}")
    if (tags.get(_COMPRESSION) or (_NO_COMPRESSION,))[0] == _NO_COMPRESSION:
        _check_uncompressed(parts, info, tags[_BITS][0] if tags.get(_BITS) else 1, lengths[:needed])
    elif not all(lengths[:needed]):
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
    model, samples = (tags.get(tag, (1,))[0] for tag in (_PHOTOMETRIC, _SAMPLES))
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
        samples: samples per pixel.
        planar: whether a part has all samples of its pixels (`_CHUNKY`) or one (`_SEPARATE`).

    """

    tags: tuple[int, int]
    width: int
    height: int
    across: int
    down: int
    samples: int
    planar: int


def _read_layout(tags: _Tags, info: ImageInfo) -> _Layout:
    def single(tag: int, default: int) -> int:
        return (tags.get(tag) or (default,))[0]

    samples, planar = single(_SAMPLES, 1), single(_PLANAR, _CHUNKY)
    if planar not in (_CHUNKY, _SEPARATE) or not samples:
        raise Rejected(
            "corrupt", f"TIFF with {samples} samples per pixel and planar configuration {planar}"
        )
    if _TILE_WIDTH in tags or _TILE_HEIGHT in tags:
        width, height, kind = single(_TILE_WIDTH, 0), single(_TILE_HEIGHT, 0), _TILES
    else:
        width, height, kind = (
            info.width,
            min(single(_ROWS_PER_STRIP, info.height), info.height),
            _STRIPS,
        )
    if not width or not height:
        raise Rejected("corrupt", f"TIFF with parts of {width}x{height} pixels")
    return _Layout(
        kind, width, height, -(-info.width // width), -(-info.height // height), samples, planar
    )


def _check_uncompressed(
    parts: _Layout, info: ImageInfo, bits: int, lengths: tuple[int, ...]
) -> None:
    row = (parts.width * bits * (parts.samples if parts.planar == _CHUNKY else 1) + 7) // 8
    for number, length in enumerate(lengths):
        rows = parts.height
        if parts.tags is _STRIPS:
            rows = min(rows, info.height - number % parts.down * rows)
        if length < row * rows:
            raise Rejected(
                "corrupt",
                f"part {number} of the TIFF's pixels should be {row * rows} bytes, got {length}",
            )


def _read_tags(data: bytes) -> _Tags:
    """Read the tags of the first directory that describe the pixels.

    All values must be in the file.

    Raises:
        Rejected: the TIFF has several pages, or a tag is damaged, or there are more values than fit
            into the file.

    """
    order = "<" if data[:2] == b"II" else ">"
    directory = struct.unpack_from(order + "I", data, 4)[0]
    tags: _Tags = {}
    count = struct.unpack_from(order + "H", data, directory)[0]
    if count > MAX_TAGS:
        raise Rejected("too-large", f"TIFF with {count} tags, but the limit is {MAX_TAGS}")
    total = end = 0
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, value_type, items = struct.unpack_from(order + "HHI", data, entry)
        if value_type not in _TYPE_SIZES:
            raise Rejected("corrupt", f"the TIFF's tag {tag} has the unknown type {value_type}")
        length = _TYPE_SIZES[value_type] * items
        at = entry + 8 if length <= 4 else struct.unpack_from(order + "I", data, entry + 8)[0]
        total, end = total + length, max(end, at + length)
        if tag in tags:
            raise Rejected("corrupt", f"the TIFF has its tag {tag} twice")
        if tag in _SINGLE or tag in _LISTS:
            _check_kind(tag, value_type, items)
            tags[tag] = _read_integers(data, at, items, order + _INTEGERS[value_type])
    if struct.unpack_from(order + "I", data, directory + 2 + 12 * count)[0]:
        raise Rejected("unsupported", "TIFF with several pages")
    if end > len(data):
        raise IncompleteHeader
    if (
        total > end
    ):  # then values overlap: a reader that copies each value could need much more memory than the file
        raise Rejected(
            "too-large",
            f"the tags of the TIFF state {total} bytes of values in the first {end} bytes",
        )
    return tags


def _check_kind(tag: int, value_type: int, items: int) -> None:
    """Check the type and the number of values of a tag that describes the pixels."""
    if value_type not in _INTEGERS or not items or (tag in _SINGLE and items > 1):
        message = (
            f"the TIFF's tag {tag} should be an integer, got {items} values of type {value_type}"
        )
        raise Rejected("corrupt", message)
    if tag in _SHORTS and value_type != _SHORT:
        raise Rejected("unsupported", f"TIFF whose tag {tag} has values of more than 16 bits")


def _read_integers(data: bytes, at: int, items: int, kind: str) -> tuple[int, ...]:
    if at + items * struct.calcsize(kind) > len(data):
        raise IncompleteHeader
    return struct.unpack_from(f"{kind[0]}{items}{kind[1]}", data, at)


def silence_decoder() -> None:
    """Stop libtiff and Pillow from printing to standard error: they do not name the image, and raise an error too."""
    from PIL import _imaging

    logging.getLogger("PIL").addHandler(logging.NullHandler())
    pillow = ctypes.CDLL(_imaging.__file__)
    for function in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
        if hasattr(
            pillow, function
        ):  # not in a Pillow that hides the functions of the libraries it is linked with
            getattr(pillow, function)(None)
