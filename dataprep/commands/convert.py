"""``dataprep convert``: write images into shards, or append them to a dataset."""

from __future__ import annotations

import math
import shutil
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.console import ProgressBar, console
from dataprep.commands.conversion import (
    INSTEAD,
    ConvertRequest,
    planned_images,
    print_append,
    print_notes,
    print_result,
    print_splits,
    read_samples,
    resolve_request,
)
from dataprep.commands.parameters import takes
from dataprep.engines import Engine, LocalEngine
from dataprep.options import Downscale, Options, Raw, RunOptions, SourceOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import format_bytes, format_duration, plural

if TYPE_CHECKING:
    from dataprep.sources import Source

#: A note is printed if the free space is less than the estimated size of the shards times this
#: factor.
_SPACE_FACTOR = 1.02


@click.command(cls=Command, instead=INSTEAD)
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
    """  # noqa: D301  (click reads the backslash)
    with closing(_make_engine(run)) as engine:
        if not run.dry_run:
            # The worker starts while this process reads the source.
            engine.start("dataprep.shards.write")
        request = resolve_request(run, options)
        source = read_samples(run, reading, request, run.workers)
        if run.append:
            return _append(source, request, run, engine)

        from dataprep.ledger.finished import check_output
        from dataprep.run.convert import convert_dataset

        check_output(source, request.out)
        if run.dry_run:
            _print_plan(source, request, engine.workers, overwrite=run.overwrite)
            return ExitStatus.SUCCESS
        with (
            ProgressBar("checking") as check_bar,
            ProgressBar("converting") as bar,
            cleanup_on_interrupt(),
        ):
            result = convert_dataset(
                source,
                request.out,
                request.options,
                engine=engine,
                overwrite=run.overwrite,
                check_shards=run.check_shards,
                progress=bar,
                check_progress=check_bar,
            )
    return print_result(result, request.out, run.max_rejected)


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


def _append(source: Source, request: ConvertRequest, run: RunOptions, engine: Engine) -> ExitStatus:
    """Append a source to the dataset in the output folder, and print what was added."""
    from dataprep.run.convert import append_dataset, plan_append
    from dataprep.run.inputs import read_base

    options, out, name = request.options, request.out, request.name
    if run.dry_run:
        planned = plan_append(
            source, read_base(out), options, name=name, reader=engine, edits=run.edits
        )
        return print_append(planned, out, run.max_rejected)
    with (
        ProgressBar("comparing") as check_bar,
        ProgressBar("converting") as bar,
        cleanup_on_interrupt(),
    ):
        result = append_dataset(
            source,
            out,
            options,
            name=name,
            engine=engine,
            edits=run.edits,
            progress=bar,
            check_progress=check_bar,
        )
    return print_append(result, out, run.max_rejected)


# --- --dry-run ------------------------------------------------------------------------------------


def _print_plan(source: Source, request: ConvertRequest, workers: int, *, overwrite: bool) -> None:
    """Print the planned shards, and estimates of disk space and time. Nothing is written.

    Raises:
        CallError: the output folder cannot be written, or contains files of another dataset.
        StorageError: another run is writing to the output folder.

    """
    from dataprep.ledger.finished import check_writable
    from dataprep.plan.assign import make_plan
    from dataprep.plan.files import job_of
    from dataprep.run.inputs import run_trial
    from dataprep.run.prepare import find_resumable

    options, out = request.options, request.out
    job = job_of(source, make_plan(source, options), out, options)
    print_notes(job.notices)
    # Shards that an earlier run finished are not written again.
    writable = check_writable(out)
    finished = find_resumable(source, job, overwrite=overwrite).finished
    print_splits(source, job)
    remaining = [shard for shard in job.shards if shard.name not in finished]
    if finished:
        print_line(
            f"done by an earlier run: {plural(len(finished), 'shard')}; to do:"
            f" {plural(len(remaining), 'shard')}"
        )
    # Some images are prepared to measure their bytes and the time that they take.
    images, source_bytes = planned_images(source, remaining)
    trial = run_trial(source, remaining, options)
    size = trial.stored * images if options.changes_images else source_bytes
    about = "about " if options.downscale else ""
    free = shutil.disk_usage(writable).free
    print_line(f"out: {out}, {about}{format_bytes(size)} to write, {format_bytes(free)} free")
    if not remaining:
        return

    # The disk space of the images as they are, shrunk, and as raw pixels.
    downscale, raw = options.downscale or Downscale(shorter=256), options.raw or Raw()
    shrunk = trial
    if not options.downscale:
        shrunk = run_trial(source, remaining, replace(options, downscale=downscale, raw=None))
    sides = {"--resize-shorter": downscale.shorter, "--max-side": downscale.longest}
    resize = " ".join(f"{flag} {side}" for flag, side in sides.items() if side)
    print_line(
        f"disk: {format_bytes(source_bytes)} for the images as they are; about"
        f" {format_bytes(shrunk.stored * images)} with {resize}, measured on"
        f" {plural(shrunk.measured, 'image')}; {format_bytes(math.prod(raw.pixels) * images)} with"
        f" --store raw --raw-size {raw.size}"
    )
    # A worker writes one shard after the other.
    processes = min(workers, len(remaining))
    seconds = max(images / trial.rate / processes, 1)
    print_line(
        f"time: about {format_duration(seconds)} with {plural(processes, 'worker')}, at"
        f" {trial.rate:,.0f} images/s each, measured on {plural(trial.measured, 'image')} (without"
        " writing)"
    )
    if free < size * _SPACE_FACTOR:
        console.note("the disk does not have enough free space")
