"""Masks, depth maps and boxes on the GPU: the same checks as on the CPU, and the same batches as there."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import test_targets
import torch
from helpers import annotated

import loaders
from dataprep.convert.dataset import convert_dataset
from dataprep.options import Options
from dataprep.sources import read_source
from loaders.transforms import Flip, Normalize, RandomResizedCrop

CHECKS = [test_targets.check_masks_of_both_devices, test_targets.check_depths, test_targets.check_painted_boxes]
if importlib.util.find_spec("torchvision"):
    import test_targets_torchvision

    CHECKS.append(test_targets_torchvision.check_torchvision)


@pytest.mark.parametrize("check", CHECKS)
def test_targets(check):
    check(gpu=True)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("placed")
    made = annotated.make_each_kind(root)
    for kind, source in made.items():
        convert_dataset(read_source(str(source)), str(root / f"{kind}-out"), Options(shard_samples=3))
    return {kind: str(root / f"{kind}-out") for kind in made}


@pytest.mark.parametrize("sampler", [None, loaders.ShuffledSampler()], ids=["stored", "planned"])
@pytest.mark.parametrize("kind", ["mask", "depth", "boxes"])
def test_batches_are_those_of_the_cpu(datasets, kind, sampler):
    """The images are PNGs, whose regions the decoder of the GPU takes from the same draws as that of the CPU."""
    fields = ("image", *{"boxes": ("boxes", "box_labels", "box_counts")}.get(kind, (kind,)))
    transforms = [RandomResizedCrop((48, 64)), Flip(), Normalize((0, 0, 0), (1, 1, 1))]
    batches = []
    for device in ("cpu", "gpu"):
        with loaders.build(
            datasets[kind],
            fields=fields,
            transforms=transforms,
            batch_size=2,
            device=device,
            dtype="float32",
            last_batch="partial",
            sampler=sampler,
            shuffle=None if sampler else False,
        ) as loader:
            epochs = [batch for _ in range(2) for batch in loader]
            assert all(value.is_cuda == (device == "gpu") for batch in epochs for value in batch)
            batches.append([[value.cpu() for value in batch] for batch in epochs])
    for cpu, gpu in zip(*batches, strict=True):
        for name, one, other in zip(fields, cpu, gpu, strict=True):
            assert one.shape == other.shape, name
            assert one.dtype == other.dtype, name
            if name == "image":
                assert (one - other).abs().mean() < 0.02
            elif name == "boxes":
                np.testing.assert_allclose(one, other, atol=1e-3)
            else:
                assert torch.equal(one, other), name
