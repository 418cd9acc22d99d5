"""What `dataprep convert`, `plan` and `finish` share: what to convert, and what they print about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dataprep.commands.base import format_totals, print_failed, print_line
from dataprep.commands.console import ProgressBar, console
from dataprep.commands.parameters import given_fields
from dataprep.options import NORMALIZATIONS, Options, RunOptions, SourceOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.text import agree, format_bytes, plural, printable
from manifests.records import record
from manifests.remote.url import absolute

if TYPE_CHECKING:
    from dataprep.plan.assign import ConversionPlan, ShardPlan
    from dataprep.run.commit import AppendResult, ConvertResult
    from dataprep.run.convert import AppendPlan
    from dataprep.sources import Source

#: What users expect instead of an option's name.
INSTEAD = {"--unlabelled": "set --label-type none"}


# --- what to convert ------------------------------------------------------------------------------


@record
class ConvertRequest:
    """What a command line asks for.

    Attributes:
        options: options of the conversion.
        out: the output folder.
        name: name of the source, without its folder.

    """

    options: Options
    out: str
    name: str


def resolve_request(run: RunOptions, options: Options) -> ConvertRequest:
    """Return the options of the conversion and its output folder.

    Raises:
        DatasetError: an option is wrong, or the dataset to append to.

    """
    if run.out == "":
        raise CallError("--out is empty", hint="set a folder")
    for flag, is_set in (("--overwrite", run.overwrite), ("--check-shards", run.check_shards)):
        if run.append and is_set:
            raise CallError(f"--append excludes {flag}", hint=f"leave out {flag}")
    if run.out is None and len(run.src) > 1:
        which = "folder of the new dataset"
        if run.append:
            which = "dataset to append to"
        raise CallError("several --src require --out", hint=f"set --out to the {which}")
    out = run.out or f"{_name_of(run.src[0], without_suffix=True)}-{options.fmt}"
    if run.append:
        options = _appended_options(out, options)
    return ConvertRequest(options, out, " + ".join(map(_name_of, run.src)))


def _appended_options(out: str, options: Options) -> Options:
    """Return the options of an append: the dataset's options are the defaults."""
    from dataprep.run.inputs import inherited_options, read_base

    base = read_base(out)
    made = base.manifest.options
    # An append does not inherit the fractions: they are about its own images.
    made_splits = made.get("val_fraction") or made.get("test_fraction")
    if made_splits and not (options.val_fraction or options.test_fraction):
        console.note(
            f"{out} was made with --val-fraction or --test-fraction, but this append is not: images"
            " without a split go to train"
        )
    return inherited_options(base, options, given_fields())


def _name_of(src: str, *, without_suffix: bool = False) -> str:
    """Return the name of a source without its folder."""
    # Of a bucket, its name.
    name = os.path.basename(absolute(src).rstrip("/"))
    # The dot in the name of a folder begins no suffix.
    if without_suffix and not os.path.isdir(src):
        name = Path(name).stem
    return name


def read_samples(
    run: RunOptions, reading: SourceOptions, request: ConvertRequest, workers: int | None = None
) -> Source:
    """Open the source, print what was found to stderr, and return the samples to convert.

    Raises:
        DatasetError: the source is wrong, or an option does not fit it.

    """
    from dataprep.run.inputs import open_source

    with ProgressBar("hashing") as bar, ProgressBar("comparing") as search_bar:
        given, samples = open_source(
            run.src,
            reading,
            request.options,
            out=request.out,
            workers=workers,
            progress=bar,
            search_progress=search_bar,
        )
    # The contents of one source are what is left after filters.
    if len(given) == 1:
        _print_contents(given[0].src, samples)
    else:
        for src, source in given:
            _print_contents(src, source)
    print_notes(samples.notices)
    # Not the sources before they were merged, which take as much memory.
    return samples


def _print_contents(src: str, source: Source) -> None:
    """Print how many images a source has, and what their labels are."""
    labels = source.labels.describe(len(source.classes))
    origin = ""
    if source.label_origin:
        origin = f" from {source.label_origin}"
    console.info(f"{src}: {source.layout}, {plural(len(source), 'image')}{labels}{origin}")


# --- what was planned and written -----------------------------------------------------------------


def print_notes(notes: Sequence[str]) -> None:
    """Print notices for the user to stderr."""
    for note in notes:
        console.note(note)


def planned_images(source: Source, shards: Sequence[ShardPlan]) -> tuple[int, int]:
    """Return the number of images in shards, and their bytes in the source."""
    images = sum(len(shard.rows) for shard in shards)
    return images, sum(int(source.size[shard.rows].clip(min=0).sum()) for shard in shards)


def print_splits(source: Source, plan: ConversionPlan, end: str = "") -> None:
    """Print what a plan will write, split by split."""
    for split in plan.splits:
        own = [shard for shard in plan.shards if shard.split == split]
        images, size = planned_images(source, own)
        totals = f"{plural(images, 'image')}, {format_bytes(size)}"
        print_line(f"{split}: {totals}, {plural(len(own), 'shard')}{end}")


def print_result(
    result: ConvertResult,
    out: str,
    max_rejected: float,
    *,
    appended: bool = False,
    rejected: str | None = None,
) -> ExitStatus:
    """Print the totals of a complete dataset; return status 1 if too many images were rejected.

    Args:
        result: what was converted.
        out: the output folder.
        max_rejected: largest fraction of the images that may be rejected.
        appended: whether the totals are about new shards in a dataset.
        rejected: name of the list of rejected images in the folder, if not the manifest's.

    """
    print_notes(result.notices)
    end = " appended" if appended else ""
    for split in result.manifest.splits:
        totals = format_totals(split.samples, split.bytes, len(split.shards))
        print_line(f"{split.name}: {totals}{end}")
    if result.resumed:
        were = agree(result.resumed, "was", "were")
        print_line(f"{plural(result.resumed, 'shard')} {were} done by an earlier run")
    if result.changes:
        for line in _change_table(result):
            print_line(line)
    if result.duplicates:
        print_line(f"copies left out: {result.duplicates:,} of {plural(result.images, 'image')}")
    if result.rejected:
        fraction = result.rejected / result.images
        images = f"{result.rejected:,} of {plural(result.images, 'image')} ({fraction:.2%})"
        listed = result.manifest.rejected
        name = rejected or (listed.name if listed else "rejected.jsonl")
        print_line(f"rejected: {images}, see {out}/{name}")
        print_failed(result.failed)
        if fraction > max_rejected:
            console.error(
                f"the fraction of rejected images is greater than --max-rejected {max_rejected:g}."
                " Hint: replace these images, or raise --max-rejected to accept the dataset"
                " without them."
            )
            return ExitStatus.DATA_PROBLEM
    if not appended:
        print_line(f"{out} is complete")
    return ExitStatus.SUCCESS


def _change_table(result: ConvertResult) -> Iterator[str]:
    """Yield the lines of a table: images and bytes before and after, kept, resized and rejected."""
    kept = result.changes.get("", (0, 0, 0))
    stored = [sum(column) for column in zip(*result.changes.values(), strict=True)]
    resized = [whole - part for whole, part in zip(stored, kept, strict=True)]
    rows = {
        "kept": (*kept[:2], format_bytes(kept[2])),
        "resized": (*resized[:2], format_bytes(resized[2])),
        "rejected": (result.rejected, result.bytes - stored[1], "-"),
        "all": (result.images, result.bytes, format_bytes(stored[2])),
    }
    yield f"{'':10}{'images':>12}{'before':>12}{'after':>12}"
    for name, (images, before, after) in rows.items():
        yield f"{name:10}{images:>12,}{format_bytes(before):>12}{after:>12}"
    # An image can have several normalizations, so their counts do not add up.
    counts = []
    for change, text in NORMALIZATIONS.items():
        if images := _count_changed(result, change):
            counts.append(f"{text} {images:,}")
    if counts:
        images = plural(_count_changed(result, *NORMALIZATIONS), "image")
        yield f"normalized: {images} ({', '.join(counts)})"


def _count_changed(result: ConvertResult, *changes: str) -> int:
    """Count the images that had at least one of these changes."""
    images = 0
    for made, counts in result.changes.items():
        if not set(changes).isdisjoint(made.split()):
            images += counts[0]
    return images


# --- appends --------------------------------------------------------------------------------------


def print_append(made: AppendPlan | AppendResult, out: str, max_rejected: float) -> ExitStatus:
    """Print what was or will be appended; return status 1 if too many images were rejected."""
    from dataprep.plan.files import ENDED_NAME
    from dataprep.run.commit import AppendResult
    from dataprep.storage import PLAN_FOLDER

    print_notes(made.notices)
    if not isinstance(made, AppendResult):
        print_notes(made.job.notices)
        _print_known(made.append.known, out)
        print_splits(made.source, made.job, " to append")
        _print_new(made.new_classes)
        return ExitStatus.SUCCESS
    manifest = made.manifest
    if made.converted is None:
        # Every image is in the dataset, or was rejected before.
        images = f"{plural(made.known, 'image')} of the source {agree(made.known, 'is', 'are')}"
        text = f"nothing to append: all {images} in {out}"
        if made.revision is not None:
            text += f" since revision {made.revision}"
        if manifest.rejected:
            text += ", or rejected then"
        print_line(text)
        return ExitStatus.SUCCESS
    _print_known(made.known, out)
    if not made.converted.manifest.splits:
        # There is no new revision, so the list of rejected images stays with the bookkeeping.
        rejected = f"{PLAN_FOLDER}/{ENDED_NAME}"
        status = print_result(made.converted, out, max_rejected, appended=True, rejected=rejected)
        print_line(f"nothing was appended to {out}: every new image was rejected")
        return status
    status = print_result(made.converted, out, max_rejected, appended=True)
    _print_new(made.new_classes)
    samples = plural(sum(split.samples for split in manifest.splits), "sample")
    classes = plural(len(manifest.classes), "class")
    print_line(f"{out} is at revision {manifest.revision}: {samples} in {classes}")
    return status


def _print_known(known: int, out: str) -> None:
    if known:
        images = f"{plural(known, 'image')} of the source {agree(known, 'is', 'are')}"
        print_line(f"{images} in {out} already")


def _print_new(classes: Sequence[str]) -> None:
    if classes:
        names = list(map(printable, classes[:5]))
        if len(classes) > 5:
            names.append("...")
        print_line(f"{plural(len(classes), 'new class')}: {', '.join(names)}")
