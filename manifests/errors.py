"""Every error that this project raises on purpose, and what an unexpected exception means.

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
    |-- DataProblemError         1    a call finished, and the data has a problem
    `-- DamagedError             1    a file of a prepared dataset is missing or wrong
        |-- ManifestError
        |-- ShardError
        |-- IndexFileError
        |-- TableError
        `-- PlanError                 a file of `dataprep plan` is damaged or was changed
"""

from __future__ import annotations

import errno
import os
import re
import traceback
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
        status: exit status of a command that ends with this error.

    """

    status = ExitStatus.WRONG_USAGE

    def __init__(
        self,
        message: str,
        *,
        file: str | os.PathLike[str] | None = None,
        record: int | None = None,
        line: int | None = None,
        byte: int | None = None,
        hint: str = "",
    ) -> None:
        # Parts of a message come from untrusted files: 200,000 feature names, or a string of 50 MB.
        message = one_line(message, MAX_MESSAGE)
        super().__init__(message)
        self.message = message
        self.file: str | None = None
        if file is not None:
            self.file = os.fspath(file)
        self.record = record
        self.line = line
        self.byte = byte
        self.hint = one_line(hint, MAX_MESSAGE)

    def __str__(self) -> str:
        text, hint = self.message, self.hint
        if self.place:
            text = f"{self.place}: {text}"
        if not hint:
            return text
        if not hint.endswith(("?", ".")):
            hint = f"{hint}."
        return f"{text.rstrip('.')}. Hint: {hint}"

    @property
    def place(self) -> str:
        """The known parts of the location, joined: ``a.tar, record 3, byte 512``."""
        parts = []
        if self.file:
            parts.append(one_line(self.file, MAX_MESSAGE))
        for name in ("line", "record", "byte"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name} {value}")
        return ", ".join(parts)


class CallError(DatasetError, ValueError):
    """An option, a path or an argument is wrong."""


class SourceError(DatasetError):
    """The images, lists or tables to prepare cannot be used as they are."""


class StoppedError(DatasetError):
    """A problem outside of the program stopped the run.

    Committed shards are kept, and the same command resumes.
    """

    status = ExitStatus.STOPPED


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


class DataProblemError(DatasetError):
    """A function of `dataprep` finished, and the data has a problem.

    Attributes:
        result: the value that the function returns without such a problem.

    """

    status = ExitStatus.DATA_PROBLEM

    def __init__(
        self, message: str, *, result: dict[str, Any] | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.result = result or {}  # pickle makes an error of its message, and then adds the rest


class DamagedError(DatasetError):
    """A file of a prepared dataset is missing or wrong."""

    status = ExitStatus.DATA_PROBLEM


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


# --- unexpected exceptions: a fault of the machine, or a bug of the program -----------------------


#: How to fix what an error number of the operating system means.
HINTS = {
    errno.ENOSPC: "free some space and run the same command again; finished shards are kept",
    errno.EFBIG: (
        "raise the limit on file sizes (ulimit -f); `dataprep convert` also has --shard-size"
    ),
    errno.EDQUOT: "free some of the quota and run the same command again; finished shards are kept",
    errno.EACCES: "give this user permission to read and write it, or choose another folder",
    errno.EPERM: "give this user permission to read and write it, or choose another folder",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EIO: "check the disk or the network, then run the same command again",
    errno.ENOENT: "the file or its folder was removed; restore it, then run the same command again",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another folder",
    errno.EEXIST: "a file of this name exists; move it away, or choose another folder",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then run the same command again",
    errno.ENFILE: "close other programs, then run the same command again",
    errno.ENOMEM: "use fewer --workers or free some memory, then run the same command again",
    errno.EAGAIN: (
        "use fewer --workers or raise the limit on processes (ulimit -u), then run the same command"
        " again"
    ),
}

#: Errors that concern the whole machine, never the file that was being opened.
MACHINE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_machine_fault(error: BaseException) -> bool:
    """Return whether an error says nothing about the file that was being read: no memory, no free file descriptor."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in MACHINE_ERRNOS


def raise_machine_fault(error: BaseException) -> None:
    """Raise an error again if it is a fault of the machine, before it is reported as damage to a file."""
    if is_machine_fault(error):
        raise error


def machine_fault(error: BaseException) -> DatasetError | None:
    """Return the error for the user if an exception is a fault of the machine or of the input, `None` for a bug."""
    match error:
        case MemoryError():
            return fault_of(errno.ENOMEM, "memory ran out")
        case RecursionError():
            return CallError(
                "the input is nested too deeply",
                hint="use folders, lists and files with fewer levels",
            )
        case OSError(errno=int(number)):
            file = None
            if isinstance(error.filename, (str, bytes)):
                file = os.fsdecode(error.filename)
            return fault_of(number, error.strerror or "", file=file)
        case ImportError():
            return _import_fault(error)
        case RuntimeError(args=(str(text),)) if "can't start new thread" in text:
            return fault_of(errno.EAGAIN, "a thread cannot be started")
    return None


def fault_of(
    number: int, message: str = "", file: str | None = None
) -> StorageError | StoppedError:
    """Return the error for an error number of the operating system."""
    error_type: type[StorageError | StoppedError] = StorageError
    if number in {errno.ENOMEM, errno.EAGAIN}:
        error_type = StoppedError
    return error_type(
        message or os.strerror(number), file=file, hint=HINTS.get(number, HINTS[errno.EIO])
    )


#: What the dynamic linker says if it cannot map a library.
_NO_MEMORY = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)


def _import_fault(error: ImportError) -> DatasetError:
    while isinstance(error.__cause__, ImportError):  # NumPy wraps the error in a page of advice
        error = error.__cause__
    text = str(error)
    if _NO_MEMORY.search(text):
        return fault_of(errno.ENOMEM, "memory ran out")
    for number in MACHINE_ERRNOS:
        if os.strerror(number) in text:
            return fault_of(number, file=error.path)
    return StoppedError(
        f"a Python package cannot be imported: {text}",
        hint="install the program again, with all of its packages",
    )


def describe_bug(program: str, error: BaseException) -> str:
    """Return one line about an unexpected exception: what it is, where it was raised, what to report."""
    reason, kept = type(error).__name__, ""
    if str(error):
        reason = f"{reason}: {error}"
    if program == "dataprep":
        kept = " Finished shards are kept."
    return one_line(
        f"a bug in {program} stopped it: {reason}{_place(error)}.{kept}"
        f" Hint: please report this line with the command and the output of `{program} --version`;"
        " DATAPREP_DEBUG=1 prints a traceback."
    )


_FRAME = re.compile(r'File ".*?((?:dataprep|loaders|manifests)/[\w/]+\.py)", line (\d+)')


def _place(error: BaseException) -> str:
    """Return the line of our code that raised the error, also if a worker process did."""
    own = "".join(traceback.format_tb(error.__traceback__))
    frames = _FRAME.findall(getattr(error.__cause__, "trace", "") or own)
    if not frames:
        return ""
    return " ({}, line {})".format(*frames[-1])
