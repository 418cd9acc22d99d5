"""Views, five and ten crops, and images of one size on the GPU: close to the batches of the CPU."""

from __future__ import annotations

import pytest
import torch
from helpers import handmade
from helpers.pictures import encode, photo

import loaders

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZE = {"Normalize": {"mean": MEAN, "std": STD}}
CROP = [{"CenterCrop": {"size": 24}}, "ToTensor"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    samples = [("png", encode(photo(number), "png"), number) for number in range(8)]
    return handmade.make_dataset(
        tmp_path_factory.mktemp("views") / "data", "tfrecord", samples, shards=1
    )


def images_of(dataset, device, transforms, **options):
    options = {"batch_size": 4, "num_threads": 2, "dtype": "float32", "shuffle": False} | options
    with loaders.build(dataset, transforms=transforms, device=device, **options) as loader:
        return next(iter(loader))[0]


@pytest.mark.parametrize(
    ("transforms", "shape"),
    [
        ([{"FiveCrop": {"size": 16}}, "ToTensor", NORMALIZE], (4, 5, 3, 16, 16)),
        ([{"TenCrop": {"size": 16}}], (4, 10, 3, 16, 16)),
        (["ToTensor"], (4, 3, 48, 64)),
        ([{"ToDtype": {"dtype": "float32"}}], (4, 3, 48, 64)),
    ],
)
def test_batches_are_those_of_the_cpu(dataset, transforms, shape):
    found, expected = (images_of(dataset, device, transforms) for device in ("gpu", "cpu"))
    assert found.is_cuda
    assert found.shape == expected.shape == shape
    assert torch.allclose(found.cpu(), expected, atol=1e-4)


def test_views_are_those_of_the_cpu(dataset):
    views = [CROP, [{"RandomHorizontalFlip": {"p": 1.0}}, *CROP, NORMALIZE]]
    found, expected = (images_of(dataset, device, [], views=views) for device in ("gpu", "cpu"))
    assert len(found) == 2
    for each, other in zip(found, expected, strict=True):
        assert each.is_cuda
        assert torch.allclose(each.cpu(), other, atol=1e-4)
