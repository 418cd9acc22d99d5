"""Every error that this project raises on purpose.

The tree, with the exit status of each branch::

    DatasetError                 catch this to catch them all
    |-- CallError                2    an option, a path or an argument is wrong (also a ValueError)
    |-- SourceError              2    the images or lists to prepare cannot be used as they are
    |-- StoppedError             3    the machine stopped the work: run the same command again to resume
    |   |-- SourceVanishedError       an image was deleted or changed after the scan
    |   |-- StorageError              full disk, no permission, another run in progress
    |   `-- WorkerDiedError           a worker process ended without a result
    `-- DamagedError             1    a file of a prepared dataset is missing or wrong
        |-- ManifestError
        |-- ShardError
        |-- IndexFileError
        `-- TableError

`exit_status` returns the status of an error.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from manifests.text import printable


class ExitStatus(IntEnum):
    """What a command's exit status means."""

    SUCCESS = 0
    #: The command finished, and the data has a problem.
    DATA_PROBLEM = 1
    #: Wrong usage; nothing was written.
    WRONG_USAGE = 2
    #: The machine stopped the work; run the command again to resume.
    STOPPED = 3
    #: The user interrupted the command (128 + SIGINT).
    INTERRUPTED = 130


class DatasetError(Exception):
    """Base of all errors: what is wrong, where, and how to fix it.

    Attributes:
        message: what is wrong, without the place.
        file: path of the file, as the user wrote it.
        record: number of the record in the file, from 0.
        line: number of the line in the file, from 1.
        byte: offset in the file, from 0.
        hint: how to fix it.

    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        record: int | None = None,
        line: int | None = None,
        byte: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.record = record
        self.line = line
        self.byte = byte
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        if not self.hint:
            return text
        end = "" if self.hint.endswith(("?", ".")) else "."
        return f"{text.rstrip('.')}. Hint: {self.hint}{end}"

    @property
    def place(self) -> str:
        """The known parts of the location, joined: ``a.tar, record 3, byte 512``."""
        numbers = (("line", self.line), ("record", self.record), ("byte", self.byte))
        parts = [printable(self.file)] if self.file else []
        parts += [f"{name} {value}" for name, value in numbers if value is not None]
        return ", ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keeps all attributes when an error crosses from a worker process.
        names = ("message", "file", "record", "line", "byte", "hint")
        return _rebuild, (type(self), {name: getattr(self, name) for name in names})


def _rebuild(kind: type[DatasetError], attributes: dict[str, Any]) -> DatasetError:
    return kind(**attributes)


class CallError(DatasetError, ValueError):
    """An option, a path or an argument is wrong."""


class SourceError(DatasetError):
    """The images, lists or tables to prepare cannot be used as they are."""


class StoppedError(DatasetError):
    """The machine stopped the work. Committed shards are kept, and the same command resumes."""


class SourceVanishedError(StoppedError):
    """An image was deleted, or its size changed, after the scan."""


class StorageError(StoppedError):
    """The output cannot be written or read: full disk, no permission, another run in progress."""


class WorkerDiedError(StoppedError):
    """A worker process ended without a result: it was killed, or ran out of memory."""


class DamagedError(DatasetError):
    """A file of a prepared dataset is missing or wrong."""


class ManifestError(DamagedError):
    """``manifest.json`` is missing, damaged, or of an unknown schema version."""


class ShardError(DamagedError):
    """A shard is truncated or damaged."""


class IndexFileError(DamagedError):
    """A DALI index file does not match its shard."""


class TableError(DamagedError):
    """A sample table is damaged or does not match its shard."""


def exit_status(error: DatasetError) -> ExitStatus:
    """Return the exit status of a command that ends with this error."""
    if isinstance(error, StoppedError):
        return ExitStatus.STOPPED
    return ExitStatus.DATA_PROBLEM if isinstance(error, DamagedError) else ExitStatus.WRONG_USAGE
