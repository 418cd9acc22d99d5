"""GPU memory is close to the estimate, respects limits, and stays constant over epochs."""

import json
import subprocess
import sys

import pytest
import torch
from helpers.gpu import build
from helpers.handmade import make_dataset
from helpers.loading import convert
from helpers.pictures import encode, photo

from dataprep.options import Raw
from manifests.errors import CallError

pytestmark = pytest.mark.alone

# DALI's memory pools belong to the process and outlive a loader, so each measurement runs in its
# own process.
MEASURE = """
import json, sys, warnings
import torch, loaders
from loaders.memory import estimate_memory
warnings.simplefilter("ignore")
folder, options = sys.argv[1], json.loads(sys.argv[2])
torch.zeros(1, device="cuda")
loader = loaders.build(folder, device="gpu", **options)
used = []
for epoch in range(3):
    most = 0
    for _ in range(max(1, 24 // len(loader))):
        for images, _ in loader:
            free, total = torch.cuda.mem_get_info()
            most = max(most, total - free)
    used.append(most)
estimated = estimate_memory(loader.spec.sizes, loader.spec.settings).total
print(json.dumps({"used": used, "estimated": estimated}))
"""
CROP = {"RandomResizedCrop": {"size": 224}}


def measure(folder, **options):
    # Subtract the memory of all other processes, this one included.
    free, total = torch.cuda.mem_get_info()
    command = [sys.executable, "-c", MEASURE, str(folder), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return [used - (total - free) for used in found["used"]], found["estimated"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Datasets of images of 3840x2160, 1920x1080 and 500x375, and one with all sizes."""
    folder = tmp_path_factory.mktemp("large")
    made = {}
    every = []
    for name, size in (("4k", (3840, 2160)), ("hd", (1920, 1080)), ("small", (500, 375))):
        few = [encode(photo(number, *size), "JPEG", quality=85) for number in range(6)]
        samples = [("jpg", few[number % 6], 0) for number in range(512)]
        every += samples[:128]
        made[name] = make_dataset(folder / name, "webdataset", samples)
    made["mixed"] = make_dataset(folder / "mixed", "webdataset", every)
    return made


@pytest.mark.parametrize("transforms", ["imagenet-train", "imagenet-eval"])
@pytest.mark.parametrize("batch_size", [32, 128, 512])
@pytest.mark.parametrize("name", ["4k", "hd", "small"])
def test_memory_equals_the_estimate(large, name, batch_size, transforms):
    used, estimated = measure(large[name], batch_size=batch_size, transforms=transforms)
    assert max(used) == pytest.approx(estimated, rel=0.15)
    if (name, batch_size, transforms) == ("4k", 32, "imagenet-train"):
        assert max(used) <= 2.6 * 2**30


@pytest.mark.parametrize("shuffle", [None, "buffer"], ids=["sampled", "stored"])
@pytest.mark.parametrize("batch_size", [64, 256])
def test_memory_for_raw_pixels_equals_the_estimate(batch_size, shuffle, tmp_path):
    folder = tmp_path / "src" / "class"
    folder.mkdir(parents=True)
    photo(0, 300, 300).save(folder / "0.jpg")
    for number in range(1, 512):
        (folder / f"{number}.jpg").hardlink_to(folder / "0.jpg")
    out = convert(tmp_path / "src", tmp_path / "out", raw=Raw(256))
    options = {"shuffle": shuffle, "transforms": "imagenet-train"}
    used, estimated = measure(out, batch_size=batch_size, **options)
    assert max(used) == pytest.approx(estimated, rel=0.15)


@pytest.mark.parametrize("transforms", ["imagenet-train", "imagenet-eval"])
def test_memory_is_constant_with_mixed_sizes(large, transforms):
    """A batch that is larger than all previous ones may add one block of 64 MiB to DALI's pool, but no more."""
    used, estimated = measure(large["mixed"], batch_size=64, transforms=transforms)
    assert used[2] - used[0] <= 0.1 * used[0]
    assert used[2] <= 1.15 * estimated


def test_work_after_the_crop_takes_less_memory(large):
    rotation = {"RandomRotation": {"degrees": 10, "prob": 0.5}}
    peaks = []
    for steps in ([rotation, CROP], [CROP, rotation], [{"RandomGrayscale": {"p": 0.5}}, CROP]):
        used, _ = measure(large["4k"], batch_size=32, transforms=[*steps, "ToTensor"])
        peaks.append(max(used))
    first, after, fused = peaks
    assert after < 0.8 * first
    # Fusion moves pointwise operations after the crop.
    assert fused < 1.1 * after


def test_a_memory_limit_is_respected_or_raises(large):
    options = {"batch_size": 32, "memory_limit": "1.5GiB"}
    message = r"memory_limit is 1\.50 GiB, but batches of 32 take an estimated .*resize-shorter"
    with pytest.raises(CallError, match=message):
        build(large["4k"], **options).close()
    with build(large["small"], **options) as loader:
        text = loader.explain()
    assert "Estimated GPU memory:" in text
    assert "finished batches" in text
