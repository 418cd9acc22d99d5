"""What an unexpected exception means: a fault of the machine, or a bug of the program."""

from __future__ import annotations

import errno
import os
import re
import traceback

from manifests.errors import CallError, DatasetError, StoppedError, StorageError
from manifests.process.text import one_line

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
    if isinstance(error, OSError):
        return error.errno in MACHINE_ERRNOS or isinstance(error, MemoryError)
    return isinstance(error, MemoryError)


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
            return fault_of(number, error.strerror or "", file=_file_of(error))
        case ImportError():
            return _import_fault(error)
        case RuntimeError(args=(str(text),)) if "can't start new thread" in text:
            return fault_of(errno.EAGAIN, "a thread cannot be started")
    return None


def fault_of(
    number: int, message: str = "", file: str | None = None
) -> StorageError | StoppedError:
    """Return the error for an error number of the operating system."""
    error_type = StoppedError if number in {errno.ENOMEM, errno.EAGAIN} else StorageError
    return error_type(message or os.strerror(number), file=file, hint=HINTS.get(number, ""))


def _file_of(error: OSError) -> str | None:
    return os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None


#: What the dynamic linker says if it cannot map a library.
_NO_MEMORY = ("failed to map segment", "cannot allocate memory")


def _import_fault(error: ImportError) -> DatasetError:
    while isinstance(error.__cause__, ImportError):  # NumPy wraps the error in a page of advice
        error = error.__cause__
    text = str(error)
    if any(reason in text.lower() for reason in _NO_MEMORY):
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
    place = _place(error)
    kept = " Finished shards are kept." if program == "dataprep" else ""
    return one_line(
        f"a bug in {program} stopped it:"
        f" {type(error).__name__}{f': {error}' if str(error) else ''}{f' ({place})' if place else ''}.{kept}"
        f" Hint: please report this line with the command and the output of `{program} --version`;"
        " DATAPREP_DEBUG=1 prints a traceback."
    )


_FRAME = re.compile(r'File ".*?((?:dataprep|loaders|manifests)/[\w/]+\.py)", line (\d+)')


def _place(error: BaseException) -> str:
    """Return the line of our code that raised the error, also if a worker process did."""
    trace = getattr(error.__cause__, "trace", "") or "".join(
        traceback.format_tb(error.__traceback__)
    )
    frames = _FRAME.findall(trace)
    return "{}, line {}".format(*frames[-1]) if frames else ""
