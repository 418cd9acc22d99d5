"""``dataprep join``: columns of a table become columns of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dataprep.commands.base import Command, path_or_url, print_line, takes
from dataprep.commands.console import console
from dataprep.options import JoinOptions
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural, printable

if TYPE_CHECKING:
    from dataprep.run.join import JoinResult


def join_value(dataset: str, table: str, *, options: JoinOptions) -> dict[str, Any]:
    """Join, and return what was joined, for `dataprep.join`."""
    result = _join(dataset, table, options)
    return {
        "revision": result.manifest.revision,
        "columns": list(result.columns),
        "samples": result.samples,
        "without_row": result.without_row,
        "rows": result.rows,
        "without_sample": result.without_sample,
    }


@click.command(cls=Command, compute=join_value)
@click.argument("dataset", type=path_or_url)
@click.argument("table", type=path_or_url)
@takes(options=JoinOptions)
def join(dataset: str, table: str, *, options: JoinOptions) -> ExitStatus:
    """Add columns of a table to a dataset, as its next revision.

    TABLE is CSV, TSV, JSON Lines or Parquet, and has a row for each sample of DATASET. Shards and
    indexes keep their bytes: only the sample tables, and the files of arrays, are new. The revision
    before stays readable, and `dataprep revert` goes back to it. If the command is interrupted or
    killed, run it again.
    """
    result = _join(dataset, table, options)
    if result.without_row:
        value = "null" if options.missing == "null" else "as before"
        missing = agree(result.without_row, "has", "have")
        samples = plural(result.samples, "sample")
        print_line(f"{result.without_row:,} of {samples} {missing} no row: {value}")
    columns = ", ".join(map(printable, result.columns))
    if not result.is_new:
        print_line(f"{table} was joined before: nothing to do")
    elif options.dry_run:
        print_line(f"{columns} would be joined to {plural(result.samples, 'sample')}")
    else:
        print_line(f"{columns} joined to {plural(result.samples, 'sample')}")
    print_line(f"{dataset} is at revision {result.manifest.revision}")
    return ExitStatus.SUCCESS


def _join(dataset: str, table: str, options: JoinOptions) -> JoinResult:
    from dataprep.run.join import join_dataset

    with cleanup_on_interrupt():
        result = join_dataset(dataset, table, options)
    console.notes(result.notices)
    if result.without_sample:
        rows, have = plural(result.rows, "row"), agree(result.without_sample, "has", "have")
        console.note(f"{result.without_sample:,} of {rows} of {table} {have} no sample")
    return result
