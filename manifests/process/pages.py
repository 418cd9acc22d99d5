"""HTML pages: a report, a preview, a benchmark.

A page is one file. It loads nothing from the network and runs no script. All text passes through
`Markup.format`, which escapes it.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_HEAD = Markup(
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark}\n<meta'
    ' http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; style-src'
    ' \'unsafe-inline\'">\n<meta name="viewport" content="width=device-width,'
    ' initial-scale=1">\n<title>{title}</title>\n<link rel="icon" href="data:,">\n<style>\n'
    "{style}\n</style>\n</head>\n<body>\n"
)
_END = b"\n</body>\n</html>\n"

_STYLE = Markup(":root { color-scheme: light dark } body { margin: 0; padding: 16px }")

#: Text between backquotes.
BACKQUOTED = re.compile(r"`([^`]*)`")


def page_mark(command: str) -> str:
    """Return the element by which a command recognizes a page of its own, which it may replace."""
    return f'<meta name="generator" content="{command}">'


def make_page(mark: str, title: str, body: Markup, style: Markup = _STYLE) -> bytes:
    """Return a whole page in UTF-8.

    Args:
        mark: what `page_mark` returned.
        title: title of the page; escaped.
        body: content of the page.
        style: its style sheet.

    """
    head = _HEAD.format(mark=Markup(mark), title=title, style=style)  # noqa: S704
    # A body can have megabytes, and two bytes a character: it is encoded once and not formatted.
    return b"".join((head.encode(), body.encode(), _END))


def mark_code(text: str, code: re.Pattern[str] = BACKQUOTED) -> Markup:
    """Escape a text, and show as code what the only group of a pattern matches."""
    parts = []
    for number, part in enumerate(code.split(text)):
        if number % 2:
            parts.append(Markup("<code>{}</code>").format(part))
        else:
            parts.append(escape(part))
    return Markup("").join(parts)
