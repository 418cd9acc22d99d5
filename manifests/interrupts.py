"""Ctrl-C in the programs ``dataprep`` and ``loaders``, and SIGTERM in ``dataprep``.

This module is imported first, so it imports almost nothing.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from collections.abc import Iterator
    from types import FrameType
    from typing import NoReturn

#: Exit status of an interrupted program: 128 + SIGINT.
INTERRUPTED = 130

#: Exit status of a program that a scheduler stops; see `manifests.errors.ExitStatus`.
STOPPED = 3

#: What an interrupted program prints.
MESSAGE = "interrupted. Run the same command again; shards that `dataprep convert` finished are kept."

#: What a program prints that a scheduler stops.
STOPPED_MESSAGE = "stopped by SIGTERM. Run the same command again; finished shards are kept."


class _Interrupts:
    """Handles SIGINT and SIGTERM. An exception is raised only where work must be cleaned up, and only once.

    Elsewhere, the process ends at once. An exception in the middle of an import would reach code that is not prepared
    for it: C extensions replace it by an `ImportError`, or print it.

    Attributes:
        program: name of the program, for the message.
        needs_cleanup: whether to raise an exception at the first signal.
        arrived: the signal that arrived; 0 if none did.

    """

    def __init__(self) -> None:
        self.program = ""
        self.needs_cleanup = False
        self.arrived = 0

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
    with suppress(OSError):
        end_of_bar = "\n" if os.isatty(2) else ""
        os.write(2, f"{end_of_bar}{_interrupts.program}: {message}\n".encode())
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
    """Let the first signal raise `KeyboardInterrupt` in this block; a second one ends the process at once."""
    _interrupts.needs_cleanup = True
    try:
        yield
    finally:
        _interrupts.needs_cleanup = False


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed, or SIGTERM arrived: what failed since then failed because of it."""
    return bool(_interrupts.arrived)


def how_interrupted() -> tuple[str, int]:
    """Return what an interrupted program prints, and its exit status."""
    return (STOPPED_MESSAGE, STOPPED) if _interrupts.arrived == signal.SIGTERM else (MESSAGE, INTERRUPTED)
