"""Loaders with a sampler on a GPU: images match their rows, resume works, mapped memory stays valid long enough."""

import gc
import io

import numpy as np
import pytest
import torch
from helpers import gpu
from helpers.datasets import FORMATS
from helpers.handmade import make_dataset
from helpers.loading import equal, state_after
from helpers.pictures import encode
from helpers.sampling import Still
from PIL import Image

import loaders

EACH_FORMAT = pytest.mark.parametrize("fmt", FORMATS)
SAMPLERS = [loaders.ShuffledSampler(), loaders.ClassBalancedSampler(), loaders.PKSampler(8, 4)]
EACH = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


def build(folder, **options):
    return gpu.build(folder, **{"batch_size": 32, **options})


@pytest.fixture(scope="module")
def grays(tmp_path_factory):
    """200 JPEG images of 25 classes, each with another gray level."""
    samples = []
    for number in range(200):
        pixels = np.full((200 + number, 300, 3), number, np.uint8)
        samples.append(("jpg", encode(pixels, "jpg", quality=95), number % 25))
    folder, datasets = tmp_path_factory.mktemp("grays"), {}
    for fmt in FORMATS:
        datasets[fmt] = make_dataset(folder / fmt, fmt, samples, shards=4), samples
    return datasets


@pytest.fixture(scope="module")
def photos_of(tmp_path_factory):
    """24 different photographs of one size."""
    return gpu.write_photos(
        tmp_path_factory.mktemp("photos") / "set", [(200, 150)] * 24, 3, shards=2
    )


@EACH_FORMAT
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


@EACH_FORMAT
@EACH
def test_resumes_with_another_prefetch(grays, fmt, sampler):
    folder, _ = grays[fmt]
    preset = "modern-train" if fmt == "webdataset" else "imagenet-train"
    options = {"sampler": sampler, "transforms": preset}
    with build(folder, **options) as whole:
        epochs = [gpu.on_cpu(whole), gpu.on_cpu(whole)]
    with build(folder, prefetch=3, **options) as first:
        state = state_after(first, 3)
    with build(folder, prefetch=1, **options) as second:
        second.load_state_dict(state)
        assert equal(gpu.on_cpu(second), epochs[0][3:])
        assert equal(gpu.on_cpu(second), epochs[1])


@EACH_FORMAT
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
