"""Read files on a local file system: by position, from end to end for a checksum, or while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from awscrt.checksums import crc32c

from dataprep.storage.local import translate_errors
from manifests.files import SHARD, FileKind, open_handle


class FileView:
    """Random access to the bytes of a file through a small buffer.

    Implements `dataprep.formats.View`.

    Args:
        handle: file descriptor, open for reading.
        span: number of bytes to read at once.

    """

    def __init__(self, handle: int, span: int = 4096) -> None:
        self._handle = handle
        self._span = span
        self._base = 0
        self._data = b""

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer that contains `n` bytes of the file from offset `at`, and their position in the buffer."""
        i = at - self._base
        if i < 0 or i + n > len(self._data):
            self._data = os.pread(self._handle, max(n, self._span), at)
            self._base = at
            i = 0
        return self._data, i

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes."""
        crc = at = 0
        while at < size:
            data, i = self(at, min(self._span, size - at))
            if i == len(data):
                break
            crc = crc32c(memoryview(data)[i : i + size - at], crc)
            at += len(data) - i
        return crc

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` is in the page cache; `True` if the system cannot tell."""
        try:
            os.preadv(self._handle, [bytearray(1)], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except (AttributeError, OSError):  # RWF_NOWAIT is not supported here
            return True
        return True


@contextmanager
def open_view(path: str, span: int = 4096) -> Iterator[tuple[FileView, int]]:
    """Open a shard for random access; return its view and its length in bytes.

    Raises:
        ShardError: it is not a regular file.
        StorageError: it cannot be read.

    """
    with translate_errors(path, "the file cannot be read"):
        handle = open_handle(path, SHARD)
        try:
            if span <= 1 << 14:  # only headers are read, so the kernel's read-ahead would be wasted
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
            yield FileView(handle, span), os.fstat(handle).st_size
        finally:
            os.close(handle)


def checksum_of(handle: int, start: int, end: int, buffer: memoryview) -> int:
    """Read an open file from byte `start` to `end`, or to its end, and return the CRC-32C of these bytes.

    Args:
        handle: file descriptor, open for reading.
        start: first byte.
        end: byte after the last one.
        buffer: where the bytes are read to, part by part.

    """
    crc = 0
    while start < end:
        length = os.preadv(handle, [buffer[: end - start]], start)
        if not length:
            break
        crc = crc32c(buffer[:length], crc)
        start += length
    return crc


def chunks(path: str, kind: FileKind) -> Iterator[memoryview]:
    """Read a file from end to end, into one buffer that each chunk replaces.

    Raises:
        DamagedError: it is not a regular file, or is too long.
        OSError: it cannot be read.

    """
    buffer = memoryview(bytearray(1 << 20))
    handle = open_handle(path, kind)
    try:
        while count := os.readv(handle, [buffer]):
            yield buffer[:count]
    finally:
        os.close(handle)
