"""Views: several tensors of the same images, for self-supervision."""

import numpy as np
import pytest
import torch
from helpers import annotated, loading
from helpers.loading import state_after, take

import loaders
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from loaders.transforms.parse.recipe import read_views
from manifests.errors import CallError

GLOBAL = [
    {"RandomResizedCrop": {"size": 32, "scale": [0.4, 1]}},
    "RandomHorizontalFlip",
    "ToTensor",
]
LOCAL = [{"RandomResizedCrop": {"size": 16, "scale": [0.05, 0.4]}}, {"NormalizeImage": {}}]
FLIP, CROP = {"RandomHorizontalFlip": {"p": 1.0}}, {"RandomResizedCrop": {"size": 24}}


@pytest.fixture
def dataset(prepared):
    return prepared["photos tfrecord"]


def build(dataset, views, transforms=(), **options):
    options = {"dtype": "float32", **options}
    return loading.build(dataset, transforms=[*transforms], views=views, **options)


def first_batch(*args, **options):
    with build(*args, **options) as loader:
        return take(loader, 1)[0]


def test_a_state_tells_apart_what_all_views_share_and_what_one_has(dataset):
    divisions = [
        ([[FLIP], [FLIP]], [CROP]),
        ([[CROP, FLIP], [CROP, FLIP]], []),
        ([[], []], [CROP, FLIP]),
        ([GLOBAL, LOCAL], []),
        ([LOCAL, GLOBAL], []),
    ]
    opened = [build(dataset, *division) for division in divisions]
    states = [state_after(loader, 1) for loader in opened]
    for number, loader in enumerate(opened):
        for other, state in enumerate(states):
            if other != number:
                with pytest.raises(CallError, match="transforms"):
                    loader.load_state_dict(state)
        loader.load_state_dict(states[number])


def test_each_view_is_a_tensor(dataset):
    with build(dataset, [GLOBAL] * 2 + [LOCAL] * 3) as loader:
        images, labels = take(loader, 1)[0]
        text = loader.explain()
    assert [tuple(each.shape) for each in images] == [(4, 3, 32, 32)] * 2 + [(4, 3, 16, 16)] * 3
    assert labels.shape == (4,)
    assert images[0].max() <= 1
    assert images[2].min() < -1
    assert not torch.equal(images[0], images[1])
    assert "views[4][0]  RandomResizedCrop(size=16" in text
    assert "5 tensors of 4 x 3 x 32 x 32 and 3 x 16 x 16 float32" in text


def test_shared_transforms_run_once_for_all_views(dataset):
    (plain, flipped), _ = first_batch(dataset, [[], [FLIP]], [CROP, "RandomGrayscale"])
    assert torch.equal(plain, flipped.flip(3))


def test_a_view_equals_a_loader_of_its_own(dataset):
    """Without random draws; functions get the tensor of their view, which may have any size."""
    crop = [{"CenterCrop": {"size": 20}}, "ToTensor"]
    views = [crop, [FLIP, *crop, lambda batch: batch * 2], ["ToTensor"]]
    (first, second, whole), _ = first_batch(dataset, views, shuffle=False)
    assert whole.shape[2:] == (48, 64)
    for found, transforms, factor in ((first, crop, 1), (second, [FLIP, *crop], 2)):
        alone = first_batch(dataset, None, transforms, shuffle=False)[0]
        assert torch.allclose(found, alone * factor, atol=1e-6)
    assert len(first_batch(dataset, views, fields=("label",))) == 1


# --- labels that are placed in the images ---------------------------------------------------------

#: The first view has the size of the shared crop; the second moves its pixels again.
SHARED = [{"RandomResizedCrop": {"size": [60, 80]}}]


@pytest.mark.parametrize(
    ("kind", "sampler"), [("mask", None), ("depth", None), ("mask", loaders.ShuffledSampler())]
)
def test_each_view_has_a_mask_of_its_own(prepared, kind, sampler):
    plain = [[], [FLIP], [{"CenterCrop": {"size": [40, 48]}}]]
    options = {"sampler": sampler, "fields": ("image", kind), "batch_size": 5}
    with build(prepared[f"{kind} tfrecord"], plain, SHARED, **options) as loader:
        images, seconds = take(loader, 1)[0]
        assert "and 5 x 60 x 80 and 40 x 48 uint" in loader.explain()
    seconds = [each.int() for each in seconds]
    assert [tuple(each.shape) for each in seconds] == [(5, 60, 80), (5, 60, 80), (5, 40, 48)]
    assert torch.equal(seconds[1], seconds[0].flip(2))
    assert torch.equal(seconds[2], seconds[0][:, 10:50, 16:64])
    assert torch.equal(images[1], images[0].flip(3))


def test_masks_show_what_the_images_of_their_view_show(tmp_path):
    """With images that are their masks, for all random draws.

    Without a view, a mask would be that of another crop.
    """
    for number, mask in enumerate(annotated.masks()):
        pixels = np.repeat(mask[..., None], 3, axis=2)
        annotated.save(tmp_path / f"source/images/{number}.png", pixels)
        annotated.save(tmp_path / f"source/masks/{number}.png", mask)
    convert_dataset(read_source(str(tmp_path / "source")), str(tmp_path / "out"), Options())
    crop = {"RandomCrop": {"size": [40, 48]}}
    views, shared = (
        [[crop, FLIP], [crop, "RandomVerticalFlip"]],
        [{"CenterCrop": {"size": [70, 90]}}],
    )
    options = {"fields": ("image", "mask"), "dtype": "uint8"}
    with build(tmp_path / "out", views, shared, **options) as loader:
        for images, masks in [*loader, *loader, *loader]:
            for image, mask in zip(images, masks, strict=True):
                assert torch.equal(image[:, 0], mask)
            assert not torch.equal(masks[0].flip(2), masks[1])


def test_each_view_has_boxes_of_its_own(prepared):
    views = [[], [FLIP], [{"Resize": {"size": [30, 160]}}]]
    fields = ("box_counts", "boxes", "image", "box_labels")
    batch = first_batch(prepared["boxes tfrecord"], views, SHARED, fields=fields, batch_size=5)
    assert [len(part) for part in batch] == [3, 3, 3, 3]
    counts, boxes = batch[:2]
    assert counts[0].sum() > 0
    assert torch.equal(counts[0], counts[1])
    for first, flipped, stretched, count in zip(*boxes, counts[0].tolist(), strict=True):
        mirrored = first[:count].clone()
        mirrored[:, [0, 2]] = 80 - mirrored[:, [2, 0]]
        assert torch.allclose(flipped[:count], mirrored, atol=1e-3)
        scaled = first[:count] * torch.tensor([2, 0.5, 2, 0.5])
        high = (scaled[:, 3] - scaled[:, 1]) >= 1
        assert torch.allclose(stretched[: int(high.sum())], scaled[high], atol=1e-3)


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
