"""Every error that this project raises on purpose.

The tree, with the exit status of each branch::

    DatasetError                 catch this to catch them all
    |-- CallError                2    an option, a path or an argument is wrong (also a ValueError)
    |-- SourceError              2    the images or lists to prepare cannot be used as they are
    |-- StoppedError             3    a problem outside of the program: fix it and run the same command again
    |   |-- SourceVanishedError       an image was deleted or changed after the scan
    |   |-- StorageError              full disk, no permission, another run in progress
    |   |   |-- UnreachableError      an object store cannot be reached
    |   |   |   `-- RefusedError      it refuses the request
    |   |   `-- ReplacedError         an object was replaced while it was in use
    |   |-- LostFolderError           another run has taken the output folder over
    |   `-- WorkerDiedError           a worker process ended without a result
    `-- DamagedError             1    a file of a prepared dataset is missing or wrong
        |-- ManifestError
        |-- ShardError
        |-- IndexFileError
        |-- TableError
        `-- PlanError                 a file of `dataprep plan` is damaged or was changed

`exit_status` returns the status of an error.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from manifests.process.text import one_line


class ExitStatus(IntEnum):
    """What a command's exit status means."""

    SUCCESS = 0
    #: The command found a problem in the data.
    DATA_PROBLEM = 1
    #: Wrong usage; nothing was written.
    WRONG_USAGE = 2
    #: A problem outside of the program (disk, permissions, memory) stopped the run. The same
    #: command resumes.
    STOPPED = 3
    #: The user interrupted the command (128 + SIGINT).
    INTERRUPTED = 130


#: Maximum length of each part of an error, in characters.
MAX_MESSAGE = 4000


class DatasetError(Exception):
    """Base of all errors: what is wrong, where, and how to fix it.

    Attributes:
        message: what is wrong, without the location.
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
        # Parts of a message come from untrusted files: 200,000 feature names, or a string of 50 MB.
        message = one_line(message, MAX_MESSAGE)
        super().__init__(message)
        self.message = message
        self.file = file
        self.record = record
        self.line = line
        self.byte = byte
        self.hint = one_line(hint, MAX_MESSAGE)

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
        parts = [one_line(self.file, MAX_MESSAGE)] if self.file else []
        parts += [f"{name} {value}" for name, value in numbers if value is not None]
        return ", ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling keeps all attributes, so an error from a worker process is complete.
        names = ("message", "file", "record", "line", "byte", "hint")
        return _rebuild, (type(self), {name: getattr(self, name) for name in names})


def _rebuild(error_type: type[DatasetError], attributes: dict[str, Any]) -> DatasetError:
    return error_type(**attributes)


class CallError(DatasetError, ValueError):
    """An option, a path or an argument is wrong."""


class SourceError(DatasetError):
    """The images, lists or tables to prepare cannot be used as they are."""


class StoppedError(DatasetError):
    """A problem outside of the program stopped the run.

    Committed shards are kept, and the same command resumes.
    """


class SourceVanishedError(StoppedError):
    """An image was deleted, or its size changed, after the scan."""


class StorageError(StoppedError):
    """The output cannot be written or read: full disk, no permission, another run in progress."""


class UnreachableError(StorageError):
    """An object store cannot be reached. This says nothing about the object itself."""


class RefusedError(UnreachableError):
    """An object store refuses the request: retrying does not help."""


class ReplacedError(StorageError):
    """An object in an object store is not the one that was read before: its ETag differs."""


class LostFolderError(StoppedError):
    """Another run has taken over an output folder in an object store."""


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


class PlanError(DamagedError):
    """A file of ``dataprep plan`` is missing, damaged, or was changed after it was written."""


def exit_status(error: DatasetError) -> ExitStatus:
    """Return the exit status of a command that ends with this error."""
    if isinstance(error, StoppedError):
        return ExitStatus.STOPPED
    return ExitStatus.DATA_PROBLEM if isinstance(error, DamagedError) else ExitStatus.WRONG_USAGE
