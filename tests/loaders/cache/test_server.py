"""Training from servers that stop and start again, or fail now and then."""

import itertools

import pytest
from helpers import gcs_server, handmade
from helpers.cached import assert_equal, build, noise, read
from helpers.http_files import in_thread
from helpers.object_stores import environment, upload

import loaders

CROP = [{"CenterCrop": {"size": 48}}]


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
    with in_thread(server := gcs_server.Server("token", "bucket")):
        url = f"http://127.0.0.1:{server.server_port}"
        with environment({"GOOGLE_BASE_URL": url, "GOOGLE_BEARER_TOKEN": "token"}):
            upload(local, "gs://bucket/set")
            server.fault = fault
            found = epochs("gs://bucket/set", cache=tmp_path / "cache")
    assert_equal(found, expected)
    assert {"500", "503", "slow", "short"} <= {*faults}
