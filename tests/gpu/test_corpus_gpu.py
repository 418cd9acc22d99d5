"""Epochs on the GPU over every unusual image that `convert` accepts."""

import numpy as np
import pytest
from helpers.bad_images import write_cases
from helpers.datasets import FORMATS
from helpers.gpu import build
from helpers.loading import convert

import loaders
from dataprep.options import Downscale, Raw

STORED_AS = {
    "original": {"validate": "decode"},
    "downscaled": {"downscale": Downscale(shorter=24)},
    "raw": {"raw": Raw(24)},
}
#: Resizes the whole image, so that every pixel has an effect.
RESIZE = [{"Resize": {"size": [64, 64]}}]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("corpus") / "images")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("stored", STORED_AS)
def test_the_gpu_decodes_every_image_as_the_cpu_does(stored, fmt, corpus, tmp_path):
    """Tests of `convert` compare the images of the CPU with Pillow's."""
    out = convert(corpus, tmp_path / "out", fmt=fmt, **STORED_AS[stored])
    found = {"gpu": {}, "cpu": {}}
    options = {"batch_size": 7, "transforms": RESIZE, "dtype": "uint8", "layout": "NHWC"}
    options |= {"shuffle": False, "last_batch": "partial", "fields": ("image", "source")}
    for device in found:
        for images, names in build(out, **options, device=device, decoder=device):
            found[device] |= zip(names, images.cpu().numpy().astype(int), strict=True)
    assert set(found["gpu"]) == set(found["cpu"])
    assert len(found["gpu"]) > 30
    for name, image in found["gpu"].items():
        assert np.abs(image - found["cpu"][name]).mean() <= 4, name


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("sampler", [None, loaders.ShuffledSampler()])
def test_training_reads_whole_epochs(sampler, fmt, corpus, tmp_path):
    out = convert(corpus, tmp_path / "out", fmt=fmt, validate="decode")
    loader = build(out, batch_size=5, sampler=sampler)
    for _ in range(3):
        batches = [images for images, _ in loader]
        assert len(batches) == len(loader)
        assert all(bool(images.isfinite().all()) for images in batches)
