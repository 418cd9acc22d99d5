"""Pages that are generated from the code when the site is built: the transforms table and the command line."""

from __future__ import annotations

from typing import Any

import click


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholders in a page."""
    if "<!-- transforms table -->" in markdown:
        markdown = markdown.replace("<!-- transforms table -->", transforms_table())
    if "<!-- command line -->" in markdown:
        markdown = markdown.replace("<!-- command line -->", command_line())
    return markdown


def transforms_table() -> str:
    """Return a Markdown table of every transform name."""
    from loaders.transforms.parse import transform_table

    rows = ["| name | from | arguments | what it does, and what differs |", "| --- | --- | --- | --- |"]
    for row in transform_table():
        arguments = ", ".join(
            f"`{name}={value!r}`" if has_default else f"`{name}`" for name, value, has_default in row.parameters
        )
        rows.append(f"| `{row.name}` | {row.library} | {arguments} | {row.summary} {row.differs} |")
    return "\n".join(rows)


def command_line() -> str:
    """Return the help text of every command."""
    from dataprep.cli import main as dataprep
    from loaders.cli import main as loaders

    parts = []
    for name, group in (("dataprep", dataprep), ("loaders", loaders)):
        for command in group.commands.values():
            context = click.Context(
                command, info_name=f"{name} {command.name}", max_content_width=100, terminal_width=100
            )
            parts.append(f"## {name} {command.name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts)
