"""Make the HTML file from the facts and the thumbnails, and fit it into a number of bytes."""

from __future__ import annotations

import re
from functools import cache

import jinja2
from markupsafe import Markup, escape

from dataprep.humanize import format_bytes, format_duration
from dataprep.report import cost
from dataprep.report.class_lists import ClassLists
from dataprep.report.record import Report
from dataprep.report.sprites import QUALITIES
from dataprep.report.texts import show_name
from dataprep.report.view import Material, Page
from manifests.errors import CallError

#: Commands, options and Python in a sentence.
_CODE = re.compile(
    r"""(dataprep [a-z]+|loaders\.\w+(?:\([^)]{0,40}\))?|--[a-z][a-z-]+(?: drop| \d+)?)"""
)

#: Bytes of a picture on the page for each byte of its thumbnail, with the lower of `QUALITIES` and
#: in base64.
_SPRITE = 0.95


def make_page(report: Report, material: Material, max_size: int) -> str:
    """Return the page, with as many pictures per class as fit into `max_size` bytes.

    Raises:
        CallError: not even a page without contact sheets fits.

    """
    bare = len(_render(report, material, 0, max_size).encode())
    if bare > max_size:
        raise CallError(
            f"--max-size is {format_bytes(max_size)}, but the report takes {format_bytes(bare)}"
            " without contact sheets",
            hint=f"set --max-size {-(-bare // 2**20)}MiB",
        )
    most = max((len(rows) for rows in material.sheets.values()), default=0)
    for per_class in range(_first_guess(material, max_size - bare, most), 0, -1):
        for quality in QUALITIES:
            page = _render(report, material, per_class, max_size, quality)
            if len(page.encode()) <= max_size:
                return page
    return _render(report, material, 0, max_size)


def _first_guess(material: Material, room: int, most: int) -> int:
    """Return how many pictures per class may fit into `room` bytes, from the bytes of the thumbnails."""
    sizes = [
        [len(material.thumbnails.get(int(row), b"")) for row in rows.tolist()]
        for rows in material.sheets.values()
    ]
    for count in range(most, 1, -1):
        if sum(sum(each[:count]) for each in sizes) * _SPRITE <= room:
            return count
    return min(most, 1)


def _render(
    report: Report, material: Material, per_class: int, max_size: int, quality: int = QUALITIES[0]
) -> str:
    environment = _environment()
    css = Markup(environment.loader.get_source(environment, "report.css")[0])  # type: ignore[union-attr]  # noqa: S704
    page = Page(report, material, per_class, max_size, quality)
    return environment.get_template("report.html.j2").render(
        report=report, page=page, lists=ClassLists(report.classes), css=css, machine=cost.MACHINE
    )


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of the templates. It keeps those that it has compiled."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dataprep.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "n": lambda number: f"{number:,.0f}" if number == int(number) else f"{number:,.1f}",
        "bytes": format_bytes,
        "duration": lambda seconds: format_duration(seconds) if seconds >= 1 else "under 1 s",
        "name": show_name,
        "breakable": lambda text: Markup("/<wbr>").join(str(text).split("/")),
    }
    environment.filters["code"] = _mark_code
    return environment


def _mark_code(text: str) -> Markup:
    """Escape a text, and mark up what the reader may type."""
    parts = _CODE.split(text)
    marked = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )
    return Markup("").join(marked)
