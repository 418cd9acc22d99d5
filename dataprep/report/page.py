"""Make the HTML file from the facts and the thumbnails, and fit it into a number of bytes.

The page has the numbers of each chart in a table next to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import jinja2
import numpy as np
from markupsafe import Markup

from dataprep.arrays import Int32Array, IntegerArray, UInt64Array
from dataprep.images.base import REASONS
from dataprep.report.columns import Columns
from dataprep.report.facts import ClassFacts, Histogram, Report, Rows, SampleName, SizeGrid
from dataprep.report.findings import by_problems
from dataprep.report.pictures import QUALITIES, SIDE, RejectedImage, make_sprite
from dataprep.report.statistics import MACHINE, OPEN_END
from manifests.errors import CallError
from manifests.process.pages import make_page as make_html
from manifests.process.pages import mark_code, page_mark
from manifests.process.text import cut_middle, format_bytes, format_duration, plural, printable
from manifests.records import record

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


@record
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


def make_page(report: Report, material: Material, max_size: int) -> bytes:
    """Return the page in UTF-8, with as many pictures per class as fit into `max_size` bytes.

    Raises:
        CallError: not even a page without contact sheets fits.

    """
    render = partial(_render, report, material, max_size)
    # Pictures fill the room that the text leaves. More of them count more than their quality.
    bare = render(0, QUALITIES[0])
    size = len(bare)
    if size > max_size:
        raise CallError(
            f"--max-size is {format_bytes(max_size)}, but the report takes {format_bytes(size)}"
            " without contact sheets",
            hint=f"set --max-size {-(-size // 2**20)}MiB",
        )
    for per_class in range(_first_guess(material, max_size - size), 0, -1):
        for quality in QUALITIES:
            page = render(per_class, quality)
            if len(page) <= max_size:
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


def _render(
    report: Report, material: Material, max_size: int, per_class: int, quality: int
) -> bytes:
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
        "bin_name": bin_name,
        "class_chart": class_chart,
        "histogram_chart": histogram_chart,
        "size_chart": size_chart,
        "machine": MACHINE,
        "reasons": REASONS,
        "side": SIDE,
        "most_per_class": PER_CLASS,
    }
    return environment


# --- charts: where their bars and texts are; charts.svg.j2 draws them -----------------------------


#: Characters of a name on the page.
_NAME = 120


def show_name(text: object, limit: int = _NAME) -> str:
    """Return a text of the dataset for the page: control characters escaped, so that none reorders other text."""
    return cut_middle(printable(cut_middle(str(text), limit)), 2 * limit)


class Bar(NamedTuple):
    """A rectangle: the number of its color, its place and size, and its text."""

    color: int
    x: float
    y: float
    width: float
    height: float
    text: str
    opacity: float = 0


class Chart(NamedTuple):
    """What a chart shows. Coordinates are CSS pixels on a narrow screen, from the upper left corner.

    Attributes:
        description: what it shows, for screen readers.
        axis: what the horizontal axis is.
        bars: its rectangles.
        columns: texts below the plot, with their x.
        rows: texts beside the plot, with their y.
        is_grid: whether the bars are cells in a frame.

    """

    description: str
    axis: str
    bars: list[Bar]
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]
    is_grid: bool = False


#: The plot, within a chart of 360 x 200.
_LEFT, _WIDTH = 40, 302
_BASE, _HEIGHT = 166, 156

#: Columns of the chart of class sizes, and colors of splits in the style sheet.
_MAX_COLUMNS = 106
_COLORS = 5

#: Numbers whose quarters are round.
_ROUND = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)


def histogram_chart(histogram: Histogram) -> Chart:
    """Draw the bins of a histogram as bars: for each split, the share of its images."""
    splits, edges = [*histogram.counts], histogram.edges
    counts = np.array([*histogram.counts.values()])
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(totals, 1)[:, None]
    top = _nice(shares.max())
    # The bars of a bin are side by side, without splits that have no images. A bar of a few images
    # must be visible.
    shown = np.flatnonzero(totals).tolist()
    slot = _WIDTH / (len(edges) - 1)
    width = slot * 0.86 / max(1, len(shown))
    bars = []
    for split, number in np.argwhere(counts).tolist():
        share = shares[split, number]
        height = max(0.8, share / top * _HEIGHT)
        x = _LEFT + number * slot + slot * 0.07 + shown.index(split) * width
        name = f"{bin_name(histogram, number)}: {show_name(splits[split], 40)}"
        text = f"{name} {share:.1%} ({counts[split, number]:,})"
        bars.append(Bar(split % _COLORS, x, _BASE - height, max(width, 0.8), height, text))
    description = f"{histogram.name}: no images."
    if shown:
        most = bin_name(histogram, int(counts.sum(axis=0).argmax()))
        description = f"{histogram.name}: most images are in the range {most}."
    names = list(map(partial(edge_name, histogram), edges))
    return Chart(
        description=description,
        axis=_axis_name(histogram),
        bars=bars,
        columns=_ticks(names, _LEFT, slot, 6),
        rows=_quarters(top, "{:.0%}".format if top >= 0.05 else "{:.1%}".format),
    )


def class_chart(classes: Sequence[ClassFacts], splits: Sequence[str]) -> Chart:
    """Draw the sizes of the classes, the largest first, as stacked columns.

    Of many classes, means of neighbors.
    """
    ordered = sorted(classes, key=lambda each: (-each.total, each.label))
    per_column = max(1, math.ceil(len(ordered) / _MAX_COLUMNS))
    starts = np.arange(0, len(ordered), per_column)
    sizes = np.diff(starts, append=len(ordered))
    samples = np.array([each.samples for each in ordered])
    means = np.add.reduceat(samples, starts) / sizes[:, None]
    top = 4 * math.ceil(_nice(means.sum(axis=1).max()) / 4)  # its quarters are whole numbers
    heights = means / top * _HEIGHT
    tops = _BASE - heights.cumsum(axis=1)
    slot = _WIDTH / len(starts)
    # Many columns are so narrow that there is no room between them.
    width = max(slot * 0.86, min(slot, 1))
    bars = []
    for number, split in np.argwhere(means).tolist():
        name = ordered[starts[number]].name
        if sizes[number] > 1:
            name = f"classes {starts[number] + 1} and following"
        names = f"{show_name(name, 60)}: {show_name(splits[split], 40)}"
        at = number, split
        x, text = _LEFT + number * slot, f"{names} {means[at]:,.0f}"
        bars.append(Bar(split % _COLORS, x, tops[at], width, heights[at], text))
    axis = "classes, the largest first"
    if per_column > 1:
        axis += f"; a column is the mean of {per_column}"
    text = f"Images per class for {len(ordered):,} classes, from the largest to the smallest."
    return Chart(text, axis, bars, [], _quarters(top, short_number))


def size_chart(grid: SizeGrid) -> Chart:
    """Draw numbers of images by width and height as a grid of cells, darker for more images."""
    counts = np.array(grid.counts)
    # A cell is nearly as large as its slot. Its darkness grows with the logarithm of its images.
    widths, heights = list(map(short_number, grid.widths)), list(map(short_number, grid.heights))
    slot_x, slot_y = _WIDTH / (len(widths) - 1), _HEIGHT / (len(heights) - 1)
    most = counts.max()
    bars = []
    for row, column in np.argwhere(counts).tolist():
        x, y = _LEFT + column * slot_x, _BASE - (row + 1) * slot_y
        count = counts[row, column]
        across = f"{widths[column]} to {widths[column + 1]} px wide"
        text = f"{across}, {heights[row]} to {heights[row + 1]} px high: {count:,}"
        darkness = math.log(count) / math.log(most) if most > 1 else 1
        bars.append(Bar(0, x, y, slot_x * 0.96, slot_y * 0.94, text, 0.18 + 0.82 * darkness))
    return Chart(
        description="Numbers of images by width and height.",
        axis="width in pixels; the other axis is the height",
        bars=bars,
        columns=_ticks(widths, _LEFT, slot_x, 6),
        rows=_ticks(heights, _BASE, -slot_y, 5),
        is_grid=True,
    )


def _ticks(texts: Sequence[str], start: float, slot: float, most: int) -> list[tuple[float, str]]:
    """Return about `most` of the texts of edges, with their places."""
    every = max(1, math.ceil((len(texts) - 1) / most))
    places = start + np.arange(len(texts)) * slot
    return list(zip(places.tolist(), texts, strict=True))[::every]


def _quarters(top: float, text: Callable[[float], str]) -> list[tuple[float, str]]:
    """Return the texts of the quarters of the vertical axis, with their y."""
    return [(_BASE - _HEIGHT * step / 4, text(top * step / 4)) for step in range(5)]


def _nice(value: float) -> float:
    """Round up to a number whose quarters are round."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND if step * power >= value * 0.999)


# --- names of bins --------------------------------------------------------------------------------


def bin_name(histogram: Histogram, number: int) -> str:
    """Return the bounds of a bin for people: ``224 to 256 px``."""
    least = histogram.edges[number]
    low, high = edge_name(histogram, least), edge_name(histogram, histogram.edges[number + 1])
    if not high:
        return f"{low} and above"
    if not least and not histogram.unit:
        return f"below {high}"
    unit = histogram.unit if histogram.unit != "bytes" else ""
    return f"{low} to {high} {unit}".rstrip()


def edge_name(histogram: Histogram, edge: float) -> str:
    """Return a bound of a bin for people; nothing for `OPEN_END`."""
    if edge == OPEN_END:
        return ""
    if histogram.unit == "bytes":
        return format_bytes(edge).replace(".0 ", " ")
    return f"{edge:g}" if edge < 10 and edge != int(edge) else short_number(edge)


def _axis_name(histogram: Histogram) -> str:
    name = histogram.name.lower()
    names = {"px": f"{name} in pixels", "bytes": name, "": "width / height"}
    return names.get(histogram.unit, histogram.unit)


def short_number(value: float) -> str:
    """Format a number in at most five characters: ``950``, ``1.3k``, ``20k``."""
    if value >= 1_000_000:
        return f"{value / 1e6:.3g}M"
    if value >= 10_000:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
