"""`Loader.preview` on a GPU shows the same as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import loaders

pytestmark = pytest.mark.gpu

TRANSFORMS = [{"ResizeImage": {"resize_short": 40}}, {"CropImage": {"size": 32}}, {"NormalizeImage": {}}]


@pytest.fixture
def dataset(make_photos, dataprep, tmp_path):
    photos = make_photos(tmp_path / "photos", 24)
    done = dataprep("convert", "--src", photos, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    return tmp_path / "out"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_preview_on_a_gpu(dataset, dtype):
    shown = {}
    for device in ("cpu", "gpu"):
        with loaders.build(dataset, batch_size=4, transforms=TRANSFORMS, device=device, dtype=dtype) as loader:
            preview = loader.preview(samples=12, draws=2)
        shown[device] = {item.key: item.draws for item in preview.items}
    assert shown["cpu"].keys() == shown["gpu"].keys()
    for key, draws in shown["cpu"].items():
        for on_cpu, on_gpu in zip(draws, shown["gpu"][key], strict=True):
            difference = np.abs(on_cpu.pixels.astype(int) - on_gpu.pixels.astype(int))
            assert on_cpu.pixels.shape == on_gpu.pixels.shape == (32, 32, 3)
            assert difference.mean() < 6  # the decoders of the CPU and of the GPU differ by a few levels


def test_a_preview_of_a_pk_batch_on_a_gpu(dataset):
    sampler = loaders.PKSampler(2, 3)
    with loaders.build(dataset, batch_size=6, transforms="reid-train", sampler=sampler, device="gpu") as loader:
        before = loader.state_dict()
        preview = loader.preview()
        assert loader.state_dict() == before
    assert [len(group.items) for group in preview.groups] == [3, 3]
