"""Aspect buckets on a GPU: the same pixels as on the CPU, masks and boxes, variable batches, resume."""

import pytest
import torch
from helpers import gpu
from helpers.loading import Prepared, converted, equal, state_after
from helpers.pictures import encode, photo

import loaders

GIVEN = [(96, 144), (144, 96), (128, 128)]
SAMPLERS = {
    "images": loaders.BucketSampler(GIVEN),
    "pixels": loaders.BucketSampler([(64, 64), (96, 144)], pixels=96 * 96, batch="pixels"),
}
TRANSFORMS = {
    "covered": "bucket-eval",
    "region": [{"RandomResizedCrop": {"size": "bucket", "scale": [1, 1], "ratio": [1, 1]}}],
    "colors": [
        {"RandomResizedCrop": {"size": "bucket"}}, {"ColorJitter": {"brightness": 0.4}},
        {"RandomErasing": {"p": 1.0}}, "RandomHorizontalFlip",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("shapes")
    for number in range(90):
        width, height = [(300, 200), (200, 300), (256, 256)][number % 3]
        path = root / "src" / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photo(number, width, height), quality=95, subsampling=0))
    return converted(root / "src", root / "shards")


OPTIONS = {"batch_size": 8, "dtype": "float32", "fields": ("image", "index", "valid")}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("transforms", ["covered", "region"])
@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_batches_are_those_of_the_cpu(folder, name, transforms, last_batch):
    options = {"sampler": SAMPLERS[name], "transforms": TRANSFORMS[transforms], **OPTIONS}
    for (image, *expected), (found, *others) in gpu.pairs(folder, last_batch=last_batch, **options):
        assert equal(expected, others)
        assert image.shape == found.shape
        assert float((image - found).abs().mean()) < 3


@pytest.mark.parametrize("name", SAMPLERS)
def test_resume_is_exact_within_an_epoch(folder, name):
    options = {"sampler": SAMPLERS[name], "transforms": TRANSFORMS["colors"], **OPTIONS}
    with gpu.build(folder, **options) as loader:
        expected = gpu.on_cpu(loader)[2:]
        loader.set_epoch(0)
        state = state_after(loader, 2)
    with gpu.build(folder, **options) as loader:
        loader.load_state_dict(state)
        found = gpu.on_cpu(loader)
    # The message says which batch, field and sample differ, and by how much.
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["mask", "boxes"])
def test_masks_and_boxes_follow(tmp_path, kind):
    fields = ("image", "mask") if kind == "mask" else ("image", "boxes", "box_counts")
    options = {"fields": fields, "batch_size": 2, "transforms": "bucket-eval", "dtype": "float32"}
    sampler = loaders.BucketSampler([(64, 96), (96, 64)])
    dataset = Prepared(tmp_path)[f"{kind} tfrecord"]
    for expected, found in gpu.pairs(dataset, sampler=sampler, last_batch="partial", **options):
        assert equal(expected[1:], found[1:])
