"""Masks, depth maps and boxes from a source to a batch: they stay where their image shows them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import annotated

import loaders
from dataprep.convert.dataset import convert_dataset
from dataprep.options import Options
from dataprep.sources import read_source

RAW = [{"Resize": {"size": [96, 112]}}]
ORDERS = {"stored": {"shuffle": False}, "planned": {"sampler": loaders.ShuffledSampler()}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    return {
        "mask": annotated.make_pairs(root / "mask"),
        "depth": annotated.make_pairs(root / "depth", seconds="depth", kind="depth"),
        "boxes": annotated.make_coco(root / "boxes"),
    }


@pytest.fixture(scope="module")
def datasets(sources, tmp_path_factory):
    """A dataset of each label type in each format."""
    out = tmp_path_factory.mktemp("datasets")
    made = {}
    for kind, source in sources.items():
        for fmt in ("tfrecord", "webdataset"):
            made[kind, fmt] = str(out / f"{kind}-{fmt}")
            convert_dataset(read_source(str(source)), made[kind, fmt], Options(fmt=fmt, shard_samples=3))
    return made


def build(dataset, fields, order, transforms=RAW, **kwargs):
    options = {"batch_size": 2, "device": "cpu", "dtype": "float32", "last_batch": "partial", **ORDERS[order], **kwargs}
    return loaders.build(dataset, fields=fields, transforms=transforms, **options)


def resized(pixels, height, width):
    rows = ((np.arange(height) + 0.5) * pixels.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * pixels.shape[1] / width).astype(int)
    return pixels[rows][:, columns]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("kind", ["mask", "depth"])
def test_masks_and_depth_maps(datasets, kind, fmt, order):
    given = annotated.masks() if kind == "mask" else annotated.depths()
    seen = []
    with build(datasets[kind, fmt], ("image", kind, "source"), order) as loader:
        for images, seconds, names in loader:
            assert images.shape[0] == seconds.shape[0] == len(names)
            assert seconds.dtype == (torch.uint8 if kind == "mask" else torch.uint16)
            for second, name in zip(seconds, names, strict=True):
                number = int(name.split("/")[1].split(".")[0])
                expected = resized(given[number], 96, 112)
                assert (second.numpy() == expected).mean() > 0.95  # centers between two pixels may take the other one
                seen.append(number)
    assert sorted(seen) == [0, 1, 2, 3, 4]
