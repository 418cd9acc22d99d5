"""PNG, WebP and short BMP: validation keeps exactly those arrangements of chunks that DALI decodes."""

from __future__ import annotations

import struct

import pytest
from helpers.bad_images import exif
from helpers.mutated_images import is_kept, names_not_decoded_by_dali, png_chunk
from helpers.pictures import encode, photo
from helpers.rows import read_named

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


FILES = read_named(__file__, "files", globals())

Chunk = tuple[bytes, bytes]

LOSSY: Chunk = (b"VP8 ", encode(photo(5, 24, 16), "WEBP")[20:])
EXIF: Chunk = (b"EXIF", exif(6)[6:])
ALPHA = b"ALPH"


def extended(flags: int) -> Chunk:
    return b"VP8X", bytes([flags, 0, 0, 0]) + struct.pack("<I", 23)[:3] + struct.pack("<I", 15)[:3]


def webp(*chunks: Chunk) -> bytes:
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


FILES |= {
    "only pixels": webp(LOSSY),
    "EXIF": webp(extended(8), LOSSY, EXIF),
    "EXIF of odd length": webp(extended(8), LOSSY, (b"EXIF", EXIF[1] + b"\0")),
    "EXIF first": webp(extended(0x28), EXIF, (b"ICCP", bytes(115)), LOSSY),
    "EXIF after an even profile": webp(extended(0x28), (b"ICCP", bytes(116)), LOSSY, EXIF),
    "EXIF after an odd profile": webp(extended(0x28), (b"ICCP", bytes(115)), LOSSY, EXIF),
    "EXIF after odd XMP": webp(extended(12), LOSSY, (b"XMP ", b"abc"), EXIF),
    "EXIF before odd XMP": webp(extended(12), LOSSY, EXIF, (b"XMP ", b"abc")),
    "EXIF without its flag": webp(extended(0x20), (b"ICCP", bytes(115)), LOSSY, EXIF),
    "flag without EXIF": webp(extended(8), LOSSY),
    "an odd profile": webp(extended(0x20), (b"ICCP", bytes(115)), LOSSY),
    "alpha": webp(extended(0x10), (ALPHA, bytes(1 + 24 * 16)), LOSSY),
    "alpha without its flag": webp(extended(0), (ALPHA, bytes(1 + 24 * 16)), LOSSY),
    "short alpha": webp(extended(0x10), (ALPHA, bytes(100)), LOSSY),
    "short alpha without its flag": webp(extended(0), (ALPHA, bytes(100)), LOSSY),
}


@pytest.fixture(scope="module")
def refused(python) -> set[str]:
    return names_not_decoded_by_dali(FILES, python)


@pytest.mark.parametrize("name", FILES)
def test_validation_agrees_with_dali(name, refused):
    assert is_kept(FILES[name]) == (name not in refused)
