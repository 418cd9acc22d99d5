"""Read parts of any number of files without mapping them: slower, but a failing disk is an error."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.mapped_files import open_checked


class OpenFiles:
    """Files by number. Opens each file when it is first needed; several threads may use it.

    Attributes:
        max_open: maximum number of open files. To open one more, the one that was opened first is
            closed.

    """

    #: A quarter of the files that a Linux process may open by default.
    max_open = 256

    def __init__(self, paths: Sequence[str], lengths: Sequence[int]) -> None:
        self._paths, self._lengths = paths, lengths
        self._handles: dict[int, int] = {}
        self._lock = threading.Lock()
        # A loader that is dropped without `close` must not keep its files open.
        weakref.finalize(self, _close_all, self._handles).atexit = False

    def read(self, number: int, offset: int, size: int) -> NDArray[np.uint8]:
        """Return a part of a file, uint8 [size].

        Args:
            number: index of the file.
            offset: first byte.
            size: number of bytes.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file has another length.

        """
        data = np.empty(size, np.uint8)
        view = data.data
        with self._lock:
            handle = self._handle(number)
            while view:
                count = os.preadv(handle, [view], offset + size - len(view))
                if not count:
                    raise ValueError(f"is {os.fstat(handle).st_size} bytes long")
                view = view[count:]
        return data

    def prefetch(self, number: int, offset: int, size: int) -> None:
        """Ask the system to read a part of a file in advance, without waiting."""
        with self._lock:
            os.posix_fadvise(self._handle(number), offset, size, os.POSIX_FADV_WILLNEED)

    def clear(self) -> None:
        """Close every file."""
        with self._lock:
            _close_all(self._handles)

    def _handle(self, number: int) -> int:
        handle = self._handles.get(number)
        if handle is None:
            if len(self._handles) >= self.max_open:
                os.close(self._handles.pop(next(iter(self._handles))))
            handle = self._handles[number] = open_checked(
                self._paths[number], self._lengths[number]
            )
        return handle


def _close_all(handles: dict[int, int]) -> None:
    while handles:
        os.close(handles.popitem()[1])
