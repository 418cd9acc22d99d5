"""Views: several tensors of the same images, for self-supervision."""

from __future__ import annotations

import pytest
import torch
from helpers.pictures import encode, photo

import loaders
from manifests.errors import CallError

GLOBAL = [{"RandomResizedCrop": {"size": 32, "scale": [0.4, 1]}}, "RandomHorizontalFlip", "ToTensor"]
LOCAL = [{"RandomResizedCrop": {"size": 16, "scale": [0.05, 0.4]}}, {"NormalizeImage": {}}]
OPTIONS = {"batch_size": 4, "device": "cpu", "num_threads": 2, "dtype": "float32"}


@pytest.fixture
def dataset(make_dataset):
    return make_dataset("tfrecord", [("jpg", encode(photo(number)), number) for number in range(8)], shards=1)


def build(dataset, views, transforms=(), **options):
    return loaders.build(dataset, transforms=[*transforms], views=views, **OPTIONS | options)


def test_each_view_is_a_tensor(dataset):
    with build(dataset, [GLOBAL] * 2 + [LOCAL] * 3) as loader:
        images, labels = next(iter(loader))
        text = loader.explain()
    assert [tuple(each.shape) for each in images] == [(4, 3, 32, 32)] * 2 + [(4, 3, 16, 16)] * 3
    assert labels.shape == (4,)
    assert images[0].max() <= 1
    assert images[2].min() < -1
    assert not torch.equal(images[0], images[1])
    assert "views[4][0]  RandomResizedCrop(size=16" in text
    assert "5 tensors of 4 x 3 x 32 x 32 and 3 x 16 x 16 float32" in text


def test_shared_transforms_run_once_for_all_views(dataset):
    shared = [{"RandomResizedCrop": {"size": 24}}, "RandomGrayscale"]
    with build(dataset, [[], [{"RandomHorizontalFlip": {"p": 1.0}}]], shared) as loader:
        for (plain, flipped), _ in loader:
            assert torch.equal(plain, flipped.flip(3))


def test_a_view_equals_a_loader_of_its_own(dataset):
    """Without random draws; functions get the tensor of their view."""
    crop = [{"CenterCrop": {"size": 20}}, "ToTensor"]
    flip = {"RandomHorizontalFlip": {"p": 1.0}}
    with build(dataset, [crop, [flip, *crop, lambda batch: batch * 2]], shuffle=False) as loader:
        first, second = next(iter(loader))[0]
    for found, transforms, factor in ((first, crop, 1), (second, [flip, *crop], 2)):
        with loaders.build(dataset, transforms=transforms, shuffle=False, **OPTIONS) as single:
            assert torch.allclose(found, next(iter(single))[0] * factor, atol=1e-6)


def test_views_resume(dataset):
    with build(dataset, [GLOBAL, LOCAL]) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = next(batches)[0]
    with build(dataset, [GLOBAL, LOCAL]) as loader:
        loader.load_state_dict(state)
        assert all(map(torch.equal, next(iter(loader))[0], expected))
    with build(dataset, [LOCAL, GLOBAL]) as loader, pytest.raises(CallError, match="transforms"):
        loader.load_state_dict(state)


def test_images_of_one_size_need_no_crop_in_a_view(dataset):
    with build(dataset, [["ToTensor"], LOCAL]) as loader:
        assert [tuple(each.shape[2:]) for each in next(iter(loader))[0]] == [(48, 64), (16, 16)]


def test_fields_without_images(dataset):
    with build(dataset, [GLOBAL, LOCAL], fields=("label",)) as loader:
        assert len(next(iter(loader))) == 1


@pytest.mark.parametrize(
    ("views", "transforms", "message"),
    [
        ([], [], r"views must be a list of 1 to 32 lists of transforms, got \[\]"),
        ([["ToTensor"]] * 33, [], "views must be a list of 1 to 32 lists"),
        (["ToTensor"], [], r"views\[0\] must be a list of transforms, got 'ToTensor'"),
        ([GLOBAL, ["quux"]], [], r"views\[1\]\[0\]: 'quux' is not a known transform"),
        ([[{"CenterCrop": {"size": 8}}, "MixUp"]], [], "transforms that mix images cannot be combined with views"),
        ([GLOBAL], [len], r"transforms\[0\]: len\(images\) is a function"),
    ],
)
def test_errors(dataset, views, transforms, message):
    with pytest.raises(CallError, match=message):
        build(dataset, views, transforms)


def test_views_need_a_list(dataset):
    with pytest.raises(CallError, match="views needs a list as transforms, got 'imagenet-train'"):
        loaders.build(dataset, transforms="imagenet-train", views=[GLOBAL], **OPTIONS)
