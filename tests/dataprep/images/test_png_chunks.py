"""PNG: validation keeps exactly those arrangements of chunks that DALI decodes.

So it is for short BMPs.
"""

from __future__ import annotations

import struct

import pytest
from helpers.mutated_images import is_kept, names_not_decoded_by_dali, png_chunk
from helpers.pictures import encode, photo

HEADER_END = 33  # signature and IHDR
PIXELS = encode(photo(5, 24, 16), "PNG")
INDEXED = encode(photo(5, 24, 16).convert("P"), "PNG")
BITMAP = encode(photo(5, 24, 16).convert("1"), "BMP")


def before(image: bytes, *chunks: bytes) -> bytes:
    return image[:HEADER_END] + b"".join(chunks) + image[HEADER_END:]


def after(image: bytes, *chunks: bytes) -> bytes:
    return image[:-12] + b"".join(chunks) + image[-12:]


def frame(width: int = 24, left: int = 0, dispose: int = 0, length: int = 26) -> bytes:
    content = struct.pack(">IIIIIHHBB", 0, width, 16, left, 0, 1, 10, dispose, 0)
    return png_chunk(b"fcTL", content[:length].ljust(length, b"\0"))


def frames(count: int, length: int = 8) -> bytes:
    return png_chunk(b"acTL", struct.pack(">II", count, 0)[:length].ljust(length, b"\0"))


def bitmap(header_size: int, colors: int) -> bytes:
    data = bytearray(BITMAP)
    struct.pack_into("<I", data, 14, header_size)
    struct.pack_into("<I", data, 46, colors)
    return bytes(data)


FILES = {
    "animation": before(PIXELS, frames(2)),
    "animation with a frame": before(PIXELS, frames(2), frame()),
    "animation with a later frame": after(before(PIXELS, frames(2), frame()), frame(), frame()),
    "animation of no frames": before(PIXELS, frames(0)),
    "animation cut short": before(PIXELS, frames(2, 7)),
    "animation too long": before(PIXELS, frames(2, 9)),
    "frame outside": before(PIXELS, frames(2), frame(left=1)),
    "frame too large": before(PIXELS, frame(width=25)),
    "later frame too large": after(before(PIXELS, frames(2)), frame(width=25)),
    "frame cut short": before(PIXELS, frame(length=25)),
    "frame with an unknown mode": before(PIXELS, frame(dispose=9)),
    "palette again": after(INDEXED, INDEXED[HEADER_END : INDEXED.index(b"IDAT") - 4]),
    "unused palette": before(PIXELS, png_chunk(b"PLTE", bytes(30))),
    "unused palette without colors": before(PIXELS, png_chunk(b"PLTE", b"")),
    "BMP": BITMAP,
    "BMP whose header covers its pixels": bitmap(108, 2),
    "BMP whose palette covers its pixels": bitmap(64, 2),
}


@pytest.fixture(scope="module")
def refused(python) -> set[str]:
    return names_not_decoded_by_dali(FILES, python)


@pytest.mark.parametrize("name", FILES)
def test_validation_agrees_with_dali(name, refused):
    assert is_kept(FILES[name]) == (name not in refused)
