"""Charts as SVG, written by hand: a few KB each, sharp at every size, colored by the style sheet of the page.

Every chart is one image for screen readers, with a text that says what it shows. The page has the
same numbers in a table next to it. All text passes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from dataprep.report.facts import ClassFacts, Histogram, SizeGrid
from dataprep.report.statistics import OPEN_END
from manifests.process.text import cut_middle, format_bytes, printable

#: Characters of a name on the page.
_NAME = 120


def show_name(text: object, limit: int = _NAME) -> str:
    """Return a text of the dataset for the page: control characters escaped, so that none reorders other text."""
    return cut_middle(printable(cut_middle(str(text), limit)), 2 * limit)


# --- the charts -------------------------------------------------------------------------------------


#: Size of a chart and its margins, in units that are CSS pixels on a narrow screen.
_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 18, 10, 34
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

#: Columns of the chart of class sizes, and colors of splits in the style sheet.
_MAX_COLUMNS = 106
COLORS = 5

_SVG = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
_RECT = Markup('<rect class="s{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>')
_GRID_LINE = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
_TEXT = Markup('<text class="{}" x="{}" y="{}">{}</text>')


def histogram_chart(histogram: Histogram) -> Markup:
    """Draw the bins of a histogram as bars: for each split, the share of its images."""
    splits = {name: counts for name, counts in histogram.counts.items() if sum(counts)}
    bins = len(histogram.edges) - 1
    shares = {name: [count / sum(counts) for count in counts] for name, counts in splits.items()}
    top = _nice(max((max(values) for values in shares.values()), default=1.0))
    slot = _PLOT_WIDTH / max(1, bins)
    bar = slot * 0.86 / max(1, len(shares))
    numbers = {name: number for number, name in enumerate(histogram.counts)}
    parts = [_y_axis(top, lambda value: f"{value:.0%}" if top >= 0.05 else f"{value:.1%}")]
    for place, (name, values) in enumerate(shares.items()):
        for number, share in enumerate(values):
            if share:
                height = max(0.8, share / top * _PLOT_HEIGHT)
                x = _LEFT + number * slot + slot * 0.07 + place * bar
                label = (
                    f"{bin_name(histogram, number)}: {show_name(name, 40)} {share:.1%}"
                    f" ({splits[name][number]:,})"
                )
                color = numbers[name] % COLORS
                parts.append(
                    _RECT.format(
                        color,
                        _f(x),
                        _f(_TOP + _PLOT_HEIGHT - height),
                        _f(max(bar, 0.8)),
                        _f(height),
                        label,
                    )
                )
    every = max(1, math.ceil(bins / 6))
    for number in range(0, bins + 1, every):
        if histogram.edges[number] != OPEN_END:
            text = edge_name(histogram, histogram.edges[number])
            parts.append(_TEXT.format("x", _f(_LEFT + number * slot), _HEIGHT - _BOTTOM + 14, text))
    parts.append(_TEXT.format("x", _LEFT + _PLOT_WIDTH / 2, _HEIGHT - 5, _axis_name(histogram)))
    return _SVG.format(_WIDTH, _HEIGHT, _describe(histogram), Markup("").join(parts))


def class_chart(classes: Sequence[ClassFacts], splits: Sequence[str]) -> Markup:
    """Draw the sizes of the classes, the largest first, as stacked columns.

    Of many classes, means of neighbors.
    """
    ordered = sorted(classes, key=lambda each: (-each.total, each.label))
    per_column = max(1, math.ceil(len(ordered) / _MAX_COLUMNS))
    groups = [ordered[at : at + per_column] for at in range(0, len(ordered), per_column)]
    largest = max((sum(each.total for each in group) / len(group) for group in groups), default=1)
    top = 4 * math.ceil(_nice(largest) / 4)  # so that its quarters are whole numbers
    slot = _PLOT_WIDTH / max(1, len(groups))
    parts = [_y_axis(top, _short)]
    for number, group in enumerate(groups):
        base = float(_TOP + _PLOT_HEIGHT)
        for split in range(len(splits)):
            value = sum(each.samples[split] for each in group) / len(group)
            if not value:
                continue
            height = value / top * _PLOT_HEIGHT
            base -= height
            first = (
                group[0].name
                if len(group) == 1
                else f"classes {number * per_column + 1} and following"
            )
            label = f"{show_name(first, 60)}: {show_name(splits[split], 40)} {value:,.0f}"
            width = max(slot * 0.86, min(slot, 1))
            parts.append(
                _RECT.format(
                    split % COLORS,
                    _f(_LEFT + number * slot),
                    _f(base),
                    _f(width),
                    _f(height),
                    label,
                )
            )
    axis = "classes, the largest first" + (
        f"; a column is the mean of {per_column}" if per_column > 1 else ""
    )
    parts.append(_TEXT.format("x", _LEFT + _PLOT_WIDTH / 2, _HEIGHT - 12, axis))
    text = f"Images per class for {len(ordered):,} classes, from the largest to the smallest."
    return _SVG.format(_WIDTH, _HEIGHT, text, Markup("").join(parts))


def size_chart(grid: SizeGrid) -> Markup:
    """Draw numbers of images by width and height as a grid of cells, darker for more images."""
    columns, rows = len(grid.widths) - 1, len(grid.heights) - 1
    if columns < 1 or rows < 1:
        return Markup("")
    slot_x, slot_y = _PLOT_WIDTH / columns, _PLOT_HEIGHT / rows
    most = max(max(row) for row in grid.counts)
    parts = []
    for number, row in enumerate(grid.counts):
        for place, count in enumerate(row):
            if count:
                opacity = 0.18 + 0.82 * (math.log(count) / math.log(most) if most > 1 else 1)
                x, y = _LEFT + place * slot_x, _TOP + _PLOT_HEIGHT - (number + 1) * slot_y
                label = (
                    f"{_short(grid.widths[place])} to {_short(grid.widths[place + 1])} px wide,"
                    f" {_short(grid.heights[number])} to {_short(grid.heights[number + 1])} px"
                    f" high: {count:,}"
                )
                cell = Markup(
                    '<rect class="s0" fill-opacity="{}" x="{}" y="{}" width="{}"'
                    ' height="{}"><title>{}</title></rect>'
                )
                parts.append(
                    cell.format(
                        _f(opacity), _f(x), _f(y), _f(slot_x * 0.96), _f(slot_y * 0.94), label
                    )
                )
    for number in range(0, columns + 1, max(1, math.ceil(columns / 6))):
        parts.append(
            _TEXT.format(
                "x",
                _f(_LEFT + number * slot_x),
                _HEIGHT - _BOTTOM + 14,
                _short(grid.widths[number]),
            )
        )
    for number in range(0, rows + 1, max(1, math.ceil(rows / 5))):
        y = _TOP + _PLOT_HEIGHT - number * slot_y
        parts.append(_TEXT.format("y", _LEFT - 5, _f(y + 3.5), _short(grid.heights[number])))
    frame = Markup('<rect class="frame" x="{}" y="{}" width="{}" height="{}"/>')
    parts.append(frame.format(_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT))
    parts.append(
        _TEXT.format(
            "x",
            _LEFT + _PLOT_WIDTH / 2,
            _HEIGHT - 5,
            "width in pixels; the other axis is the height",
        )
    )
    return _SVG.format(
        _WIDTH, _HEIGHT, "Numbers of images by width and height.", Markup("").join(parts)
    )


def bin_name(histogram: Histogram, number: int) -> str:
    """Return the bounds of a bin for people: ``224 to 256 px``."""
    low, high = histogram.edges[number], histogram.edges[number + 1]
    if high == OPEN_END:
        return f"{edge_name(histogram, low)} and above"
    if not low and histogram.unit == "":
        return f"below {edge_name(histogram, high)}"
    unit = f" {histogram.unit}" if histogram.unit not in ("", "bytes") else ""
    return f"{edge_name(histogram, low)} to {edge_name(histogram, high)}{unit}"


def edge_name(histogram: Histogram, edge: float) -> str:
    """Return a bound of a bin for people."""
    if histogram.unit == "bytes":
        return format_bytes(edge).replace(".0 ", " ")
    return f"{edge:g}" if edge < 10 and edge != int(edge) else _short(edge)


def _y_axis(top: float, text: Callable[[float], str]) -> Markup:
    parts = []
    for step in range(5):
        value = top * step / 4
        y = _TOP + _PLOT_HEIGHT * (1 - step / 4)
        parts.append(_GRID_LINE.format(_LEFT, _LEFT + _PLOT_WIDTH, _f(y), _f(y)))
        parts.append(_TEXT.format("y", _LEFT - 5, _f(y + 3.5), text(value)))
    return Markup("").join(parts)


def _nice(value: float) -> float:
    """Round up to a number whose quarters are round."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        (
            step * power
            for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8)
            if step * power >= value * 0.999
        ),
        10 * power,
    )


def _axis_name(histogram: Histogram) -> str:
    names = {
        "px": "pixels",
        "bytes": "",
        "": "width / height" if histogram.name == "Aspect ratio" else "",
    }
    unit = names.get(histogram.unit, histogram.unit)
    return (
        f"{histogram.name.lower()} in {unit}"
        if unit == "pixels"
        else unit or histogram.name.lower()
    )


def _describe(histogram: Histogram) -> str:
    totals = [sum(counts) for counts in zip(*histogram.counts.values(), strict=True)]
    if not any(totals):
        return f"{histogram.name}: no images."
    number = max(range(len(totals)), key=totals.__getitem__)
    return f"{histogram.name}: most images are in the range {bin_name(histogram, number)}."


def _short(value: float) -> str:
    """Format a number in at most five characters: ``950``, ``1.3k``, ``20k``."""
    if value >= 1_000_000:
        return f"{value / 1e6:.3g}M"
    if value >= 10_000:
        return f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _f(value: float) -> str:
    """Format a coordinate."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
