"""What was measured, for people and programs: text, JSON, an HTML page with an SVG chart."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from loaders.bench.measure import Rate, describe_conditions
from loaders.bench.results import STAGES, Results, added_times, limiting_stage, sentence, stage_name
from manifests.process.pages import make_page, mark_code, page_mark
from manifests.process.text import cut_middle, one_line


@dataclass(frozen=True, slots=True)
class Row:
    """A measured rate.

    Attributes:
        name: what was measured.
        rate: images per second.
        kind: ``"stage"``, ``"model"``, ``"remedy"`` or ``"other"``.
        added: microseconds per image that a stage adds to the one before. `None` for other kinds.
        limit: whether this is the stage that limits the loader.

    """

    name: str
    rate: Rate
    kind: str
    added: float | None = None
    limit: bool = False

    @property
    def cells(self) -> list[str]:
        """Median, lowest and highest rate, and what the stage adds, as text."""
        cells = []
        for rate in (self.rate.median, min(self.rate.repeats), max(self.rate.repeats)):
            cells.append(f"{rate:,.0f}")
        cells.append("" if self.added is None else f"{self.added:,.1f}")
        return cells


def all_rows(results: Results) -> list[Row]:
    """Return everything that was measured, in the order in which people read it."""
    added = added_times(results.stages)
    limit = limiting_stage(results.stages)
    rows: list[Row] = []
    for stage in STAGES:
        name = stage_name(stage, results)
        if rows:  # a pipeline that ends after this stage also runs the earlier ones
            name = f"+ {name}"
        rate = results.stages[stage]
        rows.append(Row(name, rate, "stage", 1e6 * added[stage], stage == limit))
    model = results.model
    if model is not None:
        share = model.fed.median / model.alone.median
        fed = f"{model.name} fed by the loader ({share:.0%} of that)"
        rows.append(Row(f"{model.name} alone, one cached batch", model.alone, "model"))
        rows.append(Row(fed, model.fed, "model"))
        for remedy in model.remedies:
            rows.append(Row(f"... {remedy.text}", remedy.rate, "remedy"))
    for remedy in results.remedies:
        rows.append(Row(f"loader {remedy.text}", remedy.rate, "remedy"))
    if results.torchvision is not None:
        rows.append(Row("torchvision, the same images", results.torchvision, "other"))
    if results.decode_jpeg is not None:
        rows.append(Row("torchvision's decode_jpeg on the GPU", results.decode_jpeg, "other"))
    return rows


def as_json(results: Results) -> dict[str, Any]:
    """Return all values as JSON has them, with the sentence; each rate as its repeats."""
    return {
        "sentence": sentence(results),
        "limit": limiting_stage(results.stages),
        **asdict(results),
    }


def how_measured(results: Results) -> list[str]:
    """Return lines that say on what and how was measured, and what else affected it."""
    subject = results.subject
    machine = results.machine
    method = results.method
    options = ", ".join(map("{}={}".format, subject.options, subject.options.values()))
    device = machine.device
    if machine.device != machine.cpu:
        device = f"{machine.device}, {machine.cpu}"
    lines = [
        (
            f"{subject.dataset}, split {subject.split}: {subject.samples:,} samples,"
            f" {subject.transforms}, batches of {subject.batch_size:,}"
        ),
        f"{device}, {machine.cores} cores; {options}",
        (
            f"each rate: warm-up of at least {method.seconds:g} s, then {method.repeats} repeats of"
            f" at least {method.seconds:g} s; median, lowest, highest"
        ),
        describe_conditions(results.conditions, machine.cores),
    ]
    if results.torchvision is not None and results.decode_jpeg is None:
        lines.append("torchvision's decode_jpeg is not measured: it needs a GPU, and JPEGs alone")
    return lines


_logger = logging.getLogger(__name__)

# --- text for the terminal ------------------------------------------------------------------------


def as_text(results: Results) -> str:
    """Return the table and the sentence."""
    return "\n".join([*how_measured(results), "", *_table(results), "", sentence(results)])


def print_status(what: str) -> None:
    """Show what is measured next on a terminal, in place of what was shown before; empty ends it."""
    line = ""
    if what:
        _logger.info("measuring %s", what)
        line = f"measuring: {one_line(what, 60)}"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def _table(results: Results) -> Iterator[str]:
    table = [["images/s", "median", "lowest", "highest", "us/image added"]]
    for row in all_rows(results):
        table.append([row.name, *row.cells])
        if row.limit:
            table[-1][-1] += " <- limit"
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *numbers, added in table:
        line = f"  {name:{widths[0]}}"
        # The last column is not aligned, because it may have a note.
        for cell, width in zip(numbers, widths[1:4], strict=True):
            line += f"  {cell:>{width}}"
        yield f"{line}  {added}".rstrip()


#: By this element, the command recognizes a file that it may replace.
GENERATOR = page_mark("loaders bench")

#: Size of the chart in units that are CSS pixels on a narrow screen.
_WIDTH, _BAR, _STEP = 340, 12, 34

_STYLE = Markup("""
:root { color-scheme: light dark; --ink: #1b1d20; --line: #dfe1e4; --stage: #2f6fde; --model: #0b8467;
  --remedy: #8449cc; --other: #6b737c; --limit: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --line: #31363d; --stage: #6b9fff; --model: #3fc09b;
  --remedy: #b68cf2; --other: #a3abb5; --limit: #ff9d94; } }
body { margin: 0; padding: 16px; overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 900px; margin: 0 auto; } h1 { font-size: 1.4rem; margin: 0 0 8px; }
.verdict { font-size: 1.1rem; border-left: 4px solid var(--limit); padding-left: 12px; }
svg { width: 100%; max-width: 480px; height: auto; display: block; margin: 18px 0; }
svg text { font-size: 11px; fill: var(--ink); } .stage { fill: var(--stage); } .model { fill: var(--model); }
.remedy { fill: var(--remedy); } .other { fill: var(--other); } .limit { fill: var(--limit); }
.spread { stroke: var(--ink); stroke-width: 1; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, thead th { white-space: nowrap; } thead th:last-child { white-space: normal; }
th, td { text-align: right; padding: 3px 6px; border-bottom: 1px solid var(--line); font-weight: normal; }
th:first-child { text-align: left; } thead th { font-weight: 600; } small { opacity: .8; display: block; }
@media (max-width: 500px) { table { font-size: 12px; } th, td { padding: 3px; } }""")

_BODY = Markup(
    '<main>\n<h1>{title}</h1>\n<p class="verdict">{verdict}</p>\n{chart}\n<table>\n'
    '<thead><tr><th scope="col">images/s</th><th scope="col">median</th><th scope="col">lowest</th>'
    '<th scope="col">highest</th><th scope="col">µs/image added</th></tr></thead>\n'
    "<tbody>\n{rows}\n</tbody>\n</table>\n"
    "<h2>How it was measured</h2>\n{notes}\n</main>"
)
_ROW = Markup(
    "<tr><th"
    ' scope="row">{name}</th><td>{median}</td><td>{lowest}</td><td>{highest}</td><td>{added}</td></tr>'
)
_NOTE = Markup("<p><small>{}</small></p>")
_SVG = Markup(
    '<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n{bars}\n</svg>'
)
_BAR_OF = Markup(
    '<text x="0" y="{text_y}">{name}: {number}</text><rect class="{kind}" x="0" y="{y}"'
    ' width="{length:.1f}" height="{thickness}"><title>{name}: {number}</title></rect><line'
    ' class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
)


def page(results: Results) -> bytes:
    """Return a whole page. It loads nothing from the network and runs no script."""
    title = f"Loading {results.subject.dataset}, split {results.subject.split}"
    rows = all_rows(results)
    verdict = sentence(results)
    body = _BODY.format(
        title=title,
        verdict=mark_code(f"{verdict[:1].upper()}{verdict[1:]}."),
        chart=_chart(rows),
        rows=Markup("\n").join(map(_table_row, rows)),
        notes=Markup("\n").join(map(_NOTE.format, how_measured(results))),
    )
    return make_page(GENERATOR, title, body, _STYLE)


def _table_row(row: Row) -> Markup:
    name = f"{row.name} (limit)" if row.limit else row.name
    median, lowest, highest, added = row.cells
    return _ROW.format(name=name, median=median, lowest=lowest, highest=highest, added=added)


def _chart(rows: list[Row]) -> Markup:
    """Draw the medians as bars, with a line from the lowest to the highest repeat."""
    # The longest line fits, too.
    scale = _WIDTH / max(max(row.rate.repeats) for row in rows)
    bars = []
    for number, row in enumerate(rows):
        y = number * _STEP + 16  # below the name
        bar = _BAR_OF.format(
            name=cut_middle(row.name, 60),
            number=row.cells[0],
            kind="limit" if row.limit else row.kind,
            text_y=y - 4,
            y=y,
            middle=y + _BAR / 2,
            length=row.rate.median * scale,
            thickness=_BAR,
            low=min(row.rate.repeats) * scale,
            high=max(row.rate.repeats) * scale,
        )
        bars.append(bar)
    label = "Images per second of each stage; the table has the numbers."
    return _SVG.format(
        width=_WIDTH, height=len(rows) * _STEP + 4, label=label, bars=Markup("\n").join(bars)
    )
