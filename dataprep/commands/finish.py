"""``dataprep finish``: write the manifest when all shards are there."""

from __future__ import annotations

from dataclasses import replace

import click

from dataprep.commands.append import print_append
from dataprep.commands.base import Command, workers_option
from dataprep.commands.param_types import path_or_url
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.results import max_rejected_option, print_result
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt


@click.command(cls=Command)
@click.argument("out", type=path_or_url)
@max_rejected_option
@workers_option
def finish(out: str, *, max_rejected: float, workers: int | None) -> ExitStatus:
    """Complete a dataset whose shards `dataprep work` has written.

    Checks that every shard of OUT/plan is there, and writes rejected.jsonl and manifest.json. If
    shards are missing, it says which tasks to run again. It can be run any number of times, on any
    machine.
    """
    from dataprep.plan.files import read_plan
    from dataprep.run.finish import finish as finish_dataset

    if read_plan(out).append:
        from dataprep.run.append import finish_planned_append

        with ProgressBar("checking") as bar, cleanup_on_interrupt():
            return print_append(
                finish_planned_append(out, workers=workers, progress=bar), out, max_rejected
            )
    with ProgressBar("checking") as bar, cleanup_on_interrupt():
        result = finish_dataset(out, workers=workers, progress=bar)
    return print_result(replace(result, resumed=0), out, max_rejected)
