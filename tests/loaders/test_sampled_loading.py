"""Loaders with a sampler return the images that the sampler chooses, on every rank."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import loading, small
from helpers.damaged import change_manifest
from helpers.loading import flat

from loaders.samplers import (
    ClassBalancedSampler,
    PKSampler,
    ShuffledSampler,
    SubsetSampler,
)
from manifests.store import read_manifest

EXACT = [{"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}}]
pytestmark = pytest.mark.filterwarnings("ignore:.* identities have fewer than:UserWarning")


def build(folder, **options):
    return loading.build(folder, **{"batch_size": 6, **options})


@pytest.fixture
def people(prepared):
    return prepared["people tfrecord"]


def test_a_custom_sampler(people):
    """From the last to the first row, in an array that the plan uses again; also in a subset."""
    buffer = np.zeros(6, np.int64)

    def plan(columns, *, samples, batch_size, world_size, seed):
        assert columns["camera"].tolist() == [int(camera) for camera in columns["camera"]]
        assert columns["label"].dtype == np.int64

        def batch(epoch, number):
            rows = np.arange(samples)[::-1][number * batch_size : (number + 1) * batch_size]
            buffer[: len(rows)] = rows
            return buffer[: len(rows)]

        return SimpleNamespace(samples=samples, lines=("From the last to the first.",), batch=batch)

    custom = SimpleNamespace(columns=("camera", "label"), plan=plan)
    for sampler in (custom, SubsetSampler(where="true", sampler=custom)):
        with build(people, sampler=sampler, fields=("index",), last_batch="partial") as loader:
            assert flat(loader) == list(range(40))[::-1]
            assert "From the last to the first." in loader.explain()
            assert f"planned by {str(sampler)[:14]}" in loader.explain()


def test_a_partial_batch_larger_than_an_epoch_is_not_padded(people):
    options = {"sampler": ShuffledSampler(), "batch_size": 4096, "last_batch": "partial"}
    with build(people, **options) as loader:
        assert loader.options.batch_size == 40
        assert [len(images) for images, _ in loader] == [40]


def test_build_warns_about_small_and_empty_classes(people, tmp_path):
    message = "2 of 10 identities have fewer than 2 samples; their 2 samples are repeated"
    with pytest.warns(UserWarning, match=message):
        build(people, sampler=PKSampler(3, 2)).close()
    folder = shutil.copytree(people, tmp_path / "copy")
    change_manifest(folder, classes=(*read_manifest(folder).classes, "x", "y"))
    with pytest.warns(UserWarning, match="2 of 12 classes have no sample in split 'train'"):
        build(folder, sampler=ClassBalancedSampler()).close()


#: A thread that outlives the main thread; and a process that ends while batches are prefetched.
PROGRAMS = {
    "thread": "def train(): print(sum(1 for _ in loader))\nthreading.Thread(target=train).start()",
    "process": "batches = iter(loader); next(batches); print(6)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_do_not_disturb_the_end_of_a_program(people, python, name):
    script = (
        "import loaders, sys, threading\nloader = loaders.build(sys.argv[1], batch_size=6,"
        f" transforms={small.TRAIN}, device='cpu', sampler=loaders.ShuffledSampler(), prefetch=4)\n"
    )
    for _ in range(2):
        done = python.run("-c", script + PROGRAMS[name], people)
        assert (done.returncode, done.stdout, done.stderr) == (0, "6\n", "")
