"""`loaders export --device gpu`: a process that has only DALI gives the images of the loader on the GPU."""

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
from helpers.gpu import build
from helpers.pictures import encode, photo

from loaders.export.command import export
from manifests.errors import CallError

LARGEST = 12


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """12 images that differ in size, every fourth a PNG, every fifth turned."""
    samples = []
    for number in range(12):
        kind = "jpg" if number % 4 else "png"
        picture = photo(number, 500 - 11 * number, 300 + 20 * number)
        options = {} if number % 5 else {"exif": exif(6)}
        samples.append((kind, encode(picture, kind, **options), number % 3))
    folder = tmp_path_factory.mktemp("export") / "photos"
    return handmade.make_dataset(folder, "tfrecord", samples, shards=1)


def write(photos, out, transforms, target="triton", **options):
    return export(
        str(photos), str(out), transforms=transforms, target=target, device="gpu", **options
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("transforms", ["imagenet-eval", "reid-eval"])
def test_batches_of_every_size_are_those_of_the_loader(photos, tmp_path, transforms, dtype):
    written = write(photos, tmp_path, transforms, samples=12, max_batch_size=12, dtype=dtype)
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
    options = {"batch_size": 12, "shuffle": False, "framework": "numpy", "hw_decoder_load": 0.0}
    with build(photos, transforms=transforms, dtype=dtype, **options) as loader:
        images, _ = next(iter(loader))
    for source in ("model.dali", "dali.py"):
        for count in range(1, LARGEST + 1):
            start = count % (len(images) - count + 1)
            got, expected = served[f"{source} {count}"], images[start : start + count]
            np.testing.assert_array_equal(got, expected, f"{source}, batch of {count}")


def test_sizes_of_images_that_the_gpu_has_changed_are_refused(photos, tmp_path):
    resize_twice = [{"Resize": {"size": 256}}, {"Pad": {"padding": 3}}, {"Resize": {"size": 224}}]
    resize_twice += [{"CenterCrop": {"size": 224}}, "ToTensor"]
    with pytest.raises(CallError, match="they need the size of an image that the GPU has changed"):
        write(photos, tmp_path, resize_twice)


def test_onnx_on_the_gpu(photos, tmp_path):
    pytest.importorskip("onnxruntime")
    write(photos, tmp_path / "out", "imagenet-eval", "onnx")
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    assert record["device"] == "gpu"
    assert record["difference from the loader"]["largest"] < 2.01
    assert record["difference from the loader"]["mean"] < 0.1
