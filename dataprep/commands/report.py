"""``dataprep report``: write a page that shows what a dataset contains."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, print_line
from dataprep.commands.console import ProgressBar
from dataprep.commands.parameters import path_or_url, takes
from dataprep.options import ReportOptions
from manifests.errors import CallError, ExitStatus
from manifests.process.text import plural

#: Findings that the command prints; the page has all.
_PRINTED = 12


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@takes(options=ReportOptions)
def report(dataset: str, *, options: ReportOptions) -> ExitStatus:
    """Write one HTML page that shows DATASET, a folder or a URL.

    The page shows splits, classes, sizes, duplicates, rejected images, images that stand out,
    contact sheets, and what training will cost. It begins with what to look at. It is one file that
    needs neither network nor scripts. The exit status is 1 if files are missing or damaged, or an
    image cannot be decoded.
    """
    import os

    from dataprep.report.make import check_out, json_path, make_report, write_report

    out = options.out
    check_out(out, overwrite=options.overwrite)
    if options.source is not None and not os.path.isdir(options.source):
        raise CallError(
            f"--src {options.source} is not a folder",
            hint="give the folder that the dataset was made from",
        )
    with ProgressBar("decoding") as bar:
        made = make_report(dataset, options, bar)
    write_report(made, out)
    facts = made.report
    if options.json:
        click.echo(made.json, nl=False)
    else:
        for finding in facts.findings[:_PRINTED]:
            print_line(f"{finding.severity}: {finding.title}")
        # The page itself has all findings.
        more = len(facts.findings) - _PRINTED
        if more > 0:
            print_line(f"and {plural(more, 'finding')} more in the report")
        print_line(f"{out} and {json_path(out)} are written")
    if facts.problems or facts.looks.failed:
        return ExitStatus.DATA_PROBLEM
    return ExitStatus.SUCCESS
