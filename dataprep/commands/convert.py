"""``dataprep convert``: write images into shards."""

from __future__ import annotations

from contextlib import closing

import click

from dataprep.commands.append import append_option, append_source, refuse_with_append
from dataprep.commands.base import Command, workers_option
from dataprep.commands.conversion_options import (
    Conversion,
    add_conversion_options,
    overwrite_option,
    read_samples,
    resolve_request,
)
from dataprep.commands.engine_options import EngineName, add_engine_options, make_engine
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.results import max_rejected_option, print_result
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt


@click.command(cls=Command)
@add_conversion_options
@max_rejected_option
@workers_option
@add_engine_options
@overwrite_option
@click.option(
    "--check-shards",
    is_flag=True,
    help=(
        "Read the shards that an earlier run finished, and write damaged ones again. Indexes and"
        " tables are always checked."
    ),
)
@append_option
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
def convert(
    *,
    conversion: Conversion,
    max_rejected: float,
    workers: int | None,
    engine: EngineName,
    address: str | None,
    overwrite: bool,
    check_shards: bool,
    append: bool,
    dry_run: bool,
) -> ExitStatus:
    """Write images into shards.

    Each shard gets a DALI index and a sample table. Images are stored byte for byte, unless you
    resize them or set --store raw. Images that fail the check are not written; rejected.jsonl lists
    them with the reason. By default, the header and the end of each image are checked; --validate
    decode decodes every image. If the command is interrupted or killed, run it again to resume.
    """
    if append:
        refuse_with_append(overwrite=overwrite, check_shards=check_shards)
    with closing(make_engine(engine, address, workers)) as runner:
        if not dry_run:
            runner.start(
                "dataprep.shards.write"
            )  # the worker starts while this process reads the source
        request = resolve_request(conversion, append=append)
        source = read_samples(conversion, request, workers)
        if append:
            return append_source(source, request, runner, max_rejected, dry_run=dry_run)

        from dataprep.run.convert import convert_dataset
        from dataprep.run.source import check_output

        options, out = request.options, request.out
        check_output(source, out)
        if dry_run:
            from dataprep.commands.dry_run import print_plan

            print_plan(source, out, options, runner.workers, overwrite=overwrite)
            return ExitStatus.SUCCESS
        with (
            ProgressBar("checking") as check_bar,
            ProgressBar("converting") as bar,
            cleanup_on_interrupt(),
        ):
            result = convert_dataset(
                source,
                out,
                options,
                engine=runner,
                overwrite=overwrite,
                check_shards=check_shards,
                progress=bar,
                check_progress=check_bar,
            )
    return print_result(result, out, max_rejected)
