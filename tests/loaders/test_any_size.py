"""Images without a resize: batches of one image of any size, and images of one size that EXIF turns."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.bad_images import exif
from helpers.pictures import encode, photo
from PIL import Image, ImageOps

import loaders
from manifests.errors import CallError, DatasetError

SIZES = ((30, 40), (32, 37), (34, 34), (1, 9), (40, 25))
NORMALIZE = {"Normalize": {"mean": [0.5] * 3, "std": [0.5] * 3}}


def build(folder, **options):
    defaults = {"transforms": [], "device": "cpu", "num_threads": 1, "framework": "numpy"}
    return loaders.build(folder, **{**defaults, "dtype": "float32", **options})


@pytest.fixture
def varied(make_dataset):
    """Images of different sizes, whose label is their number."""
    samples = [
        ("png", encode(photo(number, width, height), "png"), number)
        for number, (height, width) in enumerate(SIZES)
    ]
    return make_dataset("tfrecord", samples, shards=1)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": False},
        {"shuffle": True},
        {"shuffle": "buffer"},
        {"sampler": loaders.SequentialSampler()},
        {"transforms": ["ToTensor", NORMALIZE]},
        {"transforms": [{"Pad": {"padding": 2}}, {"RandomHorizontalFlip": {"p": 0.5}}]},
        {"views": [["ToGray"], [{"Pad": {"padding": 2}}]]},
        {"layout": "NHWC", "framework": "torch", "dtype": "uint8"},
    ],
)
def test_a_batch_of_one_image_has_its_size(varied, options):
    with build(varied, batch_size=1, **options) as loader:
        added = 4 * str(options).count("padding")
        seen = []
        for images, labels in loader:
            size = SIZES[int(labels[0])]
            last = images
            if isinstance(images, tuple):
                assert images[0].shape == (1, 3, *size)
                last = images[-1]
            height, width = (side + added for side in size)
            shape = (1, height, width, 3) if "layout" in options else (1, 3, height, width)
            assert tuple(last.shape) == shape
            seen.append(int(labels[0]))
        assert sorted(seen) == list(range(len(SIZES)))
        assert "height x width" in loader.explain()
        with pytest.raises(CallError, match="the images have different sizes"):
            loader.set(size=8)
        loader.load_state_dict(loader.state_dict())


def test_larger_batches_and_mixed_images_need_one_size(varied):
    with pytest.raises(CallError, match="images have different sizes, but a batch needs one size"):
        build(varied, batch_size=2)
    with pytest.raises(CallError, match=r"MixUp\(\) needs one size"):
        build(varied, batch_size=1, transforms=["MixUp"])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_images_of_one_size_that_exif_turns(make_dataset, kind, orientation):
    files = [encode(photo(n, 60, 40), kind, exif=exif(orientation)) for n in range(4)]
    folder = make_dataset("tfrecord", [(kind, file, n) for n, file in enumerate(files)])
    with build(folder, batch_size=4, shuffle=False, layout="NHWC") as loader:
        images, labels = next(iter(loader))
    for image, label in zip(images, labels.tolist(), strict=True):
        upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(files[label]))))
        assert image.shape == upright.shape
        assert np.abs(image - upright).mean() < 1


def test_images_that_are_turned_differently_are_refused_by_name(make_dataset):
    turned = [encode(photo(n, 60, 40), "jpg", exif=exif(6 if n else 1)) for n in range(4)]
    for files in (turned, turned[::-1]):
        folder = make_dataset("tfrecord", [("jpg", file, n) for n, file in enumerate(files)],
                              name=f"data {len(files[0])}", shards=1)  # fmt: skip
        with (
            build(folder, batch_size=4, shuffle=False) as loader,
            pytest.raises(DatasetError, match="does not have the size that the sample tables"),
        ):
            next(iter(loader))
