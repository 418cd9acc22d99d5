"""Compute what DALI will ask for in a thread of its own, so that the thread that trains does not wait for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")

#: Batches that are computed before DALI asks for them. They are views of the shards, unless the shards are read.
AHEAD = 2


class Ahead(Generic[T]):
    """A function of a batch's number whose values for the next numbers are computed in advance.

    The numbers are asked for in increasing order. An error is raised when its own number is asked for, and no earlier.
    When this object is no longer used, it waits for the value that is being computed, and ends the thread.
    """

    def __init__(self, compute: Callable[[int], T]) -> None:
        """Start no thread yet; one thread at a time calls `compute`, which must not refer to this object."""
        self._compute = compute
        self._thread = ThreadPoolExecutor(1, "batches")
        self._futures: dict[int, Future[T]] = {}
        weakref.finalize(self, _end, self._thread).atexit = False

    def __call__(self, number: int) -> T:
        """Return the value of a number, and let the thread compute the next ones."""
        try:
            for coming in range(number, number + AHEAD + 1):
                if coming not in self._futures:
                    self._futures[coming] = self._thread.submit(self._compute, coming)
        except RuntimeError:
            # Python's main thread has ended, so executors accept no more work, but another thread uses the loader.
            if number not in self._futures:
                return self._compute(number)
        return self._futures.pop(number).result()


def _end(thread: ThreadPoolExecutor) -> None:
    with suppress(RuntimeError):  # The garbage collector may call this on the thread itself.
        thread.shutdown(wait=True, cancel_futures=True)
