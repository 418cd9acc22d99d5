"""All that conversion keeps of bad and odd input, through a whole epoch on the GPU."""

import numpy as np
import pytest
from helpers.bad_images import write_cases

import loaders
from dataprep.convert import convert_dataset
from dataprep.options import Downscale, Options, Raw
from dataprep.sources import read_source

AS_STORED = {
    "as it came": {"validate": "decode"},
    "smaller": {"downscale": Downscale(shorter=24)},
    "raw": {"raw": Raw(24)},
}
#: Every pixel counts.
WHOLE = [{"Resize": {"size": [64, 64]}}]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("corpus") / "images")


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("stored", AS_STORED)
def test_an_epoch_of_all_that_is_kept(stored, fmt, corpus, tmp_path):
    """Every image comes, and the same as on the processor, whose images are looked at elsewhere."""
    out = tmp_path / "out"
    convert_dataset(read_source(str(corpus)), str(out), Options(fmt=fmt, **AS_STORED[stored]), workers=1)
    found = {}
    for device in ("gpu", "cpu"):
        said = {"batch_size": 7, "transforms": WHOLE, "dtype": "uint8", "layout": "NHWC", "shuffle": False}
        loader = loaders.build(out, **said, device=device, last_batch="partial", fields=("image", "source"))
        found[device] = {
            name: image.cpu().numpy().astype(int)
            for images, names in loader
            for image, name in zip(images, names, strict=True)
        }
    assert set(found["gpu"]) == set(found["cpu"])
    assert len(found["gpu"]) > 30
    apart = {name: np.abs(image - found["cpu"][name]).mean() for name, image in found["gpu"].items()}
    assert {name: value for name, value in apart.items() if value > 4} == {}


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("sampler", [None, loaders.ShuffledSampler()])
def test_training_goes_on_to_the_end(sampler, fmt, corpus, tmp_path):
    out = tmp_path / "out"
    convert_dataset(read_source(str(corpus)), str(out), Options(fmt=fmt, validate="decode"), workers=1)
    loader = loaders.build(out, batch_size=5, transforms="imagenet-train", device="gpu", sampler=sampler)
    for _ in range(3):
        batches = [images for images, _ in loader]
        assert len(batches) == len(loader)
        assert all(bool(images.isfinite().all()) for images in batches)
