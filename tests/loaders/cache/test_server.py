"""Training while a real object store, SeaweedFS, is stopped and started again."""

import threading
import time

import numpy as np
from helpers import handmade
from helpers.pictures import encode
from helpers.servers import BUCKET, free_ports, seaweedfs

import loaders
from manifests.remote import open_store
from manifests.remote.connect import close_connections


def test_a_server_that_restarts_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    samples = [("jpg", encode(rng.integers(0, 256, (60, 70, 3), np.uint8)), number % 4) for number in range(96)]
    local = handmade.make_dataset(tmp_path / "local", "webdataset", samples, shards=3)
    arguments = {"batch_size": 4, "device": "cpu", "num_threads": 1, "transforms": [{"CenterCrop": {"size": 48}}]}
    arguments |= {"dtype": "uint8"}
    with loaders.build(local, **arguments) as loader:
        expected = [(images.numpy(), labels.numpy()) for images, labels in loader]
    ports, url = free_ports(8), f"s3://{BUCKET}/set"
    with seaweedfs(tmp_path / "server", ports) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        close_connections()
        store = open_store(url)
        for path in local.iterdir():
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
            missing = loader._spec.records.missing_bytes
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
