"""Delay Ctrl-C while code runs that would swallow it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delay SIGINT until the block ends. Python ignores an exception that is raised in a destructor.

    Does nothing outside the main thread, where Python never raises `KeyboardInterrupt`.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        handler(*received[0])
