"""WebP: validation keeps exactly those arrangements of chunks that DALI decodes."""

from __future__ import annotations

import struct

import pytest
from helpers.bad_images import exif
from helpers.mutated_images import is_kept, names_not_decoded_by_dali
from helpers.pictures import encode, photo

from dataprep.images.base import Rejected
from dataprep.images.validate import check_image

Chunk = tuple[bytes, bytes]

PIXELS: Chunk = (b"VP8 ", encode(photo(5, 24, 16), "WEBP")[20:])
EXIF: Chunk = (b"EXIF", exif(6)[6:])
ALPHA = b"ALPH"


def header(flags: int) -> Chunk:
    return b"VP8X", bytes([flags, 0, 0, 0]) + struct.pack("<I", 23)[:3] + struct.pack("<I", 15)[:3]


def webp(*chunks: Chunk) -> bytes:
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


FILES = {
    "only pixels": webp(PIXELS),
    "EXIF": webp(header(8), PIXELS, EXIF),
    "EXIF of odd length": webp(header(8), PIXELS, (b"EXIF", EXIF[1] + b"\0")),
    "EXIF first": webp(header(0x28), EXIF, (b"ICCP", bytes(115)), PIXELS),
    "EXIF after an even profile": webp(header(0x28), (b"ICCP", bytes(116)), PIXELS, EXIF),
    "EXIF after an odd profile": webp(header(0x28), (b"ICCP", bytes(115)), PIXELS, EXIF),
    "EXIF after odd XMP": webp(header(12), PIXELS, (b"XMP ", b"abc"), EXIF),
    "EXIF before odd XMP": webp(header(12), PIXELS, EXIF, (b"XMP ", b"abc")),
    "EXIF without its flag": webp(header(0x20), (b"ICCP", bytes(115)), PIXELS, EXIF),
    "flag without EXIF": webp(header(8), PIXELS),
    "an odd profile": webp(header(0x20), (b"ICCP", bytes(115)), PIXELS),
    "alpha": webp(header(0x10), (ALPHA, bytes(1 + 24 * 16)), PIXELS),
    "alpha without its flag": webp(header(0), (ALPHA, bytes(1 + 24 * 16)), PIXELS),
    "short alpha": webp(header(0x10), (ALPHA, bytes(100)), PIXELS),
    "short alpha without its flag": webp(header(0), (ALPHA, bytes(100)), PIXELS),
}


@pytest.fixture(scope="module")
def refused(python) -> set[str]:
    return names_not_decoded_by_dali(FILES, python)


@pytest.mark.parametrize("name", FILES)
def test_validation_agrees_with_dali(name, refused):
    assert is_kept(FILES[name]) == (name not in refused)


def test_the_reason_says_what_to_do():
    with pytest.raises(
        Rejected, match=r"unsupported: a WebP whose EXIF block .* remove its metadata first"
    ):
        check_image(FILES["EXIF after an odd profile"])
