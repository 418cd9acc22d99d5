"""Loaders with a sampler return the images that the sampler chooses, on every rank."""

import json
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import loading, small
from helpers.loading import column, equal, flat, state_after

import loaders
import loaders.dali.readers
from loaders.samplers import ClassBalancedSampler, PKSampler, ShuffledSampler
from manifests.errors import CallError, ShardError
from manifests.store import manifest_bytes, read_manifest

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


def test_a_sampler_that_fails_while_a_state_is_loaded_is_named(people):
    """The sampler's CallError is also a ValueError, but must not be reported as a damaged checkpoint."""

    class Sampler:
        columns = ()

        def __init__(self, fails):
            self.fails = fails

        def plan(self, columns, **_):
            def batch(epoch, number):
                return np.arange(3 if self.fails and epoch else 6)

            return SimpleNamespace(samples=36, lines=(), batch=batch)

    options = {"fields": ("index",), "prefetch": 1}
    with (
        build(people, sampler=Sampler(fails=False), **options) as saved,
        build(people, sampler=Sampler(fails=True), **options) as loader,
    ):
        list(saved)
        state = state_after(saved, 1)
        with pytest.raises(CallError, match="batch 1 of epoch 1 must be 6 integers"):
            loader.load_state_dict(state)
        # The loader is back where it was.
        assert next(iter(loader))[0].tolist() == list(range(6))


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
    manifest = read_manifest(folder)
    changed = replace(manifest, classes=(*manifest.classes, "x", "y"))
    (folder / "manifest.json").write_bytes(manifest_bytes(changed))
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


def test_a_deleted_shard_is_named(people, tmp_path, monkeypatch):
    monkeypatch.setattr(loaders.dali.readers, "READ_AHEAD_BATCHES", 0)
    folder = shutil.copytree(people, tmp_path / "copy")
    loader = build(folder, sampler=ShuffledSampler(), batch_size=1, prefetch=1)
    for shard in folder.glob("*.tfrecord"):
        shard.unlink()
    # A shard that is already mapped stays; any other is missing when its first image is read.
    message = r"\.tfrecord: the shard cannot be read \(No such file or directory\)"
    with pytest.raises(ShardError, match=message):
        list(loader)


def test_the_sampler_of_a_config(people, tmp_path):
    names = {"name": "PKSampler", "batch_size": 6, "sample_per_id": 2, "drop_last": False}
    section = {"dataset": {"name": "VeriWild", "transform_ops": EXACT}, "sampler": names}
    file = tmp_path / "reid.yaml"
    file.write_text(json.dumps({"DataLoader": {"Train": section}}))
    options = {"transforms": file, "device": "cpu"}
    message = r"the config's sampler PKSampler becomes PKSampler\(classes_per_batch=3"
    with pytest.warns(UserWarning, match=message):
        loader = loaders.build(people, **options, fields=("label",))
    assert all(sorted(Counter(labels).values()) == [2, 2, 2] for labels in column(loader))
    message = "shuffle=False cannot be combined with a sampler, which decides the order"
    with pytest.raises(CallError, match=message):
        loaders.build(people, **options, shuffle=False)
