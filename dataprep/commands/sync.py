"""``dataprep sync``: a dataset becomes what its source is now."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, path_or_url, print_line, takes
from dataprep.commands.console import ProgressBar
from dataprep.commands.convert import ConvertRequest, name_of, print_append, read_samples
from dataprep.options import RunOptions, SourceOptions, SyncOptions
from manifests.errors import DatasetError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import printable


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=SyncOptions, reading=SourceOptions)
def sync(dataset: str, *, options: SyncOptions, reading: SourceOptions) -> ExitStatus:
    """Make a dataset what its source is now.

    Appends new images, removes samples whose images vanished, and does both with images that moved
    to another class or were replaced, with the options that DATASET was made with. That makes at
    most two revisions. What `dataprep remove` took out stays out. If the command is interrupted or
    killed, run it again.
    """
    from dataprep.run.inputs import read_base
    from dataprep.run.sync import recorded_options, sync_dataset

    recorded, run = recorded_options(read_base(dataset, option="")), RunOptions(src=options.src)
    request = ConvertRequest(recorded, dataset, " + ".join(map(name_of, run.src)))
    source = read_samples(run, reading, request, options.workers)
    try:
        with ProgressBar("comparing") as bar, cleanup_on_interrupt():
            changes, made = sync_dataset(source, dataset, options, name=request.name, progress=bar)
    except DatasetError as error:
        error.message = error.message.removeprefix("--append: ")
        error.hint = error.hint.removeprefix("leave them out with --where, or ")
        raise
    for kind, (count, paths) in changes.found.items():
        if count:
            print_line(f"{kind}: {count:,}, such as {', '.join(map(printable, paths))}")
    if made.converted is not None:
        return print_append(made, dataset, max_rejected=1.0)
    if changes.known.all() and not changes.gone.any():
        print_line("nothing changed")
    print_line(f"{dataset} is at revision {made.manifest.revision}")
    return ExitStatus.SUCCESS
