"""The temporary file of a shard, which several processes write, each at different places."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from dataprep import storage
from manifests.errors import StorageError


class PartialShard:
    """The temporary file of a shard, open in this process. What is written is read back and compared by checksum.

    Args:
        file: path of the shard, for errors.
        partial: path of its temporary file.
        create: whether to create the file, or make it empty.

    """

    def __init__(self, file: str, partial: str, *, create: bool = False) -> None:
        self.partial = partial
        self._file = file
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        with storage.translate_errors(file, "the file cannot be written"):
            self._handle = os.open(partial, flags, 0o666)
        self._buffer = memoryview(bytearray(1 << 18))

    def write(self, buffers: Sequence[bytes], start: int, length: int, crc: int) -> None:
        """Write buffers of this total length and CRC-32C, one after the other from byte `start` on.

        Raises:
            StorageError: they cannot be written, or the disk returns other bytes.

        """
        with storage.translate_errors(self._file, "the file cannot be written"):
            storage.write_all(self._handle, buffers, start)
        with storage.translate_errors(self._file, "the file cannot be read"):
            read = storage.checksum_of(self._handle, start, start + length, self._buffer)
        if read != crc:
            raise not_as_written(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


#: The file that this process wrote to last. It stays open: closing a file on a network file system flushes it.
_last: list[PartialShard] = []
_lock = threading.Lock()


def write_to(file: str, partial: str, buffers: Sequence[bytes], start: int, *, length: int, crc: int) -> None:
    """Write to the temporary file of a shard, which exists; see `PartialShard`."""
    with _lock:
        if _last and _last[0].partial != partial:
            _last.pop().close()
        if not _last:
            _last.append(PartialShard(file, partial))
        _last[0].write(buffers, start, length, crc)


def close_file(partial: str) -> None:
    """Close this temporary file, if this process still has it open."""
    with _lock:
        if _last and _last[0].partial == partial:
            _last.pop().close()


def not_as_written(path: str) -> StorageError:
    """Return the error for a disk that does not return the bytes that were written."""
    return StorageError(
        "the file does not contain the bytes that were written",
        file=path,
        hint="check the disk and the memory of this machine",
    )
