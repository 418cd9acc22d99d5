"""``dataprep verify``: what is wrong with a dataset, and where."""

from __future__ import annotations

from typing import Any

import click

from dataprep.commands.base import Command, ShardsBar, workers_option
from dataprep.humanize import count
from manifests.errors import ExitStatus


@click.command(cls=Command)
@click.argument("out")
@click.option("--decode", is_flag=True, help="Decode every image too.")
@workers_option
def verify(**call: Any) -> ExitStatus:
    """Re-read a whole dataset and say what is wrong with it, where, and what mends it."""
    from dataprep.verify import verify_dataset

    with ShardsBar() as bar:
        report = verify_dataset(
            call["out"],
            decode=call["decode"],
            workers=call["workers"],
            progress=bar,
        )
    for fault in report.faults:
        click.echo(str(fault))
    if report.without_checksum:
        click.echo(
            f"{count(report.without_checksum, 'shard')} were indexed without being read and have no checksum: "
            "their images were not checked (`dataprep index --validate header --overwrite` gives them one)"
        )
    if report.faults:
        click.echo(f"{count(len(report.faults), 'fault')} in {call['out']}")
        return ExitStatus.DATA_PROBLEM
    click.echo(f"{call['out']} is sound: {count(report.samples, 'sample')} in {count(report.shards, 'shard')}")
    return ExitStatus.SUCCESS
