"""``dataprep diff``: compare two datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.parameters import path_or_url, takes
from dataprep.options import DiffOptions
from manifests.errors import ExitStatus
from manifests.process.text import MAX_SHOWN, one_line, plural

if TYPE_CHECKING:
    from dataprep.info.diff import ComparedSample, DatasetDiff, Difference, Kind


@click.command(cls=Command)
@click.argument("a", type=path_or_url)
@click.argument("b", type=path_or_url)
@takes(options=DiffOptions)
def diff(a: str, b: str, *, options: DiffOptions) -> ExitStatus:
    """Compare two datasets.

    Prints which samples of the dataset A were added, removed, relabelled, changed, moved to another
    split or renamed in B, and which classes differ. Reads the sample tables; of datasets without
    checksums, also the images. Exit status
    0: they are equal; 1: they differ, or a table is damaged.
    """
    from dataprep.info.diff import diff_datasets

    result = diff_datasets(a, b, limit=options.limit)
    if options.json:
        # ASCII: sources can contain any character.
        click.echo(json.dumps(_as_json(result, options.limit), indent=1))
    else:
        _print(a, b, result, options.limit)
    return ExitStatus.SUCCESS if result.is_equal else ExitStatus.DATA_PROBLEM


def _as_json(result: DatasetDiff, limit: int) -> dict[str, Any]:
    return {
        "equal": result.is_equal,
        "samples": {"a": result.samples[0], "b": result.samples[1], "same": result.same},
        **{
            kind: {
                "count": count,
                "first": [_sides(difference) for difference in result.first[kind]],
            }
            for kind, count in result.counts.items()
        },
        "classes": {
            name: {"count": len(names), "first": list(names[:limit])}
            for name, names in _class_kinds(result).items()
        },
    }


def _sides(difference: Difference) -> dict[str, Any]:
    return {
        side: {"source": place.source, "class": place.class_name, "split": place.split}
        for side, place in difference._asdict().items()
        if place is not None
    }


def _class_kinds(result: DatasetDiff) -> Mapping[str, tuple[str, ...]]:
    classes = result.classes
    return {"added": classes.added, "removed": classes.removed, "renumbered": classes.renumbered}


def _print(a: str, b: str, result: DatasetDiff, limit: int) -> None:
    from dataprep.info.diff import MEANING

    print_line(f"A: {a}, {plural(result.samples[0], 'sample')}")
    print_line(f"B: {b}, {plural(result.samples[1], 'sample')}")
    if result.is_equal:
        print_line("the datasets have the same samples and classes")
        return
    print_line()
    print_line(f"  {'same':12}{result.same:>14,}")
    for kind, count in result.counts.items():
        if count:
            print_line(f"  {kind:12}{count:>14,}  {MEANING[kind]}")
    for change, names in _class_kinds(result).items():
        if names:
            listed = ", ".join(one_line(name, MAX_SHOWN) for name in names[:limit])
            more = f"{', ' if listed else ''}..." if len(names) > limit else ""
            print_line(f"  {plural(len(names), 'class')} {change}: {listed}{more}")
    for kind, count in result.counts.items():
        if result.first[kind]:
            print_line()
            print_line(f"{kind}:")
        for difference in result.first[kind]:
            print_line(f"  {_describe(kind, difference)}")
        if result.first[kind] and count > len(result.first[kind]):
            print_line(f"  and {count - len(result.first[kind]):,} more")


def _describe(kind: Kind, difference: Difference) -> str:
    a, b = difference
    if a is None or b is None:
        return _place(a or b)
    source = _arrow(a.source, b.source)
    labels = (a.class_name or "no label", b.class_name or "no label")
    values = {"relabelled": labels, "moved": (a.split, b.split)}.get(kind)
    return f"{source}: {_arrow(*values)}" if values else source


def _place(place: ComparedSample | None) -> str:
    return ", ".join(one_line(text, MAX_SHOWN) for text in place or () if text)


def _arrow(before: str, after: str) -> str:
    before, after = one_line(before, MAX_SHOWN), one_line(after, MAX_SHOWN)
    return before if before == after else f"{before} -> {after}"
