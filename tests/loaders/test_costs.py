"""An order of transforms that costs memory is told, with the figure."""

import warnings

import numpy as np
import pytest
from helpers.pictures import encode

import loaders
from loaders.build import read_transforms
from loaders.costs import computes_on_processor, measure_sizes
from loaders.dataset.split import open_split

TOLD = (
    r"AutoAugment\(\) works on whole images, up to 1200x900, because it stands before ResizeImage\(size=32\): 4\.8 MiB"
)
SMALL = [{"ResizeImage": {"size": 32}}]


@pytest.fixture
def large(make_dataset):
    sizes = [(600, 800), (300, 400), (900, 1200), (30, 40)]
    return make_dataset(
        "tfrecord", [("png", encode(np.full((*size, 3), 7, np.uint8), "png"), 0) for size in sizes], shards=2
    )


def build(folder, transforms):
    return loaders.build(folder, batch_size=4, transforms=transforms, device="cpu", num_threads=1)


def test_sizes(large):
    sizes = measure_sizes(open_split(large, "train"))
    assert sizes.largest == (1200, 900)
    assert sorted(sizes.decoded.tolist()) == [3 * pixels for pixels in (1200, 120000, 480000, 1080000)]


def test_order_that_costs(large):
    with pytest.warns(UserWarning, match=TOLD):
        loader = build(large, ["AutoAugment", *SMALL])
    assert "warning: " in loader.explain()


@pytest.mark.parametrize("transforms", [[*SMALL, "AutoAugment"], [{"NormalizeImage": {}}, *SMALL]])
def test_order_that_costs_nothing(large, transforms):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*works on whole images")
        assert "warning: " not in build(large, transforms).explain()


@pytest.mark.parametrize(
    ("transforms", "computing"),
    [
        ("imagenet-train", False),
        ("imagenet-eval", False),
        ("modern-train", True),
        ([{"RandCropImage": {"size": 32}}], True),
        ([{"CropImageAtRatio": {"size": 32, "pad": 4}}], True),
    ],
)
def test_what_computes_on_the_processor(transforms, computing):
    assert computes_on_processor(read_transforms(transforms, split="train").recipe.operations) == computing
