"""Ctrl-C in the programs ``dataprep`` and ``loaders``, and SIGTERM in ``dataprep``.

This module is imported first, so it imports almost nothing.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import NoReturn

#: Exit status of an interrupted program: 128 + SIGINT.
INTERRUPTED = 130

#: Exit status of a program that a scheduler stops; see `manifests.errors.ExitStatus`.
STOPPED = 3


class _Interrupts:
    """Handles SIGINT and SIGTERM.

    An exception is raised only where work must be cleaned up, and only once.

    Elsewhere, the process ends at once. An exception in the middle of an import would reach code
    that is not prepared for it: C extensions replace it by an `ImportError`, or print it.

    Attributes:
        program: name of the program, for the message.
        needs_cleanup: whether to raise an exception at the first signal.
        arrived: the signal that arrived; 0 if none did.
        kept: what the command keeps, for the message; `None` if there is nothing to say.
        render: makes the lines to print of the message and the exit status; `None` prints one line.

    """

    def __init__(self) -> None:
        self.program = ""
        self.needs_cleanup = False
        self.arrived = 0
        self.kept: str | None = None
        self.render: Callable[[str, int], str] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        is_first, self.arrived = not self.arrived, self.arrived or number
        if self.needs_cleanup and is_first:
            raise KeyboardInterrupt
        end_now()


_interrupts = _Interrupts()


def end_now() -> NoReturn:
    """End the process with one line."""
    message, status = how_interrupted()
    text = f"{_interrupts.program}: {message}\n"
    if os.isatty(2):
        text = f"\n{text}"  # the end of a progress bar
    if _interrupts.render:
        text = _interrupts.render(message, status)
    with suppress(OSError):
        os.write(2, text.encode())
    os._exit(status)


def handle_interrupts(program: str) -> None:
    """Let Ctrl-C end this process with one line and status 130, unless SIGINT is ignored, as in background jobs.

    SIGTERM, by which schedulers stop jobs, ends ``dataprep`` with one line and status 3.
    """
    _interrupts.program = program
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupts)
    if program == "dataprep" and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupts)


@contextmanager
def cleanup_on_interrupt() -> Iterator[None]:
    """Let the first signal raise `KeyboardInterrupt` in this block.

    A second one ends the process at once.
    """
    _interrupts.needs_cleanup = True
    try:
        yield
    finally:
        _interrupts.needs_cleanup = False


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed, or SIGTERM arrived: what failed since then failed because of it."""
    return bool(_interrupts.arrived)


def on_interrupt(*, kept: str | None, render: Callable[[str, int], str] | None) -> None:
    """Set what the program says if it ends at once; see `_Interrupts`."""
    _interrupts.kept, _interrupts.render = kept, render


def how_interrupted(kept: str = "") -> tuple[str, int]:
    """Return what an interrupted program prints, and its exit status.

    Args:
        kept: what is kept; if empty, what `on_interrupt` has set.

    """
    kept = kept or _interrupts.kept or ""
    again = "Run the same command again"
    if kept:
        again = f"{again}; {kept}"
    if _interrupts.arrived == signal.SIGTERM:
        return f"stopped by SIGTERM. {again}.", STOPPED
    return f"interrupted. {again}.", INTERRUPTED


# --- delayed signals ------------------------------------------------------------------------------


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
    import threading  # takes time to import

    received = []
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
