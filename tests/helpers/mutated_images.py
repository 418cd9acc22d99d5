"""Damaged images of every format, made from intact ones, and what DALI's CPU decoder makes of them."""

from __future__ import annotations

import json
import pickle
import random
import struct
import tempfile
import zlib
from collections.abc import Iterator

import numpy as np

from dataprep.images.base import Rejected
from dataprep.images.validate import check_image
from helpers import HELPERS
from helpers.bad_images import IMAGES_TO_MUTATE, interlaced_rows, png_of
from helpers.pictures import encode, photo
from helpers.warm_python import WarmPython


def not_decoded_by_dali(images: list[bytes], python: WarmPython) -> list[tuple[int, str]]:
    """Return the index of each image that DALI does not decode, and what happened instead."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pickle.dumps(images))
        file.flush()
        return json.loads(
            python.run(HELPERS / "dali_decodes.py", file.name, check=True, timeout=600).stdout
        )


def names_not_decoded_by_dali(files: dict[str, bytes], python: WarmPython) -> set[str]:
    """Return the names of the images that DALI does not decode."""
    names = list(files)
    return {names[index] for index, _ in not_decoded_by_dali(list(files.values()), python)}


def is_kept(image: bytes) -> bool:
    """Return whether ``validation="decode"`` keeps an image."""
    try:
        check_image(image, "decode")
    except Rejected:
        return False
    return True


def tiff_of(tags: list[tuple[int, int, int, int]], body: bytes = b"") -> bytes:
    """Make a little-endian TIFF: its tags (tag, type, count, value or offset) in any order, then `body`."""
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags))
    entries = b"".join(
        (
            struct.pack("<HHIHH", *tag, 0)
            if tag[1] == 3 and tag[2] == 1
            else struct.pack("<HHII", *tag)
        )
        for tag in sorted(tags)
    )
    return head + entries + bytes(4) + body


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
        (256, 4, 1, 32),
        (257, 4, 1, 32),
        (258, 3, 3, body),
        (259, 3, 1, 8 if deflated else 1),
        (262, 3, 1, 2),
    ]
    tags += [
        (277, 3, 1, 3), (322, 3, 1, 16), (323, 3, 1, 16), (324, 4, 4, body + 8),
        (325, 4, 4, body + 24),
    ]  # fmt: skip
    numbers = struct.pack("<4H4I4I", 8, 8, 8, 0, *ends[:4], *map(len, tiles))
    return tiff_of(tags, numbers + b"".join(tiles))


def rle_bmp(width: int, height: int, codes: bytes, compression: int = 1) -> bytes:
    """Make a run-length coded BMP with a gray palette."""
    palette = b"".join(bytes((level, level, level, 0)) for level in range(256))
    header = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, 8, compression, len(codes), 0, 0, 256, 0
    )
    return b"BM" + struct.pack("<IHHI", 1078 + len(codes), 0, 0, 1078) + header + palette + codes


def _seeds() -> Iterator[bytes]:
    yield from IMAGES_TO_MUTATE
    picture = photo(5, 24, 16)
    for kind, mode, options in (
        *(("PNG", mode, {}) for mode in ("1", "L", "LA", "RGBA", "P")),
        *(("TIFF", mode, {}) for mode in ("L", "P", "RGBA", "CMYK")),
        *(
            ("TIFF", "RGB", {"compression": name})
            for name in ("packbits", "tiff_adobe_deflate", "jpeg")
        ),
        ("TIFF", "RGB", {"compression": "tiff_lzw", "tiffinfo": {317: 2}}),
        ("TIFF", "RGB", {"tiffinfo": {278: 4}}),
        *(("BMP", mode, {}) for mode in ("1", "L", "P")),
        *(("PPM", mode, {}) for mode in ("1", "L")),
    ):
        yield encode(picture.convert(mode), kind, **options)
    yield png_of(64, 48, interlaced_rows(), interlaced=True)
    yield tiled_tiff(deflated=False)
    yield tiled_tiff(deflated=True)
    yield rle_bmp(
        24, 16, b"".join(bytes((12, 50 + row, 12, 90, 0, 0)) for row in range(16)) + b"\0\1"
    )


#: Intact images for `mutate`, by format: JPEG, PNG, WebP, BMP, TIFF, PPM.
SEEDS: dict[bytes, list[bytes]] = {}
for _seed in _seeds():
    SEEDS.setdefault(_seed[:2], []).append(_seed)

_WORDS = (b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\1\0\0\0", b"\0\0\1\0")
_SHORTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32, 255, 256, 32773, 65535)


def mutate(draw: random.Random) -> bytes:
    """Return an image of a random format with one to three changes, most of them in its header."""
    image = draw.choice(draw.choice(list(SEEDS.values())))
    if image[:4] == b"\x89PNG":
        return mutate_png(image, draw)
    changed = bytearray(image)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        start, end = (0, len(changed)) if draw.random() < 0.4 else _header(image)
        _change(changed, min(draw.randrange(start, end), len(changed) - 1), draw)
    return bytes(changed)


def _header(image: bytes) -> tuple[int, int]:
    """Return where the header starts and ends: the directory of a TIFF, else the first 64 bytes."""
    if image[:2] != b"II":
        return 0, min(64, len(image))
    directory = struct.unpack_from("<I", image, 4)[0]
    return directory, directory + 6 + 12 * struct.unpack_from("<H", image, directory)[0]


def _change(data: bytearray, at: int, draw: random.Random) -> None:
    kind = draw.choice(("bit", "bit", "byte", "word", "short", "remove", "repeat"))
    if kind == "bit":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "byte":
        data[at] = draw.randrange(256)
    elif kind == "word":
        data[at : at + 4] = draw.choice(_WORDS)
    elif kind == "short":
        data[at : at + 2] = struct.pack("<H", draw.choice(_SHORTS))
    elif kind == "remove" and len(data) > 64:
        del data[at : at + draw.choice((1, 2, 4, 12))]
    else:
        data[at:at] = data[at : at + draw.choice((1, 4, 12, 64))]


def mutate_png(image: bytes, draw: random.Random) -> bytes:
    """Change chunks and update their checksums: otherwise, nothing behind the checksums would be reached."""
    chunks = _chunks(image)
    at = draw.randrange(len(chunks))
    name, content = chunks[at]
    kind = draw.choice(
        ("content", "content", "pixels", "name", "swap", "repeat", "remove", "split")
    )
    if kind == "content" and content:
        changed = bytearray(content)
        _change(changed, draw.randrange(len(changed)), draw)
        chunks[at] = (name, bytes(changed))
    elif kind == "pixels":
        at = next(number for number, chunk in enumerate(chunks) if chunk[0] == b"IDAT")
        rows = bytearray(zlib.decompress(chunks[at][1]))
        _change(rows, draw.randrange(len(rows)), draw)
        chunks[at] = (b"IDAT", zlib.compress(rows))
    elif kind == "name":
        chunks[at] = (
            draw.choice((b"tEXt", b"tRNS", b"ABCD", b"gAMA", b"sBIT", b"iCCP", b"eXIf", b"bKGD")),
            content,
        )
    elif kind == "swap":
        other = draw.randrange(len(chunks))
        chunks[at], chunks[other] = chunks[other], chunks[at]
    elif kind == "split":
        chunks[at : at + 1] = [(name, content[:7]), (name, content[7:])]
    else:
        chunks[at : at + 1] = [(name, content)] * (2 if kind == "repeat" else 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def png_chunk(name: bytes, content: bytes) -> bytes:
    """Make a chunk of a PNG."""
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


def _chunks(image: bytes) -> list[tuple[bytes, bytes]]:
    chunks, at = [], 8
    while at < len(image):
        length = struct.unpack_from(">I", image, at)[0]
        chunks.append((image[at + 4 : at + 8], image[at + 8 : at + 8 + length]))
        at += 12 + length
    return chunks
