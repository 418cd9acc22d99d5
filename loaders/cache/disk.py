"""Small files of the cache on the local disk, and what their errors mean."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from manifests.errors import HINTS, CallError, StorageError, raise_machine_fault
from manifests.process.text import printable


def has_length(path: str, length: int) -> bool:
    """Return whether there is a file of this length."""
    try:
        return os.stat(path).st_size == length
    except OSError:
        return False


def write_once(path: str, data: bytes) -> None:
    """Write a small file atomically.

    Other threads, and other machines or containers, may be writing the same bytes.
    """
    if has_length(path, len(data)):
        return
    temporary = f"{path}.{secrets.token_hex(8)}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def touch(path: str) -> None:
    """Make an empty file, unless there is one of this name."""
    if not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))


def disk_usage(folder: str) -> int:
    """Return the bytes that a folder takes on disk; sparse files count only what is there."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                is_folder = entry.is_dir(follow_symlinks=False)
                total += (
                    disk_usage(entry.path)
                    if is_folder
                    else entry.stat(follow_symlinks=False).st_blocks * 512
                )
    return total


def is_full(error: OSError) -> bool:
    """Return whether an error means that the disk has no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def named(path: str) -> Iterator[None]:
    """Raise an `OSError` of the block as an error that names the cache and the file.

    Raises:
        CallError: this user may not use the cache folder.
        StorageError: the disk is full or fails.

    """
    try:
        yield
    except OSError as error:
        raise_machine_fault(error)
        if isinstance(error, (PermissionError, NotADirectoryError, FileExistsError)):
            raise CallError(
                f"the cache folder cannot be used: {printable(path)}: {error.strerror}",
                hint="make it writable for this user, or choose another cache folder",
            ) from None
        raise StorageError(
            f"the cache cannot be written: {error.strerror or error}",
            file=path,
            hint=HINTS.get(error.errno or 0, ""),
        ) from None
