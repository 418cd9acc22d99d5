"""Estimates of GPU memory are close to measurements on an H200, and grow with batches and images."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.examples import examples
from helpers.loading import build
from helpers.pictures import encode
from helpers.rows import evaluate, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.memory import (
    MIB,
    CropWindow,
    ImageSizes,
    LoadSettings,
    check_estimate,
    default_settings,
    estimate_memory,
    largest_batch,
)  # fmt: skip
from manifests.errors import CallError

BYTES = 224 * 224 * 3 * 2


def equal_sizes(width, height, count=10):
    return ImageSizes(np.full(count, width, np.int32), np.full(count, height, np.int32))


@pytest.mark.parametrize(("row", "measured"), read_rows(__file__, "measured"))
def test_the_estimate_equals_the_measurement(row, measured):
    size, settings = evaluate(row, globals())
    estimate = estimate_memory(equal_sizes(*size), settings).total / MIB
    assert estimate == pytest.approx(int(measured), rel=0.1)


@settings(max_examples=examples())
@given(st.integers(1, 512), st.integers(900, 20_000))
def test_the_largest_batch_size_that_fits(batch, limit):
    settings, sizes = LoadSettings(batch, BYTES), equal_sizes(3840, 2160)
    most = largest_batch(sizes, settings, limit * MIB)
    if most:
        assert estimate_memory(sizes, replace(settings, batch_size=most)).total <= limit * MIB
    if most < batch:
        assert estimate_memory(sizes, replace(settings, batch_size=most + 1)).total > limit * MIB


def test_two_pipelines_share_the_threads():
    sizes = equal_sizes(3840, 2160)
    one = LoadSettings(32, BYTES, threads=8, hardware_load=0.0)
    two = replace(one, pipelines=2, threads=4)
    first = estimate_memory(sizes, one)
    assert estimate_memory(sizes, two).decoder == first.decoder
    with pytest.raises(CallError, match="; or set pipelines=1; or"):
        check_estimate(sizes, two, first.total, reserved=0)


@pytest.mark.parametrize(("batch_size", "measured"), [(64, 812), (256, 1196)])
def test_the_estimate_for_raw_pixels_equals_the_measurement(batch_size, measured):
    """Measured on an H200, in MiB. `tests/gpu` measures it again."""
    sizes = equal_sizes(256, 256)
    estimate = estimate_memory(sizes, default_settings(sizes, batch_size, None, encoded=False))
    assert estimate.total / MIB == pytest.approx(measured, rel=0.15)
    assert estimate.decoder == 0
    assert estimate.total > estimate.context


@pytest.mark.parametrize(
    ("width", "height", "threads"),
    [(128, 128, 12), (129, 128, 8), (341, 256, 8), (375, 375, 12), (500, 375, 12), (1920, 1080, 12), (3840, 2160, 4)],
)  # fmt: skip
def test_threads_and_the_decoder_depend_on_the_image_size(width, height, threads):
    sizes = equal_sizes(width, height)
    found = default_settings(sizes, 32, CropWindow())
    assert found.threads == threads
    # The CPU decodes the smallest ones.
    assert bool(estimate_memory(sizes, found).decoder) == (width > 128)


WARNING = (
    r"AutoAugment\(\) works on whole images of up to 1200x900 pixels, because it comes before"
    r" ResizeImage\(size=32\): a batch takes 4\.8 MiB on average instead of 0\.0 MiB\. Put the"
    r" operation that makes images smaller first if"
)
SMALL = [{"ResizeImage": {"size": 32}}]


def test_work_on_whole_images_causes_a_warning(make_dataset):
    sizes = [(600, 800), (300, 400), (900, 1200), (30, 40)]
    files = [encode(np.full((*size, 3), 7, np.uint8), "png") for size in sizes]
    folder = make_dataset("tfrecord", [("png", file, 0) for file in files], shards=2)
    with pytest.warns(UserWarning, match=WARNING):
        loader = build(folder, transforms=["AutoAugment", *SMALL])
    assert "warning: " in loader.explain()
