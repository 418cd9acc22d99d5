"""Patchify on the GPU: close to the batches of the CPU, in each layout of a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import handmade
from helpers.pictures import encode, photo

import loaders

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


def batches_of(dataset, device, arguments, **options):
    transforms = [NORMALIZE, {"Patchify": {"patch": 8, **arguments}}]
    options = {"batch_size": 4, "num_threads": 2, "shuffle": False, **options}
    fields = ("image", "label", "grid", "tokens", "mask")
    with loaders.build(
        dataset, transforms=transforms, device=device, fields=fields, **options
    ) as loader:
        return [*loader]


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
    on_gpu = batches_of(dataset, "gpu", arguments, dtype=dtype)
    on_cpu = batches_of(dataset, "cpu", arguments, dtype=dtype)
    for (images, *found), (expected, *others) in zip(on_gpu, on_cpu, strict=True):
        assert images.is_cuda
        assert all(torch.equal(one.cpu(), other) for one, other in zip(found, others, strict=True))
        difference = (images.cpu().float() - expected.float()).abs()
        # A step of a byte is 0.018 after the normalization.
        assert difference.mean() < 0.01
        assert not images.cpu()[~found[-1].cpu()].any()
