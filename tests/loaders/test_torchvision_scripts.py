"""Scripts written for torchvision: their transforms as they are, and datasets whose images all have one size."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pictures import encode, photo
from helpers.torchvision_oracle import import_torchvision

import loaders
from manifests.errors import CallError

v1, v2 = import_torchvision()
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture
def pictures():
    return [photo(number, 60 + 5 * number, 70) for number in range(6)]


@pytest.fixture
def dataset(make_dataset, pictures):
    return make_dataset(
        "tfrecord", [("png", encode(each, "png"), 0) for each in pictures], shards=1
    )


def images_of(dataset, transforms, **options):
    options = {
        "batch_size": 6,
        "device": "cpu",
        "dtype": "float32",
        "shuffle": False,
        "num_threads": 2,
    } | options
    with loaders.build(dataset, transforms=transforms, **options) as loader:
        return next(iter(loader))[0]


def test_only_normalization_follows_crops(dataset):
    with pytest.raises(
        CallError,
        match=r"transforms\[1\]: RandomHorizontalFlip\(\) comes after FiveCrop or TenCrop",
    ):
        images_of(dataset, [{"FiveCrop": {"size": 8}}, "RandomHorizontalFlip"])


# One size
# --------------------------------------------------------------------------------------------------


def small(make_dataset, name, images):
    return make_dataset(
        "tfrecord", [("png", encode(each, "png"), 0) for each in images], shards=1, name=name
    )


@pytest.mark.parametrize("size", [(32, 32), (30, 41)])
def test_images_of_one_size_need_no_crop(make_dataset, size):
    images = [photo(number, size[1], size[0]) for number in range(6)]
    folder = small(make_dataset, "same", images)
    found = images_of(folder, ["DecodeImage", "ToTensor"])
    expected = np.stack([np.asarray(each) for each in images]).transpose(0, 3, 1, 2) / 255
    assert np.allclose(found.numpy(), expected, atol=1e-6)
    with loaders.build(folder, batch_size=2, transforms=["ToTensor"], device="cpu") as loader:
        assert f"all images have {size[0]} x {size[1]} pixels" in loader.explain()
    mixed = images_of(folder, ["RandomHorizontalFlip", {"MixUp": {"num_classes": 3}}])
    assert mixed.shape == (6, 3, *size)
