"""What `--validate decode` keeps, DALI decodes on the CPU."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from helpers.bad_images import png_of, write_cases
from helpers.mutated_images import (
    SEEDS,
    body_offset,
    mutate,
    not_decoded_by_dali,
    png_chunk,
    rle_bmp,
    tiff_of,
    tiled_tiff,
)
from helpers.pictures import encode, photo
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
    draw, images = (
        random.Random(0),
        dict.fromkeys(image for images in SEEDS.values() for image in images),
    )
    assert all(map(kept, images))
    while len(images) < COUNT:
        if kept(image := mutate(draw)):
            images[image] = None
    names = list(images)
    assert [(names[index], outcome) for index, outcome in not_decoded_by_dali(names, python)] == []


def _pngs() -> Iterator[tuple[str, bytes]]:
    image = encode(photo(5, 24, 16).convert("P"), "PNG")
    start, pixels = image.index(b"PLTE") - 4, image.index(b"IDAT") - 4
    palette = image[start:pixels]
    for name, chunks in {
        "no palette": b"",
        "two palettes": palette * 2,
        "an empty palette": png_chunk(b"PLTE", b""),
        "a palette of 4 bytes": png_chunk(b"PLTE", b"1234"),
        "a palette of 257 colors": png_chunk(b"PLTE", bytes(771)),
        "an unknown critical chunk": palette + png_chunk(b"ABCD", b""),
        "a chunk without a name": palette + png_chunk(b"<{\xa8\x82", b""),
        "two headers": palette + image[8:33],
    }.items():
        yield name, image[:33] + chunks + image[pixels:]
    for at, value in ((24, 7), (25, 5), (26, 1), (27, 2), (28, 17)):
        header = image[16:at] + bytes((value,)) + image[at + 1 : 29]
        yield f"header byte {at}", image[:8] + png_chunk(b"IHDR", header) + image[33:]
    yield "1,000,001 pixels wide", png_of(1_000_001, 1, bytes(3_000_004))


def _bmps() -> Iterator[tuple[str, bytes]]:
    for name, codes in {
        "a run past the end of its row": b"\x0d\5\x0c\5",
        "no end of the image": b"\x18\5" * 15 + b"\x17\5",
        "pixels missing after the last row": b"\x18\5" * 15 + b"\0\x18" + bytes(20),
        "a skip without its size": b"\x18\5" * 15 + b"\0\2",
    }.items():
        yield name, rle_bmp(24, 16, codes)
    yield "4-bit runs", rle_bmp(24, 16, b"\x18\5" * 16 + b"\0\1", compression=2)
    one_bit = bytearray(encode(photo(5, 24, 16).convert("1"), "BMP"))
    one_bit[46] = 34
    yield "more colors than 1 bit has", bytes(one_bit)


def _tiffs() -> Iterator[tuple[str, bytes]]:
    body = body_offset(9)
    tags = {256: 16, 257: 16, 258: 8, 259: 1, 262: 1, 273: body, 277: 1, 278: 16, 279: 256}
    for name, change in {
        "neither a color model nor samples": {262: None, 277: None},
        "YCbCr with one sample": {262: 6},
        "CMYK with one sample": {262: 5},
        "a planar configuration of 0": {278: None, 284: 0},
        "a planar configuration of 256": {278: None, 284: 256},
        "strips missing": {278: 2},
    }.items():
        changed = {tag: value for tag, value in {**tags, **change}.items() if value is not None}
        changed[273] = body_offset(len(changed))
        entries = [(tag, 4 if tag in (273, 279) else 3, 1, value) for tag, value in changed.items()]
        yield name, tiff_of(entries, bytes(range(256)))
    for name, tag, kind, count in (
        ("bits in 32-bit numbers", 258, 4, 1),
        ("a sample format in 32-bit numbers", 339, 4, 1),
        ("an orientation of bytes", 274, 1, 1),
        ("an orientation without a value", 274, 3, 0),
        ("extra samples without a value", 338, 5, 0),
    ):
        entries = [
            (each, 4 if each in (273, 279) else 3, 1, value)
            for each, value in tags.items()
            if each != tag
        ]
        entries = [
            (*entry[:3], body_offset(len(entries) + 1)) if entry[0] == 273 else entry
            for entry in entries
        ]
        value = {258: 8, 339: 1, 274: 1, 338: 0}[tag]
        yield name, tiff_of([*entries, (tag, kind, count, value)], bytes(range(256)))
    tiles = bytearray(tiled_tiff(deflated=False))
    struct.pack_into("<H", tiles, 10 + 12 * 8, 330)
    yield "no offsets of the tiles", bytes(tiles)


REFUSED = dict([*_pngs(), *_bmps(), *_tiffs()])


@pytest.fixture(scope="module")
def refused_by_dali(python) -> set[str]:
    """The names of those in `REFUSED` that DALI does not decode."""
    return {
        list(REFUSED)[index] for index, _ in not_decoded_by_dali(list(REFUSED.values()), python)
    }


@pytest.mark.parametrize("name", REFUSED)
def test_images_that_dali_refuses_are_rejected(name, refused_by_dali):
    assert name in refused_by_dali
    assert not kept(REFUSED[name])


FORMATS = ("tfrecord", "webdataset")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("corpus") / "images")


@pytest.mark.parametrize("fmt", FORMATS)
def test_dali_decodes_all_images_that_decode_validation_keeps(fmt, corpus, tmp_path):
    out = tmp_path / "out"
    convert_dataset(
        read_source(str(corpus)), str(out), Options(fmt=fmt, validate="decode"), workers=1
    )
    rows = [row for row, _ in stored_samples(out)]
    images = decode_with_dali(out)
    assert len(images) == len(rows)
    for row, image in zip(rows, images, strict=True):
        turned = row.source.endswith(("orientation 6.jpg", "orientation 8.jpg", "thumbnail.jpg"))
        height, width = (row.width, row.height) if turned else (row.height, row.width)
        assert image.shape == (height, width, 3), row.source
        assert image.std() > 1 or row.width == 1, row.source


PICTURES = {
    "color.ppm": photo(1),
    "gray.pgm": photo(2).convert("L"),
    "bitmap.pbm": photo(3).convert("1"),
}


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_pixels_are_the_pixels_of_pillow(fmt, tmp_path):
    folder = tmp_path / "photos" / "a"
    folder.mkdir(parents=True)
    for name, picture in PICTURES.items():
        (folder / name).write_bytes(encode(picture, "PPM"))
    options = Options(fmt=fmt, validate="decode")
    convert_dataset(read_source(str(folder.parent)), str(tmp_path / "out"), options, workers=1)
    rows = [row for row, _ in stored_samples(tmp_path / "out")]
    assert {row.source for row in rows} == {f"a/{name}" for name in PICTURES}
    for row, image in zip(rows, decode_with_dali(tmp_path / "out"), strict=True):
        stored = Image.open(io.BytesIO((folder.parent / row.source).read_bytes()))
        pixels = np.asarray(stored.convert("RGB"))
        assert np.array_equal(image, np.broadcast_to(pixels.reshape(48, 64, -1), image.shape))
