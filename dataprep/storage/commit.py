"""Commit files: write them under temporary names, read them back, flush, and rename.

Several processes may write one file, each at different places.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from dataprep.storage.files import files_of
from dataprep.storage.local import checksum_of, translate_errors, write_all
from dataprep.storage.partials import partial_path, remove_partial
from manifests.errors import StorageError


def publish(paths: Sequence[str]) -> None:
    """Rename complete files from their `partial_path` to their final names, in this order."""
    files_of(paths[0]).publish_shard([(partial_path(path), path) for path in paths])


def discard(paths: Sequence[str]) -> None:
    """Remove the temporary files of these paths, and abort uploads of this process in parts."""
    for path in paths:
        with suppress(OSError):
            remove_partial(os.path.dirname(path), partial_path(path))


def write_partial(path: str, data: bytes) -> None:
    """Write a small file under its temporary name."""
    with translate_errors(path, "the file cannot be written"):
        try:
            with open(partial_path(path), "wb") as file:
                file.write(data)
        except OSError:
            discard([path])
            raise


def replace_file(path: str, data: bytes) -> None:
    """Write a small file atomically: a reader sees the old content or all of the new."""
    write_partial(path, data)
    files_of(path).publish([(partial_path(path), path)])


def create_file(path: str, data: bytes) -> bool:
    """Write a small file unless there is one, in a locked folder; return whether it was written.

    In an object store, only one of several processes on any machine succeeds.
    """
    return files_of(path).create(path, data, replace_file)


def replace_unchanged(path: str, data: bytes, old: bytes) -> bool:
    """Replace a small file whose content is `old`, in a locked folder.

    Return whether it has the new content now.

    In an object store, no other process on any machine can have changed it between the comparison
    and the write.
    """
    return files_of(path).replace(path, data, old, replace_file)


# --- one file, several processes ------------------------------------------------------------------


class PartialFile:
    """The temporary file of a shard, open in this process.

    What is written is read back and compared by checksum.

    Args:
        file: path of the shard, for errors.
        partial: path of its temporary file.
        create: whether to create the file, or make it empty.

    """

    def __init__(self, file: str, partial: str, *, create: bool = False) -> None:
        self.partial = partial
        self._file = file
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        with translate_errors(file, "the file cannot be written"):
            self._handle = os.open(partial, flags, 0o666)
        self._buffer = memoryview(bytearray(1 << 18))

    def write(self, buffers: Sequence[bytes], start: int, length: int, crc: int) -> None:
        """Write buffers of this total length and CRC-32C, one after the other from byte `start` on.

        Raises:
            StorageError: they cannot be written, or the disk returns other bytes.

        """
        with translate_errors(self._file, "the file cannot be written"):
            write_all(self._handle, buffers, start)
        with translate_errors(self._file, "the file cannot be read"):
            read = checksum_of(self._handle, start, start + length, self._buffer)
        if read != crc:
            raise not_as_written(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


#: The file that this process wrote to last. It stays open: closing a file on a network file system
#: flushes it.
_last: list[PartialFile] = []
_lock = threading.Lock()


def write_to(
    file: str, partial: str, buffers: Sequence[bytes], start: int, *, length: int, crc: int
) -> None:
    """Write to the temporary file of a shard, which exists; see `PartialFile`."""
    with _lock:
        if _last and _last[0].partial != partial:
            _last.pop().close()
        if not _last:
            _last.append(PartialFile(file, partial))
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
