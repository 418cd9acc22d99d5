"""Charts of a report: where their bars and texts are. ``charts.svg.j2`` draws them.

The page has the same numbers in a table next to each chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dataprep.report.facts import ClassFacts, Histogram, SizeGrid
from dataprep.report.statistics import OPEN_END
from manifests.process.text import cut_middle, format_bytes, printable

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
