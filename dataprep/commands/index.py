"""``dataprep index``: index shards that other tools wrote."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import (
    Command,
    format_totals,
    path_or_url,
    print_failed,
    print_line,
    splits_value,
    takes,
)
from dataprep.commands.console import ProgressBar, console
from dataprep.options import IndexOptions, WorkerOptions
from manifests.errors import DataProblemError, ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import plural

if TYPE_CHECKING:
    from dataprep.indexing.index import IndexResult


def index_value(
    paths: tuple[str, ...], *, options: IndexOptions, run: WorkerOptions
) -> dict[str, Any]:
    """Index shards as the command does; return the dataset, for `dataprep.index`."""
    result = _index(paths, options, run)
    console.notes(result.notices)
    value: dict[str, Any] = {"out": result.folder, "splits": {}, "rejected": result.rejected}
    value["errors"] = list(map(str, result.errors))
    value["failed"] = list(result.failed)
    if result.manifest is None:
        first = value["errors"][0]
        raise DataProblemError(f"{_unchanged(result)}. The first one: {first}", result=value)
    value["splits"] = splits_value(result.manifest)
    if result.rejected:
        raise DataProblemError(_left_out(result), result=value)
    return value


@click.command(cls=Command, compute=index_value)
@click.argument("paths", nargs=-1, type=path_or_url, required=True, metavar="PATH...")
@takes(options=IndexOptions, run=WorkerOptions)
def index(paths: tuple[str, ...], *, options: IndexOptions, run: WorkerOptions) -> ExitStatus:
    """Index shards that other tools wrote.

    Writes a DALI index and a sample table for each shard, and a manifest. Shards are never changed.

    Each PATH is a folder of .tar or .tfrecord files, or one such file, or a URL of either; all
    files must be in one folder. Shards written by TensorFlow, the webdataset library, img2dataset
    or tar can be indexed.
    """
    _import_arrow_alone()
    result = _index(paths, options, run)
    # One line for each shard that cannot be indexed.
    for error in result.errors:
        console.error(str(error))
    if result.manifest is None:
        console.error(
            f"{_unchanged(result)}. Hint: do what the hints above say, then run the same command"
            " again."
        )
        return ExitStatus.DATA_PROBLEM
    console.notes(result.notices)
    for part in result.manifest.splits:
        print_line(f"{part.name}: {format_totals(part.samples, part.bytes, len(part.shards))}")
    if result.rejected:
        print_line(_left_out(result))
        print_failed(result.failed)
        return ExitStatus.DATA_PROBLEM
    print_line(f"{result.folder} is complete")
    return ExitStatus.SUCCESS


def _index(paths: tuple[str, ...], options: IndexOptions, run: WorkerOptions) -> IndexResult:
    from dataprep.indexing.index import index_shards

    with ProgressBar("indexing") as bar, cleanup_on_interrupt():
        return index_shards(paths, options, workers=run.workers, progress=bar)


def _unchanged(result: IndexResult) -> str:
    shards = plural(len(result.errors), "shard")
    return f"{shards} cannot be indexed, so {result.folder} was not changed"


def _left_out(result: IndexResult) -> str:
    records = plural(result.rejected, "record")
    return f"left out of the index: {records}, see {result.folder}/rejected.jsonl"


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
