"""``dataprep repair``: replace damaged and missing files of a dataset."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, print_line, print_note, workers_option
from dataprep.commands.param_types import path_or_url
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.source_options import SourceArguments, add_source_options
from manifests.errors import CallError, DatasetError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import plural


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@click.option(
    "--src",
    type=path_or_url,
    multiple=True,
    metavar="SRC",
    help=(
        "The source that the dataset, or one of its revisions, was made from; several if it was"
        " made from several."
    ),
)
@click.option("--dry-run", is_flag=True, help="Print what would be repaired; write nothing.")
@add_source_options
@workers_option
def repair(
    dataset: str,
    *,
    src: tuple[str, ...],
    dry_run: bool,
    workers: int | None,
    reading: SourceArguments,
) -> ExitStatus:
    """Replace damaged and missing files of a dataset.

    Reads all files of DATASET and compares them with the checksums in the manifest. Indexes and
    tables are rebuilt from their shards where a shard determines every byte; with --src, everything
    else is made again from the source, with the options in the manifest. A file is replaced only by
    one with the right checksum; intact files are not changed. Exit status 1: a file could not be
    repaired. If the command is interrupted or killed, run it again.
    """
    from dataprep.repair.repair import repair_dataset

    source = None
    if src:
        from dataprep.sources.merge import merge_sources
        from dataprep.sources.recognize import read_sources

        source = merge_sources(read_sources(src, reading.resolve(), reading.rename_classes))
    elif reading.given:
        raise CallError("options that say how to read the source require --src", hint="set --src")
    with ProgressBar("checking") as bar, cleanup_on_interrupt():
        result = repair_dataset(dataset, source, dry_run=dry_run, workers=workers, progress=bar)
    for file in result.files:
        if file.repair:
            will = "would be " if dry_run else ""
            print_line(f"{file.file}: {file.damage}; {will}{file.repair}")
        else:
            print_line(
                str(
                    DatasetError(
                        f"{file.damage}; not repaired: {file.reason}",
                        file=file.file,
                        hint=file.hint,
                    )
                )
            )
    broken = sum(not file.repair for file in result.files)
    repaired = len(result.files) - broken
    if not result.files:
        print_line(f"nothing to repair in {dataset}: {plural(result.shards, 'shard')} checked")
    elif repaired:
        print_line(
            f"{plural(repaired, 'file')} {'can be ' if dry_run else ''}repaired in {dataset}"
        )
    if not broken:
        return ExitStatus.SUCCESS
    print_note(f"{plural(broken, 'file')} in {dataset} cannot be repaired")
    return ExitStatus.DATA_PROBLEM
