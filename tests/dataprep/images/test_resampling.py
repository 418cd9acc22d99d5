"""Resizing in two steps, compared with Pillow's filter over all pixels."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from cykooz_resizer import CpuExtensions, Resizer
from helpers.examples import examples
from helpers.pictures import encode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from skimage.metrics import peak_signal_noise_ratio

from dataprep.images import pixels as resampling
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

LANCZOS = Image.Resampling.LANCZOS


@pytest.fixture(scope="module")
def detailed() -> Image.Image:
    """A photograph of 2048 x 2048 pixels with details as small as one pixel."""
    picture = Image.fromarray(pytest.importorskip("skimage.data").astronaut())
    return Image.fromarray(np.tile(np.asarray(picture), (4, 4, 1)))


def decibels(first: Image.Image, second: np.ndarray) -> float:
    return float(peak_signal_noise_ratio(np.asarray(first), second))


@pytest.mark.parametrize("filter_", ["lanczos", "bicubic"])
@pytest.mark.parametrize("side", [120, 170, 250, 500])
def test_sharpening_restores_what_averaging_blurs(side, filter_, detailed):
    pillow_filter = Image.Resampling[filter_.upper()]
    expected = detailed.resize((side, side), pillow_filter)
    psnr = decibels(expected, resample(detailed, (side, side), filter_))
    reduced = detailed.reduce(int(detailed.width / side / REDUCING_GAP))
    psnr_without_sharpening = decibels(expected, resample(reduced, (side, side), filter_))
    assert psnr > 43
    assert psnr > psnr_without_sharpening + 0.5


@pytest.mark.parametrize(
    ("side", "blocks"),
    [(120, 8), (170, 4), (250, 4), (300, 8 / 3), (340, 8 / 3), (420, 2), (500, 2)],
)
def test_sharpening_restores_what_jpeg_scaling_blurs(side, blocks, detailed):
    """libjpeg averages pixels at 1/2, 1/4 and 1/8, but not at 3/8, where nothing is sharpened."""
    data = encode(detailed, quality=95, subsampling=0)
    expected = as_image(decode(data, check_image(data), *detailed.size).image).resize(
        (side, side), LANCZOS
    )
    decoded = decode(data, check_image(data), *sufficient_size((side, side), "lanczos"))
    assert detailed.width / size_of(decoded.image)[0] == pytest.approx(blocks)
    psnr, psnr_without_sharpening, psnr_always_sharpened = (
        decibels(expected, resample(decoded.image, (side, side), "lanczos", averaging=averaging))
        for averaging in (decoded.averaging, 1.0, blocks)
    )
    assert psnr > 43
    assert psnr > (psnr_without_sharpening if blocks in (2, 4, 8) else psnr_always_sharpened) + 0.3


@pytest.mark.parametrize("side", [120, 256, 500])
def test_box_filter_gets_all_pixels(side, detailed):
    data = encode(detailed, quality=95)
    decoded = decode(data, check_image(data), *sufficient_size((side, side), "box"))
    assert size_of(decoded.image) == detailed.size
    resized = resample(decoded.image, (side, side), "box", averaging=decoded.averaging)
    assert (
        largest_difference(
            as_image(decoded.image).resize((side, side), Image.Resampling.BOX), resized
        )
        <= 1
    )


def largest_difference(first: Image.Image, second: np.ndarray) -> int:
    return int(np.abs(np.asarray(first).astype(int) - second).max())


@pytest.mark.parametrize("filter_", ["lanczos", "bicubic", "bilinear"])
@settings(max_examples=examples())
@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(0, 99), st.sampled_from(["L", "RGB"]),
    st.none() | st.tuples(st.floats(0, 40), st.floats(0, 40), st.floats(160, 200), st.floats(160, 200)),
)  # fmt: skip
def test_filters_are_those_of_pillow(filter_, width, height, seed, mode, box):
    """Without averaging. Contrasts are low, so that no intermediate result is clipped."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(80, 170, (200, 200) + (3,) * (mode == "RGB"), np.uint8))
    expected = image.resize((width, height), Image.Resampling[filter_.upper()], box=box)
    left, top, right, bottom = box or (0, 0, 200, 200)
    if max((right - left) / width, (bottom - top) / height) < 2 * REDUCING_GAP:
        assert largest_difference(expected, resample(image, (width, height), filter_, box=box)) <= 2
        assert np.array_equal(
            resample(image, (width, height), filter_, box=box),
            resample(np.asarray(image), (width, height), filter_, box=box),
        )


def test_photographs_are_close_to_pillow(detailed):
    """Pillow resizes rows first and clips the result; fast_image_resize begins with columns."""
    for side in (256, 400, 600, 1000):
        picture = detailed.resize((side, side), LANCZOS)
        for target in (side * 2 // 3, side * 9 // 10, side * 3 // 2):
            expected = picture.resize((target, target), LANCZOS)
            assert decibels(expected, resample(picture, (target, target), "lanczos")) > 47


EXTENSIONS = ("none", "sse4_1", "avx2")


def test_bytes_do_not_depend_on_the_instructions_of_the_cpu(detailed, monkeypatch):
    """The library computes with integers, so a CPU without SIMD gives the same bytes."""
    digests, image = set(), detailed.resize((900, 800))
    for name in EXTENSIONS:
        resizer = Resizer()
        with contextlib.suppress(ValueError):  # this CPU does not have them
            resizer.cpu_extensions = CpuExtensions[name]
        monkeypatch.setattr(resampling._kept, "resizer", resizer)
        for filter_, size in itertools.product(
            ("lanczos", "bicubic", "bilinear", "box"), ((331, 256), (1500, 1700))
        ):
            digests.add((filter_, size, resample(image, size, filter_).tobytes()))
    assert len(digests) == 8


@given(
    st.integers(1, 150), st.integers(1, 40), st.sampled_from([(), (3,)]), st.floats(0, 0.015),
    st.integers(0, 99),
)  # fmt: skip
def test_sharpen_is_a_kernel(height, width, depth, strength, seed):
    """Pillow's 3 x 3 kernel takes three times as long and gives the same result, apart from rounding."""
    pixels = np.random.default_rng(seed).choice(
        np.array([0, 255, 3, 250, 128], np.uint8), (height, width, *depth)
    )
    kernel = (0, -strength, 0, -strength, 1 + 4 * strength, -strength, 0, -strength, 0)
    expected = Image.fromarray(pixels)
    if min(height, width) >= 3:  # Pillow does not filter smaller images
        expected = expected.filter(ImageFilter.Kernel((3, 3), kernel, scale=1))
    difference = np.asarray(expected).astype(int) - sharpen(pixels, strength)
    assert np.abs(difference).max() <= 1
