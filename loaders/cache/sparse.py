"""Write parts of sparse files, and give the disk space of parts back."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from loaders.cache.disk import named

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)

#: ``FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`` of fallocate(2).
_PUNCH_HOLE = 3


class SparseFiles:
    """Files by number, open for writing. Several threads may use it.

    Attributes:
        max_open: maximum number of files that are open and idle at a time.

    """

    max_open = 256

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._idle: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()

    def write(self, number: int, offset: int, data: memoryview) -> None:
        """Write bytes at an offset.

        Raises:
            OSError: the disk is full, for example.

        """
        with self._open(number) as handle:
            while data:
                count = os.pwrite(handle, data, offset)
                data, offset = data[count:], offset + count

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes from an offset; fewer at the end of the file."""
        with self._open(number) as handle:
            return os.pread(handle, size, offset)

    def punch(self, number: int, start: int, end: int) -> None:
        """Give back the disk space of the bytes from `start` to `end`, which become zeros."""
        with self._open(number) as handle:
            punch_hole(handle, start, end)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            while self._idle:
                os.close(self._idle.popitem()[1])

    @contextmanager
    def _open(self, number: int) -> Iterator[int]:
        with self._lock:
            handle = self._idle.pop(number, None)
        if handle is None:
            path = self._paths[number]
            with named(path):
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            yield handle
        finally:
            with self._lock:
                previous = self._idle.pop(number, None)  # another thread has opened it too
                self._idle[number] = handle
                excess = [] if previous is None else [previous]
                if len(self._idle) > self.max_open:
                    excess.append(self._idle.popitem(last=False)[1])
            for each in excess:
                os.close(each)


def punch_hole(handle: int, start: int, end: int) -> None:
    """Give back the disk space of a part of a file.

    Raises:
        OSError: the file system cannot do this.

    """
    if _libc.fallocate(handle, _PUNCH_HOLE, start, end - start):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def can_punch_holes(folder: str) -> bool:
    """Return whether the file system of a folder gives back the disk space of parts of files."""
    handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        os.ftruncate(handle, 8192)
        punch_hole(handle, 0, 8192)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
