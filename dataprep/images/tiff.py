"""TIFF 6.0 and BigTIFF: read the header, check that all pixels are in the file, and write them again.

A block of EXIF is a TIFF, so its orientation is read here, too.
"""

from __future__ import annotations

import ctypes
import logging
import math
import operator
import re
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import accumulate, cycle, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from dataprep.images.base import MAX_TAGS, ImageInfo, IncompleteHeader, Rejected
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind, PixelType
from manifests.process.text import plural

if TYPE_CHECKING:
    from dataprep.arrays import AnyArray

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
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_TYPE_SIZES |= {16: 8, 17: 8, 18: 8}
_INTEGERS = {3: "H", 4: "I", 16: "Q"}
_SHORT, _LONG = 3, 4
_MAX_LONG = (1 << 32) - 1
#: Types of 8 bytes in a BigTIFF, and tags whose values are places of other directories.
_LONGER, _DIRECTORIES = (16, 17, 18), (330, 34665, 34853, 40965)

_CHUNKY, _SEPARATE = 1, 2
_NO_COMPRESSION = 1
#: Compressions that DALI decodes: none, LZW, JPEG, Deflate by both of its numbers, PackBits, ZSTD.
_DECODED = (_NO_COMPRESSION, 5, 7, 8, 32946, 32773, 50000)

_Tags = dict[int, tuple[int, ...]]


class _Form(NamedTuple):
    """Byte order, and formats of an offset and of the number of tags of a directory."""

    order: str
    offset: str
    tags: str


#: By the first bytes of a file. A BigTIFF has offsets of 64 bits.
_FORMS = {
    b"II*\0": _Form("<", "<I", "<H"),
    b"MM\0*": _Form(">", ">I", ">H"),
    b"II+\0": _Form("<", "<Q", "<Q"),
    b"MM\0+": _Form(">", ">Q", ">Q"),
}
STARTS = tuple(_FORMS)
#: A file with more pages is damaged. Tags of directories that are read to find a page.
_MAX_PAGES, _MAX_READ_TAGS = 100_000, 50_000
#: Tag of what a directory is for, and its bits for reduced images and for transparency masks.
_PURPOSE, _BESIDE = 254, 1 | 4


def parse_header(data: bytes) -> ImageInfo:
    """Read the size and the kind of pixels from the first directory.

    Raises:
        Rejected: the TIFF is damaged, or DALI does not decode TIFFs of this kind.
        IncompleteHeader, struct.error, IndexError: the directory continues after `data`.

    """
    tags = _read_tags(data)
    info = _tiff_info(tags)
    coding, problem = _single(tags, _COMPRESSION, _NO_COMPRESSION), ""
    if coding not in _DECODED:
        problem = f"compression {coding}"
    elif (set(tags.get(_BITS, (1,))), set(tags.get(_SAMPLE_FORMAT, (1,)))) not in _EXACT_SAMPLES:
        problem = "values that are stored as another type"
    elif _is_photograph(tags, info):
        return info
    elif _single(tags, _PHOTOMETRIC, 1) not in _EXACT_MODELS:
        problem = f"color model {_single(tags, _PHOTOMETRIC, 1)}"
    elif info.pixels.channels > 1 and _single(tags, _PLANAR, _CHUNKY) != _CHUNKY:
        problem = "a plane for each channel"
    elif coding not in _EXACT_CODINGS or _single(tags, _PREDICTOR, 1) not in _EXACT_PREDICTORS:
        problem = f"compression {coding} or its predictor"
    elif _single(tags, _ORIENTATION, 1) != 1:
        problem = "an orientation"
    if problem:
        raise Rejected("unsupported", f"TIFF with {info.pixels} and {problem}; {_REWRITE}")
    return info


#: How users have a TIFF that DALI does not return exactly.
_REWRITE = "--transcode tiff writes it so that DALI reads it"


def parse_page(data: bytes, page: int | None) -> ImageInfo:
    """Return the size, upright, and the kind of pixels that a page has after it is rewritten.

    Raises:
        Rejected: there is no such page, or several and no choice, or the TIFF is damaged.
        IncompleteHeader, struct.error, IndexError: a directory is not in `data`.

    """
    tags = _read_tags(data, page)
    info = _tiff_info(tags)
    if info.pixels != RGB8 and _single(tags, _PHOTOMETRIC, 1) > _RGB:
        raise Rejected("unsupported", f"TIFF with {info.pixels} of a palette or CMYK")
    width, height = info.width, info.height
    if _single(tags, _ORIENTATION, 1) > _TRANSPOSED:
        width, height = height, width
    return info._replace(width=width, height=height)


def is_photograph(data: bytes, page: int | None = None) -> bool:
    """Return whether Pillow and DALI make RGB of 8 bits of a page."""
    tags = _read_tags(data, page)
    return _is_photograph(tags, _tiff_info(tags))


def has_alpha_values(data: bytes, page: int | None = None) -> bool:
    """Return whether the last channel of a page has alpha values."""
    return _read_tags(data, page).get(_EXTRA_SAMPLES, ())[-1:] in ((1,), (2,))


def _is_photograph(tags: _Tags, info: ImageInfo) -> bool:
    # Three channels of gray are RGB only if they are side by side, and Pillow does not read them.
    is_gray = _single(tags, _PHOTOMETRIC, 1) < _RGB and _single(tags, _SAMPLES, 1) > 1
    return info.pixels == RGB8 and not is_gray


def needs_rewriting(data: bytes, page: int | None) -> bool:
    """Return whether DALI does not return all values of a TIFF, or not of this page."""
    try:
        parse_header(data)
    except Rejected as error:
        return error.reason == "unsupported"
    except (IncompleteHeader, struct.error, IndexError):
        return False
    return page not in (None, 1)


#: Color models (tag 262), and the samples of a pixel of 8 bits of which decoders make RGB: gray,
#: inverted or not; RGB; a palette; CMYK, YCbCr and CIELab. Alpha values follow.
_COLOR_SAMPLES = {0: (1,), 1: (1, 3), 2: (3,), 3: (1,), 5: (4,), 6: (3,), 8: (3,)}
_RGB = 2
#: Meanings of a further sample (tag 338): alpha values that the colors are multiplied with, or not.
_ALPHA = (1, 2)
#: Orientations above this one swap width and height.
_TRANSPOSED = 4
#: Bits and format (tag 339: unsigned, signed, float) of values, and the smallest type for them.
_TIFF_TYPES: dict[tuple[int, int], PixelType] = {
    (8, 1): "uint8",
    (16, 1): "uint16",
    (8, 2): "float32",
    (16, 2): "float32",
    (16, 3): "float32",
    (32, 3): "float32",
}
#: What DALI returns bit for bit, if pixels are not RGB of 8 bits: gray and RGB; none, LZW, Deflate,
#: PackBits and ZSTD; differences of integers and of floats.
_EXACT_SAMPLES = (({8}, {1}), ({16}, {1}), ({32}, {3}))
_EXACT_MODELS, _EXACT_PREDICTORS = (1, _RGB), (1, 2, 3)
_EXACT_CODINGS = (_NO_COMPRESSION, 5, 8, 32946, 32773, 50000)
#: Tag of the value without data, as text.
_GDAL_NODATA = 42113


def _tiff_info(tags: _Tags) -> ImageInfo:
    """Return the size of a page and what a pixel of it is.

    A fourth sample that is not alpha is a channel, for example near infrared.
    """
    width, height = _single(tags, _WIDTH, 0), _single(tags, _HEIGHT, 0)
    if not width or not height:
        raise Rejected("corrupt", "the TIFF's directory has no width or height")
    samples = {*zip(tags.get(_BITS, (1,)), cycle(tags.get(_SAMPLE_FORMAT, (1,))), strict=False)}
    channels = _single(tags, _SAMPLES, 1)
    if len(samples) > 1 or not samples <= _TIFF_TYPES.keys() or channels > MAX_CHANNELS:
        depth = ", ".join(str(bits) for bits, _ in sorted(samples)[:8])
        raise Rejected("unsupported", f"TIFF with {channels} channels of {depth} bits per sample")
    kind = PixelKind(channels, _TIFF_TYPES[samples.pop()])
    model, extra = _single(tags, _PHOTOMETRIC, 1), tags.get(_EXTRA_SAMPLES, ())
    colors = kind.channels
    # Decoders read gray with alpha as RGB without a gap between its pixels.
    if model == _RGB and len(extra) == 1 and extra[0] in _ALPHA:
        colors -= 1
    if kind.dtype == "uint8" and colors in _COLOR_SAMPLES.get(model, ()):
        kind = RGB8
    return ImageInfo("tiff", width, height, kind, may_turn=True)


def as_gray(data: bytes, info: ImageInfo) -> tuple[bytes, ImageInfo]:
    """Return a TIFF of 8-bit gray with the same strips or tiles: a pixel has a byte for each byte of it.

    Pillow decodes it, whatever the channels are. The padding of tiles at the right is a part of it.
    """
    tags = _read_tags(data)
    parts = _read_layout(tags, info)
    size = info.pixels.size
    width = parts.across * parts.width * size
    gray: _Tags = {_WIDTH: (width,), _HEIGHT: (info.height,), _BITS: (8,), _PHOTOMETRIC: (1,)}
    for tag in (_COMPRESSION, _FILL_ORDER, _ROWS_PER_STRIP, _TILE_HEIGHT):
        if tag in tags:
            gray[tag] = tags[tag]
    if parts.tags is _TILES:
        gray[_TILE_WIDTH] = (parts.width * size,)
    offsets, lengths = (tags[tag] for tag in parts.tags)
    start = 8 + len(data)
    gray |= zip(parts.tags, (tuple(8 + offset for offset in offsets), lengths), strict=True)
    head = struct.pack("<4sI", b"II*\0", start)
    made = head + data + _directory(gray, start)
    return made, ImageInfo("tiff", width, info.height)


def as_classic(data: bytes) -> bytes:
    """Return a big-endian BigTIFF with another header and directory: Pillow reads these of a classic TIFF.

    All pixels stay where they are. Tags that lead to other directories are left out.
    """
    form = _FORMS[data[:4]]
    if form.order + form.offset != ">>Q":
        return data
    directory = struct.unpack_from(form.offset, data, 8)[0]
    found = {}
    for tag, stated_type, items, at in _entries(data, form, directory):
        value_type, length = stated_type, _TYPE_SIZES.get(stated_type, 0) * items
        start = struct.unpack_from(form.offset, data, at)[0] if length > 8 else at
        content = data[start : start + length]
        if value_type in _LONGER:
            numbers = struct.unpack(f">{items}Q", content)
            if max(numbers, default=0) > _MAX_LONG:  # nothing that is in a file
                continue
            value_type, content = _LONG, struct.pack(f">{items}I", *numbers)
        if tag not in _DIRECTORIES:
            found[tag] = value_type, items, content
    head = struct.pack(">4sI", b"MM\0*", len(data))
    return head + data[8:] + _pack_directory(found, len(data), ">")


def coding_of(data: bytes, info: ImageInfo) -> tuple[str, int, int]:
    """Return byte order, predictor, and pixels of a row after which the predictor begins again."""
    tags = _read_tags(data)
    return _FORMS[data[:4]].order, _single(tags, _PREDICTOR, 1), _read_layout(tags, info).width


def nodata_of(data: bytes) -> float:
    """Return the value of pixels without data that GDAL has written into a TIFF; NaN if it has not."""
    _, text = find_values(data, {_GDAL_NODATA}).get(_GDAL_NODATA, ("", b""))
    with suppress(ValueError):
        return float(text.rstrip(b"\0 "))
    return math.nan


def find_values(
    data: bytes, tags: Collection[int], page: int | None = None
) -> dict[int, tuple[str, bytes]]:
    """Return byte order and bytes of the values of some tags of a page, as far as it has them."""
    form = _FORMS[data[:4]]
    inline = struct.calcsize(form.offset)
    found = {}
    for tag, value_type, items, at in _entries(data, form, _find_directory(data, form, page)):
        if tag in tags:
            length = _TYPE_SIZES.get(value_type, 0) * items
            start = struct.unpack_from(form.offset, data, at)[0] if length > inline else at
            found[tag] = form.order, data[start : start + length]
    return found


def write_tiff(pixels: AnyArray) -> bytes:
    """Encode values [H, W, C] or [H, W] in a TIFF with Deflate whose channels are side by side."""
    height, width, channels = (*pixels.shape, 1)[:3]
    rows = max(1, _STRIP // (width * channels * pixels.itemsize))
    little, strips = pixels.astype(pixels.dtype.newbyteorder("<"), copy=False), []
    for first in range(0, height, rows):
        strips.append(zlib.compress(little[first : first + rows].tobytes()))
    lengths = tuple(map(len, strips))
    offsets = (8, *accumulate(lengths, initial=8))[1:-1]
    kind = {"u": 1, "f": 3}[pixels.dtype.kind]
    tags = {_WIDTH: (width,), _HEIGHT: (height,), _BITS: (8 * pixels.itemsize,) * channels}
    tags |= {_COMPRESSION: (8,), _PHOTOMETRIC: (1,), _STRIPS[0]: offsets, _SAMPLES: (channels,)}
    tags |= {_ROWS_PER_STRIP: (rows,), _STRIPS[1]: lengths, _SAMPLE_FORMAT: (kind,) * channels}
    if channels > 1:
        tags[_EXTRA_SAMPLES] = (0,) * (channels - 1)
    end = 8 + sum(lengths)
    return struct.pack("<4sI", b"II*\0", end) + b"".join(strips) + _directory(tags, end)


#: Bytes of a strip before compression, at least a row.
_STRIP = 1 << 18


def _directory(tags: _Tags, start: int) -> bytes:
    """Return a directory that begins at a byte, and the values that do not fit into it."""
    found = {}
    for tag, items in tags.items():
        value_type = {True: _SHORT, False: _LONG}[tag in _SHORTS]
        content = struct.pack(f"<{len(items)}{_INTEGERS[value_type]}", *items)
        found[tag] = value_type, len(items), content
    return _pack_directory(found, start, "<")


def _pack_directory(found: Mapping[int, tuple[int, int, bytes]], start: int, order: str) -> bytes:
    """Return a directory from the type, the number of values and their bytes for each tag."""
    after, entries, values = start + 6 + 12 * len(found), b"", b""
    for tag, (value_type, items, content) in sorted(found.items()):
        place = struct.pack(f"{order}I", after + len(values))
        if len(content) <= len(place):
            place = content.ljust(4, b"\0")
        else:
            values += content
        entries += struct.pack(f"{order}HHI", tag, value_type, items) + place
    return struct.pack(f"{order}H", len(found)) + entries + bytes(4) + values


def decoded_pixels(data: bytes, info: ImageInfo) -> int:
    """Return the number of pixels to decode, which includes the padding of the tiles."""
    parts = _read_layout(_read_tags(data), info)
    if parts.tags is _STRIPS:
        return info.width * info.height
    return parts.across * parts.down * parts.width * parts.height


def check_complete(data: bytes) -> None:
    """Check that all strips or tiles are in the file, and that uncompressed ones are complete.

    Raises:
        Rejected: pixels are missing, or the tags contradict each other.
        IncompleteHeader, struct.error, IndexError: the directory is incomplete.

    """
    tags, info = _read_tags(data), parse_header(data)
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


def _read_tags(data: bytes, page: int | None = None) -> _Tags:
    """Read the tags of a directory that describe the pixels.

    All values must be in the file.

    Raises:
        Rejected: the TIFF has several pages and none is given, or there is no such page, or a tag is
            damaged, or there are more values than fit into the file.

    """
    form = _FORMS[data[:4]]
    inline = struct.calcsize(form.offset)
    directory = _find_directory(data, form, page)
    tags = {}
    total = end = 0
    for tag, value_type, items, at in _entries(data, form, directory):
        if value_type not in _TYPE_SIZES:
            raise Rejected("corrupt", f"the TIFF's tag {tag} has the unknown type {value_type}")
        length = _TYPE_SIZES[value_type] * items
        # Longer values are elsewhere in the file.
        start = struct.unpack_from(form.offset, data, at)[0] if length > inline else at
        total, end = total + length, max(end, start + length)
        if tag in tags:
            raise Rejected("corrupt", f"the TIFF has its tag {tag} twice")
        if tag in _SINGLE or tag in _LISTS:
            _check_kind(tag, value_type, items)
            tags[tag] = _read_integers(data, start, items, form.order + _INTEGERS[value_type])
    if end > len(data):
        raise IncompleteHeader
    # Then values overlap: a reader that copies each value could need much more memory than the file.
    if total > end:
        raise Rejected(
            "too-large",
            f"the tags of the TIFF state {total} bytes of values in the first {end} bytes",
        )
    return tags


def _find_directory(data: bytes, form: _Form, page: int | None) -> int:
    """Return where the directory of a page begins."""
    pages: list[int] = []
    try:
        for directory in islice(_pages(data, form), page):
            pages.append(directory)
    except Rejected:
        if page or len(pages) < 2:
            raise
    if page is None and len(pages) > 1:
        raise Rejected(
            "unsupported",
            f"TIFF with {len(pages)} pages; --transcode tiff --page N writes one of them",
        )
    if len(pages) < (page or 1):
        raise Rejected("unsupported", f"TIFF with {plural(len(pages), 'page')}, but not {page}")
    return pages[-1]


def _pages(data: bytes, form: _Form) -> Iterator[int]:
    """Yield where the directory of each page begins: overviews and masks belong to a page."""
    total = 0
    for number, directory in enumerate(islice(_directories(data, form), _MAX_PAGES)):
        purpose = 0
        for tag, value_type, _, at in _entries(data, form, directory):
            total += 1
            if tag == _PURPOSE and value_type in _INTEGERS:
                purpose = struct.unpack_from(form.order + _INTEGERS[value_type], data, at)[0]
        if total > _MAX_READ_TAGS:  # a file may lead to the same directories again and again
            detail = f"TIFF with more than {_MAX_READ_TAGS} tags in its directories"
            raise Rejected("too-large", detail)
        if not number or not purpose & _BESIDE:
            yield directory


def count_pages(data: bytes) -> int:
    """Return the number of pages."""
    return sum(1 for _ in _pages(data, _FORMS[data[:4]]))


def at_page(data: bytes, page: int | None) -> bytes:
    """Return the file with the directory of a page as its first one: decoders count overviews, too."""
    form = _FORMS[data[:4]]
    size = struct.calcsize(form.offset)
    first = struct.pack(form.offset, _find_directory(data, form, page))
    return data[:size] + first + data[2 * size :]


def _directories(data: bytes, form: _Form) -> Iterator[int]:
    """Yield where each directory begins."""
    at = struct.unpack_from(form.offset, data, struct.calcsize(form.offset))[0]
    entry = 4 + 2 * struct.calcsize(form.offset)
    while at:
        yield at
        count = struct.unpack_from(form.tags, data, at)[0]
        if count > MAX_TAGS:
            raise Rejected("too-large", f"TIFF with {count} tags, but the limit is {MAX_TAGS}")
        after = at + struct.calcsize(form.tags) + entry * count
        at = struct.unpack_from(form.offset, data, after)[0]


def _entries(data: bytes, form: _Form, directory: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the tag, the type, the number of values and the place of the value of each entry."""
    count = struct.unpack_from(form.tags, data, directory)[0]
    first, size = directory + struct.calcsize(form.tags), struct.calcsize(form.offset)
    for entry in range(first, first + (4 + 2 * size) * count, 4 + 2 * size):
        tag, value_type = struct.unpack_from(form.order + "HH", data, entry)
        items = struct.unpack_from(form.offset, data, entry + 4)[0]
        yield tag, value_type, items, entry + 4 + size


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


#: The version in a block of EXIF by its byte order.
_VERSIONS = {b"II": b"*\0", b"MM": b"\0*"}


def _read_exif(block: bytes) -> int | None:
    """Return the value of the tag in the first directory.

    `None` if there is none, 0 if it has another type.
    """
    block = re.sub(b"^(?:Exif\0\0){1,2}", b"", block)
    # Cameras write other versions, too.
    form = _FORMS.get(block[:4]) or _FORMS.get(block[:2] + _VERSIONS.get(block[:2], b""))
    if form is None:
        return None
    with suppress(struct.error):
        directory = struct.unpack_from(form.offset, block, struct.calcsize(form.offset))[0]
        for tag, value_type, items, at in _entries(block, form, directory):
            if tag == _ORIENTATION:
                if items != 1 or value_type not in _INTEGERS:
                    return 0
                value: int = struct.unpack_from(form.order + _INTEGERS[value_type], block, at)[0]
                return value
    return None
