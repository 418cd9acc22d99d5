"""Close things for the garbage collector, in a thread of its own.

The garbage collector may run in any thread and between any two steps of it, also while the thread
has a lock of Python's own modules. A finalizer that waits for a thread, or starts one, can
therefore wait for itself. It passes the work on with `close_later`, which never waits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger(__name__)

_Work = SimpleQueue[Callable[[], object]]


class _Closer:
    """A queue of functions, and the thread that calls them."""

    def __init__(self) -> None:
        # Its `put` may be called by a finalizer that interrupts another `put`.
        self.queue: _Work = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_work, args=(self.queue,), name="close", daemon=True
                )
                self._thread.start()

    def finish(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            done = threading.Event()
            self.queue.put(done.set)
            while not done.wait(0.1) and thread.is_alive():
                pass


def _work(queue: _Work) -> None:
    while True:
        try:
            queue.get()()
        except Exception as error:
            _log.debug("closing failed: %s", error)


_closer = _Closer()


def _begin_anew() -> None:
    """Forget the thread, which a child process does not have."""
    global _closer  # noqa: PLW0603
    _closer = _Closer()


os.register_at_fork(after_in_child=_begin_anew)


def prepare_closing() -> None:
    """Start the thread.

    Call this before a finalizer may call `close_later`, and not in a finalizer.
    """
    _closer.start()


def close_later(close: Callable[[], object]) -> None:
    """Call a function in the thread, soon; for finalizers."""
    _closer.queue.put(close)


def finish_closing() -> None:
    """Wait until all functions of `close_later` were called; not for finalizers."""
    _closer.finish()
