"""Write the page and ``report.json``, and replace nothing but earlier reports."""

from __future__ import annotations

import os

from dataprep import storage
from dataprep.report.make import MadeReport
from dataprep.report.record import MADE_BY
from manifests.errors import CallError
from manifests.process.options import check_output_file
from manifests.process.text import printable

#: What a page, and its JSON file, have at their beginning.
_MARKS = (b'<meta name="generator" content="dataprep report">', f'"made_by": "{MADE_BY}"'.encode())


def json_path(out: str) -> str:
    """Return the path of ``report.json`` beside a page: the same name with another extension."""
    return os.path.splitext(out)[0] + ".json"


def check_out(out: str, *, overwrite: bool) -> None:
    """Check that both files can be written, before the work begins.

    Raises:
        CallError: the name does not end in .html, the folder does not exist or cannot be written,
            or a file of this name is not a report.

    """
    if os.path.splitext(out)[1].lower() not in (".html", ".htm"):
        raise CallError(
            f"--out {printable(out)} does not end in .html",
            hint="name the HTML file, such as report.html",
        )
    for path in (out, json_path(out)):
        check_output_file(path, "report", _MARKS, overwrite=overwrite)
    storage.check_partials([os.path.dirname(os.path.abspath(out))])


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
