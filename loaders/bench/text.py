"""What was measured as text for the terminal: a table, bars, and the sentence that matters."""

from __future__ import annotations

import logging
import shutil
import sys

from loaders.bench.results import Results
from loaders.bench.rows import Row, all_rows, how_measured
from loaders.bench.verdict import sentence
from manifests.process.text import one_line

_logger = logging.getLogger(__name__)

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def as_text(results: Results, *, width: int | None = None, blocks: bool | None = None) -> str:
    """Return the table, the bars and the sentence.

    Args:
        results: what was measured.
        width: columns of the terminal. `None` asks the terminal.
        blocks: whether bars are made of block characters instead of ``#``. `None` asks the encoding
            of stdout.

    """
    rows = all_rows(results)
    columns = shutil.get_terminal_size((100, 24)).columns if width is None else width
    parts = [
        *how_measured(results),
        "",
        *_table(rows),
        "",
        *_bars(rows, columns, _has_blocks() if blocks is None else blocks),
    ]
    return "\n".join([*parts, "", sentence(results)])


def print_status(what: str) -> None:
    """Print what is measured next, to stderr if it is a terminal, in place of what was printed before."""
    if what:
        _logger.info("measuring %s", what)
    if sys.stderr.isatty():
        line = f"measuring: {one_line(what, 60)}" if what else ""
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def _table(rows: list[Row]) -> list[str]:
    cells: list[tuple[str, ...]] = [("images/s", "median", "lowest", "highest", "us/image added")]
    for row in rows:
        rates = (row.rate.median, min(row.rate.repeats), max(row.rate.repeats))
        added = (
            "" if row.added is None else f"{row.added:,.1f}" + (" <- limit" if row.limit else "")
        )
        cells.append((row.name, *(f"{rate:,.0f}" for rate in rates), added))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        f"  {first:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(rates, widths[1:4], strict=True))
        + f"  {last}".rstrip()
        for first, *rates, last in cells
    ]


def _bars(rows: list[Row], columns: int, blocks: bool) -> list[str]:
    top = max(row.rate.median for row in rows)
    names = max(len(row.name) for row in rows)
    numbers = len(f"{top:,.0f}")
    room = max(10, min(60, columns - names - numbers - 6))
    return [
        f"  {row.name:{names}}  {row.rate.median:>{numbers},.0f} "
        f" {_bar(row.rate.median / top * room, blocks)}"
        for row in rows
    ]


def _bar(length: float, blocks: bool) -> str:
    if not blocks:
        return "#" * max(1, round(length))
    whole, eighths = divmod(max(1, round(8 * length)), 8)
    return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


def _has_blocks() -> bool:
    try:
        "█▏".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
