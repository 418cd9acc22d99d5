"""Loaders with a sampler return the images that the sampler chooses, on every rank."""

import shutil
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import loading, small
from helpers.damaged import change_manifest
from helpers.loading import equal, flat

from loaders.samplers import ClassBalancedSampler, PKSampler, ShuffledSampler
from manifests.store import read_manifest

EXACT = [{"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}}]
pytestmark = pytest.mark.filterwarnings("ignore:.* identities have fewer than:UserWarning")


def build(folder, **options):
    return loading.build(folder, **{"batch_size": 6, **options})


@pytest.fixture
def people(prepared):
    return prepared["people tfrecord"]


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_shards_of_another_tool(prepared, fmt, tmp_path, dataprep):
    """Shards alone, indexed by `dataprep index`, are sampled in the same way."""
    for shard in prepared[f"people {fmt}"].glob("*.t*"):
        shutil.copy(shard, tmp_path)
    done = dataprep("index", tmp_path)
    assert done.returncode == 0, done.stderr
    options = {"sampler": PKSampler(3, 2), "transforms": EXACT}
    with build(prepared[f"people {fmt}"], **options) as ours, build(tmp_path, **options) as theirs:
        assert equal(list(ours), list(theirs))


@dataclass(frozen=True)
class Backwards:
    """A custom sampler: rows from the last to the first, in an array that it uses again."""

    columns = ("camera",)

    def plan(self, columns, *, samples, batch_size, world_size, seed):
        assert columns["camera"].tolist() == [int(camera) for camera in columns["camera"]]
        buffer, size = np.zeros(batch_size * world_size, np.int64), batch_size * world_size

        def batch(epoch, number):
            rows = np.arange(samples)[::-1][number * size : (number + 1) * size]
            buffer[: len(rows)] = rows
            return buffer[: len(rows)]

        return SimpleNamespace(samples=samples, lines=("From the last to the first.",), batch=batch)


def test_a_custom_sampler(people):
    options = {"fields": ("index",), "last_batch": "partial"}
    with build(people, sampler=Backwards(), **options) as loader:
        assert flat(loader) == list(range(40))[::-1]
        assert "From the last to the first." in loader.explain()
        assert "planned by Backwards()" in loader.explain()


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
