"""What every object store must do: run against memory, SeaweedFS, moto, Azurite and Google Cloud Storage's API."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from helpers.object_stores import environment
from helpers.tcp_proxy import TcpProxy

from manifests.errors import CallError, StorageError
from manifests.remote import connect
from manifests.remote import store as store_module
from manifests.remote.store import Store, open_store


def test_missing_objects_are_file_not_found_errors(store: Store) -> None:
    for read in (store.stat, store.get, lambda name: store.start_range(name, 0, 1).result()):
        with pytest.raises(FileNotFoundError, match="does not exist") as error:
            read("no such/object")
        assert str(store.url.join("no such/object")) == error.value.filename
    store.delete("no such/object")
    assert list(store.list_objects()) == []
    assert Store(store.url.join("nothing")).start_listing().result() == ([], [])


def test_a_long_listing_is_complete(store: Store) -> None:
    names = {f"{number:05d}" for number in range(1100 if store.url.scheme == "memory" else 130)}
    for name in names:
        store.put(name, b"")
    assert {info.name for info in store.list_objects()} == names


def test_ranges(store: Store) -> None:
    data = os.urandom(300_000)
    store.put("object", data)
    etag = store.stat("object").etag
    ranges = [(250_000, 300_000), (0, 10), (5, 20), (9, 131_072), (299_999, 300_000)]
    parts = [store.start_range("object", *each, etag=etag).result() for each in ranges]
    assert [bytes(part) for part in parts] == [data[start:end] for start, end in ranges]
    assert store.read_parts("object", ranges) == parts
    with pytest.raises(StorageError, match="has 300,000 bytes, but bytes up to 300,001 are needed"):
        store.start_range("object", 10, 300_001).result()


def test_a_replaced_object_is_refused(store: Store) -> None:
    store.put("object", b"old content")
    etag = store.stat("object").etag
    store.put("object", b"new content")
    with pytest.raises(StorageError, match="was replaced while it was in use"):
        store.start_range("object", 0, 3, etag=etag).result()
    with pytest.raises(StorageError, match="was replaced while it was in use"):
        list(store.chunks("object", 11, etag=etag))


def write_eight(write: Callable[[bytes], bool]) -> list[tuple[bool, bytes]]:
    """Write eight contents at the same time; return each with the answer of its call."""
    barrier = threading.Barrier(8)

    def run(content: bytes) -> tuple[bool, bytes]:
        barrier.wait()
        return write(content), content

    with ThreadPoolExecutor(8) as pool:
        return [*pool.map(run, [b"content %d" % number for number in range(8)])]


def test_replace_and_create_have_one_winner_of_eight(store: Store) -> None:
    """All of them know the same object. A later one, or an object that is gone, is not replaced."""
    store.put("manifest", b"old content")
    known = store.stat("manifest")
    for name, write in (
        ("manifest", lambda content: store.replace("manifest", content, known)),
        ("table", lambda content: store.create("table", content)),
    ):
        results = write_eight(write)
        (winner,) = (content for written, content in results if written)
        assert len(results) == 8
        assert bytes(store.get(name)) == winner
    known = store.stat("manifest")
    store.delete("manifest")
    assert not store.replace("manifest", b"content", known)
    with pytest.raises(FileNotFoundError):
        store.stat("manifest")


def test_a_large_object_is_replaced_if_it_is_unchanged(store: Store) -> None:
    """It is longer than the parts of uploads, which no condition can be given to."""
    store.put("manifest", b"old content")
    known, data = store.stat("manifest"), os.urandom(17 << 20)
    assert store.replace("manifest", data, known)
    assert bytes(store.get("manifest")) == data
    assert not store.replace("manifest", b"new content", known)


def test_the_probe_accepts_a_correct_store_and_leaves_nothing(store: Store) -> None:
    store.check_conditions()
    assert list(store.list_objects()) == []


def test_large_objects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SINGLE_PUT_BYTES", 5 << 20)
    monkeypatch.setattr(store_module, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(store_module, "MAX_REQUEST_BYTES", 3 << 20)
    data = os.urandom(1 << 20) * 12 + b"tail"
    store.put("large", memoryview(data))
    assert store.stat("large").bytes == len(data)
    etag = store.stat("large").etag
    chunks = [bytes(chunk) for chunk in store.chunks("large", len(data), etag=etag)]
    assert len(chunks) == 5
    assert b"".join(chunks) == data
    assert b"".join(map(bytes, store.chunks("large", len(data), start=len(data) - 4))) == b"tail"


@pytest.mark.parametrize("in_parts", [False, True])
def test_an_interrupted_upload_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, in_parts: bool
) -> None:
    if store.url.scheme == "memory":
        return
    for limit in ("SINGLE_PUT_BYTES", "PART_BYTES") if in_parts else ():
        monkeypatch.setattr(store_module, limit, 5 << 20)
    store.put("object", b"old")
    name = next(name for name in _ENDPOINTS[store.url.scheme] if name in os.environ)
    proxy = TcpProxy(urlsplit(os.environ[name]).port or 0, most=4 << 20)
    monkeypatch.setattr(connect, "WRITE_SECONDS", 0.4)
    monkeypatch.setattr(connect, "MAX_RETRIES", 0)
    with environment({name: f"http://127.0.0.1:{proxy.port}"}):
        for write in (store.put, store.create):
            with pytest.raises(StorageError, match="cannot be written"):
                write("object" if write == store.put else "new", bytes(13 << 20))
    assert proxy.stalled.is_set()
    proxy.stop()
    assert bytes(store.get("object")) == b"old"
    assert [info.name for info in store.list_objects()] == ["object"]
    store.put("object", b"new")
    assert bytes(store.get("object")) == b"new"


#: The variables of the environment with the address of a server.
_ENDPOINTS = {
    "s3": ["AWS_ENDPOINT_URL"],
    "az": ["AZURITE_BLOB_STORAGE_URL"],
    "gs": ["GOOGLE_BASE_URL"],
}


def test_a_check_runs_before_the_content_is_read(store: Store) -> None:
    store.put("object", b"12345")

    def check(info) -> None:
        assert info.bytes == 5
        raise CallError("too long")

    with pytest.raises(CallError, match="too long"):
        store.get("object", check)


def test_names_that_no_store_can_store_are_refused(store: Store) -> None:
    for name in ("a//b", "../a", "a/./b", "line\nfeed", "back\\slash", "x" * 1025):
        with pytest.raises(CallError, match="in a URL has"):
            store.put(name, b"")


def test_a_bucket_that_does_not_exist(store: Store) -> None:
    if store.url.scheme == "memory":
        return
    other = open_store(f"{store.url.scheme}://no-such-bucket/folder")
    for read in (lambda: list(other.list_objects()), lambda: other.get("object")):
        with pytest.raises(CallError, match="the bucket does not exist"):
            read()
