"""``dataprep revert``: undo an append."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.param_types import path_or_url
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
def revert(dataset: str) -> ExitStatus:
    """Undo the last append.

    Removes what an interrupted `dataprep convert --append` wrote to DATASET. If none was
    interrupted, goes back to the revision before the newest one, and removes the shards that the
    newest one added. If the command is interrupted or killed, run it again. Close loaders that read
    the newest revision first.
    """
    from dataprep.run.revert import revert_dataset

    with cleanup_on_interrupt():
        result = revert_dataset(dataset)
    if result.removed:
        samples = plural(result.removed, "sample")
        print_line(f"{samples} {agree(result.removed, 'was', 'were')} removed")
    else:
        print_line(f"what an interrupted append wrote was removed: {plural(result.files, 'file')}")
    print_line(f"{dataset} is at revision {result.manifest.revision}")
    return ExitStatus.SUCCESS
