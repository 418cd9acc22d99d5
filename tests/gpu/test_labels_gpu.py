"""Labels of every type on the GPU: the same values as on the CPU, on the device of the images."""

import numpy as np
import pytest
import torch
from helpers.datasets import FORMATS, write_csv
from helpers.gpu import build
from helpers.loading import converted
from helpers.pictures import encode

import loaders

N = 9
#: Column and values by field.
TABLES = {
    "labels": ("label", ["cat", "dog", "cat|dog", "bird", "", "cat", "dog", "cat|dog", "bird"]),
    "values": ("age", range(20, 20 + N)),
    "caption": ("caption", [f"number {number}" for number in range(N)]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Datasets of three label types. The mean color of image i is 25 i."""
    root = tmp_path_factory.mktemp("labels")
    for number in range(N):
        pixels = np.full((40, 50, 3), 25 * number, np.uint8)
        (root / f"{number}.jpg").write_bytes(encode(pixels, "jpg", quality=95))
    for field, (column, values) in TABLES.items():
        rows = [(f"{number}.jpg", value) for number, value in enumerate(values)]
        table = write_csv(root / f"{field}.csv", f"path,{column}", rows)
        for fmt in FORMATS:
            converted(table, root / f"{field}-{fmt}", fmt)
    return root


def batches(dataset, field, device, **options):
    defaults = {"batch_size": 4, "dtype": "uint8", "num_threads": 2}
    defaults["transforms"] = [{"ResizeImage": {"size": [32, 32]}}]
    return list(build(dataset, fields=("image", field), device=device, **{**defaults, **options}))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "order", [{"shuffle": False}, {"sampler": loaders.ShuffledSampler()}], ids=["native", "sampler"]
)
def test_labels_are_those_of_the_cpu(folder, fmt, order):
    for field in ("labels", "values", "caption"):
        options = {**order, "last_batch": "partial"}
        on_gpu = batches(folder / f"{field}-{fmt}", field, "gpu", **options)
        on_cpu = batches(folder / f"{field}-{fmt}", field, "cpu", **options)
        for (images, labels), (_, expected) in zip(on_gpu, on_cpu, strict=True):
            numbers = (images.float().mean((1, 2, 3)) / 25).round().int().tolist()
            if field == "caption":
                assert labels == expected == [f"number {number}" for number in numbers]
                continue
            assert labels.device == images.device
            assert labels.dtype == torch.float32
            assert torch.equal(labels.cpu(), expected)
            if field == "values":
                assert labels[:, 0].tolist() == [20 + number for number in numbers]


def test_mixing_and_repeat_factors_on_the_gpu(folder):
    transforms = [
        {"ResizeImage": {"size": [32, 32]}},
        {"MixupOperator": {"alpha": 0.4, "class_num": 3}},
    ]
    options = {"transforms": transforms, "dtype": "float32"}
    (images, values), *_ = batches(folder / "values-tfrecord", "values", "gpu", **options)
    expected = (images.float().mean((1, 2, 3)) / 25 + 20).cpu()
    assert torch.allclose(values[:, 0].cpu(), expected, atol=0.1)
    sampler = loaders.ClassBalancedSampler(by="labels", threshold=0.9)
    found = batches(folder / "labels-tfrecord", "labels", "gpu", sampler=sampler)
    assert sum(len(images) for images, _ in found) >= 8
