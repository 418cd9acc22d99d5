"""Damaged and unusual images: each with a file name, its bytes, and the reason why it is rejected."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from helpers.mutated_images import png_chunk
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows

KEPT = ""


class Case(NamedTuple):
    """An image file, and why it is rejected at ``validation="header"`` and ``"decode"``, or `KEPT`."""

    name: str
    data: bytes
    header: str
    decode: str


def case(name: str, data: bytes, header: str = KEPT, decode: str | None = None) -> Case:
    """Make a case that both levels treat alike, unless the reason at ``"decode"`` is given."""
    return Case(name, data, header, header if decode is None else decode)


def jpeg(seed: int = 1, **options: object) -> bytes:
    return encode(photo(seed), "JPEG", **options)


def marker(data: bytes, code: int) -> int:
    """Return the offset of a JPEG's marker."""
    return data.index(bytes((0xFF, code)))


def with_frame(code: int, precision: int = 8, height: int = 48) -> bytes:
    """Make a JPEG with a changed frame header."""
    data = bytearray(jpeg())
    at = marker(data, 0xC0)
    data[at + 1], data[at + 4] = code, precision
    data[at + 5 : at + 7] = struct.pack(">H", height)
    return bytes(data)


def exif(orientation: int = 1, thumbnail: bytes = b"") -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    block = tags.tobytes()
    return block + thumbnail


#: Rows of an RGB PNG of 64x48 pixels, each after its filter byte.
ROWS = b"".join(b"\0" + row.tobytes() for row in np.asarray(photo(4)))


def interlaced_rows() -> bytes:
    """Return the same pixels in the seven passes of Adam7: every eighth pixel of every eighth row, and so on."""
    pixels = np.asarray(photo(4))
    parts = [pixels[::8, ::8], pixels[::8, 4::8], pixels[4::8, ::4], pixels[::4, 2::4]]
    parts += [pixels[2::4, ::2], pixels[::2, 1::2], pixels[1::2]]
    return b"".join(b"\0" + row.tobytes() for part in parts for row in part)


def png_of(
    width: int,
    height: int,
    pixels: bytes = b"",
    *,
    cut: int = 0,
    flip: int | None = None,
    interlaced: bool = False,
) -> bytes:
    """Make an RGB PNG with correct chunks.

    `cut` bytes of the end of the compressed stream are missing, and the byte at `flip` is changed.
    """
    stream = bytearray(zlib.compress(pixels))
    if flip is not None:
        stream[flip] ^= 0x10
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    chunks = {b"IHDR": header, b"IDAT": bytes(stream[: len(stream) - cut]), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(png_chunk, chunks, chunks.values()))


def bmp_of_16_bits() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 1 << 15, 64, np.uint16).astype("<u2").tobytes()
    header = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 16, 0, len(pixels), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, 54) + header + pixels


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :]


def without_palette(png: bytes) -> bytes:
    return png[:33] + png[png.index(b"IDAT") - 4 :]


def encoded_photo(kind: str, mode: str = "RGB", **options: object) -> bytes:
    return encode(photo(7).convert(mode), kind, **options)


def photo_of_16_bits(kind: str) -> bytes:
    pixels = np.asarray(photo(7).convert("L")).astype(np.uint16) * 257
    return encode(Image.fromarray(pixels), kind)


def animated(kind: str) -> bytes:
    out = io.BytesIO()
    photo(1).save(out, kind, save_all=True, append_images=[photo(2), photo(3)], duration=40)
    return out.getvalue()


def cases() -> Iterator[Case]:
    """Make the cases of the table beside this file."""
    whole, ppm, jp2 = jpeg(), encoded_photo("PPM"), encoded_photo("JPEG2000")
    scan = marker(whole, 0xDA)
    names = {
        **globals(),
        "whole": whole,
        "scan": scan,
        "end": scan + 2 + int.from_bytes(whole[scan + 2 : scan + 4], "big"),  # of the scan header
        "thumbnail": jpeg(exif=exif(1, encode(photo(2, 16, 12), "JPEG"))),
        "png": encoded_photo("PNG"),
        "webp": encoded_photo("WEBP"),
        "bmp": encoded_photo("BMP"),
        "ppm": ppm,
        "tiff": encoded_photo("TIFF"),
        "jp2": jp2,
    }
    for name, row in read_rows(__file__, "cases"):
        data, *reasons = evaluate(f"({row},)", names)
        yield case(name, data, *reasons)


def write_cases(folder: Path) -> Path:
    """Write an ImageFolder with all cases in one class."""
    (folder / "class").mkdir(parents=True)
    for case in cases():
        (folder / "class" / case.name).write_bytes(case.data)
    return folder


#: Unusual file names for intact images.
UNUSUAL_NAMES = (
    *(" leading blank.jpg", "two  blanks .jpg", "-rf.jpg", "--out.jpg", "line\nfeed.jpg"),
    *("tab\there.jpg", "carriage\rreturn.jpg", "bell\x07.jpg", 'double".jpg', "single'.jpg"),
    *("comma,semicolon;.jpg", "back\\slash.jpg", "dollar$(id)`id`.jpg", "per%20cent%s{}.jpg"),
    *("many.dots.in.it.jpg", "caf\u00e9.jpg", "cafe\u0301.jpg", "\u5199\u771f \U0001f4f7.jpg"),
    *("\u202eright-to-left.jpg", "upper.JPG", "x" * 200 + ".jpg"),
)

#: Intact images of every kind that is kept, for a fuzzer to start from.
IMAGES_TO_MUTATE = tuple(
    encode(photo(5, 24, 16).convert(mode), kind, **options)
    for kind, mode, options in (
        ("JPEG", "RGB", {}), ("JPEG", "RGB", {"progressive": True}), ("JPEG", "CMYK", {}),
        ("JPEG", "L", {"exif": exif(6)}), ("PNG", "RGB", {}), ("PNG", "P", {}), ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}), ("BMP", "RGB", {}), ("PPM", "RGB", {}),
        ("TIFF", "RGB", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    )
)  # fmt: skip
