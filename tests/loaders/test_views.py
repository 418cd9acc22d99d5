"""Views: several tensors of the same images, for self-supervision."""

import numpy as np
import pytest
import torch
from helpers import annotated, loading
from helpers.loading import take

from loaders.transforms.parse.recipe import read_views
from manifests.errors import CallError

FLIP, CROP = {"RandomHorizontalFlip": {"p": 1.0}}, {"RandomResizedCrop": {"size": 24}}


def build(dataset, views, transforms=(), **options):
    options = {"dtype": "float32", **options}
    return loading.build(dataset, transforms=[*transforms], views=views, **options)


def test_a_view_equals_a_loader_of_its_own(prepared):
    """Without random draws; functions get the tensor of their view, which may have any size."""
    crop = [{"CenterCrop": {"size": 20}}, "ToTensor"]
    views = [crop, [FLIP, *crop, lambda batch: batch * 2], ["ToTensor"]]

    def first_batch(*args, **options):
        with build(prepared["photos tfrecord"], *args, shuffle=False, **options) as loader:
            return take(loader, 1)[0]

    (first, second, whole), _ = first_batch(views)
    assert whole.shape[2:] == (48, 64)
    for found, transforms, factor in ((first, crop, 1), (second, [FLIP, *crop], 2)):
        alone = first_batch(None, transforms)[0]
        assert torch.allclose(found, alone * factor, atol=1e-6)
    assert len(first_batch(views, fields=("label",))) == 1


def test_masks_show_what_the_images_of_their_view_show(tmp_path):
    """With images that are their masks, for all random draws.

    Without a view, a mask would be that of another crop.
    """
    for number, mask in enumerate(annotated.masks()):
        pixels = np.repeat(mask[..., None], 3, axis=2)
        annotated.save(tmp_path / f"source/images/{number}.png", pixels)
        annotated.save(tmp_path / f"source/masks/{number}.png", mask)
    loading.convert(tmp_path / "source", tmp_path / "out")
    crop = {"RandomCrop": {"size": [40, 48]}}
    views = [[crop, FLIP], [crop, "RandomVerticalFlip"]]
    options = {"fields": ("image", "mask"), "dtype": "uint8"}
    shared = [{"CenterCrop": {"size": [70, 90]}}]
    with build(tmp_path / "out", views, shared, **options) as loader:
        for images, masks in [*loader, *loader, *loader]:
            for image, mask in zip(images, masks, strict=True):
                assert torch.equal(image[:, 0], mask)
            assert not torch.equal(masks[0].flip(2), masks[1])


def test_views_that_decode_share_one_decoded_image():
    view = ["DecodeImage", {"RandCropImage": {"size": 8}}]
    found = read_views([], [view, [*view, "NormalizeImage"]], image_size=lambda: None)
    shared = [view[1:], [view[1], "NormalizeImage"]]
    expected = read_views(["DecodeImage"], shared, image_size=lambda: None)
    whole = read_views(["DecodeImage"], [[], ["ToGray"]], image_size=lambda: (8, 8))
    assert [each.size for each in whole.outputs] == [(8, 8)] * 2
    assert found.operations == expected.operations
    for own, other in zip(found.views, expected.views, strict=True):
        assert [each.operations for each in own.items] == [each.operations for each in other.items]
    with pytest.raises(CallError, match="views decode images in different ways"):
        read_views([], [view, view[1:]], image_size=lambda: None)
