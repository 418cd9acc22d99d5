"""`Loader.preview` on a GPU shows the same as on the CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.loading import convert
from PIL import Image

import loaders

pytestmark = pytest.mark.gpu

TRANSFORMS = [
    {"ResizeImage": {"resize_short": 40}},
    {"CropImage": {"size": 32}},
    {"NormalizeImage": {}},
]


@pytest.fixture
def dataset(make_photos, tmp_path):
    return convert(make_photos(tmp_path / "photos", 24), tmp_path / "out")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_preview_on_a_gpu(dataset, dtype):
    shown = {}
    for device in ("cpu", "gpu"):
        with loaders.build(
            dataset, batch_size=4, transforms=TRANSFORMS, device=device, dtype=dtype
        ) as loader:
            preview = loader.preview(samples=12, draws=2)
        shown[device] = {item.key: item.draws for item in preview.items}
    assert shown["cpu"].keys() == shown["gpu"].keys()
    for key, draws in shown["cpu"].items():
        for on_cpu, on_gpu in zip(draws, shown["gpu"][key], strict=True):
            difference = np.abs(on_cpu.pixels.astype(int) - on_gpu.pixels.astype(int))
            assert on_cpu.pixels.shape == on_gpu.pixels.shape == (32, 32, 3)
            assert (
                difference.mean() < 6
            )  # the decoders of the CPU and of the GPU differ by a few levels


def test_what_is_drawn_does_not_depend_on_the_device(dataset):
    transforms = [
        {"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip", {"ColorJitter": {"brightness": 0.4, "hue": 0.1}},
        {"RandAugment": {"num_ops": 2, "magnitude": 9}}, {"RandomErasing": {"p": 0.5}}, {"NormalizeImage": {}},
    ]  # fmt: skip
    captions = {}
    for device in ("cpu", "gpu"):
        with loaders.build(dataset, batch_size=4, transforms=transforms, device=device) as loader:
            captions[device] = [
                draw.caption for item in loader.preview(samples=12).items for draw in item.draws
            ]
    assert captions["cpu"] == captions["gpu"]
    assert all(caption.startswith("crop ") for caption in captions["gpu"])


def test_a_crop_on_a_gpu_is_where_the_caption_says(dataset):
    transforms = [{"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip"]
    with loaders.build(
        dataset, batch_size=4, transforms=transforms, device="gpu", dtype="uint8"
    ) as loader:
        items = loader.preview(samples=12).items
    for item in items:
        for draw in item.draws:
            width, height, left, top = map(
                int, re.match(r"crop (\d+) x (\d+) at (\d+), (\d+)", draw.caption).groups()
            )
            part = Image.fromarray(item.original).crop((left, top, left + width, top + height))
            expected = np.asarray(part.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
            expected = expected[:, ::-1] if draw.caption.endswith("flipped") else expected
            assert np.abs(expected - draw.pixels).mean() < 6
