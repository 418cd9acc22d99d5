"""The standard streams of a program: closed ones, full disks behind them, and pipes without a reader."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from manifests.errors import StorageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_HINT = "redirect it to a file that can be written, or to /dev/null"


def open_streams() -> None:
    """Make the standard streams of this process safe to use.

    What is written to a pipe without a reader is dropped, so a command that is piped into ``head``
    ends with the same status as alone. Any other failure to write raises `StorageError`.

    Raises:
        StorageError: stdout or stderr is closed.

    """
    closed = [number for number in range(3) if not _is_open(number)]
    for number in closed:
        # A file of a dataset must never get the number of a standard stream: libraries print to
        # these numbers.
        _open_as(number)
    if 2 in closed and 1 not in closed:
        os.dup2(1, 2)  # the error that follows is printed there
    sys.stdout = _text(1, "standard output")
    sys.stderr = _text(2, "standard error")
    for number, name in ((1, "standard output"), (2, "standard error")):
        if number in closed:
            raise StorageError(f"{name} is closed", hint=_HINT)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _open_as(number: int) -> None:
    handle = os.open(os.devnull, os.O_RDWR)
    if handle != number:
        os.dup2(handle, number)
        os.close(handle)


def _text(number: int, name: str) -> io.TextIOWrapper:
    is_terminal = os.isatty(number)
    # A file name that is not valid text, or that the encoding of the terminal lacks, is printed
    # with escapes.
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, name)),
        encoding=getattr(sys.__stdout__, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=is_terminal or number == 2,
    )


class _Output(io.FileIO):
    """Writes to a standard stream as long as somebody reads it."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(number, "wb", closefd=False)
        self._title = title

    def write(self, data: ReadableBuffer, /) -> int:
        """Write data, or drop it if the reader of a pipe is gone."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:
            raise StorageError(
                f"{self._title} cannot be written: {error.strerror}", hint=_HINT
            ) from None
