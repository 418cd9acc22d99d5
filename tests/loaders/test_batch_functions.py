"""Functions at the end of a list of transforms, which get the finished batch."""

from __future__ import annotations

import pytest
import torch
from helpers.pictures import encode, photo

import loaders
from manifests.errors import CallError

CROP = {"CropImage": {"size": 8}}


@pytest.fixture
def dataset(make_dataset):
    return make_dataset(
        "tfrecord",
        [("jpg", encode(photo(number)), number) for number in range(5)],
        shards=1,
        split="val",
    )


def batches(dataset, *functions, rank=0):
    options = {
        "batch_size": 2,
        "device": "cpu",
        "num_threads": 1,
        "dtype": "float32",
        "shuffle": False,
        "split": "val",
    }
    with loaders.build(
        dataset,
        transforms=[CROP, *functions],
        rank=rank,
        world_size=2,
        last_batch="partial",
        **options,
    ) as loader:
        return [images for images, _ in loader]


def test_an_empty_last_batch_has_the_shape_and_type_of_the_others(dataset):
    """Rank 0 has two samples and rank 1 three, so the second batch of rank 0 is empty."""

    def crops(images: torch.Tensor) -> torch.Tensor:
        return torch.stack([images[..., :4], images[..., 4:]], dim=1).double().mean((-2, -1))

    sizes = {
        rank: [images.shape for images in batches(dataset, crops, rank=rank)] for rank in (0, 1)
    }
    assert sizes == {0: [(2, 2, 3), (0, 2, 3)], 1: [(2, 2, 3), (1, 2, 3)]}
    assert {images.dtype for images in batches(dataset, crops)} == {torch.float64}


def test_an_exception_of_a_function_says_what_the_function_gets(dataset):
    def wrong(image):
        raise TypeError("pic should be a PIL image")

    with pytest.raises(TypeError) as caught:
        batches(dataset, wrong)
    (note,) = caught.value.__notes__
    assert note.startswith("loaders called the function wrong with the finished batch, torch.float")
    assert "(2, 3, " in note


def test_functions_must_keep_the_number_of_images(dataset):
    with pytest.raises(
        CallError, match=r"the function .* in transforms must return a tensor of 2 images"
    ):
        batches(dataset, lambda images: images[:1])
