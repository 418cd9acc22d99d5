"""Files that commands write: checked before the work begins, and written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence

from manifests.errors import CallError, StorageError
from manifests.text import printable

_HEAD = 1024


def check_output(option: str, path: str, *, kind: str, marks: Sequence[str], overwrite: bool) -> None:
    """Check that a file may be written, before the work begins.

    Args:
        option: option that names the file, for messages.
        path: the file.
        kind: what the command writes, with its article, for messages.
        marks: texts of which one is in the first bytes of every file of this kind, which may be replaced.
        overwrite: whether to replace a file of another kind.

    Raises:
        CallError: its folder does not exist, or another file has its name.

    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise CallError(
            f"{option} {printable(path)}: the folder {printable(folder)} does not exist", hint="make it first"
        )
    if os.path.isdir(path):
        raise CallError(f"{option} {printable(path)} is a folder", hint="choose another name")
    if os.path.lexists(path) and not overwrite and not _begins_with(path, marks):
        raise CallError(
            f"{option}: {printable(path)} exists, and is not {kind}", hint="choose another name, or use --overwrite"
        )


def write_output(path: str | os.PathLike[str], data: bytes, what: str) -> None:
    """Write a file, which appears complete or not at all. A file of this name is replaced.

    Args:
        path: the file.
        data: its content.
        what: what it is, for the message.

    Raises:
        StorageError: it cannot be written.

    """
    name = os.fspath(path)
    partial = f"{name}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, name)
    except OSError as error:
        if os.path.exists(partial):
            os.unlink(partial)
        raise StorageError(f"{what} cannot be written: {error.strerror}", file=name) from None


def _begins_with(path: str, marks: Sequence[str]) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            head = os.read(handle, _HEAD)
        finally:
            os.close(handle)
    except OSError:
        return False
    return not head or any(mark.encode() in head for mark in marks)
