"""``dataprep convert``, and ``plan``, ``work`` and ``finish``: the same conversion in three steps, for several machines."""

from __future__ import annotations

import operator
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import (
    Command,
    format_totals,
    given_fields,
    path_or_url,
    print_failed,
    print_line,
    splits_value,
    takes,
)
from dataprep.commands.console import ProgressBar, console
from dataprep.engines import Engine, LocalEngine
from dataprep.images.base import FAILED
from dataprep.options import (
    NORMALIZATIONS,
    Downscale,
    Options,
    Raw,
    RunOptions,
    SourceOptions,
    WorkerOptions,
    WorkOptions,
)
from manifests.errors import CallError, DataProblemError, ExitStatus
from manifests.pixels import RGB8
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, format_bytes, format_duration, plural, printable
from manifests.records import keyword_record, record
from manifests.remote.url import absolute, is_url, refuse_url

if TYPE_CHECKING:
    from dataprep.plan.assign import ConversionPlan, ShardPlan
    from dataprep.plan.files import Job
    from dataprep.run.commit import AppendResult, ConvertResult
    from dataprep.run.convert import AppendPlan
    from dataprep.sources import Source

#: A note is printed if the free space is less than the estimated size of the shards times this
#: factor.
_SPACE_FACTOR = 1.02


def convert_value(*, run: RunOptions, reading: SourceOptions, options: Options) -> dict[str, Any]:
    """Convert as the command does; return what was written, for `dataprep.convert`."""
    out, made = _convert(run, reading, options)
    value, written = _value_of(out, made)
    if written is not None:
        problem = _excess(written, run.max_rejected)
        if problem:
            raise DataProblemError(problem, hint=_EXCESS_HINT, result=value)
    return value


@click.command(cls=Command, compute=convert_value)
@takes(run=RunOptions, reading=SourceOptions, options=Options)
def convert(*, run: RunOptions, reading: SourceOptions, options: Options) -> ExitStatus:
    """Write images into shards.

    Each shard gets a DALI index and a sample table. Images are stored byte for byte, unless you
    resize them or set --store raw. Images that fail the check are not written; rejected.jsonl lists
    them with the reason. If the command is interrupted or killed, run it again to resume.

    \b
    Examples:
    dataprep convert --src photos/ --val-fraction 0.1
    dataprep convert --src ILSVRC2012/ --resize-shorter 256 --out imagenet-256
    dataprep convert --src more.csv --append --out s3://bucket/products
    dataprep convert --src videos/ --fps 5 --resize-shorter 256
    """  # noqa: D301  (click reads the backslash)
    from dataprep.run.commit import ConvertResult

    out, made = _convert(run, reading, options)
    if isinstance(made, Planned):
        _print_plan(made, out)
        return ExitStatus.SUCCESS
    if isinstance(made, ConvertResult):
        return print_result(made, out, run.max_rejected)
    return print_append(made, out, run.max_rejected)


def _convert(
    run: RunOptions, reading: SourceOptions, options: Options
) -> tuple[str, Planned | AppendPlan | AppendResult | ConvertResult]:
    """Convert or append to a dataset, or plan it; return the output folder and what was made."""
    with closing(_make_engine(run)) as engine:
        if not run.dry_run:
            # The worker starts while this process reads the source.
            engine.start("dataprep.shards.write")
        request = resolve_request(run, options)
        source = read_samples(run, reading, request, run.workers)
        request = _with_pixels(run, source, request)
        if run.append:
            return request.out, _append(source, request, run, engine)

        from dataprep.ledger.finished import check_output
        from dataprep.run.convert import convert_dataset

        check_output(source, request.out)
        if run.dry_run:
            return request.out, _plan(source, request, engine.workers, overwrite=run.overwrite)
        with (
            ProgressBar("checking") as check_bar,
            ProgressBar("converting") as bar,
            cleanup_on_interrupt(),
        ):
            made = convert_dataset(
                source,
                request.out,
                request.options,
                engine=engine,
                overwrite=run.overwrite,
                check_shards=run.check_shards,
                progress=bar,
                check_progress=check_bar,
            )
    return request.out, made


def _make_engine(run: RunOptions) -> Engine:
    """Return the engine that the options choose.

    Raises:
        CallError: the options do not fit together, or there is no such cluster.

    """
    if run.engine == "local":
        if run.address is not None:
            raise CallError(
                "--address needs --engine ray", hint="add --engine ray, or leave --address out"
            )
        return LocalEngine(run.workers)
    from dataprep.engines.ray import RayEngine

    address = run.address
    if address is None:
        address = "auto"
    engine = RayEngine(address, run.workers)
    machines, cpus = plural(len(engine.nodes), "machine"), plural(engine.workers, "CPU")
    console.info(f"Ray cluster: {machines}, {cpus}")
    return engine


def _append(
    source: Source, request: ConvertRequest, run: RunOptions, engine: Engine
) -> AppendPlan | AppendResult:
    """Append a source to the dataset in the output folder, or plan it."""
    from dataprep.run.convert import append_dataset, plan_append
    from dataprep.run.inputs import read_base

    options, out, name = request.options, request.out, request.name
    if run.dry_run:
        return plan_append(
            source, read_base(out), options, name=name, reader=engine, edits=run.edits
        )
    with (
        ProgressBar("comparing") as check_bar,
        ProgressBar("converting") as bar,
        cleanup_on_interrupt(),
    ):
        return append_dataset(
            source,
            out,
            options,
            name=name,
            engine=engine,
            edits=run.edits,
            progress=bar,
            check_progress=check_bar,
        )


# --- --dry-run ------------------------------------------------------------------------------------


@keyword_record
class Planned:
    """What a conversion would write.

    Attributes:
        source: the samples.
        job: the plan.
        finished: names of the shards that an earlier run finished.
        writable: the folder that is or will be the output folder's parent, or the output folder.
        workers: maximum number of processes.

    """

    source: Source
    job: Job
    finished: Collection[str]
    writable: str
    workers: int


def _plan(source: Source, request: ConvertRequest, workers: int, *, overwrite: bool) -> Planned:
    """Return what a conversion would write. Nothing is written.

    Raises:
        CallError: the output folder cannot be written, or contains files of another dataset.
        StorageError: another run is writing to the output folder.

    """
    from dataprep.ledger.finished import check_writable
    from dataprep.plan.assign import make_plan
    from dataprep.plan.files import job_of
    from dataprep.run.prepare import find_resumable

    options, out = request.options, request.out
    job = job_of(source, make_plan(source, options), out, options)
    console.notes(job.notices)
    writable = check_writable(out)
    finished = find_resumable(source, job, overwrite=overwrite).finished
    return Planned(
        source=source, job=job, finished=finished.keys(), writable=writable, workers=workers
    )


def _print_plan(planned: Planned, out: str) -> None:
    """Print the planned shards, and estimates of disk space and time."""
    from dataprep.run.inputs import run_trial

    source, job, options = planned.source, planned.job, planned.job.options
    print_splits(source, job)
    # Shards that an earlier run finished are not written again.
    remaining = [shard for shard in job.shards if shard.name not in planned.finished]
    if planned.finished:
        print_line(
            f"done by an earlier run: {plural(len(planned.finished), 'shard')}; to do:"
            f" {plural(len(remaining), 'shard')}"
        )
    # Some images are prepared to measure their bytes and the time that they take.
    images, source_bytes = planned_images(source, remaining)
    trial = run_trial(source, remaining, options)
    size = trial.stored * images if options.changes_images else source_bytes
    about = "about " if options.downscale or options.transcode or options.to_rgb8 else ""
    free = shutil.disk_usage(planned.writable).free
    print_line(f"out: {out}, {about}{format_bytes(size)} to write, {format_bytes(free)} free")
    if not remaining:
        return

    # Other pixels are not shrunk.
    if options.pixels == RGB8:
        # The disk space of the images as they are, shrunk, and as raw pixels.
        downscale, raw = options.downscale, options.raw or Raw()
        shrunk = trial
        # A record with only a quality resizes nothing.
        if not downscale or not downscale.estimated_max_bytes:
            downscale = Downscale(shorter=256)
            shrunk = run_trial(source, remaining, replace(options, downscale=downscale, raw=None))
        sides = {
            "--resize-shorter": downscale.shorter,
            "--max-side": downscale.longest,
            "--resize-pixels": downscale.pixels,
        }
        resize = " ".join(f"{flag} {side}" for flag, side in sides.items() if side)
        print_line(
            f"disk: {format_bytes(source_bytes)} for the images as they are; about"
            f" {format_bytes(shrunk.stored * images)} with {resize}, measured on"
            f" {plural(shrunk.measured, 'image')}; {format_bytes(raw.size**2 * RGB8.size * images)} with"
            f" --store raw --raw-size {raw.size}"
        )
    # A worker writes one shard after the other.
    processes = min(planned.workers, len(remaining))
    seconds = max(images / trial.rate / processes, 1)
    print_line(
        f"time: about {format_duration(seconds)} with {plural(processes, 'worker')}, at"
        f" {trial.rate:,.0f} images/s each, measured on {plural(trial.measured, 'image')} (without"
        " writing)"
    )
    if free < size * _SPACE_FACTOR:
        console.note("the disk does not have enough free space")


# --- the same in three steps ------------------------------------------------------------------------


@click.command(cls=Command)
@takes(run=RunOptions, reading=SourceOptions, options=Options)
def plan(*, run: RunOptions, reading: SourceOptions, options: Options) -> ExitStatus:
    """Plan a conversion that several processes or machines share.

    Writes OUT/.dataprep/plan/, which lists the images of each shard. Then `dataprep work OUT` writes the
    shards, and `dataprep finish OUT` the manifest. The three steps give the same bytes as `dataprep
    convert`. `dataprep info OUT/.dataprep/plan` describes the plan.
    """
    from dataprep.run.commit import AppendResult
    from dataprep.run.convert import plan_dataset, write_append_plan
    from dataprep.storage import PLAN_FOLDER

    request = resolve_request(run, options)
    out = request.out
    source = read_samples(run, reading, request)
    request = _with_pixels(run, source, request)
    resumed = 0
    if run.append:
        with ProgressBar("comparing") as bar, cleanup_on_interrupt():
            appended = write_append_plan(
                source, out, request.options, name=request.name, edits=run.edits, progress=bar
            )
        print_append(appended, out, run.max_rejected)
        if not isinstance(appended, AppendResult):
            resumed = len(appended.finished)
    else:
        with cleanup_on_interrupt():
            planned = plan_dataset(source, out, request.options, overwrite=run.overwrite)
        console.notes(planned.job.notices)
        print_splits(source, planned.job)
        resumed = len(planned.finished)
    if resumed:
        print_line(f"done by an earlier run: {plural(resumed, 'shard')}")
    print_line(f"{out}/{PLAN_FOLDER} is complete")
    tasks = "--task I/N`"
    if not is_url(out):  # `work` refuses --claim in an object store
        tasks += " or --claim"
    print_line(f"next: `dataprep work {out} {tasks}, then `dataprep finish {out}`")
    return ExitStatus.SUCCESS


@click.command(cls=Command, short_help="Write the shards of a plan, or a share of them.")
@click.argument("out", type=path_or_url)
@takes(options=WorkOptions, run=WorkerOptions)
def work(out: str, *, options: WorkOptions, run: WorkerOptions) -> ExitStatus:
    """Write shards of the plan in OUT: a share of them with --task, what is left with --claim, or all.

    Any number of these commands can run at the same time, on any number of machines that share OUT
    and the source. Finished shards are kept. If the command is interrupted or killed, run it again
    to resume.
    """
    from dataprep.run.work import Share, parse_task
    from dataprep.run.work import work as work_on

    task = options.task
    if options.claim and task is not None:
        raise CallError("--claim and --task exclude each other", hint="leave one of them out")
    if options.claim:
        refuse_url(
            out,
            "--claim needs a folder that all machines share, but OUT is a URL",
            hint="use --task I/N",
        )
    # A process that claims shards has no share of its own.
    share = None
    if task is not None:
        share = parse_task(task, os.environ)
    elif not options.claim:
        share = Share(0, 1)
    with ProgressBar("converting") as bar, cleanup_on_interrupt():
        result = work_on(out, share, workers=run.workers, progress=bar, beat=options.heartbeat)
    if result.resumed:
        were = agree(result.resumed, "was", "were")
        by = "an earlier run"
        if options.claim:
            by = "another run"
        print_line(f"{plural(result.resumed, 'shard')} {were} done by {by}")
    images = sum(shard.conversion.samples for shard in result.written)
    print_line(f"{plural(len(result.written), 'shard')} written, {plural(images, 'sample')}")
    # Rejected images are listed when the dataset is finished, but faults are reported at once.
    rejected = [row for shard in result.written for row in shard.conversion.rejected]
    if rejected:
        print_line(f"rejected: {plural(len(rejected), 'image')}")
        print_failed([row for row in rejected if row["reason"] == FAILED])
    print_line(f"when all tasks are done, run `dataprep finish {out}`")
    return ExitStatus.SUCCESS


@click.command(cls=Command)
@click.argument("out", type=path_or_url)
@takes(run=RunOptions)
def finish(out: str, *, run: RunOptions) -> ExitStatus:
    """Complete a dataset whose shards `dataprep work` has written.

    Checks that every shard of the plan is there, and writes rejected.jsonl and manifest.json. If
    shards are missing, it says which tasks to run again. It can be run any number of times, on any
    machine.
    """
    from dataprep.run.commit import AppendResult
    from dataprep.run.finish import finish as finish_dataset

    with ProgressBar("checking") as bar, cleanup_on_interrupt():
        result = finish_dataset(out, workers=run.workers, progress=bar)
    if isinstance(result, AppendResult):
        return print_append(result, out, run.max_rejected)
    return print_result(result._replace(resumed=0), out, run.max_rejected)


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
    out = run.out or f"{name_of(run.src[0], without_suffix=True)}-{options.fmt}"
    if run.append:
        options = _appended_options(out, options)
    return ConvertRequest(options, out, " + ".join(map(name_of, run.src)))


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


def name_of(src: str, *, without_suffix: bool = False) -> str:
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

    with (
        ProgressBar("counting frames") as scan_bar,
        ProgressBar("hashing") as bar,
        ProgressBar("comparing") as search_bar,
    ):
        given, samples = open_source(
            run.src,
            reading,
            request.options,
            out=request.out,
            workers=workers,
            progress=bar,
            search_progress=search_bar,
            scan_progress=scan_bar,
        )
    # The contents of one source are what is left after filters.
    if len(given) == 1:
        _print_contents(given[0].src, samples)
    else:
        for src, source in given:
            _print_contents(src, source)
    console.notes(samples.notices)
    # Not the sources before they were merged, which take as much memory.
    return samples


def _with_pixels(run: RunOptions, source: Source, request: ConvertRequest) -> ConvertRequest:
    """Return what is asked for, with the kind of pixels that the images have; print unusual ones.

    An append has the kind of its dataset.
    """
    from dataprep.run.inputs import describe_kinds, find_kinds, resolve_pixels

    if source.has_videos and request.options.transcode is None:
        request = replace(request, options=replace(request.options, transcode="jpeg"))
    if request.options.to_rgb8 and source.pixels is None:
        found = describe_kinds(find_kinds(source, request.options))
        console.info(f"pixels: {RGB8} by --to-rgb8; of the images that were looked at, {found}")
    if run.append:
        return request
    options = resolve_pixels(source, request.options)
    if options.pixels != RGB8:
        console.info(f"pixels: {options.pixels}")
    return replace(request, options=options)


def _print_contents(src: str, source: Source) -> None:
    """Print how many images a source has, and what their labels are."""
    labels = source.labels.describe(len(source.classes))
    origin = ""
    if source.label_origin:
        origin = f" from {source.label_origin}"
    console.info(f"{src}: {source.layout}, {plural(len(source), 'image')}{labels}{origin}")


# --- what was planned and written -----------------------------------------------------------------


def planned_images(source: Source, shards: Sequence[ShardPlan]) -> tuple[int, int]:
    """Return the number of images in shards, and their bytes in the source."""
    images = sum(len(shard.rows) for shard in shards)
    return images, sum(int(source.size[shard.rows].clip(min=0).sum()) for shard in shards)


def _planned_splits(source: Source, plan: ConversionPlan) -> dict[str, dict[str, int]]:
    """Return what a plan will write, split by split. The bytes are as in the source."""
    splits = {}
    for split in plan.splits:
        own = [shard for shard in plan.shards if shard.split == split]
        images, size = planned_images(source, own)
        splits[split] = {"samples": images, "bytes": size, "shards": len(own)}
    return splits


def print_splits(source: Source, plan: ConversionPlan, end: str = "") -> None:
    """Print what a plan will write, split by split."""
    for split, planned in _planned_splits(source, plan).items():
        totals = f"{plural(planned['samples'], 'image')}, {format_bytes(planned['bytes'])}"
        print_line(f"{split}: {totals}, {plural(planned['shards'], 'shard')}{end}")


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
    console.notes(result.notices)
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
        problem = _excess(result, max_rejected)
        if problem:
            console.error(f"{problem}. Hint: {_EXCESS_HINT}.")
            return ExitStatus.DATA_PROBLEM
    if not appended:
        print_line(f"{out} is complete")
    return ExitStatus.SUCCESS


_EXCESS_HINT = "replace these images, or raise --max-rejected to accept the dataset without them"


def _excess(result: ConvertResult, max_rejected: float) -> str:
    """Return what is wrong if too many images were rejected, or an empty text."""
    if not result.rejected or result.rejected / result.images <= max_rejected:
        return ""
    return f"the fraction of rejected images is greater than --max-rejected {max_rejected:g}"


#: What the column ``change`` says of an image that DALI does not decode.
_TRANSCODED = "transcoded"


def _change_table(result: ConvertResult) -> Iterator[str]:
    """Yield the lines of a table: images and bytes before and after, by what became of them."""
    stored = [sum(column) for column in zip(*result.changes.values(), strict=True)]
    totals = {"kept": [0, 0, 0], "resized": [0, 0, 0]}
    for made, counts in result.changes.items():
        name = "resized" if made else "kept"
        if _TRANSCODED in made.split():
            name = _TRANSCODED
        totals[name] = [*map(operator.add, totals.get(name, [0, 0, 0]), counts)]
    rows = {}
    for name, (images, before, after) in totals.items():
        rows[name] = images, before, format_bytes(after)
    rows["rejected"] = result.rejected, result.bytes - stored[1], "-"
    rows["all"] = result.images, result.bytes, format_bytes(stored[2])
    yield f"{'':10}{'images':>12}{'before':>12}{'after':>12}"
    for name, (number, size, shown) in rows.items():
        yield f"{name:10}{number:>12,}{format_bytes(size):>12}{shown:>12}"
    # An image can have several normalizations, so their counts do not add up.
    normalized = []
    for change, text in NORMALIZATIONS.items():
        if number := _count_changed(result, change):
            normalized.append(f"{text} {number:,}")
    if normalized:
        number_text = plural(_count_changed(result, *NORMALIZATIONS), "image")
        yield f"normalized: {number_text} ({', '.join(normalized)})"


def _count_changed(result: ConvertResult, *changes: str) -> int:
    """Count the images that had at least one of these changes."""
    images = 0
    for made, counts in result.changes.items():
        if not set(changes).isdisjoint(made.split()):
            images += counts[0]
    return images


def _value_of(
    out: str, made: Planned | AppendPlan | AppendResult | ConvertResult
) -> tuple[dict[str, Any], ConvertResult | None]:
    """Return what this run wrote, or would write, as a dict for JSON, and the totals of what it wrote."""
    from dataprep.run.commit import AppendResult, ConvertResult

    value: dict[str, Any] = {"out": out, "splits": {}, "resumed": 0}
    written = None
    if isinstance(made, Planned):
        value |= {"splits": _planned_splits(made.source, made.job), "resumed": len(made.finished)}
    elif isinstance(made, ConvertResult):
        written = made
    else:
        console.notes(made.notices)
        value["new_classes"] = list(made.new_classes)
        if isinstance(made, AppendResult):
            value |= {"known": made.known, "revision": made.manifest.revision}
            written = made.converted
        else:
            console.notes(made.job.notices)
            value |= {"known": made.append.known, "revision": made.append.revision}
            value["splits"] = _planned_splits(made.source, made.job)
    if written is not None:
        console.notes(written.notices)
        value = {"revision": written.manifest.revision, **value}
        value["splits"] = splits_value(written.manifest)
        for name in ("images", "resumed", "rejected", "duplicates"):
            value[name] = getattr(written, name)
        value["failed"] = list(written.failed)
    return value, written


# --- appends --------------------------------------------------------------------------------------


def print_append(made: AppendPlan | AppendResult, out: str, max_rejected: float) -> ExitStatus:
    """Print what was or will be appended; return status 1 if too many images were rejected."""
    from dataprep.plan.files import ENDED_NAME
    from dataprep.run.commit import AppendResult
    from dataprep.storage import PLAN_FOLDER

    console.notes(made.notices)
    if not isinstance(made, AppendResult):
        console.notes(made.job.notices)
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
        if manifest.removed:
            text += ", or removed since"
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
    classes = ""
    if manifest.classes:
        classes = f" in {plural(len(manifest.classes), 'class')}"
    print_line(f"{out} is at revision {manifest.revision}: {samples}{classes}")
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
