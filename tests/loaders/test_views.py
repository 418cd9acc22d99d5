"""Views: several tensors of the same images, for self-supervision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import annotated
from helpers.pictures import encode, photo

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
OPTIONS = {"batch_size": 4, "device": "cpu", "num_threads": 2, "dtype": "float32"}


@pytest.fixture
def dataset(make_dataset):
    return make_dataset(
        "tfrecord", [("jpg", encode(photo(number)), number) for number in range(8)], shards=1
    )


def test_a_state_tells_apart_what_all_views_share_and_what_one_has(dataset):
    flip, crop = "RandomHorizontalFlip", {"RandomResizedCrop": {"size": 16}}
    divisions = [
        ([crop], [[flip], [flip]]),
        ([], [[crop, flip], [crop, flip]]),
        ([crop, flip], [[], []]),
    ]
    states = []
    for transforms, views in divisions:
        with build(dataset, views, transforms) as loader:
            next(iter(loader))
            states.append(loader.state_dict())
    for number, (transforms, views) in enumerate(divisions):
        for other, state in enumerate(states):
            with build(dataset, views, transforms) as loader:
                if other == number:
                    loader.load_state_dict(state)
                else:
                    with pytest.raises(CallError, match="transforms"):
                        loader.load_state_dict(state)


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
        (
            [[{"CenterCrop": {"size": 8}}, "MixUp"]],
            [],
            "transforms that mix images cannot be combined with views",
        ),
        ([GLOBAL], [len], r"transforms\[0\]: len\(images\) is a function"),
    ],
)
def test_errors(dataset, views, transforms, message):
    with pytest.raises(CallError, match=message):
        build(dataset, views, transforms)


def test_views_need_a_list(dataset):
    with pytest.raises(CallError, match="views needs a list as transforms, got 'imagenet-train'"):
        loaders.build(dataset, transforms="imagenet-train", views=[GLOBAL], **OPTIONS)


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """Return a dataset with masks and one with boxes."""
    root = tmp_path_factory.mktemp("placed")
    made = annotated.make_each_kind(root)
    for kind in ("mask", "depth", "boxes"):
        convert_dataset(read_source(str(made[kind])), str(root / f"{kind}-out"), Options())
    return {kind: str(root / f"{kind}-out") for kind in made}


#: The first view has the size of the shared crop; the second moves its pixels again.
SHARED = [{"RandomResizedCrop": {"size": [60, 80]}}]
PLACED_VIEWS = [
    [{"ColorJitter": {"brightness": 0.4}}, "RandomHorizontalFlip"],
    [{"RandomCrop": {"size": [40, 48]}}, {"RandomHorizontalFlip": {"p": 1.0}}],
]


@pytest.mark.parametrize("sampler", [None, loaders.ShuffledSampler()], ids=["stored", "planned"])
@pytest.mark.parametrize("kind", ["mask", "depth"])
def test_each_view_has_a_mask_of_its_own(placed, kind, sampler):
    plain = [[], [{"RandomHorizontalFlip": {"p": 1.0}}], [{"CenterCrop": {"size": [40, 48]}}]]
    with build(
        placed[kind], plain, SHARED, sampler=sampler, fields=("image", kind), batch_size=5
    ) as loader:
        images, seconds = next(iter(loader))
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
        annotated.save(
            tmp_path / f"source/images/{number}.png", np.repeat(mask[..., None], 3, axis=2)
        )
        annotated.save(tmp_path / f"source/masks/{number}.png", mask)
    convert_dataset(read_source(str(tmp_path / "source")), str(tmp_path / "out"), Options())
    views = [
        PLACED_VIEWS[1],
        [{"RandomCrop": {"size": [40, 48]}}, "RandomVerticalFlip"],
        PLACED_VIEWS[1],
    ]
    fields = ("image", "mask")
    with build(
        str(tmp_path / "out"),
        views,
        [{"CenterCrop": {"size": [70, 90]}}],
        fields=fields,
        dtype="uint8",
    ) as loader:
        for images, masks in [batch for _ in range(3) for batch in loader]:
            for image, mask in zip(images, masks, strict=True):
                assert torch.equal(image[:, 0], mask)
            assert not torch.equal(masks[0], masks[2])


def test_each_view_has_boxes_of_its_own(placed):
    views = [[], [{"RandomHorizontalFlip": {"p": 1.0}}], [{"Resize": {"size": [30, 160]}}]]
    fields = ("box_counts", "boxes", "image", "box_labels")
    with build(placed["boxes"], views, SHARED, fields=fields, batch_size=5) as loader:
        counts, boxes, images, labels = next(iter(loader))
        text = loader.explain()
    assert len(counts) == len(boxes) == len(images) == len(labels) == 3
    assert counts[0].sum() > 0
    assert torch.equal(counts[0], counts[1])
    for first, flipped, stretched, count in zip(*boxes, counts[0].tolist(), strict=True):
        mirrored = first[:count].clone()
        mirrored[:, [0, 2]] = 80 - mirrored[:, [2, 0]]
        assert torch.allclose(flipped[:count], mirrored, atol=1e-3)
        scaled = first[:count] * torch.tensor([2, 0.5, 2, 0.5])
        high = (scaled[:, 3] - scaled[:, 1]) >= 1
        assert torch.allclose(stretched[: int(high.sum())], scaled[high], atol=1e-3)
    assert "their boxes" in text


def test_views_with_masks_resume(placed):
    def build_it():
        return build(placed["mask"], PLACED_VIEWS, SHARED, fields=("image", "mask"), batch_size=2)

    with build_it() as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = next(batches)
        assert "5 tensors" not in loader.explain()
        assert "2 x 60 x 80 and 40 x 48 uint8 masks" in loader.explain()
    with build_it() as loader:
        loader.load_state_dict(state)
        found = next(iter(loader))
    for one, other in zip(found, expected, strict=True):
        assert all(map(torch.equal, one, other))


def test_a_word_in_a_view_that_cannot_keep_boxes_is_named(placed):
    with pytest.raises(
        CallError,
        match=r"views\[1\]\[0\]: RandomRotation\(degrees=10, prob=0.5\) cannot keep boxes right",
    ):
        build(
            placed["boxes"],
            [[], [{"RandomRotation": {"degrees": 10, "prob": 0.5}}]],
            SHARED,
            fields=("image", "boxes"),
        )


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
