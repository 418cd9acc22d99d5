"""Open an object as a file descriptor, so that everything that reads files can read it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from manifests.remote.object_info import ObjectInfo
from manifests.remote.store import open_store
from manifests.remote.url import parse_url

#: An object of up to this many bytes is kept in memory; a longer one in a temporary file without a
#: name.
IN_MEMORY_BYTES = 16 << 20


class _TooLongForMemoryError(Exception):
    pass


def open_downloaded(url: str, check: Callable[[int], None]) -> int:
    """Return a file descriptor with the content of an object, at its first byte.

    Args:
        url: the object.
        check: is called with its length before the content is read, and may raise an error.

    Raises:
        FileNotFoundError: it does not exist.
        CallError, StorageError: it cannot be read.

    """
    place = parse_url(url)
    store = open_store(place.parent)
    found: list[ObjectInfo] = []

    def check_object(info: ObjectInfo) -> None:
        found.append(info)
        check(info.bytes)
        if info.bytes > IN_MEMORY_BYTES:
            raise _TooLongForMemoryError

    try:
        parts = iter([memoryview(store.get(place.name, check_object))])
        handle = os.memfd_create(place.name[-100:], os.MFD_CLOEXEC)
    except _TooLongForMemoryError:
        info = found[0]
        parts = store.chunks(place.name, info.bytes, etag=info.etag)
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        for part in parts:
            _write(handle, part)
        os.lseek(handle, 0, os.SEEK_SET)
    except BaseException:
        os.close(handle)
        raise
    return handle


def object_length(url: str) -> int:
    """Return the length of an object in bytes.

    Raises:
        FileNotFoundError: it does not exist.
        CallError, StorageError: it cannot be read.

    """
    place = parse_url(url)
    return open_store(place.parent).stat(place.name).bytes


def _write(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]
