"""``dataprep remove``: samples are taken out of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dataprep.commands.base import Command, path_or_url, print_line, takes
from dataprep.commands.console import console
from dataprep.options import RemoveOptions
from manifests.errors import ExitStatus
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import agree, plural, printable

if TYPE_CHECKING:
    from dataprep.run.remove import RemoveResult


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=RemoveOptions)
def remove(dataset: str, *, options: RemoveOptions) -> ExitStatus:
    """Take samples out of a dataset, as its next revision.

    Give one of --keys, --sources and --where. The indexes and tables of DATASET list the samples no
    longer, and `dataprep convert --append` does not add their images again. Without --scrub, shards
    keep their bytes: the revision before stays readable, and `dataprep revert` goes back to it. If the
    command is interrupted or killed, run it again.
    """
    result = _remove(dataset, options)
    counts = []
    for name, count in result.removed.items():
        counts.append(f"{printable(name)} -{count:,}")
    removed, listed = sum(result.removed.values()), ", ".join(counts)
    of = f"{plural(removed, 'sample')} of {result.samples:,}"
    if not result.is_new:
        print_line(f"{dataset} has this removal already: nothing to do")
    elif options.dry_run and not removed:
        print_line("the shards would be written again without the samples that were removed before")
    elif options.dry_run:
        keys = ", ".join(map(printable, result.examples))
        print_line(f"{of} would be removed: {listed}; such as {keys}")
    elif not removed:
        print_line("the shards were written again without the samples that were removed before")
    else:
        print_line(f"{of} {agree(removed, 'was', 'were')} removed: {listed}")
    print_line(f"{dataset} is at revision {result.manifest.revision}")
    return ExitStatus.SUCCESS


def _remove(dataset: str, options: RemoveOptions) -> RemoveResult:
    from dataprep.run.remove import remove_samples

    with cleanup_on_interrupt():
        result = remove_samples(dataset, options)
    console.notes(result.notices)
    return result
