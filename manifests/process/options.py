"""Options that both programs have: numbers, and files that a command writes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import click

from manifests.errors import CallError, StorageError
from manifests.process.text import printable


class Number(click.FloatRange):
    """A number in a range. Unlike `click.FloatRange`, it rejects NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert text to a float."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


# --- output files ---------------------------------------------------------------------------------

#: Bytes at the beginning of a file in which it says what it is.
_HEAD = 1024


def check_output_file(
    path: str, what: str, marks: Sequence[bytes], *, overwrite: bool, option: str = "--out"
) -> None:
    """Check that a file that the user names can be written, and replaces no file of another kind.

    Args:
        path: the file.
        what: what messages call it, such as ``"report"``.
        marks: each file of this kind has one of these texts in its first KiB.
        overwrite: any file may be replaced.
        option: the option that names it.

    Raises:
        CallError: the folder does not exist or cannot be written, or there is a folder or another
            file of this name.

    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        problem, hint = f" {path}: the folder {folder} does not exist", "make it first"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem, hint = f" {path}: this user cannot write to {folder}", "choose another"
    elif os.path.isdir(path):
        problem, hint = f": {path} is a folder", "choose another name"
    elif os.path.lexists(path) and not overwrite and not _has_mark(path, marks):
        problem = f": {path} exists, and is not a {what}"
        hint = "choose another name, or use --overwrite"
    else:
        return
    raise CallError(f"{option}{printable(problem)}", hint=hint)


def write_output_file(path: str | os.PathLike[str], data: bytes, what: str) -> None:
    """Write a file, which appears complete or not at all. A file of this name is replaced.

    Args:
        path: the file.
        data: its content.
        what: what messages call it, such as ``"report"``.

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
        raise StorageError(
            f"the {what} cannot be written: {error.strerror}",
            file=name,
            hint="choose another folder, or check its permissions and free space",
        ) from None


def _has_mark(path: str, marks: Sequence[bytes]) -> bool:
    """Return whether a file is empty, or has one of these texts in its first KiB."""
    try:
        # A named pipe must not block.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return not head or any(mark in head for mark in marks)
