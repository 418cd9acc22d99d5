"""Names that come with a dataset, as a page shows them."""

from __future__ import annotations

from manifests.process.text import cut_middle, printable

#: Characters of a name on the page.
_NAME = 120


def show_name(text: object, limit: int = _NAME) -> str:
    """Return a text of the dataset for the page: control characters escaped, so that none reorders other text."""
    return cut_middle(printable(cut_middle(str(text), limit)), 2 * limit)
