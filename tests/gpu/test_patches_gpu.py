"""Patchify on the GPU: close to the batches of the CPU, in each layout of a batch."""

import numpy as np
import pytest
from helpers import handmade
from helpers.gpu import pairs
from helpers.loading import equal
from helpers.pictures import encode, photo

SIZES = [(48, 64), (64, 48), (60, 60), (100, 20), (8, 3200), (37, 91), (1, 1), (75, 50)]
NORMALIZE = {"NormalizeImage": {}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    samples = []
    for number, (height, width) in enumerate(SIZES):
        pixels = np.resize(photo(number), (height, width, 3))
        samples.append(("png", encode(pixels, "png"), number))
    folder = tmp_path_factory.mktemp("shapes") / "data"
    return handmade.make_dataset(folder, "tfrecord", samples, shards=1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"max_tokens": 64},
        {"max_tokens": [16, 49]},
        {"max_tokens": 64, "dropout": 0.5, "position": "tokens"},
        {"max_tokens": [16, 49], "row_tokens": 100, "position": "tokens"},
        {"max_tokens": None, "row_tokens": 400},
    ],
)
def test_batches_are_those_of_the_cpu(dataset, arguments, dtype):
    transforms = [NORMALIZE, {"Patchify": {"patch": 8, **arguments}}]
    options = {"transforms": transforms, "shuffle": False, "dtype": dtype}
    fields = ("image", "label", "grid", "tokens", "mask")
    for (expected, *values), (images, *others) in pairs(dataset, fields=fields, **options):
        assert equal(others, values)
        # A step of a byte is 0.018 after the normalization.
        assert (images.float() - expected.float()).abs().mean() < 0.01
        assert not images[~others[-1]].any()
