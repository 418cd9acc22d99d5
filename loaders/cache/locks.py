"""Locks between the processes that use a dataset of the cache: ``in-use`` and ``mapped`` in its folder."""

from __future__ import annotations

import fcntl
import os
import weakref

IN_USE = "in-use"
MAPPED = "mapped"


class Lock:
    """The lock of an open file, which is released when the object is no longer used."""

    def __init__(self, handle: int) -> None:
        self._release = weakref.finalize(self, os.close, handle)
        self._release.atexit = False

    def release(self) -> None:
        """Close the file."""
        self._release()


def share_use(folder: str) -> Lock:
    """Make the folder of a dataset, and share its lock, so that no process removes it."""
    path = os.path.join(folder, IN_USE)
    while True:
        os.makedirs(folder, exist_ok=True)
        try:
            handle = _open_lock(path)
        except FileNotFoundError:  # it is just being removed
            continue
        fcntl.flock(handle, fcntl.LOCK_SH)
        try:
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return Lock(handle)
        except FileNotFoundError:
            pass
        os.close(handle)


def _open_lock(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except PermissionError:  # a cache that can only be read
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def lock_unused(folder: str) -> int | None:
    """Return a lock that keeps others from using a dataset.

    `None` if a process uses it, or there is none.
    """
    try:
        handle = os.open(os.path.join(folder, IN_USE), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def lock_mapped(folder: str) -> int:
    """Tell other processes that this one reads the shards of a dataset as mapped files.

    Return the lock.

    Nobody evicts images of the dataset as long as the descriptor is open.
    """
    handle = os.open(os.path.join(folder, MAPPED), os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def lock_unmapped(folder: str) -> int | None:
    """Return a lock that keeps others from mapping shards of a dataset.

    `None` if a process has mapped them.
    """
    handle = os.open(os.path.join(folder, MAPPED), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
