"""Write the tables of options, sources, presets, transform names and measurements into the pages of docs/: `python docs/tables.py`.

Measurements are recorded in measurements.json: a table has its columns and rows, and the commands,
the machine and the date that they are from. Cells are text, because a figure has a spread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from dataprep.commands.base import main
from dataprep.options import Options, declaration, flag_of, types_of
from dataprep.sources.recognize import FOLDERS, KINDS
from loaders.transforms.argument import PRESETS
from loaders.transforms.parse import Meaning, read_recipe, transform_table
from manifests.errors import CallError
from manifests.pixels import PixelKind

FOLDER = Path(__file__).parent
ESCAPED = r"\|"

#: Options of every command, which no table repeats.
_COMMON = {"--quiet", "--verbose", "--log-json", "--help-all", "--workers"}


#: A kind that takes more options contains another source.
_MOST_FLAGS = 5


def options_of(command: str) -> str:
    """Return one row per option of a command of `dataprep`."""
    found = main.get_command(click.Context(main), command)
    context = click.Context(found, **main.context_settings)
    rows = []
    for parameter in found.params:
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record and parameter.opts[0] not in _COMMON:
            rows.append((f"`{record[0]}`", record[1].replace("  [", " [").replace("<", "&lt;")))
    return table(("option", "meaning"), rows)


def stored_options() -> str:
    """Return one row per member of `options` in manifests and plans."""
    return table(("member", "option", "stored", "append"), _stored_rows())


def _stored_rows() -> Iterator[tuple[str, str, str, str]]:
    for each in fields(Options):
        declared, kind = declaration(each), types_of(Options)[each.name]
        stored = "always" if declared.stored == "always" else "if set"
        if declared.applies:
            stored = "if it has an effect"
        append = "as in the dataset, unless given" if declared.inherited else "as given"
        parts = fields(kind) if is_dataclass(kind) else ()
        flags = " ".join(f"`{flag_of(part)}`" for part in parts) or f"`{flag_of(each)}`"
        yield f"`{each.name}`", flags, stored, append


def sources() -> str:
    """Return one row per kind of source, in the order in which they are tried."""
    rows = {}
    for each in KINDS:
        if each.example:
            example = each.example.split("#")[0].split("\n")
            flags = [f"`--{name.replace('_', '-')}`" for name in each.takes]
            if len(flags) > _MOST_FLAGS:
                flags = ["of what it contains"]
            place = ("no", "yes")[each.in_archives] if each in FOLDERS else ""
            first = next(line.strip() for line in example if line.strip())
            rows[each.name] = each.name, f"`{first}`", " ".join(flags), place
    return table(("source", "example", "options", "in a tar or zip"), rows.values())


def presets() -> str:
    """Return one row per preset: its list, and the size of its images."""
    rows = []
    for name, (images, batch) in PRESETS.items():
        size = read_recipe(images, batch=batch, num_classes=2).output.size
        text = "of the bucket" if size is None else f"{size[0]} x {size[1]}"
        rows.append((f'`"{name}"`', f"`{literal([*images, *batch])}`", text))
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


def name_row(info: Meaning) -> tuple[str, ...]:
    """Return the row of a name."""
    arguments = [
        f"`{name}`" if each.is_required else f"`{name}={each.default!r}`"
        for name, each in info.arguments.items()
    ]
    summary = info.summary or " ".join(info.make.__doc__.split())
    differs = info.differs or " ".join(f"{note}." for note in info.notes)
    text = f"{summary} {differs}".strip().replace("``", "`").replace("*", r"\*")
    return f"`{info.name}`", ", ".join(info.libraries), ", ".join(arguments), text


#: Values of the arguments that a transform needs.
_NEEDED = {"size": 8, "pad": 1, "padding": 1, "dtype": "float32", "target_size": 16, "lambd": len}
_NEEDED |= {"mean": [0.5] * 13, "std": [0.2] * 13}


def any_pixels() -> str:
    """Return one row per library: its names that take pixels of any kind."""
    libraries: dict[str, list[str]] = {}
    for each in transform_table():
        needed = [name for name, argument in each.arguments.items() if argument.is_required]
        arguments = {name: _NEEDED.get(name, 1) for name in needed}
        if each.name.startswith("Resize"):
            arguments["size"] = 8
        if "mean" in each.arguments:
            arguments |= {"mean": [0.5] * 13, "std": [0.2] * 13}
        steps = [{"CenterCrop": {"size": 32}}, {each.name: arguments}]
        with suppress(CallError):
            read_recipe(steps, any_size=True, kind=PixelKind(13, "uint16"))
            for library in each.libraries:
                libraries.setdefault(library, []).append(f"`{each.name}`")
    rows = [(name, ", ".join(dict.fromkeys(found))) for name, found in libraries.items()]
    return table(("library", "names"), sorted(rows))


def measurements() -> Mapping[str, Mapping[str, Any]]:
    """Return the recorded tables by name."""
    return json.loads((FOLDER / "measurements.json").read_text("utf-8"))


def measured(record: Mapping[str, Any]) -> str:
    """Return a recorded table, with what measured it below."""
    origin = f"{record['machine']}, {record['date']}"
    commands = ", ".join(f"`{command}`" for command in record["commands"])
    if commands:
        origin = f"{origin}: {commands}"
    return f"{table(record['columns'], record['rows'])}\n<small>{origin}</small>\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', ESCAPED) for cell in line)} |\n" for line in lines
    )


#: The tables of each page.
TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "transforms.md": {"presets": presets, "names": names},
    "more-than-8-bits.md": {"transforms of any pixels": any_pixels},
    "look.md": {"options of report": lambda: options_of("report")},
    "duplicates.md": {"options of duplicates": lambda: options_of("duplicates")},
    "sources.md": {"kinds of sources": sources},
    "format.md": {"stored options": stored_options},
    "measurements.md": {name: partial(measured, record) for name, record in measurements().items()},
}


def updated(name: str) -> str:
    """Return a page with its tables as the code defines them."""
    page = (FOLDER / name).read_text("utf-8")
    for mark, content in TABLES[name].items():
        before, begin, rest = page.partition(f"<!-- {mark}, written by docs/tables.py -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{name} has no table marked {mark!r}")
        page = before + begin + content() + end + after
    return page


if __name__ == "__main__":
    for name in TABLES:
        (FOLDER / name).write_text(updated(name), "utf-8")
