"""``dataprep info``, ``report`` and ``diff``: what a dataset contains, as text or as a page, and what differs between two."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, format_totals, path_or_url, print_line, takes
from dataprep.commands.console import ProgressBar
from dataprep.labels.kinds import KINDS
from dataprep.options import CroissantOptions, DiffOptions, InfoOptions, ReportOptions
from manifests.arrays import show_arrays
from manifests.errors import CallError, ExitStatus
from manifests.pixels import RGB8
from manifests.process.text import (
    MAX_SHOWN,
    cut_middle,
    format_bytes,
    one_line,
    plural,
    printable,
)

if TYPE_CHECKING:
    from dataprep.plan.files import StoredPlan
    from dataprep.summary.diff import (
        ClassChanges,
        ColumnChanges,
        DatasetDiff,
        Difference,
        Kind,
    )
    from dataprep.summary.info import DatasetSummary, RevisionSummary, SplitSummary


def info_value(dataset: str, *, options: InfoOptions) -> dict[str, Any]:
    """Return what a dataset or a plan contains, as JSON has it, for `dataprep.info`."""
    if _is_plan(dataset):
        from dataprep.plan.files import plan_to_json

        members = plan_to_json(_read_plan(dataset))
        # Only the program needs the tables.
        del members["tables"]
        return members
    from dataprep.summary.chosen import find_revision
    from dataprep.summary.info import summarize

    revision = find_revision(dataset, options.revision)
    return summarize(dataset, revision, formats=options.formats).as_json()


@click.command(cls=Command, compute=info_value)
@click.argument("dataset", type=path_or_url)
@takes(options=InfoOptions)
def info(dataset: str, *, options: InfoOptions) -> ExitStatus:
    """Print what a dataset contains.

    Prints the splits, classes, image sizes and bytes of DATASET, a folder or a URL, or the plan
    that `dataprep plan` wrote, if DATASET is OUT/.dataprep/plan.
    """
    if options.json:
        value = info_value(dataset, options=options)
        click.echo(json.dumps(value, indent=1, ensure_ascii=False))
    elif _is_plan(dataset):
        _print_plan(dataset, _read_plan(dataset))
    else:
        from dataprep.summary.chosen import find_revision
        from dataprep.summary.info import summarize

        revision = find_revision(dataset, options.revision)
        summary = summarize(dataset, revision, formats=options.formats)
        _print_summary(dataset, summary)
        if options.formats and summary.pixels:
            print_line("formats: all images are raw pixels, which need no decoder")
    return ExitStatus.SUCCESS


def _is_plan(folder: str) -> bool:
    from dataprep import storage

    plan, manifest = (os.path.join(folder, name) for name in ("plan.json", "manifest.json"))
    return storage.is_file(plan) and not storage.is_file(manifest)


def _print_summary(out: str, summary: DatasetSummary) -> None:
    labels = KINDS[summary.label_type].describe(summary.classes)
    samples = f"{plural(summary.samples, 'sample')}{labels}"
    if summary.images:
        samples += f", images: {', '.join(summary.images)}"
    if summary.arrays:
        samples += f", arrays: {show_arrays(summary.arrays)}"
    raw = ""
    if summary.pixels:
        raw = f" raw {'x'.join(map(str, summary.pixels))},"
    elif summary.kind != RGB8:
        raw = f" {summary.kind},"
    print_line(f"{out}: {summary.format},{raw} {samples}, {format_bytes(summary.bytes)}")
    for revision in summary.revisions:
        print_line(f"revision {revision.revision}: {_describe_revision(revision)}")
    for name, split in summary.splits.items():
        _print_split(name, split)
    _print_bands(summary)
    if summary.georeference:
        codes = [f"{code} ({count:,})" for code, count in summary.georeference.items()]
        print_line(f"images by EPSG code: {', '.join(codes)}")
    if summary.formats:
        print_line()
        print_line(_describe_formats(summary.formats))
    if summary.rejected:
        print_line()
        print_line(
            f"rejected: {plural(summary.rejected, 'image')}, see {out}/{summary.rejected_file}"
        )


def _describe_revision(revision: RevisionSummary) -> str:
    """Return what an append or a join added, or a removal took out."""
    source = printable(revision.source)
    if revision.joined:
        return f"{', '.join(map(printable, revision.joined))} joined from {source}"
    sign, counts = ("-", revision.removed) if revision.removed else ("+", revision.samples)
    changed = ", ".join(f"{name} {sign}{samples:,}" for name, samples in counts.items())
    if revision.scrubbed:
        return f"{changed or 'no sample'}, removed as in {source}, and shards scrubbed"
    if revision.removed:
        return f"{changed}, removed as in {source}"
    shards = plural(revision.shards, "shard")
    return f"{changed} from {source}, in {shards}, {plural(revision.classes, 'class')} since then"


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


def _describe_formats(formats: Mapping[str, int]) -> str:
    """Return the formats of a sample of images, and how many of them the hardware decoder takes."""
    from dataprep.images.jpeg import count_others

    total, others = sum(formats.values()), count_others(formats)
    counts = ", ".join(f"{name} {count:,}" for name, count in formats.items())
    text = f"formats of {plural(total, 'image')}: {counts}"
    if others:
        text += f"; a GPU's hardware decoder does not take {others / total:.0%}"
    return text


def _print_bands(summary: DatasetSummary) -> None:
    """Print the statistics of each band, and what normalizes them."""
    if not summary.bands:
        return
    print_line()
    _print_row("band", ("min", "max", "mean", "std", "no data"), "")
    for each in summary.bands:
        cells = (each.minimum, each.maximum, each.mean, each.std, each.nodata)
        _print_row(str(each.band), cells, ".4g")
    print_line(f"  after ToTensor: {summary.normalize}")


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


def _read_plan(folder: str) -> StoredPlan:
    """Read a plan.

    Raises:
        CallError: the folder is not the plan of an output folder.
        PlanError: the plan is damaged or was changed.

    """
    from dataprep.plan.files import plan_folder, read_plan

    out = os.path.dirname(os.path.dirname(os.path.abspath(folder)))
    if not os.path.exists(plan_folder(out)) or not os.path.samefile(plan_folder(out), folder):
        raise CallError(
            f"{folder} is not the plan of an output folder", hint="give OUT/.dataprep/plan"
        )
    return read_plan(out)


def _print_plan(folder: str, plan: StoredPlan) -> None:
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


# --- pages ----------------------------------------------------------------------------------------

#: Findings that the command prints; the page has all.
_PRINTED = 12


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=ReportOptions)
def report(dataset: str, *, options: ReportOptions) -> ExitStatus:
    """Write one HTML page that shows DATASET, a folder or a URL.

    The page shows splits, classes, sizes, duplicates, rejected images, images that stand out,
    contact sheets, and what training will cost. It begins with what to look at. It is one file that
    needs neither network nor scripts. The exit status is 1 if files are missing or damaged, or an
    image cannot be decoded.
    """
    from dataprep.report.make import check_out, json_path, make_report, write_report

    out = options.out
    check_out(out, overwrite=options.overwrite)
    if options.source is not None and not os.path.isdir(options.source):
        raise CallError(
            f"--src {options.source} is not a folder",
            hint="give the folder that the dataset was made from",
        )
    with ProgressBar("decoding") as bar:
        made = make_report(dataset, options, bar)
    write_report(made, out)
    facts = made.report
    if options.json:
        click.echo(made.json, nl=False)
    else:
        for finding in facts.findings[:_PRINTED]:
            print_line(f"{finding.severity}: {finding.title}")
        # The page itself has all findings.
        more = len(facts.findings) - _PRINTED
        if more > 0:
            print_line(f"and {plural(more, 'finding')} more in the report")
        print_line(f"{out} and {json_path(out)} are written")
    if facts.problems or facts.looks.failed:
        return ExitStatus.DATA_PROBLEM
    return ExitStatus.SUCCESS


# --- catalogs ---------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=CroissantOptions)
def croissant(dataset: str, *, options: CroissantOptions) -> ExitStatus:
    """Describe a dataset in Croissant 1.1, for catalogs.

    DATASET is a folder or a URL. Writes DATASET/croissant.json with all files and their SHA-256, the columns of the sample tables
    and the classes. Reads all shards. Prints what is missing: license, creator, citation, home page
    and description are only as you give them.
    """
    from dataprep import storage
    from dataprep.summary.croissant import describe_dataset
    from manifests.process.options import check_output_file
    from manifests.remote.url import is_url

    out = options.out or os.path.join(dataset, "croissant.json")
    if not is_url(out):
        marks = [b"mlcommons.org/croissant"]
        check_output_file(out, "description", marks, overwrite=options.overwrite)
    with ProgressBar("reading") as bar:
        described, missing = describe_dataset(dataset, options, bar)
    with storage.partials(os.path.dirname(out) or ".", is_alone=False):
        storage.replace_file(out, described)
    print_line(f"{out} is written")
    if missing:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        print_line(f"missing, because only you know it: {flags}")
    return ExitStatus.SUCCESS


# --- differences ------------------------------------------------------------------------------------


def diff_value(a: str, b: str, *, options: DiffOptions) -> dict[str, Any]:
    """Return what differs, as JSON has it, for `dataprep.diff`."""
    return _diff_json(_diff(a, b, options), options.limit)


def _diff(a: str, b: str, options: DiffOptions) -> DatasetDiff:
    from dataprep.summary.chosen import find_revision
    from dataprep.summary.diff import diff_datasets

    of_a = find_revision(a, options.revision)
    of_b = find_revision(b, options.b_revision, "--b-revision")
    return diff_datasets(a, b, limit=options.limit, columns=options.columns, revisions=(of_a, of_b))


@click.command(cls=Command, compute=diff_value)
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
    result = _diff(a, b, options)
    if options.json:
        # ASCII: sources can contain any character.
        click.echo(json.dumps(_diff_json(result, options.limit), indent=1))
    else:
        _print_diff(a, b, result, options.limit)
    if result.is_equal:
        return ExitStatus.SUCCESS
    return ExitStatus.DATA_PROBLEM


def _diff_json(result: DatasetDiff, limit: int) -> dict[str, Any]:
    samples: dict[str, Any] = {}
    for kind, count in result.counts.items():
        samples[kind] = {"count": count, "first": list(map(_sides, result.first[kind]))}
    classes = {}
    for change, names in result.classes._asdict().items():
        classes[change] = {"count": len(names), "first": names[:limit]}
    a, b = result.samples
    totals = {"a": a, "b": b, "same": result.same}
    members = {"equal": result.is_equal, "samples": totals, **samples, "classes": classes}
    if result.columns is not None:
        members["columns"] = result.columns._asdict()
    return members


def _sides(difference: Difference) -> dict[str, Any]:
    sides = {}
    for side, place in difference._asdict().items():
        if place is not None:
            sides[side] = dict(zip(("source", "class", "split"), place, strict=True))
    return sides


def _print_diff(a: str, b: str, result: DatasetDiff, limit: int) -> None:
    from dataprep.summary.diff import MEANING

    for name, path, samples, of in zip("AB", (a, b), result.samples, result.kinds, strict=True):
        pixels = "" if of == RGB8 else f" of {of}"
        print_line(f"{name}: {path}, {plural(samples, 'sample')}{pixels}")
    if result.is_equal:
        what = "samples and classes"
        if result.columns is not None:
            what = "samples, classes and columns"
        print_line(f"the datasets have the same {what}")
        return
    print_line()
    print_line(f"  {'same':12}{result.same:>14,}")
    # How many samples differ in each way.
    for kind, count in result.counts.items():
        if count:
            print_line(f"  {kind:12}{count:>14,}  {MEANING[kind]}")
    _print_classes(result.classes, limit)
    if result.columns is not None:
        _print_columns(result.columns)
    # The first samples that differ in each way.
    for kind, differences in result.first.items():
        if differences:
            _print_samples(kind, differences, result.counts[kind])


def _print_classes(classes: ClassChanges, limit: int) -> None:
    for change, names in classes._asdict().items():
        if names:
            listed = [one_line(name, MAX_SHOWN) for name in names[:limit]]
            if len(names) > limit:
                listed.append("...")
            print_line(f"  {plural(len(names), 'class')} {change}: {', '.join(listed)}")


def _print_columns(columns: ColumnChanges) -> None:
    for change, names in (("added", columns.added), ("removed", columns.removed)):
        if names:
            print_line(f"  columns {change}: {', '.join(map(printable, names))}")
    for name, count in columns.changed.items():
        print_line(f"  column {printable(name)}: another value in {plural(count, 'sample')}")


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
