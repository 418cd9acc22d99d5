"""``dataprep verify``: check a dataset for damage."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, workers_option
from dataprep.commands.progress_bars import ShardsBar
from manifests.errors import ExitStatus
from manifests.text import plural


@click.command(cls=Command)
@click.argument("out")
@click.option("--decode", is_flag=True, help="Also decode every image.")
@workers_option
def verify(out: str, *, decode: bool, workers: int | None) -> ExitStatus:
    """Check a dataset for damage.

    Reads all files of the dataset OUT and prints each problem with its file, record, byte and a hint.
    """
    from dataprep.verify import verify_dataset

    with ShardsBar() as bar:
        report = verify_dataset(out, decode=decode, workers=workers, progress=bar)
    for fault in report.faults:
        click.echo(str(fault))
    if report.without_checksum:
        has = "has" if report.without_checksum == 1 else "have"
        click.echo(
            f"{plural(report.without_checksum, 'shard')} {has} no checksum, so the images in them were not checked. "
            "Hint: `dataprep index --validate header --overwrite` reads them and adds checksums."
        )
    if report.faults:
        click.echo(f"{plural(len(report.faults), 'problem')} in {out}")
        return ExitStatus.DATA_PROBLEM
    click.echo(f"{out} is sound: {plural(report.samples, 'sample')} in {plural(report.shards, 'shard')}")
    return ExitStatus.SUCCESS
