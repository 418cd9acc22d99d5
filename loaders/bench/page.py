"""What was measured as an HTML page with an SVG chart.

All text passes through `Markup.format`, which escapes it.
"""

from __future__ import annotations

from markupsafe import Markup

from loaders.bench.results import Results
from loaders.bench.rows import Row, all_rows, how_measured
from loaders.bench.verdict import sentence
from manifests.process.pages import make_page, mark_code, page_mark
from manifests.process.text import cut_middle

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
_SVG = Markup(
    '<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n{bars}\n</svg>'
)
_BAR_OF = Markup(
    '<text x="0" y="{text_y}">{name}: {number}</text><rect class="{kind}" x="0" y="{y}"'
    ' width="{length}" height="{thickness}"><title>{name}: {number}</title></rect><line'
    ' class="spread" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
)


def page(results: Results) -> str:
    """Return a whole page. It loads nothing from the network and runs no script."""
    title = f"Loading {results.subject.dataset}, split {results.subject.split}"
    rows = all_rows(results)
    body = _BODY.format(
        title=title,
        verdict=mark_code(_capitalized(sentence(results))),
        chart=_chart(rows),
        rows=Markup("\n").join(map(_table_row, rows)),
        notes=Markup("\n").join(
            Markup("<p><small>{}</small></p>").format(line) for line in how_measured(results)
        ),
    )
    return make_page(GENERATOR, title, body, _STYLE)


def _table_row(row: Row) -> Markup:
    added = "" if row.added is None else f"{row.added:,.1f}"
    name = f"{row.name} (limit)" if row.limit else row.name
    lowest, highest = min(row.rate.repeats), max(row.rate.repeats)
    return _ROW.format(
        name=name,
        median=f"{row.rate.median:,.0f}",
        lowest=f"{lowest:,.0f}",
        highest=f"{highest:,.0f}",
        added=added,
    )


def _chart(rows: list[Row]) -> Markup:
    """Draw the medians as bars, with a line from the lowest to the highest repeat."""
    scale = _WIDTH / max(max(row.rate.repeats) for row in rows)
    bars = []
    for number, row in enumerate(rows):
        y = number * _STEP + 16
        bars.append(
            _BAR_OF.format(
                name=cut_middle(row.name, 60), number=f"{row.rate.median:,.0f}",
                kind="limit" if row.limit else row.kind, text_y=y - 4, y=y, middle=y + _BAR / 2,
                length=_f(row.rate.median * scale), thickness=_BAR,
                low=_f(min(row.rate.repeats) * scale), high=_f(max(row.rate.repeats) * scale),
            )
        )  # fmt: skip
    label = "Images per second of each stage; the table has the numbers."
    return _SVG.format(
        width=_WIDTH, height=len(rows) * _STEP + 4, label=label, bars=Markup("\n").join(bars)
    )


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _f(value: float) -> str:
    """Format a coordinate."""
    return f"{value:.1f}"
