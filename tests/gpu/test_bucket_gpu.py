"""Aspect buckets on a GPU: the same pixels as on the CPU, masks and boxes, variable batches, resume."""

import pytest
import torch
from helpers.loading import Prepared, build, converted, equal, state_after
from helpers.pictures import photo

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
        photo(number, width=width, height=height).save(path, quality=95, subsampling=0)
    return converted(root / "src", root / "shards")


def sampled(folder, device, **options):
    defaults = {"batch_size": 8, "dtype": "float32", "fields": ("image", "index", "valid")}
    return build(folder, device=device, **{**defaults, **options})


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("transforms", ["covered", "region"])
@pytest.mark.parametrize("last_batch", ["drop", "pad", "partial"])
def test_batches_are_those_of_the_cpu(folder, name, transforms, last_batch):
    options = {"sampler": SAMPLERS[name], "transforms": TRANSFORMS[transforms]}
    options["last_batch"] = last_batch
    with sampled(folder, "cpu", **options) as cpu, sampled(folder, "gpu", **options) as gpu:
        for expected, found in zip(cpu, gpu, strict=True):
            assert found[0].is_cuda
            assert equal(expected[1:], [each.cpu() for each in found[1:]])
            assert expected[0].shape == found[0].shape
            assert float((expected[0] - found[0].cpu()).abs().mean()) < 3


@pytest.mark.parametrize("name", SAMPLERS)
def test_resume_is_exact_within_an_epoch(folder, name):
    options = {"sampler": SAMPLERS[name], "transforms": TRANSFORMS["colors"]}
    with sampled(folder, "gpu", **options) as loader:
        expected = [[each.cpu() for each in batch] for batch in loader][2:]
        loader.set_epoch(0)
        state = state_after(loader, 2)
    with sampled(folder, "gpu", **options) as loader:
        loader.load_state_dict(state)
        found = [[each.cpu() for each in batch] for batch in loader]
    # The message says which batch, field and sample differ, and by how much.
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["mask", "boxes"])
def test_masks_and_boxes_follow(tmp_path, kind):
    fields = ("image", "mask") if kind == "mask" else ("image", "boxes", "box_counts")
    options = {"fields": fields, "batch_size": 2, "transforms": "bucket-eval"}
    options["last_batch"] = "partial"
    sampler = loaders.BucketSampler([(64, 96), (96, 64)])
    dataset = Prepared(tmp_path)[f"{kind} tfrecord"]
    with (
        sampled(dataset, "cpu", sampler=sampler, **options) as cpu,
        sampled(dataset, "gpu", sampler=sampler, **options) as gpu,
    ):
        for expected, found in zip(cpu, gpu, strict=True):
            assert equal(list(expected[1:]), [each.cpu() for each in found[1:]])
