"""``dataprep report``: write a page that shows what a dataset contains."""

from __future__ import annotations

import click

from dataprep.commands.base import Command, print_line, workers_option
from dataprep.commands.param_types import byte_size, path_or_url
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.sections import RenamedOption
from manifests.errors import CallError, ExitStatus
from manifests.process.text import plural

#: Findings that the command prints; the page has all.
_PRINTED = 12


@click.command(cls=Command)
@click.argument("dataset", type=path_or_url)
@click.option(
    "--out",
    metavar="FILE",
    default="report.html",
    show_default=True,
    help="The HTML file. A JSON file of the same name is written beside it.",
)
@click.option(
    "--src",
    "--source",
    "source",
    cls=RenamedOption,
    metavar="DIR",
    help=(
        "Folder that the dataset was converted from, to show the rejected images. Nothing outside"
        " of it is opened."
    ),
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    default=20_000,
    show_default=True,
    help=(
        "Number of random images to decode for pixel statistics. All other numbers come from all"
        " images."
    ),
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 2**20),
    metavar="N",
    default=256,
    show_default=True,
    help="Images per batch, for the estimate of GPU memory.",
)
@click.option(
    "--max-size",
    type=byte_size,
    metavar="SIZE",
    default="8MiB",
    show_default=True,
    help=(
        "Limit on the size of the HTML file. It contains fewer pictures if necessary, and says so."
    ),
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of the random images.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that are not reports.")
@click.option("--json", "as_json", is_flag=True, help="Also print the JSON.")
@workers_option
def report(
    dataset: str,
    *,
    out: str,
    source: str | None,
    sample: int,
    batch_size: int,
    max_size: int,
    seed: int,
    overwrite: bool,
    as_json: bool,
    workers: int | None,
) -> ExitStatus:
    """Write one HTML page that shows DATASET, a folder or a URL.

    The page shows splits, classes, sizes, duplicates, rejected images, images that stand out,
    contact sheets, and what training will cost. It begins with what to look at. It is one file that
    needs neither network nor scripts. The exit status is 1 if files are missing or damaged, or an
    image cannot be decoded.
    """
    import os

    from dataprep.report.make import ReportOptions, check_out, json_path, make_report, write_report

    check_out(out, overwrite=overwrite)
    if source is not None and not os.path.isdir(source):
        raise CallError(
            f"--src {source} is not a folder", hint="give the folder that the dataset was made from"
        )
    options = ReportOptions(source, sample, batch_size, max_size, seed, workers)
    with ProgressBar("decoding") as bar:
        made = make_report(dataset, options, bar)
    write_report(made, out)
    facts = made.report
    if as_json:
        click.echo(made.json, nl=False)
    else:
        for finding in facts.findings[:_PRINTED]:
            print_line(f"{finding.severity}: {finding.title}")
        if len(facts.findings) > _PRINTED:
            print_line(
                f"and {plural(len(facts.findings) - _PRINTED, 'finding')} more in the report"
            )
        print_line(f"{out} and {json_path(out)} are written")
    return ExitStatus.DATA_PROBLEM if facts.problems or facts.looks.failed else ExitStatus.SUCCESS
