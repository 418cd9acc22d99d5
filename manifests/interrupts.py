"""Ctrl-C in the programs ``dataprep`` and ``loaders``. This module is imported first, so it imports almost nothing."""

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

#: What an interrupted program prints.
MESSAGE = "interrupted. Run the same command again; shards that `dataprep convert` finished are kept."


class _Interrupts:
    """Handles SIGINT. An exception is raised only where work must be cleaned up, and only once.

    Elsewhere, the process ends at once. An exception in the middle of an import would reach code that is not prepared
    for it: C extensions replace it by an `ImportError`, or print it.

    Attributes:
        program: name of the program, for the message.
        needs_cleanup: whether to raise an exception at the first signal.
        arrived: whether a signal arrived.

    """

    def __init__(self) -> None:
        self.program = ""
        self.needs_cleanup = False
        self.arrived = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.needs_cleanup and not self.arrived:
            self.arrived = True
            raise KeyboardInterrupt
        end_now()


_interrupts = _Interrupts()


def end_now() -> NoReturn:
    """End the process with one line."""
    with suppress(OSError):
        end_of_bar = "\n" if os.isatty(2) else ""
        os.write(2, f"{end_of_bar}{_interrupts.program}: {MESSAGE}\n".encode())
    os._exit(INTERRUPTED)


def handle_interrupts(program: str) -> None:
    """Let Ctrl-C end this process with one line and status 130, unless SIGINT is ignored, as in background jobs."""
    _interrupts.program = program
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupts)


@contextmanager
def cleanup_on_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C raise `KeyboardInterrupt` in this block; a second one ends the process at once."""
    _interrupts.needs_cleanup = True
    try:
        yield
    finally:
        _interrupts.needs_cleanup = False


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed: what failed since then failed because of it."""
    return _interrupts.arrived
