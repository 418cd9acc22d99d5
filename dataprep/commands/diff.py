"""``dataprep diff``: compare two datasets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.parameters import path_or_url, takes
from dataprep.options import DiffOptions
from manifests.errors import ExitStatus
from manifests.process.text import MAX_SHOWN, one_line, plural

if TYPE_CHECKING:
    from dataprep.info.diff import DatasetDiff, Difference, Kind


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
    if result.is_equal:
        return ExitStatus.SUCCESS
    return ExitStatus.DATA_PROBLEM


def _as_json(result: DatasetDiff, limit: int) -> dict[str, Any]:
    samples: dict[str, Any] = {}
    for kind, count in result.counts.items():
        samples[kind] = {"count": count, "first": list(map(_sides, result.first[kind]))}
    classes = {}
    for change, names in result.classes._asdict().items():
        classes[change] = {"count": len(names), "first": names[:limit]}
    a, b = result.samples
    totals = {"a": a, "b": b, "same": result.same}
    return {"equal": result.is_equal, "samples": totals, **samples, "classes": classes}


def _sides(difference: Difference) -> dict[str, Any]:
    sides = {}
    for side, place in difference._asdict().items():
        if place is not None:
            sides[side] = dict(zip(("source", "class", "split"), place, strict=True))
    return sides


def _print(a: str, b: str, result: DatasetDiff, limit: int) -> None:
    from dataprep.info.diff import MEANING

    for name, path, samples in zip("AB", (a, b), result.samples, strict=True):
        print_line(f"{name}: {path}, {plural(samples, 'sample')}")
    if result.is_equal:
        print_line("the datasets have the same samples and classes")
        return
    print_line()
    print_line(f"  {'same':12}{result.same:>14,}")
    # How many samples differ in each way.
    for kind, count in result.counts.items():
        if count:
            print_line(f"  {kind:12}{count:>14,}  {MEANING[kind]}")
    for change, names in result.classes._asdict().items():
        if names:
            listed = [one_line(name, MAX_SHOWN) for name in names[:limit]]
            if len(names) > limit:
                listed.append("...")
            print_line(f"  {plural(len(names), 'class')} {change}: {', '.join(listed)}")
    # The first samples that differ in each way.
    for kind, differences in result.first.items():
        if differences:
            _print_samples(kind, differences, result.counts[kind])


def _print_samples(kind: Kind, differences: Sequence[Difference], count: int) -> None:
    print_line()
    print_line(f"{kind}:")
    for difference in differences:
        print_line(f"  {_describe(kind, difference)}")
    if count > len(differences):
        print_line(f"  and {count - len(differences):,} more")


def _describe(kind: Kind, difference: Difference) -> str:
    a, b = difference
    # An added or removed sample has one side only.
    if a is None or b is None:
        return ", ".join(one_line(text, MAX_SHOWN) for text in a or b or () if text)
    source = _arrow(a.source, b.source)
    if kind == "relabelled":
        return f"{source}: {_arrow(a.class_name or 'no label', b.class_name or 'no label')}"
    if kind == "moved":
        return f"{source}: {_arrow(a.split, b.split)}"
    return source


def _arrow(before: str, after: str) -> str:
    before, after = one_line(before, MAX_SHOWN), one_line(after, MAX_SHOWN)
    if before == after:
        return before
    return f"{before} -> {after}"
