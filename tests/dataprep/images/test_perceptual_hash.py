"""Perceptual hashes of photographs: near for copies, far for others, and exact under rotation and reflection."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.photographs import photograph
from helpers.pictures import encode, photo
from PIL import Image, ImageEnhance

from dataprep.duplicates.pixels import SYMMETRIES, parse_hashes, transform_hashes, transform_pixels
from dataprep.duplicates.search import distances
from dataprep.images.base import ImageInfo
from dataprep.images.perceptual_hash import hash_image, hash_pixels, reduce_image
from dataprep.images.validate import check_image

NAMES = ("astronaut", "chelsea", "coffee")


def hash_of(data):
    return parse_hashes(hash_image(data, check_image(data, "header")))


def picture(name):
    return Image.fromarray(photograph(name))


CHANGES = {
    "recompressed": lambda image: encode(image, quality=50),
    "half the size": lambda image: encode(image.reduce(2), quality=60),
    "brighter": lambda image: encode(ImageEnhance.Brightness(image).enhance(1.3), quality=90),
    "gray": lambda image: encode(image.convert("L")),
    "PNG": lambda image: encode(image, "PNG"),
    "WebP": lambda image: encode(image, "WEBP", quality=70),
    "CMYK": lambda image: encode(image.convert("CMYK")),
    "palette": lambda image: encode(image.quantize(128), "PNG"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_changed_copy_is_near(name, change):
    original = encode(picture(name), "JPEG", quality=92)
    assert distances(hash_of(original), hash_of(CHANGES[change](picture(name)))) <= 24


def test_other_photographs_are_far():
    hashes = np.concatenate([hash_of(encode(picture(name))) for name in NAMES])
    for symmetry in SYMMETRIES:
        far = distances(hashes[:, None], transform_hashes(hashes, symmetry)[None])
        assert far[~np.eye(len(NAMES), dtype=bool)].min() > 80


@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_symmetries_are_exact(symmetry):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, 32, 32), np.uint8)
    hashes = parse_hashes("".join(map(hash_pixels, pixels)))
    turned = parse_hashes("".join(map(hash_pixels, transform_pixels(pixels, symmetry))))
    assert (transform_hashes(hashes, symmetry) == turned).all()


def test_names_of_the_symmetries():
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4)
    expected = {
        "identical": pixels,
        "mirrored": np.fliplr(pixels),
        "flipped": np.flipud(pixels),
        "rotated 180": np.rot90(pixels, 2),
        "transposed": pixels.T,
        "rotated 90": np.rot90(pixels, -1),  # clockwise
        "rotated 270": np.rot90(pixels),
        "transverse": np.rot90(pixels.T, 2),
    }
    assert {*expected} == {*SYMMETRIES}
    for name, turned in expected.items():
        assert (transform_pixels(pixels, name) == turned).all(), name


def test_raw_pixels_have_nearly_the_hash_of_the_image():
    square = photograph("astronaut")
    raw = parse_hashes(hash_image(square.tobytes(), ImageInfo("raw", 512, 512)))
    assert distances(raw, hash_of(encode(square, "PNG"))) <= 16


@pytest.mark.parametrize("at", [20, 40, 100])
def test_what_is_not_decoded_is_black(at):
    """The decoder does not write these pixels, and leaves what was in memory before."""
    data = bytearray(encode(photo(0, 90, 80), progressive=True))
    data[-at : 2 - at] = b"\xff\x02"  # a marker that does not exist
    assert not reduce_image(bytes(data), check_image(bytes(data), "header")).any()
