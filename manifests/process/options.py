"""Options that both programs have: numbers, and files that a command writes, among them HTML pages.

A page is one file. It loads nothing from the network and runs no script. All text passes through
`Markup.format`, which escapes it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

import click
from markupsafe import Markup, escape

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


# --- HTML pages: a report, a preview, a benchmark -------------------------------------------------

_PAGE = Markup(
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark}\n<meta'
    ' http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; style-src'
    ' \'unsafe-inline\'">\n<meta name="viewport" content="width=device-width,'
    ' initial-scale=1">\n<title>{title}</title>\n<link rel="icon" href="data:,">\n<style>\n'
    "{style}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
)

_STYLE = Markup(":root { color-scheme: light dark } body { margin: 0; padding: 16px }")

#: Text between backquotes.
BACKQUOTED = re.compile(r"`([^`]*)`")


def page_mark(command: str) -> str:
    """Return the element by which a command recognizes a page of its own, which it may replace."""
    return f'<meta name="generator" content="{command}">'


def make_page(mark: str, title: str, body: Markup, style: Markup = _STYLE) -> str:
    """Return a whole page.

    Args:
        mark: what `page_mark` returned.
        title: title of the page; escaped.
        body: content of the page.
        style: its style sheet.

    """
    return str(_PAGE.format(mark=Markup(mark), title=title, body=body, style=style))  # noqa: S704


def mark_code(text: str, code: re.Pattern[str] = BACKQUOTED) -> Markup:
    """Escape a text, and show as code what the only group of a pattern matches."""
    parts = []
    for number, part in enumerate(code.split(text)):
        if number % 2:
            parts.append(Markup("<code>{}</code>").format(part))
        else:
            parts.append(escape(part))
    return Markup("").join(parts)
