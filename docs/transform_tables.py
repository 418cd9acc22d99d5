"""Write the tables of presets and of transform names into docs/transforms.md: `python docs/transform_tables.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from loaders.transforms.parse import TransformInfo, read_recipe, transform_table
from loaders.transforms.presets import PRESETS

PAGE = Path(__file__).parent / "transforms.md"
ESCAPED = r"\|"


def presets() -> str:
    """Return one row per preset: its list, and the size of its images."""
    rows = []
    for name, (images, batch) in PRESETS.items():
        height, width = read_recipe(images, batch=batch, num_classes=2).size
        rows.append((f'`"{name}"`', f"`{literal([*images, *batch])}`", f"{height} x {width}"))
    return table(("preset", "list", "height x width"), rows)


def literal(items: Sequence[Any]) -> str:
    """Return a list of transforms as Python.

    The normalization of the presets is the default of `NormalizeImage`.
    """
    shortened = ["NormalizeImage" if is_default_normalization(item) else item for item in items]
    return repr(shortened).replace("'", '"')


def is_default_normalization(item: Any) -> bool:
    """Return whether an item is `NormalizeImage` with the values that it has by default."""
    if list(item) != ["NormalizeImage"]:
        return False
    given, default = (
        read_recipe([each], image_size=lambda: (8, 8)) for each in (item, "NormalizeImage")
    )
    return given.operations == default.operations


def names() -> str:
    """Return one row per name that `loaders.build` accepts."""
    return table(
        ("name", "library", "arguments", "what it does, and what differs"),
        map(name_row, transform_table()),
    )


def name_row(info: TransformInfo) -> tuple[str, ...]:
    """Return the row of a name."""
    arguments = [
        f"`{each.name}={each.default!r}`" if each.has_default else f"`{each.name}`"
        for each in info.parameters
    ]
    text = f"{info.summary} {info.differs}".strip().replace("``", "`").replace("*", r"\*")
    return f"`{info.name}`", info.library, ", ".join(arguments), text


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', ESCAPED) for cell in line)} |\n" for line in lines
    )


def updated(page: str) -> str:
    """Return the page with both tables as the code defines them."""
    for mark, content in (("presets", presets()), ("names", names())):
        before, begin, rest = page.partition(
            f"<!-- {mark}, written by docs/transform_tables.py -->\n"
        )
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"the page has no table marked {mark!r}")
        page = before + begin + content + end + after
    return page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
