"""JPEG 2000 (ISO/IEC 15444-1): read the header, and check that all tiles are in the file.

DALI decodes a file (`.jp2`, boxes around a codestream) and a codestream alone (`.j2k`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from dataprep.images.base import MAX_BLOCKS, MAX_TILES, ImageInfo, IncompleteHeader, Rejected
from manifests.pixels import RGB8, PixelKind, PixelType

SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
CODESTREAM = b"\xff\x4f\xff\x51"
_END, _TILE_PART, _PIXELS = b"\xff\xd9", b"\xff\x90", b"\xff\x93"

#: Values of the box ``colr``: sRGB, gray.
_SRGB, _GRAY = 16, 17
_RGBA = 4
_TYPES: dict[int, PixelType] = {8: "uint8", 16: "uint16"}


class _Boxes(NamedTuple):
    """Where the codestream begins, where it ends at the latest, and the other boxes by name."""

    start: int
    end: int
    others: dict[bytes, bytes]


def _read_boxes(data: bytes) -> _Boxes:
    """Follow the boxes to the codestream.

    Raises:
        Rejected: a box is damaged.
        struct.error, IncompleteHeader: the boxes continue after `data`.

    """
    found: dict[bytes, bytes] = {}
    if data.startswith(CODESTREAM):
        return _Boxes(0, len(data), found)
    at = len(SIGNATURE)
    while True:
        length, name = struct.unpack_from(">I4s", data, at)
        body = at + 8
        if length == 1:
            length, body = struct.unpack_from(">Q", data, body)[0], at + 16
        end = at + length if length else len(data)
        if name == b"jp2c":
            return _Boxes(body, end, found)
        if end < body:
            raise Rejected("corrupt", f"the JPEG 2000 has a box of {length} bytes")
        if name != b"jp2h" and end > len(data):
            raise IncompleteHeader
        # The box jp2h has boxes itself.
        at = body if name == b"jp2h" else end
        found.setdefault(name, data[body:at])


def parse_header(data: bytes) -> ImageInfo:
    """Read the size and the kind of pixels from the codestream.

    Raises:
        Rejected: the file is damaged, or DALI does not decode images of this kind.
        IncompleteHeader, struct.error: the header continues after `data`.

    """
    boxes = _read_boxes(data)
    right, bottom, *offset, width, height, left, top, number = struct.unpack_from(
        ">8IH", data, boxes.start + 8
    )
    parts = struct.unpack_from(f">{3 * number}B", data, boxes.start + 42)
    is_stream = data[boxes.start : boxes.start + 4] == CODESTREAM
    if not is_stream or 0 in (right, bottom, width, height, number):
        raise Rejected("corrupt", "the JPEG 2000 does not begin with its size")
    # DALI's decoders compare both headers. Depths that differ are in a box of their own.
    size = struct.pack(">IIH", bottom, right, number)
    stated = boxes.others.get(b"ihdr", b"")[:11]
    if boxes.start and stated not in (size + bytes((parts[0],)), size + b"\xff"):
        raise Rejected("corrupt", "the JPEG 2000 states two sizes or depths")
    tiles = -(-right // width) * -(-bottom // height)
    if tiles > MAX_TILES:
        raise Rejected("too-large", f"JPEG 2000 of {tiles} tiles, but the limit is {MAX_TILES}")
    _follow_markers(data, boxes.start + 2, _TILE_PART, (right, bottom, number))
    depths = {depth + 1 for depth in parts[::3]}
    problem, has_alpha = _read_colors(boxes.others, number)
    if {*offset, left, top} != {0} or {*parts[1::3], *parts[2::3]} != {1}:
        problem = "channels of several sizes or an offset"
    elif len(depths) > 1 or not depths < _TYPES.keys():
        problem = "channels that are not unsigned integers of 8 or 16 bits"
    if problem:
        raise Rejected("unsupported", f"JPEG 2000 with {problem}; convert it to PNG or TIFF first")
    pixels = PixelKind(number, _TYPES[depths.pop()])
    if has_alpha and pixels.dtype == RGB8.dtype:
        pixels = RGB8  # gray stays one channel: a codestream of it does not become RGB
    return ImageInfo("jp2", right, bottom, pixels)


def _follow_markers(data: bytes, at: int, end: bytes, size: tuple[int, int, int]) -> int:
    """Return where a header ends with a marker, and check what its coding parameters cost.

    Raises:
        Rejected: the header is damaged, or asks for too many code blocks.
        struct.error: the header continues after `data`.

    """
    while data[at : at + 2] != end:
        marker, length = struct.unpack_from(">HH", data, at)
        if marker < 0xFF00:
            raise Rejected("corrupt", f"the JPEG 2000 has no marker at byte {at}")
        # Parameters of all channels, and of one.
        start = {0xFF52: 9, 0xFF53: 6}.get(marker)
        if start:
            blocks = _count_blocks(data[at + start : at + 2 + length], *size)
            if blocks > MAX_BLOCKS:
                raise Rejected(
                    "too-large",
                    f"JPEG 2000 of {blocks} code blocks, but the limit is {MAX_BLOCKS}",
                )
        at += 2 + length
    return at


def _count_blocks(coding: bytes, width: int, height: int, channels: int) -> int:
    """Return about how many code blocks an image has, at all resolutions."""
    levels, across, down = struct.unpack_from(">3B", coding)
    precincts, total = coding[5:], 0
    for level in range(min(levels, _MAX_LEVELS) + 1):
        # A block is not larger than its precinct, which is twice as large as in its band.
        sizes = precincts[level] if level < len(precincts) else 0xFF
        x = min(across + 2, max((sizes & 15) - 1, 0))
        y = min(down + 2, max((sizes >> 4) - 1, 0))
        shift = levels - level
        total += ((width >> shift >> x) + 1) * ((height >> shift >> y) + 1)
    return total * channels


#: A file has no more.
_MAX_LEVELS = 32


def _read_colors(boxes: dict[bytes, bytes], number: int) -> tuple[str, bool]:
    """Return what is not read of the colors, and whether the last of `number` channels is alpha."""
    colors, channels = boxes.get(b"colr", b""), boxes.get(b"cdef", b"")[2:]
    plain = b"".join(struct.pack(">HHH", each, 0, each + 1) for each in range(number))
    opacity = struct.pack(">H", number - 1)
    has_alpha = channels[-6:] in (opacity + b"\0\1\0\0", opacity + b"\0\2\0\0")
    if number not in (1, 3, 4) or (has_alpha and number != _RGBA) or b"pclr" in boxes:
        return f"a palette, or {number} channels", has_alpha
    if channels not in (b"", plain) and not (has_alpha and channels[:-6] == plain[:-6]):
        return "channels in another order", has_alpha
    # An ICC profile is ignored, as in other formats.
    space = _GRAY if number == 1 else _SRGB
    if colors[:1] == b"\1" and colors[3:] != struct.pack(">I", space):
        return "other colors than gray or sRGB", has_alpha
    return "", has_alpha


def check_complete(data: bytes) -> None:
    """Follow the parts of the tiles to the end of the codestream.

    Raises:
        Rejected: a tile is missing, or the file is too short.
        struct.error: the file ends in a part.

    """
    boxes = _read_boxes(data)
    right, bottom, *_, width, height, _, _, number = struct.unpack_from(
        ">8IH", data, boxes.start + 8
    )
    size = right, bottom, number
    at, found = _follow_markers(data, boxes.start + 2, _TILE_PART, size), set()
    while data[at : at + 2] == _TILE_PART:
        tile, length = struct.unpack_from(">HI", data, at + 4)
        _follow_markers(data, at + 12, _PIXELS, size)
        found.add(tile)
        at = at + length if length else boxes.end - len(_END)
    if data[at : at + 2] != _END:
        raise Rejected("truncated", f"the JPEG 2000 has no end at byte {at} of {len(data)}")
    needed = -(-right // width) * -(-bottom // height)
    if len(found) != needed:
        raise Rejected("corrupt", f"JPEG 2000 of {needed} tiles, got {len(found)}")
