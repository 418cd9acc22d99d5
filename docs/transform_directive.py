"""A Sphinx directive that lists every transform name, generated from the registry of parsers."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HEADINGS = ("Name", "Arguments", "What it does, and what differs")
WIDTHS = (25, 30, 45)


class TransformTable(SphinxDirective):
    """``{transform-table}``: one row per name that `loaders.build` accepts."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        from loaders.transforms.parse import transform_table

        body = nodes.tbody()
        for info in transform_table():
            arguments = [
                f"`{each.name}={each.default!r}`" if each.has_default else f"`{each.name}`" for each in info.parameters
            ]
            body += row(f"`{info.name}` {info.library}", " ".join(arguments), f"{info.summary} {info.differs}".strip())
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in WIDTHS), cols=len(HEADINGS))
        group += nodes.thead("", row(*HEADINGS))
        group += body
        return [nodes.table("", group, classes=["colwidths-given"])]


def row(*cells: str) -> nodes.row:
    """Return a table row; text in backquotes becomes code."""
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *inline(cell))) for cell in cells))


def inline(text: str) -> list[nodes.Node]:
    """Split text into plain text and code."""
    parts = re.split(r"(`[^`]+`)", text.replace("``", "`"))
    return [nodes.literal(text=part[1:-1]) if part.startswith("`") else nodes.Text(part) for part in parts if part]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("transform-table", TransformTable)
    return {"parallel_read_safe": True}
