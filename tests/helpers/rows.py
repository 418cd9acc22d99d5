"""Tables of tests that are text files beside them: a row is a line, `values -> message`.

The values are Python, so a row needs no names but those that its test passes. A line `[name]`
begins a table, and one that begins with # is a comment. Other tables have rows `name -> values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

ARROW = " -> "


def tables(test: str) -> dict[str, list[tuple[str, str]]]:
    """Return the tables of a test file: the values, as text, and the message of each row."""
    found: dict[str, list[tuple[str, str]]] = {}
    table = found.setdefault("", [])
    for line in Path(test).with_suffix(".txt").read_text("utf-8").splitlines():
        values, arrow, message = line.partition(ARROW)
        if arrow and not line.startswith("#"):
            table.append((values, message))
        elif line.startswith("["):
            table = found.setdefault(line[1:-1], [])
    return {name: rows for name, rows in found.items() if rows}


def read_rows(test: str, table: str) -> list[tuple[str, str]]:
    """Return the rows of one table."""
    return tables(test)[table]


def read_named(test: str, table: str, *names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a table whose rows are `name -> values`."""
    found: dict[str, Any] = {}
    for name, values in read_rows(test, table):
        found[name] = evaluate(values, *names)
    return found


def evaluate(text: str, *names: Mapping[str, Any]) -> Any:
    """Return the value of an expression with these names."""
    known: dict[str, Any] = {}
    for each in names:
        known |= each
    return eval(text, known)
