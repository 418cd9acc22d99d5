"""Resizing in two steps, compared with Pillow's filter over all pixels."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from cykooz_resizer import CpuExtensions, Resizer
from helpers.examples import examples
from helpers.photographs import photograph
from helpers.pictures import encode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from skimage.metrics import peak_signal_noise_ratio

from dataprep.images import pixels
from dataprep.images.pixels import (
    REDUCING_GAP,
    as_image,
    decode,
    resample,
    sharpen,
    size_of,
    sufficient_size,
)
from dataprep.images.validate import check_image

#: A photograph of 2048 x 2048 pixels with details as small as one pixel.
DETAILED = Image.fromarray(np.tile(photograph("astronaut"), (4, 4, 1)))


def by_pillow(
    image: Image.Image, size: tuple[int, int], name: str, **options: object
) -> np.ndarray:
    return np.asarray(image.resize(size, Image.Resampling[name.upper()], **options))


def largest_difference(first: np.ndarray, second: np.ndarray) -> int:
    return int(np.abs(first.astype(int) - second).max())


@pytest.mark.parametrize("name", ["lanczos", "bicubic"])
@pytest.mark.parametrize("side", [120, 170, 250, 500])
def test_sharpening_restores_what_averaging_blurs(side, name):
    expected = by_pillow(DETAILED, (side, side), name)
    psnr = peak_signal_noise_ratio(expected, resample(DETAILED, (side, side), name))
    reduced = DETAILED.reduce(int(DETAILED.width / side / REDUCING_GAP))
    not_sharpened = resample(reduced, (side, side), name)
    assert psnr > 43
    assert psnr > peak_signal_noise_ratio(expected, not_sharpened) + 0.5


@pytest.mark.parametrize(
    ("side", "blocks"),
    [(120, 8), (170, 4), (250, 4), (300, 8 / 3), (340, 8 / 3), (420, 2), (500, 2)],
)
def test_sharpening_restores_what_jpeg_scaling_blurs(side, blocks):
    """libjpeg averages pixels at 1/2, 1/4 and 1/8, but not at 3/8, where nothing is sharpened."""
    data = encode(DETAILED, quality=95, subsampling=0)
    whole = as_image(decode(data, check_image(data), *DETAILED.size).image)
    expected = by_pillow(whole, (side, side), "lanczos")
    decoded = decode(data, check_image(data), *sufficient_size((side, side), "lanczos"))
    assert DETAILED.width / size_of(decoded.image)[0] == pytest.approx(blocks)

    def psnr(averaging: float) -> float:
        resized = resample(decoded.image, (side, side), "lanczos", averaging=averaging)
        return peak_signal_noise_ratio(expected, resized)

    assert psnr(decoded.averaging) > 43
    assert psnr(decoded.averaging) > psnr(1.0 if blocks in (2, 4, 8) else blocks) + 0.3


@pytest.mark.parametrize("side", [120, 256, 500])
def test_box_filter_gets_all_pixels(side):
    data = encode(DETAILED, quality=95)
    decoded = decode(data, check_image(data), *sufficient_size((side, side), "box"))
    assert size_of(decoded.image) == DETAILED.size
    resized = resample(decoded.image, (side, side), "box", averaging=decoded.averaging)
    expected = by_pillow(as_image(decoded.image), (side, side), "box")
    assert largest_difference(expected, resized) <= 1


@pytest.mark.parametrize("name", ["lanczos", "bicubic", "bilinear"])
@settings(max_examples=examples())
@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(0, 99), st.sampled_from([(), (3,)]),
    st.none() | st.tuples(st.floats(0, 40), st.floats(0, 40), st.floats(160, 200), st.floats(160, 200)),
)  # fmt: skip
def test_filters_are_those_of_pillow(name, width, height, seed, depth, box):
    """Without averaging. Contrasts are low, so that no intermediate result is clipped."""
    array = np.random.default_rng(seed).integers(80, 170, (200, 200, *depth), np.uint8)
    left, top, right, bottom = box or (0, 0, 200, 200)
    if max((right - left) / width, (bottom - top) / height) < 2 * REDUCING_GAP:
        image = Image.fromarray(array)
        resized = resample(image, (width, height), name, box=box)
        expected = by_pillow(image, (width, height), name, box=box)
        assert largest_difference(expected, resized) <= 2
        assert np.array_equal(resized, resample(array, (width, height), name, box=box))


def test_bytes_do_not_depend_on_the_instructions_of_the_cpu(monkeypatch):
    """The library computes with integers, so a CPU without SIMD gives the same bytes."""
    found, image = set(), DETAILED.resize((900, 800))
    for extensions in ("none", "sse4_1", "avx2"):
        resizer = Resizer()
        with contextlib.suppress(ValueError):  # this CPU does not have them
            resizer.cpu_extensions = CpuExtensions[extensions]
        monkeypatch.setattr(pixels._kept, "resizer", resizer)
        for name in ("lanczos", "bicubic", "bilinear", "box"):
            for size in ((331, 256), (1500, 1700)):
                found.add((name, size, resample(image, size, name).tobytes()))
    assert len(found) == 8


@given(
    st.integers(1, 150), st.integers(1, 40), st.sampled_from([(), (3,)]), st.floats(0, 0.015),
    st.integers(0, 99),
)  # fmt: skip
def test_sharpen_is_a_kernel(height, width, depth, strength, seed):
    """Pillow's 3 x 3 kernel takes three times as long and gives the same result, apart from rounding."""
    values = np.array([0, 255, 3, 250, 128], np.uint8)
    array = np.random.default_rng(seed).choice(values, (height, width, *depth))
    kernel = (0, -strength, 0, -strength, 1 + 4 * strength, -strength, 0, -strength, 0)
    expected = Image.fromarray(array)
    if min(height, width) >= 3:  # Pillow does not filter smaller images
        expected = expected.filter(ImageFilter.Kernel((3, 3), kernel, scale=1))
    assert largest_difference(np.asarray(expected), sharpen(array, strength)) <= 1
