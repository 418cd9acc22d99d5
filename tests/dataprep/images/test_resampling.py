"""Resizing in two steps, compared with Pillow's filter over all pixels."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pictures import encode
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from skimage.metrics import peak_signal_noise_ratio

from dataprep.images.pixels import decode
from dataprep.images.resampling import REDUCING_GAP, resample, sharpen, sufficient_size
from dataprep.images.validate import inspect

LANCZOS = Image.Resampling.LANCZOS


@pytest.fixture(scope="module")
def detailed() -> Image.Image:
    """A photograph of 2048 x 2048 pixels with details as small as one pixel."""
    picture = Image.fromarray(pytest.importorskip("skimage.data").astronaut())
    return Image.fromarray(np.tile(np.asarray(picture), (4, 4, 1)))


def decibels(first: Image.Image, second: np.ndarray) -> float:
    return float(peak_signal_noise_ratio(np.asarray(first), second))


@pytest.mark.parametrize("filter_", [LANCZOS, Image.Resampling.BICUBIC])
@pytest.mark.parametrize("side", [120, 170, 250, 500])
def test_sharpening_restores_what_averaging_blurs(side, filter_, detailed):
    expected = detailed.resize((side, side), filter_)
    psnr = decibels(expected, resample(detailed, (side, side), filter_))
    psnr_without_sharpening = decibels(
        expected, np.asarray(detailed.resize((side, side), filter_, reducing_gap=REDUCING_GAP))
    )
    assert psnr > 44
    assert psnr > psnr_without_sharpening + 0.8


@pytest.mark.parametrize(
    ("side", "blocks"), [(120, 8), (170, 4), (250, 4), (300, 8 / 3), (340, 8 / 3), (420, 2), (500, 2)]
)
def test_sharpening_restores_what_jpeg_scaling_blurs(side, blocks, detailed):
    """At 1/2, 1/4 and 1/8 libjpeg averages pixels. At 3/8 it does not, and sharpening would not help."""
    data = encode(detailed, quality=95, subsampling=0)
    expected = decode(data, inspect(data), *detailed.size).image.resize((side, side), LANCZOS)
    decoded = decode(data, inspect(data), *sufficient_size((side, side), LANCZOS))
    assert detailed.width / decoded.image.width == pytest.approx(blocks)
    psnr, psnr_without_sharpening, psnr_always_sharpened = (
        decibels(expected, resample(decoded.image, (side, side), LANCZOS, averaging=averaging))
        for averaging in (decoded.averaging, 1.0, blocks)
    )
    assert psnr > 44
    assert psnr > (psnr_without_sharpening if blocks in (2, 4, 8) else psnr_always_sharpened) + 0.5


@pytest.mark.parametrize("side", [120, 256, 500])
def test_box_filter_gets_all_pixels(side, detailed):
    data = encode(detailed, quality=95)
    decoded = decode(data, inspect(data), *sufficient_size((side, side), Image.Resampling.BOX))
    assert decoded.image.size == detailed.size
    resized = resample(decoded.image, (side, side), Image.Resampling.BOX, averaging=decoded.averaging)
    assert np.array_equal(resized, decoded.image.resize((side, side), Image.Resampling.BOX))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 599), st.sampled_from(["L", "RGB"]))
def test_no_sharpening_without_averaging(width, height, side, mode):
    rng = np.random.default_rng(side)
    image = Image.fromarray(rng.integers(0, 256, (300, 300) + (3,) * (mode == "RGB"), np.uint8))
    if max(300 / width, 300 / height) < 2 * REDUCING_GAP:
        assert np.array_equal(resample(image, (width, height), LANCZOS), image.resize((width, height), LANCZOS))


@given(st.integers(1, 150), st.integers(1, 40), st.sampled_from([(), (3,)]), st.floats(0, 0.015), st.integers(0, 99))
def test_sharpen_is_a_kernel(height, width, depth, strength, seed):
    """Pillow's 3 x 3 kernel takes three times as long and gives the same result, apart from rounding."""
    pixels = np.random.default_rng(seed).choice(np.array([0, 255, 3, 250, 128], np.uint8), (height, width, *depth))
    kernel = (0, -strength, 0, -strength, 1 + 4 * strength, -strength, 0, -strength, 0)
    expected = Image.fromarray(pixels)
    if min(height, width) >= 3:  # Pillow does not filter smaller images
        expected = expected.filter(ImageFilter.Kernel((3, 3), kernel, scale=1))
    difference = np.asarray(expected).astype(int) - sharpen(pixels, strength)
    assert np.abs(difference).max() <= 1
