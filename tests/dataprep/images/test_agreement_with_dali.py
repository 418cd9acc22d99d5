"""What `--validate decode` keeps, DALI decodes on the CPU; what DALI does not decode is rejected."""

from __future__ import annotations

import io
import random
import struct

import numpy as np
import pytest
from fuzz.encoded import seeds
from fuzz.surfaces.images import SURFACES
from helpers.bad_images import exif, png_of, write_cases
from helpers.mutated_images import (
    body_offset,
    not_decoded_by_dali,
    png_chunk,
    rle_bmp,
    tiff_of,
    tiled_tiff,
)
from helpers.pictures import encode, photo
from helpers.rows import read_named
from helpers.shards import decode_with_dali, stored_samples
from PIL import Image

from dataprep.images.base import Rejected
from dataprep.images.validate import check_image
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

#: Mutated images that pass, for DALI to decode. `scripts/fuzz` runs more.
COUNT = 800


def kept(image: bytes) -> bool:
    try:
        check_image(image, "decode", 1 << 22)
    except Rejected as error:
        if error.reason == "failed":
            raise
        return False
    return True


def test_dali_decodes_mutated_images_that_are_kept(python):
    draw, images, intact = random.Random(0), {}, []
    surfaces = [SURFACES[name] for name in ("jpeg", "png", "webp", "bmp", "tiff", "ppm", "jp2")]
    for suffix in ("jpg", "png", "webp", "bmp", "tif", "ppm", "jp2"):
        intact += seeds(suffix)
    # PNG and PPM of 16 bits, and TIFF of one bit, are refused.
    assert sum(map(kept, intact)) == len(intact) - 3
    while len(images) < COUNT:
        case = draw.choice(surfaces).make(draw)
        del case["options"]
        images |= {image: None for image in case.values() if kept(image)}
    assert not_decoded_by_dali([*images, *filter(kept, intact)], python) == []


# --- single files ---------------------------------------------------------------------------------

HEADER_END = 33  # of a PNG: signature and IHDR
PIXELS = encode(photo(5, 24, 16), "PNG")
INDEXED = encode(photo(5, 24, 16).convert("P"), "PNG")
PALETTE = INDEXED[HEADER_END : INDEXED.index(b"IDAT") - 4]
BITMAP = encode(photo(5, 24, 16).convert("1"), "BMP")
WIDE = png_of(1_000_001, 1, bytes(3_000_004))


def before(image: bytes, *chunks: bytes) -> bytes:
    return image[:HEADER_END] + b"".join(chunks) + image[HEADER_END:]


def after(image: bytes, *chunks: bytes) -> bytes:
    return image[:-12] + b"".join(chunks) + image[-12:]


def indexed(chunks: bytes) -> bytes:
    """Make an indexed PNG with these chunks instead of its palette."""
    return before(INDEXED.replace(PALETTE, b""), chunks)


def header(at: int, value: int) -> bytes:
    """Make an indexed PNG with another byte in its header."""
    changed = INDEXED[16:at] + bytes((value,)) + INDEXED[at + 1 : 29]
    return INDEXED[:8] + png_chunk(b"IHDR", changed) + INDEXED[HEADER_END:]


def frame(width: int = 24, left: int = 0, dispose: int = 0, length: int = 26) -> bytes:
    content = struct.pack(">IIIIIHHBB", 0, width, 16, left, 0, 1, 10, dispose, 0)
    return png_chunk(b"fcTL", content[:length].ljust(length, b"\0"))


def frames(count: int, length: int = 8) -> bytes:
    return png_chunk(b"acTL", struct.pack(">II", count, 0)[:length].ljust(length, b"\0"))


def bitmap(**fields: int) -> bytes:
    """Make a BMP of two colors with another size of its header, or another number of colors."""
    data = bytearray(BITMAP)
    for name, value in fields.items():
        struct.pack_into("<I", data, {"header_size": 14, "colors": 46}[name], value)
    return bytes(data)


def runs(codes: bytes, compression: int = 1) -> bytes:
    return rle_bmp(24, 16, codes, compression)


def tiff(changes: dict[int, tuple[int, int, int] | None]) -> bytes:
    """Make a gray TIFF with other tags; a tag is a type, a count and a value, or `None` for no tag."""
    short = {256: 16, 257: 16, 258: 8, 259: 1, 262: 1, 277: 1, 278: 16}
    tags = {tag: (3, 1, value) for tag, value in short.items()} | {279: (4, 1, 256)} | changes
    found = [(tag, *value) for tag, value in tags.items() if value]
    found.append((273, 4, 1, body_offset(len(found) + 1)))
    return tiff_of(found, bytes(range(256)))


def tiles_without_offsets() -> bytes:
    data = bytearray(tiled_tiff(deflated=False))
    struct.pack_into("<H", data, 10 + 12 * 8, 330)
    return bytes(data)


Chunk = tuple[bytes, bytes]
LOSSY: Chunk = (b"VP8 ", encode(photo(5, 24, 16), "WEBP")[20:])
EXIF: Chunk = (b"EXIF", exif(6)[6:])


def profile(size: int) -> Chunk:
    return b"ICCP", bytes(size)


def alpha(size: int) -> Chunk:
    return b"ALPH", bytes(size)


def webp(flags: int | None, *chunks: Chunk) -> bytes:
    """Make a WebP: an extended one with these flags, unless they are `None`."""
    if flags is not None:
        size = struct.pack("<I", 23)[:3] + struct.pack("<I", 15)[:3]
        chunks = ((b"VP8X", bytes([flags, 0, 0, 0]) + size), *chunks)
    body = b"WEBP"
    for name, data in chunks:
        body += name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


REFUSED = read_named(__file__, "refused", globals())
FILES = {**REFUSED, **read_named(__file__, "files", globals())}


@pytest.fixture(scope="module")
def refused_by_dali(python) -> set[str]:
    names = list(FILES)
    found = {names[index] for index, _ in not_decoded_by_dali(list(FILES.values()), python)}
    assert found >= {*REFUSED}
    return found


@pytest.mark.parametrize("name", FILES)
def test_validation_agrees_with_dali(name, refused_by_dali):
    assert kept(FILES[name]) == (name not in refused_by_dali)


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_dali_decodes_all_images_that_decode_validation_keeps(fmt, tmp_path):
    """Images that DALI cannot decode by itself are compared with Pillow."""
    folder, out = write_cases(tmp_path / "images"), tmp_path / "out"
    convert_dataset(
        read_source(str(folder)), str(out), Options(fmt=fmt, validate="decode"), workers=1
    )
    rows = [row for row, _ in stored_samples(out)]
    kinds = set()
    for row, image in zip(rows, decode_with_dali(out), strict=True):
        turned = row.source.endswith(("orientation 6.jpg", "orientation 8.jpg", "thumbnail.jpg"))
        height, width = (row.width, row.height) if turned else (row.height, row.width)
        assert image.shape == (height, width, 3), row.source
        assert image.std() > 1 or row.width == 1, row.source
        stored = Image.open(io.BytesIO((folder / row.source).read_bytes()))
        if stored.format == "PPM":
            assert np.array_equal(image, np.asarray(stored.convert("RGB"))), row.source
            kinds.add(stored.mode)
    assert kinds == {"1", "L", "RGB"}
