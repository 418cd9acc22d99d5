"""A Sphinx directive that lists every transform name, generated from the registry of parsers."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HEADINGS = ("Name", "From", "Arguments", "What it does, and what differs")


class TransformTable(SphinxDirective):
    """``{transform-table}``: one row per name that `loaders.build` accepts."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        from loaders.transforms.parse import transform_table

        body = nodes.tbody()
        for info in transform_table():
            arguments = ", ".join(
                f"{each.name}={each.default!r}" if each.has_default else each.name for each in info.parameters
            )
            summary = f"{info.summary} {info.differs}".strip()
            cells = (
                nodes.literal(text=info.name),
                nodes.Text(info.library),
                nodes.literal(text=arguments),
                nodes.Text(summary),
            )
            body += row(cells)
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (15, 12, 35, 38)), cols=len(HEADINGS))
        group += nodes.thead("", row([nodes.Text(heading) for heading in HEADINGS]))
        group += body
        return [nodes.table("", group)]


def row(cells: Any) -> nodes.row:
    """Return a table row."""
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("transform-table", TransformTable)
    return {"parallel_read_safe": True}
