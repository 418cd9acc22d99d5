"""Faults of the store, the network, the disk and of other processes: no sample is lost, and none is wrong."""

import errno
import itertools
import os
import threading
from contextlib import contextmanager
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from helpers import handmade
from helpers.cached import noise
from helpers.object_stores import upload

from loaders.cache import fetcher
from loaders.cache.folder import CACHE_MARK
from loaders.cache.images import CachedImages, open_cached
from loaders.cache.presence import ABSENT, PRESENT, UNVERIFIED, Presence
from loaders.cache.room import Room
from loaders.cache.shards import SparseFiles
from loaders.dataset.images import StoredImages
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.progress import Upcoming
from manifests.errors import CallError, ShardError, StorageError
from manifests.remote.connect import RefusedError
from manifests.remote.store import Store, open_store

SAMPLES, BATCH = 120, 8


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Return the folder and the URL of 120 images of about 12 KB."""
    root = tmp_path_factory.mktemp("faults")
    samples = noise(SAMPLES, 90, 100, classes=4)
    folder = handmade.make_dataset(root / "local", "tfrecord", samples, shards=3)
    return folder, upload(folder, f"memory://bucket/{root.name}/set")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@contextmanager
def open_images(url, cache, *, limit=None, timeout=60.0):
    split = open_cached(url, "train", cache, limit)
    images = CachedImages(split, SampleTables(split), mmap=True, timeout=timeout)
    try:
        yield images
    finally:
        images.close()


def in_child(function, user=0):
    """Start a fork that calls a function, as this user; return a function that waits and returns the error's text."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        text = ""
        try:
            if user:
                os.setgid(user)
                os.setuid(user)
            function()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)

    def wait():
        status = os.waitpid(child, 0)[1]
        with os.fdopen(read, "rb") as file:
            return file.read().decode() or status

    return wait


def expected(folder):
    """Return the encoded images of the local dataset, by row."""
    split = open_split(folder, "train")
    records = StoredImages(split, SampleTables(split))
    images = [bytes(image) for image in records.images(np.arange(SAMPLES))]
    records.close()
    return images


def read_epochs(images, epochs=2, seed=0):
    """Return the images of epochs in random orders, as a loader reads them, by row."""
    batches = SAMPLES // BATCH

    def own(number):
        epoch, batch = divmod(number, batches)
        order = np.random.default_rng((seed, epoch)).permutation(SAMPLES)
        return order[batch * BATCH : (batch + 1) * BATCH].astype(np.int64)

    upcoming = Upcoming(own, own, batches, BATCH)
    found = []
    for number in range(epochs * batches):
        images.follow(number, upcoming)
        rows = own(number)
        found += zip(rows.tolist(), map(bytes, images.images(rows)), strict=True)
    return found


def assert_right(found, local, epochs=2):
    images = local if isinstance(local, list) else expected(local)
    assert sorted(row for row, _ in found) == sorted(list(range(SAMPLES)) * epochs)
    assert all(data == images[row] for row, data in found)


@pytest.fixture
def broken(monkeypatch):
    """Return a function that replaces `Store.read_parts` by one that may fail: it gets a number and the true one."""
    true, numbers = Store.read_parts, itertools.count(1)  # threads take one number each

    def install(read):
        def read_parts(self, name, ranges):
            parts = lambda: [memoryview(bytes(part)) for part in true(self, name, ranges)]  # noqa: E731
            return read(next(numbers), parts)

        monkeypatch.setattr(Store, "read_parts", read_parts)
        monkeypatch.setattr(fetcher, "_PAUSE", 0.01)

    return install


AWAY = StorageError("the server cannot be reached", file="s3://x", hint="wait")


def test_a_store_that_is_away_is_waited_for_until_the_timeout(dataset, broken, caplog, cache):
    local, url = dataset
    away = range(3, 40)

    def read(number, true):
        if number in away:
            raise AWAY
        return true()

    broken(read)
    with open_images(url, cache, timeout=60) as images:
        assert_right(read_epochs(images), local)
    assert "trying again for 60 s" in caplog.text
    away = range(10**9)
    with open_images(url, cache / "other", timeout=0.05) as images:
        message = r"cannot be reached; gave up after 0.05 s. Hint: wait"
        with pytest.raises(StorageError, match=message):
            images.images(np.arange(4))
        away = ()
        assert_right(read_epochs(images), local)


def test_refused_requests_are_not_repeated(dataset, broken, cache):
    def read(number, true):
        raise RefusedError("the object store refused it with the role of this machine")

    broken(read)
    told = pytest.raises(RefusedError, match="the role of this machine")
    with open_images(dataset[1], cache) as images, told:
        images.images(np.arange(4))


def test_a_part_that_arrives_damaged_is_fetched_again(dataset, broken, caplog, cache):
    local, url = dataset

    just_damaged = set()  # threads: what they fetch again arrives intact

    def read(number, true):
        parts, thread = true(), threading.get_ident()
        if thread in just_damaged:
            just_damaged.remove(thread)
        elif number % 4 == 1:
            just_damaged.add(thread)
            damaged = bytearray(parts[0])
            for byte in range(len(damaged) // 2, len(damaged), 5000):  # not only between two images
                damaged[byte] ^= 1
            parts[0] = memoryview(damaged)
        return parts

    broken(read)
    with open_images(url, cache) as images:
        assert_right(read_epochs(images), local)
    assert "an image arrived damaged" in caplog.text


@pytest.mark.parametrize("change", ["replaced", "missing"])
def test_an_object_that_changed_is_named(dataset, change, cache):
    local, url = dataset
    url = upload(local, f"{url}-{change}")
    store = open_store(url)
    with open_images(url, cache) as images:
        images.images(np.arange(2))
        if change == "replaced":
            data = (local / "train-00002.tfrecord").read_bytes()
            half = len(data) // 2
            store.put("train-00002.tfrecord", data[:half] + bytes(len(data) - half))
            message = r"train-00002.tfrecord, record \d+, byte \d+: .* another checksum .* or was replaced"
        else:
            store.delete("train-00002.tfrecord")
            message = "train-00002.tfrecord: the object is missing"
        with pytest.raises(ShardError, match=message):
            read_epochs(images, 1)
        images.images(np.arange(2))  # what is in the cache can still be read


def test_a_full_disk_evicts_what_nobody_uses_or_is_a_clear_error(dataset, monkeypatch, cache):
    local, url = dataset
    with open_images(url, cache) as other:
        pass
    other._split.dataset.lock.release()
    true, failing = SparseFiles.write, iter([True])

    def write(self, number, offset, data):
        if next(failing, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        true(self, number, offset, data)

    monkeypatch.setattr(SparseFiles, "write", write)
    with open_images(upload(local, f"{url}-second"), cache) as images:
        assert_right(read_epochs(images), local)
    assert len([name for name in os.listdir(cache) if name != CACHE_MARK]) == 1
    failing = itertools.repeat(True)
    told = pytest.raises(StorageError, match=r"the disk of the cache is full .* Hint: free some")
    with open_images(upload(local, f"{url}-third"), cache) as images, told:
        images.images(np.arange(4))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_cache_of_another_user(dataset, tmp_path, cache):
    """A complete cache can be read by anybody.

    An incomplete one that cannot be written is refused by name.
    """
    local, url = dataset
    with open_images(url, cache) as images:
        read_epochs(images, 1)
    images._split.dataset.lock.release()
    for folder in (tmp_path, *tmp_path.parents[:3]):
        os.chmod(folder, 0o755)
    right, nobody = expected(local), 65534

    def read():
        with open_images(url, cache) as images:
            assert_right(read_epochs(images, 1), right, 1)

    assert in_child(read, nobody)() == 0
    presence = next(cache.glob("*/split-0.presence"))
    with presence.open("r+b") as file:
        file.seek(4096)
        file.write(b"\0")
    assert "can only be read by this user" in in_child(read, nobody)()


def test_images_from_before_the_machine_was_started_are_verified(dataset, cache):
    local, url = dataset
    with open_images(url, cache) as images:
        read_epochs(images, 1)
    presence = next(cache.glob("*/split-0.presence"))
    shard = next(cache.glob("*/files/train-00001.tfrecord"))
    with presence.open("r+b") as file:
        file.seek(64)
        file.write(b"another boot".ljust(64, b"\0"))
    # What a power failure leaves: marked, but not on the disk.
    os.truncate(shard, 20_000)
    os.truncate(shard, (local / shard.name).stat().st_size)
    with open_images(url, cache) as images:
        assert (images._presence.states == UNVERIFIED).all()
        assert_right(read_epochs(images), local)
        # Only the lost images, not all three shards.
        assert images.traffic[2] < shard.stat().st_size * 2


def test_a_killed_process_leaves_a_cache_that_the_next_one_uses(dataset, cache):
    local, url = dataset

    def read():
        with open_images(url, cache) as images:
            threading.Timer(0.15, lambda: os.kill(os.getpid(), 9)).start()
            for seed in range(10_000):
                read_epochs(images, 3, seed)

    assert in_child(read)() == 9
    with open_images(url, cache) as images:
        there = int((images._presence.states == PRESENT).sum())
        assert_right(read_epochs(images), local)
        stored = sum(path.stat().st_size for path in local.glob("*.tfrecord"))
        assert there == SAMPLES or images.traffic[2] <= stored


def test_processes_share_a_cache_that_is_too_small(dataset, cache):
    """Three processes read and evict in different orders; every image is right."""
    local, url = dataset
    images = expected(local)
    limit = sum(map(len, images)) * 2 // 3 + (64 << 10)

    def read(seed):
        with open_images(url, cache, limit=limit) as shared:
            assert not shared.fits
            for row, data in read_epochs(shared, 4, seed):
                assert data == images[row], row

    waiting = [in_child(partial(read, seed)) for seed in range(3)]
    assert [wait() for wait in waiting] == [0] * 3


def test_a_mapped_dataset_is_never_evicted(dataset, cache):
    with open_images(dataset[1], cache) as mapped:
        assert mapped.fits
        mapped.images(np.arange(SAMPLES))
        assert mapped.evict(np.arange(10)) == 0
        assert (mapped._presence.states == PRESENT).all()
    assert mapped.evict(np.arange(10)) > 0
    assert (mapped._presence.states[:10] == ABSENT).all()


def test_only_folders_with_a_remote_are_removed(tmp_path, cache):
    kept = [cache / "mine" / "photo.jpg", tmp_path / "outside" / "remote.json"]
    for path in (*kept, tmp_path / "outside" / "in-use"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100_000))
    (cache / CACHE_MARK).write_bytes(b'{"cache_version": 1}\n')
    (cache / "link").symlink_to(tmp_path / "outside")
    room, loader = Room(str(cache)), Mock()
    room.enter(loader, 50_000)
    assert room.free(50_000) < 0
    assert all(path.exists() for path in kept)


def test_a_presence_file_of_another_split_is_created_again(tmp_path):
    path = str(tmp_path / "p")
    first = Presence(path, 10)
    first.states[:] = PRESENT
    assert Presence(path, 10).states.tolist() == [PRESENT] * 10
    assert Presence(path, 12).states.tolist() == [ABSENT] * 12
    with pytest.raises(CallError):
        Presence(str(tmp_path), 10)
