"""Write files on a local file system: lock folders, flush, remove, and name the reason of an error.

Nothing here depends on the contents of a file. Each `OSError` becomes a `StorageError` with a hint.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from manifests.errors import StorageError
from manifests.process.unexpected_errors import HINTS, is_machine_fault


@contextmanager
def translate_errors(path: str, message: str) -> Iterator[None]:
    """Raise an `OSError` of the block as a `StorageError` with the path, the message, the reason and a hint."""
    try:
        yield
    except OSError as error:
        if is_machine_fault(
            error
        ):  # not a fault of this file, so no caller must take it for damage
            raise
        raise StorageError(
            f"{message}: {error.strerror or error}", file=path, hint=HINTS.get(error.errno or 0, "")
        ) from None


# --- one run per folder -------------------------------------------------------------------------


@contextmanager
def locked(*folders: str, shared: bool = False) -> Iterator[bool]:
    """Lock folders for this process. The locks end with the process, however it ends.

    Args:
        folders: the folders to lock.
        shared: other processes may have shared locks of the same folders, but no exclusive one.

    Yields:
        Whether all folders are locked. On a file system without locks, the block runs without one.

    Raises:
        StorageError: another process has a lock.

    """
    with ExitStack() as stack:
        seen: set[tuple[int, int]] = set()
        # A fixed order, so of two processes that want the same folders, one gets all of them.
        from dataprep.storage.files import files_of

        local = (files_of(folder).local_folder(folder) for folder in folders)
        locks = [_lock(folder, stack, seen, shared) for folder in sorted(local)]
        yield all(locks)


def _lock(folder: str, stack: ExitStack, seen: set[tuple[int, int]], shared: bool) -> bool:
    with translate_errors(folder, "the folder cannot be opened"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, handle)
    status = os.fstat(handle)
    if (status.st_dev, status.st_ino) in seen:  # another path of a folder that is already locked
        return True
    seen.add((status.st_dev, status.st_ino))
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            "another run is working in this folder", file=folder, hint="wait until it ends"
        ) from None
    except OSError:
        return False
    return True


# --- whole files ---------------------------------------------------------------------------------


def flush(path: str) -> None:
    """Force a file or a folder to disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with translate_errors(path, "the file cannot be removed"), suppress(FileNotFoundError):
        os.unlink(path)


#: Buffers that one call of pwritev(2) accepts: IOV_MAX of Linux.
_MAX_BUFFERS = 1024


def write_all(handle: int, buffers: Sequence[bytes], at: int) -> None:
    """Write buffers one after the other without joining them first, from byte `at` of the file on."""
    for first in range(0, len(buffers), _MAX_BUFFERS):
        some = buffers[first : first + _MAX_BUFFERS]
        total = sum(map(len, some))
        written = os.pwritev(handle, some, at)
        if written < total:
            rest = memoryview(b"".join(some))
            while written < total:
                written += os.pwrite(handle, rest[written:], at + written)
        at += total
