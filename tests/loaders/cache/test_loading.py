"""Loading from an object store through a cache gives the batches and states of the local dataset."""

import gc
import os
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers import handmade
from helpers.eventually import eventually
from helpers.pictures import encode, photo

import loaders
from loaders.cache.fetcher import Fetcher
from loaders.cache.folder import disk_usage
from manifests.errors import CallError
from manifests.remote.store import Store, open_store

TRANSFORMS = [
    {"Resize": {"size": 32}},
    {"CenterCrop": {"size": 24}},
    "RandomHorizontalFlip",
    "ToTensor",
]
SAMPLES = 40


@pytest.fixture(scope="module")
def samples():
    return [
        ("jpg", encode(photo(number, 60 + number, 80)), number % 8) for number in range(SAMPLES)
    ]


@pytest.fixture(params=["tfrecord", "webdataset"])
def dataset(request, tmp_path, samples):
    """Return a local dataset, and the URL of a copy."""
    folder = handmade.make_dataset(tmp_path / "local", request.param, samples, shards=4)
    url = f"memory://bucket/{tmp_path.name}/set"
    upload(folder, url)
    return folder, url


def upload(folder: Path, url: str) -> None:
    store = open_store(url)
    for path in sorted(folder.glob("[!.]*")):
        store.put(path.name, path.read_bytes())


def build(dataset, **options):
    return loaders.build(
        dataset,
        **{"device": "cpu", "batch_size": 8, "transforms": TRANSFORMS, "num_threads": 1, **options},
    )


def batches(loader, epochs=2):
    return [[(images.numpy(), labels.numpy()) for images, labels in loader] for _ in range(epochs)]


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert len(one) == len(other)
        for (images, labels), (other_images, other_labels) in zip(one, other, strict=True):
            np.testing.assert_array_equal(images, other_images)
            np.testing.assert_array_equal(labels, other_labels)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": False},
        {"sampler": loaders.PKSampler(2, 4)},
        {"sampler": loaders.ClassBalancedSampler()},
        {"sampler": loaders.ShuffledSampler(window=2)},
    ],
    ids=["shuffled", "stored", "pk", "balanced", "window"],
)
def test_batches_are_those_of_the_local_dataset(dataset, tmp_path, options):
    local, url = dataset
    with build(local, **options) as loader:
        expected = batches(loader)
    for _ in ("cold", "warm"):
        with build(url, cache=tmp_path / "cache", **options) as loader:
            assert_equal(batches(loader), expected)


def test_a_file_url_is_the_folder(dataset):
    local, _ = dataset
    with build(local) as loader, build(f"file://{local}") as other:
        assert_equal(batches(other, 1), batches(loader, 1))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a local dataset of 600 images of 20 KB, its URL, and the disk space of all images."""
    return make_noise(tmp_path_factory.mktemp("large"), 600)


def make_noise(root, count):
    rng = np.random.default_rng(0)
    stored = [
        ("jpg", encode(rng.integers(0, 256, (120, 130, 3), np.uint8)), number % 8)
        for number in range(count)
    ]
    folder = handmade.make_dataset(root / "local", "webdataset", stored, shards=6)
    url = f"memory://bucket/{folder.parent.name}/set"
    upload(folder, url)
    return folder, url, sum(-(-len(data) // 4096) * 4096 for _, data, _ in stored)


def test_the_first_batches_come_before_the_rest_of_the_dataset(large, tmp_path, monkeypatch):
    """After a quarter of the dataset, the store answers only single images of the first batches, until one is there."""
    local, url, size = large
    true, lock, go, sent, needed = Store.read_parts, threading.Lock(), threading.Event(), [0], set()

    def read_parts(self, name, ranges):
        with lock:  # the requests come in any order
            sent[0] += sum(end - start for start, end in ranges)
            wait = sent[0] > size / 4
        if wait and not all(is_needed_image(name, start, end) for start, end in ranges):
            assert go.wait(300)
        return true(self, name, ranges)

    def is_needed_image(name, start, end):
        return end - start < 50_000 and any(
            start <= byte < end for shard, byte in needed if shard == name
        )

    monkeypatch.setattr(Store, "read_parts", read_parts)
    with build(local, batch_size=4) as loader:
        expected = batches(loader, 1)
    with build(url, cache=tmp_path / "cache", batch_size=4) as loader:
        layout, shards = loader.spec.images._layout, loader.spec.images._shards
        rows = np.concatenate([loader.spec.order.rank_rows(number, 0) for number in range(4)])
        names = [os.path.basename(shards.describe(shard)) for shard in layout.shards_of(rows)]
        needed |= {*zip(names, layout.offsets[rows].tolist(), strict=True)}
        iterator = iter(loader)
        first = next(iterator)
        assert loader._spec.images._fetcher.bytes < size / 2
        go.set()
        found = [(images.numpy(), labels.numpy()) for images, labels in (first, *iterator)]
    assert_equal([found], expected)


def test_explain_states_the_requests_of_an_epoch(large, tmp_path, monkeypatch):
    """The store answers when all requests of the epoch are planned, so their number does not depend on its speed."""
    requests, fetchers, true, follow = [], set(), Store.read_parts, Fetcher.follow

    def read_parts(self, name, ranges):
        requests.append(name)
        assert eventually(lambda: all(fetcher.position()[2] >= 150 for fetcher in fetchers))
        return true(self, name, ranges)

    monkeypatch.setattr(Store, "read_parts", read_parts)
    monkeypatch.setattr(
        Fetcher, "follow", lambda self, *arguments: fetchers.add(self) or follow(self, *arguments)
    )
    with build(large[1], cache=tmp_path / "cache", batch_size=4, shuffle=False) as loader:
        text = loader.explain()
        list(loader)
    low, high = re.search(
        r"an epoch from an empty cache takes about (\d+) to (\d+) requests", text
    ).groups()
    assert 0 < len(requests) <= int(high) + 8  # the first batches, image by image
    assert int(low) <= int(high)
    requests.clear()
    with build(large[1], cache=tmp_path / "cache", batch_size=4, shuffle=False) as loader:
        list(loader)
    assert requests == []


def test_a_cache_that_is_too_small_evicts_and_fetches_again(tmp_path):
    local, url, size = make_noise(tmp_path, 300)
    with build(local, batch_size=4) as loader:
        expected = batches(loader, 3)
    cache, limit = tmp_path / "cache", 2 * size // 3
    with pytest.warns(UserWarning, match=r"every epoch fetches about .* again"):
        loader = build(url, cache=cache, cache_limit=limit, batch_size=4)
    with loader:
        for epoch, batches_of_epoch in enumerate(expected):
            for number, ((images, labels), (other_images, other_labels)) in enumerate(
                zip(loader, batches_of_epoch, strict=True)
            ):
                np.testing.assert_array_equal(
                    images.numpy(), other_images, err_msg=f"{epoch} {number}"
                )
                np.testing.assert_array_equal(labels.numpy(), other_labels)
                assert disk_usage(cache) <= limit * 1.02 + 4096 * 32
        fetched = loader.spec.images.fetched_bytes
    stored = sum(path.stat().st_size for path in local.glob("*.tar"))
    assert (
        stored < fetched < 2.6 * stored
    )  # of three epochs; an order by age fetches everything three times


def test_a_cache_without_room_for_the_batches_in_use_is_refused(large, tmp_path):
    _, url, size = large
    with pytest.raises(
        CallError, match=r"cache_limit leaves .* need at least .* set cache_limit to at least"
    ):
        build(url, cache=tmp_path / "cache", cache_limit=size // 4, batch_size=64)
    with build(url, cache=tmp_path / "cache", cache_limit=2 * size, batch_size=64) as loader:
        assert loader.spec.images.fits
    build(url, cache=tmp_path / "cache", batch_size=64).close()


def test_a_folder_of_other_files_is_not_a_cache(large, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CallError, match="contains files of other programs"):
        build(large[1], cache=tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_arguments_that_do_not_fit_are_refused(large, tmp_path):
    local, url, _ = large
    with pytest.raises(CallError, match="cache is missing"):
        build(url)
    with pytest.raises(CallError, match=r"cache='s3://bucket/cache' is a URL"):
        build(url, cache="s3://bucket/cache")
    with pytest.raises(CallError, match="is a folder"):
        build(f"file://{local}", cache=tmp_path / "cache")
    with pytest.raises(CallError, match="is a folder"):
        build(local, cache=tmp_path / "cache")
    with pytest.raises(CallError, match=r'shuffle="buffer"'):
        build(url, cache=tmp_path / "cache", shuffle="buffer")
    with pytest.raises(CallError, match=r"contains no manifest.json"):
        build(f"{url}/nothing", cache=tmp_path / "cache")


@pytest.mark.parametrize("close", [True, False])
def test_nothing_stays_open(dataset, tmp_path, close):
    """A loader that is closed, or only dropped, leaves no file and no thread."""

    def use():
        loader = build(dataset[1], cache=tmp_path / "cache")
        next(iter(loader))
        if close:
            loader.close()

    def open_now():
        gc.collect()
        links = []
        for handle in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                links.append(os.readlink(handle))
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        return sorted(link for link in links if str(tmp_path) in link), [
            name for name in names if "fetch" in name
        ]

    before = threading.enumerate()
    use()
    deadline = time.monotonic() + 120
    while open_now() != ([], []) and time.monotonic() < deadline:
        time.sleep(0.01)  # A thread closes what was dropped.
    assert open_now() == ([], [])
