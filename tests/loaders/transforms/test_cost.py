"""Transforms whose order wastes memory cause a warning with numbers.

Operators on the CPU limit the threads.
"""

import numpy as np
import pytest
from helpers.loading import build
from helpers.pictures import encode

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
