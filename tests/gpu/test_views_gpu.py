"""Views, five and ten crops, and images of one size on the GPU: close to the batches of the CPU."""

import pytest
import torch
from helpers.gpu import build, pairs, write_photos

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZE = {"Normalize": {"mean": MEAN, "std": STD}}
CROP = [{"CenterCrop": {"size": 24}}, "ToTensor"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views") / "data"
    return write_photos(folder, [(64, 48)] * 8, classes=8, kinds=("png",), shards=1)


OPTIONS = {"dtype": "float32", "shuffle": False}


@pytest.mark.parametrize(
    ("transforms", "shape"),
    [
        ([{"FiveCrop": {"size": 16}}, "ToTensor", NORMALIZE], (4, 5, 3, 16, 16)),
        ([{"TenCrop": {"size": 16}}], (4, 10, 3, 16, 16)),
        (["ToTensor"], (4, 3, 48, 64)),
        ([{"ToDtype": {"dtype": "float32"}}], (4, 3, 48, 64)),
    ],
)
def test_batches_are_those_of_the_cpu(dataset, transforms, shape):
    (expected, _), (found, _) = next(pairs(dataset, transforms=transforms, **OPTIONS))
    assert found.shape == expected.shape == shape
    assert torch.allclose(found, expected, atol=1e-4)


def test_views_are_those_of_the_cpu(dataset):
    views = [CROP, [{"RandomHorizontalFlip": {"p": 1.0}}, *CROP, NORMALIZE]]
    options = {"transforms": [], "views": views, **OPTIONS}
    with build(dataset, device="cpu", **options) as cpu, build(dataset, **options) as gpu:
        expected, found = next(iter(cpu))[0], next(iter(gpu))[0]
    assert len(found) == 2
    for each, other in zip(found, expected, strict=True):
        assert each.is_cuda
        assert torch.allclose(each.cpu(), other, atol=1e-4)
