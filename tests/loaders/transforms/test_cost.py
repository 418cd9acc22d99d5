"""Transforms whose order wastes memory cause a warning with numbers.

Operators on the CPU limit the threads.
"""

import numpy as np
import pytest
from helpers.pictures import encode

import loaders

WARNING = (
    r"AutoAugment\(\) works on whole images of up to 1200x900 pixels, because it comes before"
    r" ResizeImage\(size=32\): "
    r"a batch takes 4\.8 MiB on average instead of 0\.0 MiB\. Put the operation that makes images"
    r" smaller first if"
)
SMALL = [{"ResizeImage": {"size": 32}}]


@pytest.fixture
def large(make_dataset):
    sizes = [(600, 800), (300, 400), (900, 1200), (30, 40)]
    return make_dataset(
        "tfrecord",
        [("png", encode(np.full((*size, 3), 7, np.uint8), "png"), 0) for size in sizes],
        shards=2,
    )


def build(folder, transforms):
    return loaders.build(folder, batch_size=4, transforms=transforms, device="cpu", num_threads=1)


def test_work_on_whole_images_causes_a_warning(large):
    with pytest.warns(UserWarning, match=WARNING):
        loader = build(large, ["AutoAugment", *SMALL])
    assert "warning: " in loader.explain()
