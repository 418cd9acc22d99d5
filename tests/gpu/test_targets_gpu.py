"""Masks, depth maps and boxes on the GPU: the same checks as on the CPU, and the same batches as there."""

import numpy as np
import pytest
import test_targets
from helpers import annotated
from helpers.loading import convert

import loaders
from dataprep.sources import SourceOptions
from loaders.transforms.crop_resize import RandomResizedCrop
from loaders.transforms.decode_normalize import Normalize
from loaders.transforms.geometry import Flip

CHECKS = [
    test_targets.check_masks_of_both_devices,
    test_targets.check_depths,
    test_targets.check_painted_boxes,
    test_targets.check_torchvision,
]


@pytest.mark.parametrize("check", CHECKS)
def test_targets(check):
    check(gpu=True)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("placed")
    made = annotated.make_each_kind(root)
    for kind, source in made.items():
        made[kind] = convert(source, root / f"{kind}-out", shard_samples=3)
    return made


@pytest.mark.parametrize("shared", [True, False])
def test_several_images_are_those_of_loaders_of_one(shared, tmp_path):
    """The hardware decoder and the fused crop take each image as if it were the only one."""
    source = annotated.make_views(tmp_path / "source")
    convert(source, tmp_path / "out", SourceOptions(pattern="{key}_{image}"))
    both = ("image:left", "image:right")
    options = {"batch_size": 2, "transforms": TRANSFORMS, "device": "gpu", "decoder": "gpu"}
    options["shared"] = shared
    with loaders.build(tmp_path / "out", fields=both, **options) as loader:
        found = list(loader)
    for place, field in enumerate(both):
        with loaders.build(tmp_path / "out", fields=(field,), **options) as loader:
            for batch, (alone,) in zip(found, loader, strict=True):
                assert batch[place].equal(alone)


TRANSFORMS = [RandomResizedCrop((48, 64)), Flip(), Normalize((0, 0, 0), (1, 1, 1))]
VIEWS = [
    [Flip(), Normalize((0, 0, 0), (1, 1, 1))],
    [RandomResizedCrop((32, 32)), Normalize((0, 0, 0), (1, 1, 1))],
]


def flat_batches(dataset, fields, device, **options):
    """Return the name and the value of each field, and of each view, of the batches of two epochs."""
    found = []
    options |= {"batch_size": 2, "dtype": "float32", "last_batch": "partial", "decoder": device}
    with loaders.build(dataset, fields=fields, device=device, **options) as loader:
        for batch in (batch for _ in range(2) for batch in loader):
            for name, value in zip(fields, batch, strict=True):
                for tensor in value if isinstance(value, tuple) else (value,):
                    assert tensor.is_cuda == (device == "gpu"), name
                    found.append((name, tensor.cpu()))
    return found


def check_both_devices(dataset, fields, **options):
    cpu, gpu = (flat_batches(dataset, fields, device, **options) for device in ("cpu", "gpu"))
    assert len(cpu) == len(gpu)
    for (name, one), (_, other) in zip(cpu, gpu, strict=True):
        assert one.shape == other.shape, name
        assert one.dtype == other.dtype, name
        if name == "image":
            assert (one - other).abs().mean() < 0.02
        elif name == "boxes":
            np.testing.assert_allclose(one, other, atol=1e-3)
        else:
            np.testing.assert_array_equal(one, other, name)


@pytest.mark.parametrize("sampler", [None, loaders.ShuffledSampler()], ids=["stored", "planned"])
@pytest.mark.parametrize("kind", ["mask", "depth", "boxes"])
def test_batches_are_those_of_the_cpu(datasets, kind, sampler):
    """The images are PNGs, whose regions the decoder of the GPU takes from the same draws as that of the CPU."""
    fields = ("image", *{"boxes": ("boxes", "box_labels", "box_counts")}.get(kind, (kind,)))
    options = {"transforms": TRANSFORMS, "sampler": sampler, "shuffle": None if sampler else False}
    check_both_devices(datasets[kind], fields, **options)


@pytest.mark.parametrize("kind", ["mask", "boxes"])
def test_views_are_those_of_the_cpu(datasets, kind):
    fields = ("image", *{"boxes": ("boxes", "box_counts")}.get(kind, (kind,)))
    options = {"transforms": TRANSFORMS[:1], "views": VIEWS, "sampler": loaders.ShuffledSampler()}
    check_both_devices(datasets[kind], fields, **options)
