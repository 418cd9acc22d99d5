"""The loader on GPUs: resume, memory, frameworks, presets, ranks."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import HELPERS, gpu
from helpers.datasets import FORMATS
from helpers.gpu import write_both
from helpers.loading import equal, state_after

import loaders
from loaders.transforms.argument import PRESETS

EACH_FORMAT = pytest.mark.parametrize("fmt", FORMATS)


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Datasets of 90 images like photographs, with longer sides of 80 to 900 pixels, in both formats."""
    sizes = [(side, side * 3 // 4) for side in (80, 300, 420, 640, 900)] * 18
    kinds = ("jpg", "png", "jpg", "webp")
    return write_both(tmp_path_factory.mktemp("datasets"), sizes, classes=7, kinds=kinds)


def build(folder, **options):
    return gpu.build(folder, **{"batch_size": 16, **options})


@pytest.mark.parametrize("name", PRESETS)
@EACH_FORMAT
def test_presets(folders, fmt, name):
    sampler = loaders.BucketSampler() if name.startswith("bucket-") else None
    with build(folders[fmt], transforms=name, sampler=sampler) as loader:
        for images, labels in loader:
            assert images.is_cuda
            assert labels.is_cuda
            assert images.dtype == torch.float16
            assert images.isfinite().all()
            assert 0.2 < images.float().std() < 3


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_frameworks(folders, framework):
    pytest.importorskip(framework)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    fields = ("image", "label", "index", "source")
    options = {"shuffle": False, "dtype": "float32", "fields": fields}
    loader = build(folders["tfrecord"], framework=framework, **options)
    images, labels, index, source = next(iter(loader))
    expected = next(iter(build(folders["tfrecord"], **options)))
    assert np.array_equal(np.asarray(images), expected[0].cpu().numpy())
    assert np.asarray(labels).tolist() == expected[1].tolist()
    assert np.asarray(index).tolist() == expected[2].tolist()
    assert source == expected[3]


@pytest.mark.parametrize("decoder", [None, "cpu", "gpu"])
@pytest.mark.parametrize("crop", ["RandomCrop", "RandomResizedCrop"])
def test_small_images(tmp_path, crop, decoder):
    folder = gpu.write_photos(tmp_path / "small", [(96, 64)] * 64, 5)
    options = {"transforms": [{crop: {"size": 32}}, "RandomHorizontalFlip"], "dtype": "uint8"}
    with build(folder, decoder=decoder, **options) as loader:
        assert loader.options.decoder == (decoder or "cpu")
        batches = gpu.on_cpu(loader)
        loader.set_epoch(0)
        state = state_after(loader, 2)
    with build(folder, device="cpu", **options) as loader:
        for (expected, *labels), (found, *others) in zip(loader, batches, strict=True):
            assert equal(labels, others)
            difference = (found.int() - expected.int()).abs().float()
            # The resize of a GPU rounds in another way.
            assert decoder == "gpu" or difference.max() <= (crop == "RandomResizedCrop")
            assert difference.mean() < 6
    with build(folder, decoder=decoder, **options) as loader:
        loader.load_state_dict(state)
        assert equal(gpu.on_cpu(loader), batches[2:])


def test_a_batch_function_runs_on_the_gpu(folders):
    def mean(images):
        assert images.is_cuda
        return images.float().mean((2, 3))

    transforms = [{"RandCropImage": {"size": 64}}, "NormalizeImage", mean]
    images, _ = next(iter(build(folders["tfrecord"], transforms=transforms)))
    assert images.shape == (16, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_batch_keeps_its_images_until_the_gpu_has_used_them(folders, dtype):
    # A model's kernels run long after a loop has gone on to the next batch, which releases the
    # images of this one.
    sampler = loaders.RepeatedSampler(40, samples=640)
    with build(folders["tfrecord"], sampler=sampler, dtype=dtype) as loader:
        expected = [images.double().sum().item() for images, _ in loader]
        loader.set_epoch(0)
        again = [images.double().sum().item() for images, _ in loader]
        assert again == expected
        loader.set_epoch(0)
        sums = []
        for images, _ in loader:
            torch.cuda._sleep(40_000_000)  # about 20 ms on the stream that uses the images
            sums.append(images.double().sum())
            del images
        assert [each.item() for each in sums] == expected


def test_a_cuda_graph_is_captured_and_replayed_while_a_loader_runs(folders):
    sampler = loaders.RepeatedSampler(40, samples=640)
    with build(folders["tfrecord"], sampler=sampler) as loader:
        expected = [images.double().sum().item() for images, _ in loader]
        loader.set_epoch(0)
        graph, held, sums = torch.cuda.CUDAGraph(), None, []
        for images, _ in loader:
            if held is None:
                held = images.clone(memory_format=torch.preserve_format)
                held.double().sum()
                # The rules of a capture are for this thread only: those of the pipeline allocate
                # memory meanwhile.
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    total = held.double().sum()
            held.copy_(images)
            graph.replay()
            sums.append(total.clone())
        assert [each.item() for each in sums] == expected


def test_no_copy_through_the_host(folders):
    """A batch uses DALI's own memory on the GPU."""
    loader = build(folders["tfrecord"])
    iterator = iter(loader)
    next(iterator)
    before = torch.cuda.memory_allocated()
    images, _ = next(iterator)
    # torch allocates memory only for the labels.
    assert torch.cuda.memory_allocated() - before < images.nbytes / 10


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@EACH_FORMAT
def test_two_gpus_read_every_sample_once(folders, fmt):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [f"{HELPERS}/gather_labels.py", str(folders[fmt])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["world"] == 2
    assert found["devices"] == [["cuda:0"], ["cuda:1"]]
    assert len(found["labels"]) == 90
    assert len(set(found["batches"])) == 1
    assert sorted(found["labels"]) == sorted(number % 7 for number in range(90))
