"""Make the HTML file from the facts and the thumbnails, and fit it into a number of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

import jinja2
import numpy as np
from markupsafe import Markup

from dataprep.arrays import Int32Array, IntegerArray, UInt64Array
from dataprep.images.base import REASONS
from dataprep.report import charts
from dataprep.report.charts import show_name
from dataprep.report.columns import Columns
from dataprep.report.facts import ClassFacts, Report, Rows, SampleName
from dataprep.report.findings import by_problems
from dataprep.report.pictures import QUALITIES, SIDE, RejectedImage, make_sprite
from dataprep.report.statistics import MACHINE
from manifests.errors import CallError
from manifests.process.pages import make_page as make_html
from manifests.process.pages import mark_code, page_mark
from manifests.process.text import format_bytes, format_duration, plural

# --- what the page shows --------------------------------------------------------------------------


#: Pictures of a class on its contact sheet, if they fit.
PER_CLASS = 12

#: Rows of the table of all classes, and of the tables of the smallest and the largest classes.
_MAX_CLASSES, _EXTREME_CLASSES = 2000, 10


#: A random number for each sample, uint64 [samples].
Ranks: TypeAlias = UInt64Array


def random_ranks(samples: int, seed: int) -> Ranks:
    """Return a random number for each sample.

    NumPy guarantees the raw output of PCG64, so it never changes.
    """
    return np.asarray(np.random.PCG64(seed).random_raw(samples), np.uint64)


def sample_rows(ranks: Ranks, limit: int) -> Rows:
    """Return the rows of a random sample without replacement, ascending.

    All rows if there are at most `limit`.
    """
    if len(ranks) <= limit:
        return np.arange(len(ranks))
    return np.sort(np.argpartition(ranks, limit)[:limit])


def rows_per_class(
    labels: Int32Array, ranks: Ranks, classes: IntegerArray, most: int
) -> dict[int, Rows]:
    """Choose up to `most` random rows of each of some classes.

    Fewer rows are the beginning of more.

    Args:
        labels: class of each sample.
        ranks: random number of each sample.
        classes: labels of the classes.
        most: rows per class.

    """
    chosen = np.flatnonzero(np.isin(labels, classes))
    order = chosen[np.lexsort((ranks[chosen], labels[chosen]))]
    starts = np.searchsorted(labels[order], classes)
    rows = {}
    for label, of_class in zip(classes.tolist(), np.split(order, starts[1:]), strict=False):
        rows[label] = of_class[:most]
    return rows


def shown_classes(counts: Rows, most: int) -> Rows:
    """Return the classes that get a contact sheet, ascending: all with samples, or the smallest and the largest.

    Args:
        counts: samples of each class.
        most: number of sheets.

    """
    present = np.flatnonzero(counts)
    if len(present) <= most:
        return present
    ordered = present[np.argsort(counts[present], kind="stable")]
    rarest = (most + 1) // 2
    return np.sort(np.delete(ordered, slice(rarest, len(ordered) - (most - rarest))))


def _class_lists(classes: Sequence[ClassFacts]) -> dict[str, list[ClassFacts]]:
    """Return the lists of classes on the page: all or many, the smallest, the largest, and with problems."""
    by_size = sorted(classes, key=lambda each: (each.total, each.label))
    listed = [*classes]
    if len(classes) > _MAX_CLASSES:
        half = _MAX_CLASSES // 2
        listed = sorted(by_size[:half] + by_size[-half:], key=lambda each: each.label)
    filled = [each for each in by_size if each.total]
    flagged = sorted([each for each in classes if each.flagged], key=by_problems)
    return {
        "listed": listed,
        "rarest": filled[:_EXTREME_CLASSES],
        "commonest": by_size[::-1][:_EXTREME_CLASSES],
        "worst": flagged[:_EXTREME_CLASSES],
    }


# --- the page -------------------------------------------------------------------------------------


#: By this element, the command recognizes a page that it may replace.
MARK = page_mark("dataprep report")

#: Commands, options and Python in a sentence.
_CODE = re.compile(
    r"""(dataprep [a-z]+|loaders\.\w+(?:\([^)]{0,40}\))?|--[a-z][a-z-]+(?: drop| \d+)?)"""
)

#: Bytes of a picture on the page for each byte of its thumbnail, with the lower of `QUALITIES` and
#: in base64.
_SPRITE = 0.95


@dataclass(frozen=True)
class Material:
    """Everything that the page shows besides the facts.

    Attributes:
        columns: the samples.
        names: key and source of the rows that are shown.
        thumbnails: JPEGs by row.
        sheets: rows of the contact sheet of each class.
        rejected: images that were not written.
        has_source: whether the folder of the source is known.

    """

    columns: Columns
    names: Mapping[int, SampleName]
    thumbnails: Mapping[int, bytes]
    sheets: Mapping[int, Rows]
    rejected: Sequence[RejectedImage]
    has_source: bool


def make_page(report: Report, material: Material, max_size: int) -> str:
    """Return the page, with as many pictures per class as fit into `max_size` bytes.

    Raises:
        CallError: not even a page without contact sheets fits.

    """
    render = partial(_render, report, material, max_size)
    # Pictures fill the room that the text leaves. More of them count more than their quality.
    bare = render(0, QUALITIES[0])
    size = len(bare.encode())
    if size > max_size:
        raise CallError(
            f"--max-size is {format_bytes(max_size)}, but the report takes {format_bytes(size)}"
            " without contact sheets",
            hint=f"set --max-size {-(-size // 2**20)}MiB",
        )
    for per_class in range(_first_guess(material, max_size - size), 0, -1):
        for quality in QUALITIES:
            page = render(per_class, quality)
            if len(page.encode()) <= max_size:
                return page
    return bare


def _first_guess(material: Material, room: int) -> int:
    """Return how many pictures per class may fit into `room` bytes, from the bytes of the thumbnails."""
    # Bytes of the first picture of all classes, of the second, and so on.
    sizes = np.zeros(PER_CLASS)
    most = 0
    for rows in material.sheets.values():
        most = max(most, len(rows))
        for place, row in enumerate(rows.tolist()):
            sizes[place] += len(material.thumbnails.get(row, b""))
    fitting = np.searchsorted(sizes.cumsum() * _SPRITE, room, "right")
    return min(most, max(1, int(fitting)))


def _render(report: Report, material: Material, max_size: int, per_class: int, quality: int) -> str:
    # Each part of the page has one JPEG with its pictures.
    odd = chain(*report.looks.odd.values())
    shown: dict[str, Iterable[int]] = {
        "copies": chain(*map(attrgetter("rows"), report.copies.shown)),
        "odd": map(attrgetter("row"), odd),
    }
    sheets = {}
    if per_class:
        for label, rows in material.sheets.items():
            shown[f"class-{label}"] = sheets[label] = rows[:per_class].tolist()
    sprites = {}
    for name, numbers in shown.items():
        sprites[name] = make_sprite(name, material.thumbnails, numbers, quality)
    # Rejected images have no rows, so their places in the list are their numbers.
    pictures = {}
    for number, image in enumerate(material.rejected):
        if image.thumbnail:
            pictures[number] = image.thumbnail
    sprites["rejected"] = make_sprite("rejected", pictures, pictures, quality)
    environment = _environment()
    body = environment.get_template("report.html.j2").render(
        report=report,
        material=material,
        sheets=sheets,
        sprites=sprites,
        classes=_class_lists(report.classes),
        class_names={each.label: each.name for each in report.classes},
        per_class=per_class,
        max_size=max_size,
        is_best=quality == QUALITIES[0],
    )
    css, _, _ = environment.loader.get_source(environment, "report.css")  # type: ignore[union-attr]
    title = f"{show_name(report.dataset)} · dataset report"
    return make_html(MARK, title, Markup(body), Markup(css))  # noqa: S704


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of the templates, which keeps the compiled ones."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dataprep.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "n": lambda number: f"{number:,.0f}" if number == int(number) else f"{number:,.1f}",
        "f": lambda number: f"{number:.2f}".rstrip("0").rstrip("."),
        "percent": "{:.1%}".format,
        "bytes": format_bytes,
        "duration": lambda seconds: format_duration(seconds) if seconds >= 1 else "under 1 s",
        "name": show_name,
        "plural": plural,
        "breakable": lambda text: Markup("/<wbr>").join(str(text).split("/")),
        "code": partial(mark_code, code=_CODE),
    }
    environment.globals |= {
        "charts": charts,
        "machine": MACHINE,
        "reasons": REASONS,
        "side": SIDE,
        "most_per_class": PER_CLASS,
    }
    return environment
