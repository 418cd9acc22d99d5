"""What files must do wherever they are stored: on a disk, in each kind of object store, and on a web server."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from awscrt.checksums import crc32c
from helpers import servers
from helpers.http_files import serve_folder
from helpers.object_stores import SCHEMES, environment

from dataprep import storage
from dataprep.storage.files import files_of
from manifests.errors import CallError, StorageError
from manifests.files import MANIFEST, SHARD, read_file
from manifests.remote.url import normal_path
from manifests.serialization import checksum_text


class Place(NamedTuple):
    """A folder that may not exist yet: its path or URL, and a function that writes a file of it, by path."""

    path: str
    write: Callable[[str, bytes], None]


@pytest.fixture(autouse=True)
def staging(tmp_path, monkeypatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


WRITABLE = ("folder", "file URL", *SCHEMES)


@pytest.fixture(params=WRITABLE)
def place(request, server_environment, tmp_path) -> Iterator[Place]:
    """A folder in everything that can be written."""
    with _writable(request.param, server_environment, tmp_path) as place:
        yield place


@pytest.fixture(params=[*WRITABLE, "web server"])
def readable(request, server_environment, tmp_path) -> Iterator[Place]:
    """The same, or a folder of a web server."""
    make = (
        _served
        if request.param == "web server"
        else partial(_writable, request.param, server_environment)
    )
    with make(tmp_path) as place:
        yield place


@contextmanager
def _writable(
    kind: str, server_environment: Callable[[str], dict[str, str]], tmp_path: Path
) -> Iterator[Place]:
    folder = f"{tmp_path}/place ä/sub"
    if kind in SCHEMES:
        folder = f"{SCHEMES[kind]}://{servers.BUCKET}/place {random.randrange(1 << 60)}/sub"
    elif kind == "file URL":
        folder = normal_path(f"file://{folder.replace(' ', '%20')}")
    with environment(server_environment(kind) if kind in SCHEMES and kind != "memory" else {}):
        storage.make_folder(folder)
        with storage.partials(folder, is_alone=False):
            yield Place(folder, _write)


def _write(path: str, data: bytes) -> None:
    folder = os.path.dirname(path)
    if storage.has_partials(folder):
        storage.replace_file(path, data)
        return
    storage.make_folder(folder)
    with storage.partials(folder, is_alone=False):
        storage.replace_file(path, data)


@contextmanager
def _served(tmp_path: Path) -> Iterator[Place]:
    with serve_folder(tmp_path / "web") as url:

        def write(path: str, data: bytes) -> None:
            local = tmp_path / "web" / path.removeprefix(f"{url}/")
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(data)

        yield Place(f"{url}/sub", write)


def names(folder: str) -> dict[str, bool]:
    """Return the name of everything in a folder, and whether it is a folder."""
    entries = storage.list_folder(folder)
    return {entry.name: entry.is_dir() for entry in entries if entry.name != storage.BOOKKEEPING}


def test_what_is_written_is_read(readable: Place) -> None:
    path = f"{readable.path}/a.bin"
    for content in (b"first", b"the second", b""):
        readable.write(path, content)
        assert read_file(path, SHARD) == content
        length = len(content)
        assert storage.stat(path).st_size == storage.file_length(path) == length
        assert storage.is_file(path)
        described = storage.describe(readable.path, "a.bin", SHARD)
        assert (described.bytes, described.checksum) == (length, checksum_text(crc32c(content)))


def test_a_file_that_does_not_exist(readable: Place) -> None:
    path = f"{readable.path}/none"
    for read in (storage.stat, lambda path: read_file(path, SHARD)):
        with pytest.raises(FileNotFoundError):
            read(path)
    assert storage.file_length(path) == -1
    assert not storage.is_file(path)
    assert not storage.is_folder(path)
    with pytest.raises(StorageError, match="cannot be read"), storage.open_view(path) as (view, _):
        view(0, 1)


def test_any_part_of_a_large_file(readable: Place) -> None:
    data = random.Random(1).randbytes(9 << 20)
    readable.write(f"{readable.path}/large", data)
    rng = random.Random(2)
    with storage.open_view(f"{readable.path}/large") as (view, size):
        assert size == len(data)
        for at, length in [(0, 100), (100, 50), (5 << 20, 1 << 20), (3, 4), (len(data) - 5, 5)] + [
            (rng.randrange(len(data) - 1000), rng.randrange(1, 1000)) for _ in range(5)
        ]:
            buffer, i = view(at, length)
            assert bytes(buffer[i : i + length]) == data[at : at + length]
        buffer, i = view(len(data) - 3, 10)
        assert bytes(buffer[i : i + 10]) == data[-3:]
        assert view.checksum(len(data)) == crc32c(data)
        assert view.checksum(6 << 20) == crc32c(data[: 6 << 20])
    path = f"{readable.path}/large"
    assert b"".join(map(bytes, files_of(path).chunks(path, SHARD))) == data


def test_a_file_is_created_once(place: Place) -> None:
    path = f"{place.path}/claim"
    created = [storage.create_file(path, content) for content in (b"first", b"second", b"third")]
    assert created == [True, False, False]
    assert read_file(path, SHARD) == b"first"


def test_a_file_is_replaced_if_it_is_unchanged(place: Place) -> None:
    path = os.path.join(place.path, "manifest.json")
    assert not storage.replace_unchanged(path, b"new", b"old")
    place.write(path, b"old")
    assert storage.replace_unchanged(path, b"new", b"old")
    assert storage.replace_unchanged(path, b"new", b"old")  # another process has written the same
    assert not storage.replace_unchanged(path, b"newer", b"old")
    assert storage.describe(place.path, "manifest.json").bytes == 3
    assert read_file(path, MANIFEST) == b"new"


def test_what_is_not_published_is_not_there(place: Place) -> None:
    path = f"{place.path}/file"
    place.write(path, b"old")
    storage.write_partial(path, b"new, but not complete")
    assert read_file(path, SHARD) == b"old"
    assert names(place.path) == {"file": False}
    storage.discard([path])
    storage.discard([path])
    with pytest.raises(StorageError):
        storage.publish([path])
    assert read_file(path, SHARD) == b"old"


def test_a_web_server_is_only_read(tmp_path: Path) -> None:
    with serve_folder(tmp_path) as url:
        for write in (
            storage.make_folder,
            storage.remove,
            lambda path: storage.create_file(path, b""),
        ):
            with pytest.raises(CallError, match="can only be read, not written"):
                write(f"{url}/a/b")
        with pytest.raises(CallError, match="can only be read, not listed"):
            storage.list_folder(f"{url}/a")
