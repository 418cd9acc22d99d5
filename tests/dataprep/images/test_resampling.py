"""Resizing in two steps, beside Pillow's filter over all pixels."""

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
def fine() -> Image.Image:
    """Lines and dots as fine as pixels can show, all over a picture of 2048 x 2048."""
    picture = Image.fromarray(pytest.importorskip("skimage.data").astronaut())
    return Image.fromarray(np.tile(np.asarray(picture), (4, 4, 1)))


def decibels(first: Image.Image, second: np.ndarray) -> float:
    return float(peak_signal_noise_ratio(np.asarray(first), second))


@pytest.mark.parametrize("filter_", [LANCZOS, Image.Resampling.BICUBIC])
@pytest.mark.parametrize("side", [120, 170, 250, 500])
def test_what_means_take_is_given_back(side, filter_, fine):
    expected = fine.resize((side, side), filter_)
    found = decibels(expected, resample(fine, (side, side), filter_))
    plain = decibels(expected, np.asarray(fine.resize((side, side), filter_, reducing_gap=REDUCING_GAP)))
    assert found > 44
    assert found > plain + 0.8


@pytest.mark.parametrize(
    ("side", "blocks"), [(120, 8), (170, 4), (250, 4), (300, 8 / 3), (340, 8 / 3), (420, 2), (500, 2)]
)
def test_what_a_jpegs_scaling_takes_is_given_back(side, blocks, fine):
    """By halves it takes means; by three eighths it does not, and there is nothing to give back."""
    data = encode(fine, quality=95, subsampling=0)
    expected = decode(data, inspect(data), *fine.size).image.resize((side, side), LANCZOS)
    decoded = decode(data, inspect(data), *sufficient_size((side, side), LANCZOS))
    assert fine.width / decoded.image.width == pytest.approx(blocks)
    found, plain, as_of_means = (
        decibels(expected, resample(decoded.image, (side, side), LANCZOS, averaging=averaging))
        for averaging in (decoded.averaging, 1.0, blocks)
    )
    assert found > 44
    assert found > (plain if blocks in (2, 4, 8) else as_of_means) + 0.5


@pytest.mark.parametrize("side", [120, 256, 500])
def test_a_box_is_of_all_pixels(side, fine):
    data = encode(fine, quality=95)
    decoded = decode(data, inspect(data), *sufficient_size((side, side), Image.Resampling.BOX))
    assert decoded.image.size == fine.size
    found = resample(decoded.image, (side, side), Image.Resampling.BOX, averaging=decoded.averaging)
    assert np.array_equal(found, decoded.image.resize((side, side), Image.Resampling.BOX))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 599), st.sampled_from(["L", "RGB"]))
def test_nothing_is_given_back_where_nothing_was_taken(width, height, side, mode):
    rng = np.random.default_rng(side)
    image = Image.fromarray(rng.integers(0, 256, (300, 300) + (3,) * (mode == "RGB"), np.uint8))
    if max(300 / width, 300 / height) < 2 * REDUCING_GAP:
        assert np.array_equal(resample(image, (width, height), LANCZOS), image.resize((width, height), LANCZOS))


@given(st.integers(1, 150), st.integers(1, 40), st.sampled_from([(), (3,)]), st.floats(0, 0.015), st.integers(0, 99))
def test_sharpened_is_a_kernel(height, width, depth, strength, seed):
    """Pillow's own 3 x 3 kernel, which takes three times as long, gives the same but for rounding."""
    pixels = np.random.default_rng(seed).choice(np.array([0, 255, 3, 250, 128], np.uint8), (height, width, *depth))
    kernel = (0, -strength, 0, -strength, 1 + 4 * strength, -strength, 0, -strength, 0)
    expected = Image.fromarray(pixels)
    if min(height, width) >= 3:  # Pillow refuses others
        expected = expected.filter(ImageFilter.Kernel((3, 3), kernel, scale=1))
    difference = np.asarray(expected).astype(int) - sharpen(pixels, strength)
    assert np.abs(difference).max() <= 1
