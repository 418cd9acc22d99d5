"""Delay Ctrl-C and SIGTERM while code runs that an exception in its middle would leave in a wrong state."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def delayed_interrupts() -> Iterator[Sequence[object]]:
    """Delay SIGINT and SIGTERM until the block ends.

    Python ignores an exception that is raised in a destructor. One that is raised while
    `threading.Condition` locks its lock leaves it locked forever.

    Does nothing outside the main thread, where signals raise no exceptions.

    Yields:
        What arrived: not empty as soon as a signal is delayed. A block that waits should look at
        it.

    """
    received: list[tuple[int, Any]] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    with ExitStack() as stack:
        for number, handler in handlers.items():
            if callable(handler):
                stack.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, frame: received.append((number, frame)))
        yield received
    if received and callable(handler := handlers[signal.Signals(received[0][0])]):
        handler(*received[0])
