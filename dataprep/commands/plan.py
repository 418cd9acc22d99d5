"""``dataprep plan``: decide what each shard contains, for workers on several machines."""

from __future__ import annotations

from typing import Any

import click

from dataprep.commands.base import Command, print_line, print_note
from dataprep.commands.conversion_options import add_conversion_options, overwrite_option, read_inputs
from dataprep.humanize import format_bytes
from manifests.errors import ExitStatus
from manifests.interrupts import cleanup_on_interrupt
from manifests.text import plural


@click.command(cls=Command)
@add_conversion_options
@overwrite_option
def plan(*, overwrite: bool, **conversion: Any) -> ExitStatus:
    """Plan a conversion that several processes or machines share.

    Writes OUT/plan/, which lists the images of each shard. Then `dataprep work OUT` writes the shards, and `dataprep
    finish OUT` the manifest. The three steps give the same bytes as `dataprep convert`. `dataprep info OUT/plan`
    describes the plan.
    """
    inputs = read_inputs(**conversion)

    from dataprep.convert.planning import plan_dataset

    with cleanup_on_interrupt():
        result = plan_dataset(inputs.source, inputs.out, inputs.options, overwrite=overwrite)
    for notice in result.notices:
        print_note(notice)
    for split in result.plan.splits:
        images = f"{plural(split.images, 'image')}, {format_bytes(split.bytes)}"
        print_line(f"{split.name}: {images}, {plural(split.shards, 'shard')}")
    if result.resumed:
        print_line(f"done by an earlier run: {plural(result.resumed, 'shard')}")
    print_line(f"{inputs.out}/plan is complete")
    print_line(f"next: `dataprep work {inputs.out} --task I/N` or --claim, then `dataprep finish {inputs.out}`")
    return ExitStatus.SUCCESS
