"""``dataprep repair`` and ``revert``: replace damaged files of a dataset, and undo an append."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.console import ProgressBar, console
from dataprep.commands.conversion import INSTEAD
from dataprep.commands.parameters import path_or_url, takes
from dataprep.options import RepairOptions, SourceOptions, WorkerOptions
from manifests.errors import CallError, DatasetError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural


@click.command(cls=Command, instead=INSTEAD)
@click.argument("dataset", type=path_or_url)
@takes(options=RepairOptions, reading=SourceOptions, run=WorkerOptions)
def repair(
    dataset: str, *, options: RepairOptions, reading: SourceOptions, run: WorkerOptions
) -> ExitStatus:
    """Replace damaged and missing files of a dataset.

    Reads all files of DATASET and compares them with the checksums in the manifest. Indexes and
    tables are rebuilt from their shards where a shard determines every byte; with --src, everything
    else is made again from the source, with the options in the manifest. A file is replaced only by
    one with the right checksum; intact files are not changed. Exit status 1: a file could not be
    repaired. If the command is interrupted or killed, run it again.
    """
    from dataprep.repair import repair_dataset

    source = None
    if options.src:
        from dataprep.sources.merge import merge_sources
        from dataprep.sources.recognize import read_sources

        source = merge_sources(read_sources(options.src, reading))
    elif reading != SourceOptions(max_classes=reading.max_classes):
        raise CallError("options that say how to read the source require --src", hint="set --src")
    with ProgressBar("checking") as bar, cleanup_on_interrupt():
        result = repair_dataset(
            dataset, source, dry_run=options.dry_run, workers=run.workers, progress=bar
        )
    # A dry run prints what a run would do.
    will, can = "", ""
    if options.dry_run:
        will, can = "would be ", "can be "
    repaired = 0
    for file in result.files:
        if file.repair:
            repaired += 1
            print_line(f"{file.file}: {file.damage}; {will}{file.repair}")
        else:
            reason = f"{file.damage}; not repaired: {file.reason}"
            print_line(str(DatasetError(reason, file=file.file, hint=file.hint)))
    broken = len(result.files) - repaired
    if not result.files:
        print_line(f"nothing to repair in {dataset}: {plural(result.shards, 'shard')} checked")
    elif repaired:
        print_line(f"{plural(repaired, 'file')} {can}repaired in {dataset}")
    if not broken:
        return ExitStatus.SUCCESS
    console.note(f"{plural(broken, 'file')} in {dataset} cannot be repaired")
    return ExitStatus.DATA_PROBLEM


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
def revert(dataset: str) -> ExitStatus:
    """Undo the last append.

    Removes what an interrupted `dataprep convert --append` wrote to DATASET. If none was
    interrupted, goes back to the revision before the newest one, and removes the shards that the
    newest one added. If the command is interrupted or killed, run it again. Close loaders that read
    the newest revision first.
    """
    from dataprep.run.commit import revert_dataset

    with cleanup_on_interrupt():
        result = revert_dataset(dataset)
    if result.removed:
        samples = plural(result.removed, "sample")
        print_line(f"{samples} {agree(result.removed, 'was', 'were')} removed")
    else:
        print_line(f"what an interrupted append wrote was removed: {plural(result.files, 'file')}")
    print_line(f"{dataset} is at revision {result.manifest.revision}")
    return ExitStatus.SUCCESS
