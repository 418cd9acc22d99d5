"""`Loader.preview` on a GPU shows the same as on the CPU."""

import re

import numpy as np
import pytest
from helpers.gpu import build
from helpers.loading import convert
from PIL import Image

TRANSFORMS = [
    {"ResizeImage": {"resize_short": 40}},
    {"CropImage": {"size": 32}},
    {"NormalizeImage": {}},
]


@pytest.fixture
def dataset(make_photos, tmp_path):
    return convert(make_photos(tmp_path / "photos", 24), tmp_path / "out")


def previewed(dataset, device, transforms, **options):
    with build(dataset, transforms=transforms, device=device, **options) as loader:
        items = loader.preview(samples=12, draws=2).items
    return {item.key: (item.original, item.draws) for item in items}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_preview_on_a_gpu(dataset, dtype):
    expected, found = (previewed(dataset, each, TRANSFORMS, dtype=dtype) for each in ("cpu", "gpu"))
    assert expected.keys() == found.keys()
    for key, (_, draws) in expected.items():
        for on_cpu, on_gpu in zip(draws, found[key][1], strict=True):
            assert on_cpu.pixels.shape == on_gpu.pixels.shape == (32, 32, 3)
            difference = np.abs(on_cpu.pixels.astype(int) - on_gpu.pixels.astype(int))
            assert difference.mean() < 6  # the decoders of both differ by a few levels


def test_what_is_drawn_does_not_depend_on_the_device(dataset):
    transforms = [
        {"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip", {"ColorJitter": {"brightness": 0.4, "hue": 0.1}},
        {"RandAugment": {"num_ops": 2, "magnitude": 9}}, {"RandomErasing": {"p": 0.5}}, {"NormalizeImage": {}},
    ]  # fmt: skip
    captions = {"cpu": [], "gpu": []}
    for device, texts in captions.items():
        for _, draws in previewed(dataset, device, transforms).values():
            texts += [draw.caption for draw in draws]
    assert captions["cpu"] == captions["gpu"]
    assert all(caption.startswith("crop ") for caption in captions["gpu"])


def test_a_crop_on_a_gpu_is_where_the_caption_says(dataset):
    transforms = [{"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip"]
    for original, draws in previewed(dataset, "gpu", transforms, dtype="uint8").values():
        for draw in draws:
            place = re.match(r"crop (\d+) x (\d+) at (\d+), (\d+)", draw.caption)
            width, height, left, top = map(int, place.groups())
            part = Image.fromarray(original).crop((left, top, left + width, top + height))
            expected = np.asarray(part.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
            if draw.caption.endswith("flipped"):
                expected = expected[:, ::-1]
            assert np.abs(expected - draw.pixels).mean() < 6
