"""Images that no encoder writes, part by part, and what DALI's CPU decoder makes of images."""

from __future__ import annotations

import json
import pickle
import struct
import tempfile
import zlib

import numpy as np

from helpers import HELPERS
from helpers.pictures import photo
from helpers.warm_python import WarmPython


def not_decoded_by_dali(images: list[bytes], python: WarmPython) -> list[tuple[int, str]]:
    """Return the index of each image that DALI does not decode, and what happened instead."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pickle.dumps(images))
        file.flush()
        program = HELPERS / "dali_decodes.py"
        return json.loads(python.run(program, file.name, check=True, timeout=600).stdout)


def png_chunk(name: bytes, content: bytes) -> bytes:
    """Make a chunk of a PNG."""
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def tiff_of(tags: list[tuple[int, int, int, int]], body: bytes = b"") -> bytes:
    """Make a little-endian TIFF: its tags (tag, type, count, value or offset) in any order, then `body`."""
    entries = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags))
    for tag, kind, count, value in sorted(tags):
        is_short = kind == 3 and count == 1
        entries += struct.pack("<HHI", tag, kind, count)
        entries += struct.pack("<HH", value, 0) if is_short else struct.pack("<I", value)
    return entries + bytes(4) + body


def body_offset(tags: int) -> int:
    """Return the offset of the body in a TIFF from `tiff_of`."""
    return 8 + 2 + 12 * tags + 4


def tiled_tiff(*, deflated: bool) -> bytes:
    """Make an RGB TIFF of 32x32 pixels in tiles of 16x16."""
    pixels = np.asarray(photo(5, 32, 32))
    tiles = [pixels[y : y + 16, x : x + 16].tobytes() for y in (0, 16) for x in (0, 16)]
    tiles = [zlib.compress(tile) for tile in tiles] if deflated else tiles
    body = body_offset(10)
    ends = np.cumsum([body + 40, *map(len, tiles)]).tolist()
    tags = [
        (256, 4, 1, 32), (257, 4, 1, 32), (258, 3, 3, body), (259, 3, 1, 8 if deflated else 1),
        (262, 3, 1, 2), (277, 3, 1, 3), (322, 3, 1, 16), (323, 3, 1, 16), (324, 4, 4, body + 8),
        (325, 4, 4, body + 24),
    ]  # fmt: skip
    numbers = struct.pack("<4H4I4I", 8, 8, 8, 0, *ends[:4], *map(len, tiles))
    return tiff_of(tags, numbers + b"".join(tiles))


def rle_bmp(width: int, height: int, codes: bytes, compression: int = 1) -> bytes:
    """Make a run-length coded BMP with a gray palette."""
    palette = b"".join(bytes((level, level, level, 0)) for level in range(256))
    sizes = (40, width, height, 1, 8, compression, len(codes), 0, 0, 256, 0)
    header = struct.pack("<IiiHHIIiiII", *sizes)
    return b"BM" + struct.pack("<IHHI", 1078 + len(codes), 0, 0, 1078) + header + palette + codes
