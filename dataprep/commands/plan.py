"""``dataprep plan``, ``work`` and ``finish``: a conversion in three steps, for several machines."""

from __future__ import annotations

import os

import click

from dataprep.commands.base import Command, print_failed, print_line
from dataprep.commands.console import ProgressBar
from dataprep.commands.conversion import (
    INSTEAD,
    print_append,
    print_notes,
    print_result,
    print_splits,
    read_samples,
    resolve_request,
)
from dataprep.commands.parameters import path_or_url, takes
from dataprep.images.base import FAILED
from dataprep.options import Options, RunOptions, SourceOptions, WorkerOptions, WorkOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural
from manifests.remote.url import is_url, refuse_url


@click.command(cls=Command, instead=INSTEAD)
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
        print_notes(planned.job.notices)
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
