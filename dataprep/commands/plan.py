"""``dataprep plan``: decide what each shard contains, for workers on several machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dataprep.commands.append import append_option, print_append_plan, refuse_with_append
from dataprep.commands.base import Command, print_line, print_note
from dataprep.commands.conversion_options import (
    Conversion,
    Request,
    add_conversion_options,
    overwrite_option,
    read_samples,
    resolve_request,
)
from dataprep.commands.progress_bars import ProgressBar
from dataprep.humanize import format_bytes
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import plural

if TYPE_CHECKING:
    from dataprep.sources import Source


@click.command(cls=Command)
@add_conversion_options
@overwrite_option
@append_option
def plan(*, conversion: Conversion, overwrite: bool, append: bool) -> ExitStatus:
    """Plan a conversion that several processes or machines share.

    Writes OUT/plan/, which lists the images of each shard. Then `dataprep work OUT` writes the
    shards, and `dataprep finish OUT` the manifest. The three steps give the same bytes as `dataprep
    convert`. `dataprep info OUT/plan` describes the plan.
    """
    if append:
        refuse_with_append(overwrite=overwrite)
    request = resolve_request(conversion, append=append)
    source = read_samples(conversion, request)
    if append:
        return _plan_append(source, request)

    from dataprep.run.convert import plan_dataset

    with cleanup_on_interrupt():
        result = plan_dataset(source, request.out, request.options, overwrite=overwrite)
    for notice in result.notices:
        print_note(notice)
    for split in result.plan.splits:
        images = f"{plural(split.images, 'image')}, {format_bytes(split.bytes)}"
        print_line(f"{split.name}: {images}, {plural(split.shards, 'shard')}")
    _print_end(request.out, result.resumed)
    return ExitStatus.SUCCESS


def _plan_append(source: Source, request: Request) -> ExitStatus:
    from dataprep.run.append import write_append_plan

    with ProgressBar("comparing") as bar, cleanup_on_interrupt():
        result = write_append_plan(
            source, request.out, request.options, name=request.name, progress=bar
        )
    print_append_plan(result.planned, request.out)
    _print_end(request.out, result.resumed)
    return ExitStatus.SUCCESS


def _print_end(out: str, resumed: int) -> None:
    if resumed:
        print_line(f"done by an earlier run: {plural(resumed, 'shard')}")
    print_line(f"{out}/plan is complete")
    print_line(f"next: `dataprep work {out} --task I/N` or --claim, then `dataprep finish {out}`")
