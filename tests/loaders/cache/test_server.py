"""Training from servers that stop and start again, or fail now and then."""

import itertools
import threading
import time
from datetime import timedelta

import pytest
from helpers import gcs_server, handmade
from helpers.cached import assert_equal, build, noise, read
from helpers.object_stores import environment, upload
from helpers.ports import free_ports
from helpers.servers import BUCKET, seaweedfs

import loaders
from manifests.remote import connect
from manifests.remote.connect import close_connections

CROP = [{"CenterCrop": {"size": 48}}]


def test_a_server_that_restarts_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    samples = noise(96, 60, 70, classes=4)
    local = handmade.make_dataset(tmp_path / "local", "webdataset", samples, shards=3)
    arguments = {"batch_size": 4, "transforms": CROP, "dtype": "uint8"}
    with build(local, **arguments) as loader:
        expected = read(loader)
    ports, url = free_ports(8), f"s3://{BUCKET}/set"
    # The client asks every half second for a minute whether the server is there again, not 10 s
    # after another attempt.
    monkeypatch.setitem(connect._BACKOFF, "max_backoff", timedelta(seconds=0.5))
    monkeypatch.setattr(connect, "MAX_RETRIES", 1000)
    with seaweedfs(tmp_path / "server", ports) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        close_connections()
        upload(local, url)
        # Little is fetched in advance, so much of the epoch is left when the server stops.
        monkeypatch.setattr("loaders.cache.ahead.LOOKAHEAD_BYTES", 0)
        monkeypatch.setattr("loaders.cache.layout.BLOCK_BYTES", 1)
        loader = build(url, cache=tmp_path / "cache", **arguments)
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
    assert_equal(read(found), expected)
    close_connections()


@pytest.mark.parametrize(
    "options", [{"shuffle": False}, {"sampler": loaders.PKSampler(2, 4)}], ids=["stored", "pk"]
)
def test_one_request_in_twenty_fails(tmp_path, monkeypatch, options):
    """It is answered with 500 or 503, late, or with half of the content."""
    samples = noise(96, 60, 70)
    local = handmade.make_dataset(tmp_path / "local", "webdataset", samples, shards=4)

    def epochs(dataset, **more):
        with build(dataset, **options, **more, transforms=CROP) as loader:
            return read(loader, 2)

    expected = epochs(local)
    kinds, numbers = itertools.cycle(["500", "short", "503", "slow"]), itertools.count(1)
    faults = []

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
            upload(local, "gs://bucket/set")
            server.fault = fault
            found = epochs("gs://bucket/set", cache=tmp_path / "cache")
    assert_equal(found, expected)
    assert {"500", "503", "slow", "short"} <= {*faults}
