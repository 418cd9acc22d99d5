"""``dataprep info``: print what a dataset contains."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, format_totals, print_line
from dataprep.commands.parameters import path_or_url, takes
from dataprep.labels.kinds import KINDS
from dataprep.options import InfoOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.text import cut_middle, format_bytes, plural, printable

if TYPE_CHECKING:
    from dataprep.info.info import DatasetSummary, SplitSummary
    from dataprep.plan.files import StoredPlan


@click.command(
    cls=Command,
    instead={
        "--batch-size": "`loaders memory DATASET --batch-size {value}` estimates the GPU memory",
    },
)
@click.argument("dataset", type=path_or_url)
@takes(options=InfoOptions)
def info(dataset: str, *, options: InfoOptions) -> ExitStatus:
    """Print what a dataset contains.

    Prints the splits, classes, image sizes and bytes of DATASET, a folder or a URL, or the plan
    that `dataprep plan` wrote, if DATASET is OUT/.dataprep/plan.
    """
    if _is_plan(dataset):
        _print_plan(dataset, as_json=options.json)
        return ExitStatus.SUCCESS
    from dataprep.info.info import summarize

    summary = summarize(dataset)
    if options.json:
        click.echo(json.dumps(summary.as_json(), indent=1, ensure_ascii=False))
    else:
        _print_summary(dataset, summary)
    return ExitStatus.SUCCESS


def _is_plan(folder: str) -> bool:
    from dataprep import storage

    plan, manifest = (os.path.join(folder, name) for name in ("plan.json", "manifest.json"))
    return storage.is_file(plan) and not storage.is_file(manifest)


def _print_summary(out: str, summary: DatasetSummary) -> None:
    labels = KINDS[summary.label_type].describe(summary.classes)
    samples = f"{plural(summary.samples, 'sample')}{labels}"
    raw = ""
    if summary.pixels:
        raw = f" raw {'x'.join(map(str, summary.pixels))},"
    print_line(f"{out}: {summary.format},{raw} {samples}, {format_bytes(summary.bytes)}")
    # What each append added.
    for revision in summary.revisions:
        added = ", ".join(f"{name} +{samples:,}" for name, samples in revision.samples.items())
        shards = (
            f"{plural(revision.shards, 'shard')}, {plural(revision.classes, 'class')} since then"
        )
        print_line(
            f"revision {revision.revision}: {added} from {printable(revision.source)}, in {shards}"
        )
    for name, split in summary.splits.items():
        _print_split(name, split)
    if summary.rejected:
        print_line()
        print_line(
            f"rejected: {plural(summary.rejected, 'image')}, see {out}/{summary.rejected_file}"
        )


def _print_split(name: str, split: SplitSummary) -> None:
    print_line()
    print_line(f"{name}: {format_totals(split.samples, split.bytes, split.shards)}")
    _print_row("", split.width, "")
    for title, column in (
        ("width, pixels", split.width),
        ("height, pixels", split.height),
        ("size, bytes", split.size),
    ):
        _print_row(title, column.values(), ",")
    # The labels of a regression.
    for number, values in enumerate(split.values, 1):
        title = "label"
        if len(split.values) > 1:
            title = f"label {number}"
        _print_row(title, values.values(), ",.4g")
    if split.labels:
        print_line(f"  {_class_sizes(split.labels)}")
    if split.without_class:
        print_line(f"  {plural(split.without_class, 'sample')} without a class")


def _print_row(title: str, cells: Iterable[Any], form: str) -> None:
    """Print a row of quantiles, each in ten characters."""
    texts = (format(cell, f">10{form}") for cell in cells)
    print_line(f"  {title:14}{''.join(texts)}")


def _class_sizes(labels: Mapping[str, int]) -> str:
    ordered = sorted(labels.items(), key=lambda item: item[1])
    (smallest, least), (largest, most) = ordered[0], ordered[-1]
    _, median = ordered[len(ordered) // 2]
    low, high = f"{least:,} ({cut_middle(smallest, 80)})", f"{most:,} ({cut_middle(largest, 80)})"
    text = f"samples per class: {low} to {high}, median {median:,}"
    empty = list(labels.values()).count(0)
    if empty:
        text += f"; {plural(empty, 'class')} without samples"
    return text


# --- plans ----------------------------------------------------------------------------------------


def _print_plan(folder: str, *, as_json: bool) -> None:
    """Print a plan, as JSON or for people.

    Raises:
        CallError: the folder is not the plan of an output folder.
        PlanError: the plan is damaged or was changed.

    """
    from dataprep.plan.files import plan_folder, plan_to_json, read_plan

    out = os.path.dirname(os.path.dirname(os.path.abspath(folder)))
    if not os.path.exists(plan_folder(out)) or not os.path.samefile(plan_folder(out), folder):
        raise CallError(
            f"{folder} is not the plan of an output folder", hint="give OUT/.dataprep/plan"
        )
    plan = read_plan(out)
    if as_json:
        members = plan_to_json(plan)
        # Only the program needs the tables.
        del members["tables"]
        click.echo(json.dumps(members, indent=1, ensure_ascii=False))
    else:
        _print_plan_text(folder, plan)


def _print_plan_text(folder: str, plan: StoredPlan) -> None:
    images = plural(plan.images, "image")
    contents = f"{images}{KINDS[plan.label_type].describe(len(plan.classes))}"
    fmt = plan.options["fmt"]
    print_line(f"{folder}: plan of {fmt}, {contents}, {plural(plan.shards, 'shard')}")
    if plan.append:
        known = plural(plan.append.known, "image")
        print_line(f"appends to revision {plan.append.revision - 1}; {known} known before")
    for name, split in plan.splits.items():
        totals = f"{plural(split.images, 'image')}, {format_bytes(split.bytes)}"
        print_line(f"  {name}: {totals}, {plural(split.shards, 'shard')}")
    print_line(f"source: {plan.root} ({plan.layout})")
    if plan.extra:
        print_line(f"columns: {', '.join(plan.extra)}")
    if plan.rejected:
        print_line(f"rejected by the scan: {plural(len(plan.rejected), 'image')}")
    # The first line has the format; the versions follow.
    for name, value in plan.options.items():
        if name not in ("fmt", "made_by") and value is not None:
            print_line(f"  {name}: {json.dumps(value)}")
    print_line(f"made by {', '.join(map(' '.join, plan.versions.items()))}")
    print_line(f"fingerprint {plan.fingerprint}, canary {plan.canary}")
