"""Write the page and ``report.json``, and replace nothing but earlier reports."""

from __future__ import annotations

import os

from dataprep import storage
from dataprep.report.make import MadeReport
from dataprep.report.record import MADE_BY
from manifests.errors import CallError
from manifests.text import printable

#: Bytes at the beginning of a file in which a report says what it is.
_HEAD = 1024
_MARKS = (b'<meta name="generator" content="dataprep report">', f'"made_by": "{MADE_BY}"'.encode())


def json_path(out: str) -> str:
    """Return the path of ``report.json`` beside a page: the same name with another extension."""
    return os.path.splitext(out)[0] + ".json"


def check_out(out: str, *, overwrite: bool) -> None:
    """Check that both files can be written, before the work begins.

    Raises:
        CallError: the name does not end in .html, the folder does not exist or cannot be written, or a file of this
            name is not a report.

    """
    if os.path.splitext(out)[1].lower() not in (".html", ".htm"):
        raise CallError(f"--out {printable(out)} does not end in .html", hint="name the HTML file, such as report.html")
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise CallError(f"--out {printable(out)}: the folder {printable(folder)} does not exist", hint="make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CallError(f"--out {printable(out)}: this user cannot write to {printable(folder)}", hint="choose another")
    for path in (out, json_path(out)):
        if os.path.isdir(path):
            raise CallError(f"--out: {printable(path)} is a folder", hint="choose another name")
        if os.path.lexists(path) and not overwrite and not _is_report(path):
            raise CallError(
                f"--out: {printable(path)} exists, and is not a report", hint="choose another name, or use --overwrite"
            )
    storage.check_partials([folder])


def write_report(made: MadeReport, out: str) -> None:
    """Write both files: each appears complete under its name, or not at all.

    Raises:
        StorageError: they cannot be written.

    """
    out = os.path.abspath(out)
    paths = [json_path(out), out]
    with storage.partials([os.path.dirname(out)], is_locked=False):
        for path, text in zip(paths, (made.json, made.html), strict=True):
            storage.write_partial(path, text.encode())
        storage.publish(paths)


def _is_report(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            head = os.read(handle, _HEAD)
        finally:
            os.close(handle)
    except OSError:
        return False
    return not head or any(mark in head for mark in _MARKS)
