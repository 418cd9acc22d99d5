"""`loaders export --device gpu`: a process that has only DALI gives the images of the loader on the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import nvidia.dali
import pytest
from helpers import handmade, serve_models
from helpers.bad_images import exif
from helpers.pictures import encode, photo

import loaders
from loaders.export.command import export
from manifests.errors import CallError

LARGEST = 12


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """12 images that differ in size, every fourth a PNG, every fifth turned."""
    samples = []
    for number in range(12):
        kind = "JPEG" if number % 4 else "PNG"
        picture = photo(number, 500 - 11 * number, 300 + 20 * number)
        options = {} if number % 5 else {"exif": exif(6)}
        samples.append(
            ({"JPEG": "jpg", "PNG": "png"}[kind], encode(picture, kind, **options), number % 3)
        )
    return handmade.make_dataset(
        tmp_path_factory.mktemp("export") / "photos", "tfrecord", samples, shards=1
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("transforms", ["imagenet-eval", "reid-eval"])
def test_batches_of_every_size_are_those_of_the_loader(photos, tmp_path, transforms, dtype):
    written = export(
        str(photos), str(tmp_path), transforms=transforms, target="triton", device="gpu", samples=12,
        max_batch_size=12, dtype=dtype,
    )  # fmt: skip
    assert written.note == "its images of the golden batch are the same as those of the loader"
    model = tmp_path / "preprocess"
    assert "KIND_GPU" in (model / "config.pbtxt").read_text()
    job = {
        "version": str(model / "1"), "encoded": str(model / "golden/encoded.npy"), "out": str(tmp_path / "served.npz"),
        "largest": LARGEST, "device_id": 0,
    }  # fmt: skip
    (tmp_path / "jobs.json").write_text(json.dumps([job]))
    command = [sys.executable, "-P", serve_models.__file__, str(tmp_path / "jobs.json")]
    only_dali = os.environ | {"PYTHONPATH": str(Path(nvidia.dali.__file__).parents[2])}
    done = subprocess.run(
        command, cwd=tmp_path, env=only_dali, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    served = np.load(tmp_path / "served.npz", allow_pickle=False)
    with loaders.build(
        photos, split="train", transforms=transforms, batch_size=12, shuffle=False, device="gpu", framework="numpy",
        dtype=dtype, hw_decoder_load=0.0,
    ) as loader:  # fmt: skip
        images, _ = next(iter(loader))
    for source in ("model.dali", "dali.py"):
        for count in range(1, LARGEST + 1):
            start = count % (len(images) - count + 1)
            got, expected = served[f"{source} {count}"], images[start : start + count]
            difference = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
            assert difference == 0, (
                f"{source}, batch of {count}: the largest difference is {difference}"
            )


def test_sizes_of_images_that_the_gpu_has_changed_are_refused(photos, tmp_path):
    resize_twice = [{"Resize": {"size": 256}}, {"Pad": {"padding": 3}}, {"Resize": {"size": 224}}]
    resize_twice += [{"CenterCrop": {"size": 224}}, "ToTensor"]
    with pytest.raises(CallError, match="they need the size of an image that the GPU has changed"):
        export(str(photos), str(tmp_path), transforms=resize_twice, target="triton", device="gpu")


def test_onnx_on_the_gpu(photos, tmp_path):
    pytest.importorskip("onnxruntime")
    export(
        str(photos), str(tmp_path / "out"), transforms="imagenet-eval", target="onnx", device="gpu"
    )
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    assert record["device"] == "gpu"
    assert record["difference from the loader"]["largest"] < 2.01
    assert record["difference from the loader"]["mean"] < 0.1
