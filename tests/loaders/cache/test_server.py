"""Training from servers that stop and start again, or fail now and then."""

import itertools
import threading
import time
from datetime import timedelta

import numpy as np
import pytest
from helpers import gcs_server, handmade
from helpers.object_stores import environment
from helpers.pictures import encode
from helpers.ports import free_ports
from helpers.servers import BUCKET, seaweedfs

import loaders
from manifests.remote import connect
from manifests.remote.connect import close_connections
from manifests.remote.store import open_store


def test_a_server_that_restarts_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    samples = [
        ("jpg", encode(rng.integers(0, 256, (60, 70, 3), np.uint8)), number % 4)
        for number in range(96)
    ]
    local = handmade.make_dataset(tmp_path / "local", "webdataset", samples, shards=3)
    arguments = {
        "batch_size": 4,
        "device": "cpu",
        "num_threads": 1,
        "transforms": [{"CenterCrop": {"size": 48}}],
    }
    arguments |= {"dtype": "uint8"}
    with loaders.build(local, **arguments) as loader:
        expected = [(images.numpy(), labels.numpy()) for images, labels in loader]
    ports, url = free_ports(8), f"s3://{BUCKET}/set"
    # The client asks every half second for a minute whether the server is there again, not 10 s
    # after another attempt.
    monkeypatch.setitem(connect._BACKOFF, "max_backoff", timedelta(seconds=0.5))
    monkeypatch.setattr(connect, "MAX_RETRIES", 1000)
    with seaweedfs(tmp_path / "server", ports) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        close_connections()
        store = open_store(url)
        for path in local.glob("[!.]*"):
            store.put(path.name, path.read_bytes())
        # Little is fetched in advance, so much of the epoch is left when the server stops.
        monkeypatch.setattr("loaders.cache.fetcher.LOOKAHEAD_BYTES", 0)
        monkeypatch.setattr("loaders.cache.layout.BLOCK_BYTES", 1)
        loader = loaders.build(url, cache=tmp_path / "cache", **arguments)
        batches = iter(loader)
        found = [next(batches) for _ in range(3)]
    with loader:
        ready, done = threading.Event(), threading.Event()

        def serve():
            time.sleep(0.5)
            with seaweedfs(tmp_path / "server", ports):
                ready.set()
                done.wait(60)

        server = threading.Thread(target=serve)
        server.start()
        try:
            missing = loader.spec.images.missing_space
            found += batches
        finally:
            done.set()
            server.join()
    assert missing > 0
    assert ready.is_set()
    for (images, labels), (other_images, other_labels) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(images.numpy(), other_images)
        np.testing.assert_array_equal(labels.numpy(), other_labels)
    close_connections()


@pytest.mark.parametrize(
    "options", [{"shuffle": False}, {"sampler": loaders.PKSampler(2, 4)}], ids=["stored", "pk"]
)
def test_one_request_in_twenty_fails(tmp_path, monkeypatch, options):
    """It is answered with 500 or 503, late, or with half of the content."""
    rng = np.random.default_rng(0)
    samples = [
        ("jpg", encode(rng.integers(0, 256, (60, 70, 3), np.uint8)), number % 8)
        for number in range(96)
    ]
    local = handmade.make_dataset(tmp_path / "local", "webdataset", samples, shards=4)
    options = {
        **options,
        "batch_size": 8,
        "device": "cpu",
        "num_threads": 1,
        "transforms": [{"CenterCrop": {"size": 48}}],
    }

    def epochs(dataset, **more):
        with loaders.build(dataset, **options, **more) as loader:
            return [(images.numpy(), labels.numpy()) for _ in range(2) for images, labels in loader]

    expected = epochs(local)
    kinds, numbers, faults = (
        itertools.cycle(["500", "short", "503", "slow"]),
        itertools.count(1),
        [],
    )

    def fault():
        faults.append(next(kinds) if next(numbers) % 20 == 0 else "")
        return faults[-1]

    # Each image is a request of its own.
    monkeypatch.setattr("loaders.cache.layout.GAP_BYTES", -1)
    monkeypatch.setattr("loaders.cache.layout.BLOCK_BYTES", 1)
    monkeypatch.setattr("loaders.cache.layout.REQUEST_RANGES", 1)
    with gcs_server.google("token", "bucket") as server:
        values = {
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "GOOGLE_BEARER_TOKEN": "token",
        }
        with environment(values):
            store = open_store("gs://bucket/set")
            for path in local.glob("[!.]*"):
                store.put(path.name, path.read_bytes())
            server.fault = fault
            found = epochs("gs://bucket/set", cache=tmp_path / "cache")
    for batch, other in zip(found, expected, strict=True):
        for values, others in zip(batch, other, strict=True):
            np.testing.assert_array_equal(values, others)
    assert {"500", "503", "slow", "short"} <= {*faults}
