"""``dataprep work``: write a share of the shards of a plan."""

from __future__ import annotations

import os

import click

from dataprep.commands.base import Command, print_failed, print_line, workers_option
from dataprep.commands.param_types import path_or_url
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.sections import RenamedOption
from dataprep.images.base import FAILED
from manifests.errors import CallError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.options import Number
from manifests.process.text import agree, plural
from manifests.remote.url import is_url


@click.command(cls=Command, short_help="Write the shards of a plan, or a share of them.")
@click.argument("out", type=path_or_url)
@click.option(
    "--task",
    metavar="I/N",
    help=(
        "Write share I of N equal shares of the shards; I counts from 0. auto takes I and N from a"
        " Slurm array; auto/N takes I from a Slurm array or an indexed job of Kubernetes."
    ),
)
@click.option(
    "--claim",
    is_flag=True,
    help=(
        "Write shards that no other `work --claim` is writing, until all are finished. A process"
        " that sends no heartbeat for three times --heartbeat loses its shards to the others."
    ),
)
@click.option(
    "--heartbeat",
    "--beat",
    "beat",
    cls=RenamedOption,
    type=Number(0.05, 600),
    metavar="SECONDS",
    help="With --claim: time between two heartbeats.  [default: 5]",
)
@workers_option
def work(
    out: str, *, task: str | None, claim: bool, beat: float | None, workers: int | None
) -> ExitStatus:
    """Write shards of the plan in OUT: a share of them with --task, what is left with --claim, or all.

    Any number of these commands can run at the same time, on any number of machines that share OUT
    and the source. Finished shards are kept. If the command is interrupted or killed, run it again
    to resume.
    """
    from dataprep.run.work import Share, parse_task
    from dataprep.run.work import work as work_on

    if claim and task is not None:
        raise CallError("--claim and --task exclude each other", hint="leave one of them out")
    if claim and is_url(out):
        raise CallError(
            "--claim needs a folder that all machines share, but OUT is a URL",
            hint="use --task I/N",
        )
    share = None if claim else parse_task(task, os.environ) if task is not None else Share(0, 1)
    with ProgressBar("converting") as bar, cleanup_on_interrupt():
        result = work_on(out, share, workers=workers, progress=bar, beat=beat)
    if result.resumed:
        were, by = (
            agree(result.resumed, "was", "were"),
            "another run" if claim else "an earlier run",
        )
        print_line(f"{plural(result.resumed, 'shard')} {were} done by {by}")
    images = sum(shard.conversion.samples for shard in result.written)
    print_line(f"{plural(len(result.written), 'shard')} written, {plural(images, 'sample')}")
    rejected = [row for shard in result.written for row in shard.conversion.rejected]
    if rejected:
        print_line(f"rejected: {plural(len(rejected), 'image')}")
        print_failed([row for row in rejected if row["reason"] == FAILED])
    print_line(f"when all tasks are done, run `dataprep finish {out}`")
    return ExitStatus.SUCCESS
