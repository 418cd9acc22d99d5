"""Images without a resize: batches of one image of any size, and images of one size that EXIF turns."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import loading
from helpers.bad_images import exif
from helpers.damaged import change_column
from helpers.pictures import encode, photo
from helpers.rows import read_named
from PIL import Image, ImageOps

import loaders
from manifests.errors import CallError, DatasetError

SIZES = ((30, 40), (32, 37), (34, 34), (1, 9), (40, 25))
OPTIONS = read_named(__file__, "options", vars(loaders))


def build(folder, **options):
    defaults = {"transforms": [], "framework": "numpy", "dtype": "float32"}
    return loading.build(folder, **{**defaults, **options})


@pytest.mark.parametrize("name", OPTIONS)
def test_a_batch_of_one_image_has_its_size(make_dataset, name):
    options = OPTIONS[name]
    samples = []
    for number, (height, width) in enumerate(SIZES):
        samples.append(("png", encode(photo(number, width, height), "png"), number))
    added, seen = 4 * str(options).count("padding"), []
    folder = make_dataset("tfrecord", samples, shards=1)
    with build(folder, batch_size=1, **options) as loader:
        for images, labels in loader:
            size = SIZES[int(labels[0])]
            last = images
            if isinstance(images, tuple):
                assert images[0].shape == (1, 3, *size)
                last = images[-1]
            sides = [side + added for side in size]
            assert list(last.shape) == ([1, *sides, 3] if "layout" in options else [1, 3, *sides])
            seen.append(int(labels[0]))
        assert sorted(seen) == list(range(len(SIZES)))
        assert "height x width" in loader.explain()
        with pytest.raises(CallError, match="the images have different sizes"):
            loader.set(size=8)
        loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_of_one_size_that_exif_turns(make_dataset, orientation):
    kind = ("jpg", "png")[orientation // 3 % 2]
    files = [encode(photo(n, 60, 40), kind, exif=exif(orientation)) for n in range(4)]
    folder = make_dataset("tfrecord", [(kind, file, n) for n, file in enumerate(files)])
    sides = (60, 40) if orientation > 4 else (40, 60)
    with build(folder, shuffle=False, layout="NHWC") as loader:
        assert "all images have {} x {} pixels".format(*sides) in loader.explain()
        images, labels = next(iter(loader))
    for image, label in zip(images, labels.tolist(), strict=True):
        upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(files[label]))))
        assert image.shape == upright.shape == (*sides, 3)
        assert np.abs(image - upright).mean() < 1
    with build(folder, transforms=[{"MixUp": {"num_classes": 4}}]) as loader:
        assert next(iter(loader))[0].shape == (4, 3, *sides)


@pytest.mark.parametrize("first", [0, 3])
def test_images_that_are_turned_differently_are_refused_by_name(make_dataset, first):
    files = [encode(photo(n, 60, 40), "jpg", exif=exif(1 if n == first else 6)) for n in range(4)]
    folder = make_dataset("tfrecord", [("jpg", file, n) for n, file in enumerate(files)], shards=1)
    message = "does not have the size that the sample tables"
    with build(folder, shuffle=False) as loader, pytest.raises(DatasetError, match=message):
        next(iter(loader))


_LISTS: list[list[Any]] = [
    [{"RandomCrop": {"size": 24, "padding": 4}}, "RandomHorizontalFlip"],
    [{"RandomCrop": {"size": 44, "pad_if_needed": True}}, {"RandomRotation": {"degrees": 20}}],
    [{"Resize": {"size": 20}}, {"RandomCrop": {"size": 13}}, {"ColorJitter": {"hue": 0.1}}],
    [{"Resize": {"size": 50}}, {"RandomCrop": {"size": 48}}],
    [{"RandomRotation": {"degrees": 20, "library": "torchvision"}}, {"Resize": {"size": [9, 12]}}],
    [{"CenterCrop": {"size": 15}}, {"RandomAffine": {"degrees": 9, "translate": [0.2, 0.1]}}],
    [{"Pad": {"padding": 3}}, {"FiveCrop": {"size": 16}}],
]


@pytest.mark.parametrize("transforms", _LISTS, ids=str)
def test_known_sizes_change_no_pixel(make_dataset, transforms):
    """If all images are squares of one size, the graph knows it; another image at the end hides it."""
    samples = [("png", encode(photo(n, 33, 33), "png"), n) for n in range(8)]
    found = []
    for last in ([], [("png", encode(photo(8, 50, 50), "png"), 8)]):
        folder = make_dataset("tfrecord", [*samples, *last], name=f"last {len(last)}")
        options = {"sampler": loaders.SequentialSampler(), "batch_size": 4, "fields": ["image"]}
        with build(folder, transforms=transforms, **options) as loader:
            found.append(np.concatenate([images for (images,) in loading.take(loader, 2)]))
            assert loader.spec.stored.size == (None if last else (33, 33))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("side", [90, 2**31 - 1])
def test_sizes_that_images_do_not_have(make_dataset, side):
    """A crop of a wrong place would be black; images of too many pixels cannot be meant."""
    samples = [("png", encode(np.full((33, 33, 3), 200, np.uint8), "png"), 0)]
    folder = make_dataset("tfrecord", samples * 4, shards=1)
    for name in ("width", "height"):
        change_column(folder / "train-00000.parquet", name, pa.array([side] * 4, pa.int32()))
    with build(folder, transforms=[{"CenterCrop": {"size": 20}}], shuffle=False) as loader:
        if side == 90:
            with pytest.raises(DatasetError, match="does not have the size that the sample tables"):
                next(iter(loader))
        else:
            assert (next(iter(loader))[0] == 200).all()
