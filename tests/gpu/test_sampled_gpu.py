"""Loaders with a sampler on a GPU: images match their rows, resume works, mapped memory stays valid long enough."""

import gc
import io

import numpy as np
import pytest
import torch
from helpers.handmade import make_dataset
from helpers.pictures import encode, photo
from helpers.sampling import Still
from PIL import Image

import loaders

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
SAMPLERS = [loaders.ShuffledSampler(), loaders.ClassBalancedSampler(), loaders.PKSampler(8, 4)]
EACH = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


def build(folder, **options):
    defaults = {"batch_size": 32, "transforms": "imagenet-train", "device": "gpu"}
    return loaders.build(folder, **{**defaults, **options})


@pytest.fixture(scope="module")
def grays(tmp_path_factory):
    """200 JPEG images of 25 classes, each with another gray level."""
    samples = []
    for number in range(200):
        pixels = np.full((200 + number, 300, 3), number, np.uint8)
        samples.append(("jpg", encode(pixels, "jpg", quality=95), number % 25))
    folder = tmp_path_factory.mktemp("grays")
    return {
        fmt: (make_dataset(folder / fmt, fmt, samples, shards=4), samples)
        for fmt in ("tfrecord", "webdataset")
    }


@pytest.fixture(scope="module")
def photos_of(tmp_path_factory):
    """24 different photographs of one size."""
    samples = [("jpg", encode(photo(n, width=200, height=150)), n % 3) for n in range(24)]
    return make_dataset(tmp_path_factory.mktemp("photos") / "set", "tfrecord", samples, shards=2)


@FORMATS
@EACH
def test_images_match_their_rows(grays, fmt, sampler):
    folder, samples = grays[fmt]
    stored = [sample for start in range(4) for sample in samples[start::4]]
    options = {"transforms": [{"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}}]}
    options |= {"dtype": "uint8", "fields": ("image", "label", "index")}
    loader = build(folder, sampler=sampler, **options)
    for images, labels, rows in loader:
        assert images.is_cuda
        for image, label, row in zip(images, labels.tolist(), rows.tolist(), strict=True):
            _, data, expected = stored[row]
            gray = np.asarray(Image.open(io.BytesIO(data))).mean()
            assert abs(float(image.float().mean()) - gray) <= 1
            assert label == expected


@FORMATS
@EACH
def test_resumes_with_another_prefetch(grays, fmt, sampler):
    folder, _ = grays[fmt]
    whole = build(folder, sampler=sampler)
    epochs = [[(images.cpu(), labels.cpu()) for images, labels in whole] for _ in range(2)]
    first = build(folder, sampler=sampler, prefetch=3)
    iteration = iter(first)
    for _ in range(3):
        next(iteration)
    second = build(folder, sampler=sampler, prefetch=1)
    second.load_state_dict(first.state_dict())
    for expected in (epochs[0][3:], epochs[1]):
        found = list(second)
        assert len(found) == len(expected)
        for (images, labels), (images_again, labels_again) in zip(found, expected, strict=True):
            assert torch.equal(images.cpu(), images_again)
            assert torch.equal(labels.cpu(), labels_again)


@FORMATS
def test_a_loader_may_be_deleted_while_it_prefetches(grays, fmt):
    """The decoder reads mapped memory.

    If it was unmapped too early, the process would crash here.
    """
    folder, _ = grays[fmt]
    for turn in range(20):
        loader = build(folder, sampler=loaders.ShuffledSampler(), prefetch=4)
        next(iter(loader))
        if turn % 2:
            loader.close()
        del loader
        gc.collect()


@pytest.mark.parametrize(
    "transforms",
    [
        "imagenet-train",
        "reid-train",
        [
            {"Resize": {"size": [64, 64]}},
            {"RandomRotation": {"degrees": 20}},
            {"RandomResizedCrop": {"size": 32}},
            {"ElasticTransform": {}},
            "TrivialAugmentWide",
        ],
    ],
)
def test_frames_of_a_clip_share_every_draw(photos_of, transforms):
    options = {"fields": ("image",), "sampler": Still(), "batch_size": 16, "dtype": "float32"}
    # The hardware decoder's pixels of the same image differ by up to 3 of 255.
    options["hw_decoder_load"] = 0
    with build(photos_of, transforms=transforms, **options) as loader:
        (images,) = next(iter(loader))
    assert images.shape[:2] == (4, 4)
    assert torch.equal(images, images[:, :1].expand_as(images))
    assert not torch.equal(images[0], images[1])
