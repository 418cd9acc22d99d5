"""The frame of an HTML page that a command writes.

It loads nothing from the network and runs no script.
"""

from __future__ import annotations

from markupsafe import Markup

_PAGE = Markup(
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{generator}\n<meta'
    ' http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; style-src'
    ' \'unsafe-inline\'">\n<meta name="viewport" content="width=device-width,'
    ' initial-scale=1">\n<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>:root {{'
    " color-scheme: light dark }} body {{ margin: 0; padding: 16px"
    " }}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
)


def generator(command: str) -> str:
    """Return the element by which a command recognizes a page of its own, which it may replace."""
    return f'<meta name="generator" content="{command}">'


def make_page(mark: str, title: str, body: Markup) -> str:
    """Return a whole page.

    Args:
        mark: what `generator` returned.
        title: title of the page; escaped.
        body: content of the page.

    """
    return str(_PAGE.format(generator=Markup(mark), title=title, body=body))  # noqa: S704
