"""Compute the values of a function for the next numbers in a thread."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

#: Numbers to compute. `None` ends the thread.
_Jobs: TypeAlias = "SimpleQueue[int | None]"

#: Numbers with their values or errors. The last one, without a number, says that the thread has
#: ended.
_Values: TypeAlias = "SimpleQueue[tuple[int | None, Any, BaseException | None]]"

#: Seconds that a thread waits before it works, if it had nothing to do for plenty of time.
#: Otherwise it would take the interpreter's lock from the thread that has just asked for a value,
#: each time that one enters a call that releases the lock: `next` of a loader took 1 ms longer
#: (scripts/bench/training_thread.py).
_PAUSE, _PLENTY = 0.002, 0.008

#: The threads that run, and their jobs.
_running: dict[threading.Thread, _Jobs] = {}


class Ahead(Generic[T]):
    """A function of a batch's number whose values for the next numbers are computed in advance.

    The numbers are asked for in increasing order. An error is raised when its own number is asked
    for, and no earlier. The thread ends when this object is no longer used, or when `stop` is
    called.
    """

    # Neither an executor nor futures: Python code holds their locks, so Ctrl-C may leave them
    # locked for ever, and the garbage collector must not wait for an executor's lock. `SimpleQueue`
    # waits in C.

    def __init__(
        self,
        compute: Callable[[int], T],
        ahead: int,
        name: str,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Start no thread yet.

        Args:
            compute: the function. One thread at a time calls it. It must not refer to this object.
            ahead: number of values to compute in advance.
            name: name of the thread.
            release: releases what the function keeps of its values, for `close`.

        """
        self._release = release
        self._ahead = ahead
        self._jobs: _Jobs = SimpleQueue()
        self._values: _Values = SimpleQueue()
        self._requested = 0
        arguments = ([compute], self._jobs, self._values)
        self._thread = threading.Thread(target=_work, args=arguments, name=name, daemon=True)
        self._started = False
        weakref.finalize(self, _stop, self._jobs).atexit = False

    def __call__(self, number: int) -> T:
        """Return the value of a number, and let the thread compute the next ones.

        Raises:
            RuntimeError: the thread was stopped before.

        """
        if not self._started:
            self._started = True
            _running[self._thread] = self._jobs
            self._thread.start()
        following = number + self._ahead + 1
        for coming in range(max(number, self._requested), following):
            self._jobs.put(coming)
        self._requested = following
        while True:
            computed, value, error = self._values.get()
            if computed == number:
                break
            if computed is None:
                self._values.put((None, None, None))
                raise RuntimeError(f"the thread {self._thread.name!r} has ended")
        if error is None:
            found: T = value
            return found
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    def stop(self) -> None:
        """End the thread after the value that is being computed, without waiting for it."""
        _stop(self._jobs)

    def close(self) -> None:
        """End the thread, wait for it, and release all values."""
        _stop(self._jobs)
        if self._started:
            self._thread.join()
        while not self._values.empty():
            self._values.get()
        self._release()


def _work(functions: list[Callable[[int], Any]], jobs: _Jobs, values: _Values) -> None:
    compute = functions.pop()
    idle = time.monotonic()
    while (number := jobs.get()) is not None:
        if jobs.empty() and time.monotonic() - idle > _PLENTY:
            time.sleep(_PAUSE)
        try:
            values.put((number, compute(number), None))
        except BaseException as error:
            values.put((number, None, error))
        idle = time.monotonic()
    # What only the function refers to is released here, while `_stop_all` still waits for this
    # thread.
    del compute
    values.put((None, None, None))
    _running.pop(threading.current_thread(), None)


def _stop(jobs: _Jobs) -> None:
    """End a thread after the value that is being computed.

    Does not wait: the garbage collector calls this too.
    """
    try:
        while True:
            jobs.get_nowait()
    except Empty:
        jobs.put(None)


def _stop_all() -> None:
    """Wait for all threads: one that is in DALI while Python ends would use what is already gone."""
    for thread, jobs in list(_running.items()):
        _stop(jobs)
        if thread.ident is not None:
            thread.join()


atexit.register(_stop_all)
