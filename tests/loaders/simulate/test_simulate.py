"""``loaders simulate`` computes what the real cache fetches."""

import json
import os
import shutil
from unittest import mock
from unittest.mock import Mock

import pytest
from helpers import handmade
from helpers.cached import noise
from helpers.datasets import write_images
from helpers.object_stores import upload

import dataprep
from dataprep.options import RemoveOptions
from dataprep.run.remove import remove_samples
from loaders import ShuffledSampler
from loaders.cache.images import CachedImages, open_cached
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks
from loaders.samplers.choose import planned_order
from loaders.samplers.order import Batching
from loaders.simulate.command import simulate
from loaders.simulate.model import Cluster
from manifests.errors import CallError
from manifests.remote.store import Store

MACHINES = {"nodes": 1, "gpus": 1, "batch_size": 4, "epochs": 2, "rate": 100.0}
STORE = {"latency": 0.001, "node_bandwidth": 1e9}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """160 images of about 100 KB in 4 shards."""
    folder = tmp_path_factory.mktemp("set") / "set"
    return handmade.make_dataset(folder, "tfrecord", noise(160, 400, 400), shards=4)


def run(dataset, window=None, **machines):
    """Simulate with a start that takes no time, however busy this machine is."""
    cluster = Cluster(**{**MACHINES, **STORE, **machines})
    with mock.patch("loaders.simulate.command.time", Mock(perf_counter=lambda: 0.0)):
        return simulate(str(dataset), "train", cluster, window)


@pytest.mark.parametrize("share", [None, 0.6])
def test_a_rank_fetches_what_is_simulated(dataset, tmp_path, monkeypatch, share):
    """Also if the cache evicts, except for what depends on the moment at which it does."""
    found, read = [], Store.read_parts
    expected = run(dataset)
    limit = share and int(share * expected.size)
    tolerance = 0.01
    if share:
        expected, tolerance = run(dataset, node_disk=limit), 0.1

    def counted(self, name, ranges):
        found.append(ranges)
        return read(self, name, ranges)

    url = upload(dataset, f"memory://bucket/{tmp_path.name}/set")
    split = open_cached(url, "train", tmp_path / "cache", limit)
    monkeypatch.setattr(Store, "read_parts", counted)
    images = CachedImages(split, SampleTables(split), mmap=True)
    batching = Batching(4, "drop", Ranks(0, 1), training=True)
    upcoming = planned_order(split, {}, batching, ShuffledSampler()).upcoming(0, 0)
    for step in range(2 * upcoming.batches + 2):
        images.follow(step, upcoming)
        images.images(upcoming.of_rank(step))
    images.close()
    size = sum(end - start for ranges in found for start, end in ranges)
    assert sum(sum(epoch.bytes) for epoch in expected.epochs) == pytest.approx(size, rel=tolerance)
    if share:  # else they depend on how soon whole blocks are fetched
        requests = sum(sum(epoch.requests) for epoch in expected.epochs)
        assert requests == pytest.approx(sum(map(len, found)), rel=0.2)


def test_what_machines_change(dataset):
    alone = run(dataset)
    assert alone.epochs[0].cached < 1
    assert [alone.epochs[1].cached, alone.epochs[1].bytes] == [1, (0,)]
    assert alone.epochs[1].waiting == 0
    slow, all_slow = run(dataset, node_bandwidth=4e6), run(dataset, store_bandwidth=4e6)
    assert slow.epochs[0].waiting > 1 > alone.epochs[0].waiting
    assert slow.epochs == all_slow.epochs
    # A node reads whole blocks, which have more images than its own.
    apart = run(dataset, nodes=10)
    assert apart.simulated == len(apart.epochs[0].bytes) == 4
    assert min(apart.epochs[0].bytes) > 2 * alone.size / 10
    small = {"node_disk": int(0.45 * alone.size), "epochs": 3}
    shuffled, window = run(dataset, **small), run(dataset, window=1, **small)
    assert shuffled.epochs[2].cached < 0.8
    assert sum(window.epochs[2].bytes) < 1.1 * alone.size


def test_the_command_needs_only_tables(dataset, tmp_path, warm):
    for name in os.listdir(dataset):
        if name.endswith((".json", ".parquet")):
            shutil.copy(dataset / name, tmp_path)

    def loaders_simulate(*options, folder=tmp_path, status=0):
        done = warm.run("-m", "loaders", "simulate", str(folder), *options)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    options = ("--nodes", "5", "--gpus", "2", "--batch-size", "1", "--node-disk", "9MB")
    text = loaders_simulate(*options)
    assert "5 nodes of 2 GPUs, a limit of 9.0 MB of the cache" in text
    assert "batches of 1: 16 steps an epoch" in text
    assert "computed for 4 of 5 nodes" in text
    # The same figures as without a limit.
    above = loaders_simulate(*options[:6], "--node-disk", "1GB")
    unlimited = loaders_simulate(*options[:6])
    assert "a limit of 1.0 GB of the cache, which holds the split" in above
    assert "no limit of the cache" in unlimited
    assert above[above.index("epoch ") :] == unlimited[unlimited.index("epoch ") :]
    found = json.loads(loaders_simulate(*options, "--json"))
    assert len(found["epochs"]) == 2
    assert found["start_requests"] == 2 + 4
    for wrong, message in (
        (("--nodes", "50", "--batch-size", "4"), "400 ranks need 1,600 samples for a batch"),
        ((*options, "--node-disk", "1MB"), "--node-disk is 1.0 MB, but batches of 10 samples of"),
        ((*options, "--node-disk", "much"), "'much' is not a size in bytes. Hint: for example"),
        ((*options, "--store-bandwidth", "0"), "'--store-bandwidth': it must be above 0."),
    ):
        assert message in loaders_simulate(*wrong, status=2)
    error = loaders_simulate(*options, folder="s3://bucket/set", status=2)
    assert "Hint: copy manifest.json and the sample tables (*.parquet) to a folder" in error


def test_a_split_of_which_all_samples_are_removed(tmp_path):
    images = write_images(tmp_path / "images", range(8), ("cat", "dog"))
    dataprep.convert(images, tmp_path / "out", val_fraction=0.25, workers=1)
    remove_samples(str(tmp_path / "out"), RemoveOptions(where="split = 'val'"))
    with pytest.raises(CallError, match="1 rank needs 4 samples for a batch, but the split has 0"):
        simulate(str(tmp_path / "out"), "val", Cluster(**MACHINES, **STORE))
