"""``dataprep index``: index shards that other tools wrote."""

from __future__ import annotations

import sys

import click

from dataprep.commands.base import (
    Command,
    format_totals,
    path_or_url,
    print_failed,
    print_line,
    takes,
)
from dataprep.commands.console import ProgressBar, console
from dataprep.options import IndexOptions, WorkerOptions
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import plural


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=path_or_url, required=True, metavar="PATH...")
@takes(options=IndexOptions, run=WorkerOptions)
def index(paths: tuple[str, ...], *, options: IndexOptions, run: WorkerOptions) -> ExitStatus:
    """Index shards that other tools wrote.

    Writes a DALI index and a sample table for each shard, and a manifest. Shards are never changed.

    Each PATH is a folder of .tar or .tfrecord files, or one such file, or a URL of either; all
    files must be in one folder. Shards written by TensorFlow, the webdataset library, img2dataset
    or tar can be indexed.
    """
    from dataprep.indexing.index import index_shards

    _import_arrow_alone()
    with ProgressBar("indexing") as bar, cleanup_on_interrupt():
        result = index_shards(paths, options, workers=run.workers, progress=bar)
    # One line for each shard that cannot be indexed.
    for error in result.errors:
        console.error(str(error))
    if result.manifest is None:
        console.error(
            f"{plural(len(result.errors), 'shard')} cannot be indexed, so {result.folder} was not"
            " changed. Hint: do what the hints above say, then run the same command again."
        )
        return ExitStatus.DATA_PROBLEM
    console.notes(result.notices)
    for part in result.manifest.splits:
        print_line(f"{part.name}: {format_totals(part.samples, part.bytes, len(part.shards))}")
    if result.rejected:
        print_line(
            f"left out of the index: {plural(result.rejected, 'record')}, see"
            f" {result.folder}/rejected.jsonl"
        )
        print_failed(result.failed)
        return ExitStatus.DATA_PROBLEM
    print_line(f"{result.folder} is complete")
    return ExitStatus.SUCCESS


def _import_arrow_alone() -> None:
    """Import pyarrow without NumPy, whose import takes as long as indexing 4,000 records.

    Indexes and tables are written without arrays of NumPy. Without it, pyarrow cannot convert to them.
    """
    if "numpy" in sys.modules or "pyarrow" in sys.modules:
        return
    # None makes an import fail, and pyarrow goes on without NumPy.
    sys.modules["numpy"] = None  # type: ignore[assignment]
    try:
        import pyarrow  # noqa: F401
    finally:
        del sys.modules["numpy"]
