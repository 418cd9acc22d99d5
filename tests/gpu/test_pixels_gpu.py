"""Pixels of 16 bits, many channels and floats on the GPU: the batches of the CPU."""

import numpy as np
import pytest
from helpers.gpu import build
from helpers.pixel_kinds import png, tiff

import loaders

SIDES = (61, 83)
RAW = ("--store", "raw", "--raw-size", SIDES[0])
DEFLATE = {"compression": "zlib", "predictor": 2}
#: Type, channels and encoder of each kind; those named raw are stored as pixels.
KINDS = {
    "tiff x13": ("uint16", 13, DEFLATE), "big-endian tiff x13": ("uint16", 13, {"byteorder": ">"}),
    "tiff x4": ("uint8", 4, {}), "float tiff x1": ("float32", 1, {}),
    "float tiff x13": ("float32", 13, {}), "raw x13": ("uint16", 13, DEFLATE),
    "png x1": ("uint16", 1, "png"), "png x3": ("uint16", 3, "png"), "png x4": ("uint16", 4, "png"),
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def dataset(request, tmp_path_factory, dataprep):
    """A dataset of 8 images of one kind and their pixels [8, H, W, C], smooth with noise."""
    dtype, channels, how = KINDS[request.param]
    rng, full = np.random.default_rng(0), 1.0 if dtype == "float32" else np.iinfo(dtype).max
    height, width = SIDES
    is_raw = request.param.startswith("raw")
    arrays = rng.random((8, height, height if is_raw else width, channels)) * full
    arrays = arrays.astype(dtype)
    folder = tmp_path_factory.mktemp("pixels")
    suffix, fmt = ("png", "webdataset") if how == "png" else ("tif", "tfrecord")
    for number, each in enumerate(arrays):
        path = folder / "src" / f"class{number % 2}" / f"{number}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(each) if how == "png" else tiff(each, **how))
    options = ("--fmt", fmt, "--no-shuffle", *(RAW if is_raw else ()))
    done = dataprep("convert", "--src", folder / "src", "--out", folder / "out", *options)
    assert done.returncode == 0, done.stderr
    # The images of a class follow each other.
    return folder / "out", np.concatenate([arrays[::2], arrays[1::2]])


def batch(folder, device, dtype, steps, **options):
    options = {"batch_size": 8, "shuffle": False, "layout": "NHWC", "seed": 3, **options}
    with build(folder, transforms=steps, device=device, dtype=dtype, **options) as loader:
        images = next(iter(loader))[0]
    assert images.is_cuda == (device == "gpu")
    return images.cpu().numpy()


def test_whole_images_are_exact(dataset):
    folder, arrays = dataset
    for sampler in (None, loaders.PKSampler(2, 4)):
        found = batch(folder, "gpu", arrays.dtype.name, [], sampler=sampler, shuffle=None)
        stored = {each.tobytes() for each in arrays}
        assert all(each.tobytes() in stored for each in found)
    assert np.array_equal(batch(folder, "gpu", arrays.dtype.name, []), arrays)


@pytest.mark.parametrize("crop", ["RandomCrop", "CenterCrop"])
def test_crops_and_flips_are_those_of_the_cpu(dataset, crop):
    folder, arrays = dataset
    steps = [{crop: {"size": 32}}, {"RandomHorizontalFlip": {"p": 1.0}}]
    found, expected = (batch(folder, each, arrays.dtype.name, steps) for each in ("gpu", "cpu"))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("step", ["Resize", "RandomResizedCrop"])
def test_resized_and_normalized_images_are_close(dataset, step):
    folder, arrays = dataset
    channels = arrays.shape[3]
    scale = {"mean": [0.4] * channels, "std": [0.25] * channels}
    steps = [{step: {"size": [24, 40]}}, "RandomHorizontalFlip", "ToTensor", {"Normalize": scale}]
    found, expected = (batch(folder, each, "float32", steps) for each in ("gpu", "cpu"))
    # One part in 2**15 of the range, and for integers one step of rounding after the resampling.
    steps_of_type = 1 / np.iinfo(arrays.dtype).max if arrays.dtype != np.float32 else 0
    assert np.abs(found - expected).max() <= (2**-15 + steps_of_type) / 0.25
