"""``dataprep index``: indexes for shards made elsewhere."""

from __future__ import annotations

from typing import Any

import click

from dataprep.commands.base import (
    Command,
    ShardsBar,
    classes_option,
    print_error,
    print_note,
    read_classes,
    workers_option,
)
from dataprep.commands.param_types import VALIDATION
from dataprep.humanize import contents, count
from manifests.errors import ExitStatus


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--image",
    metavar="NAME",
    help="Feature or extension that holds the image; extensions with commas where they are mixed.",
)
@click.option("--label", metavar="NAME", help="Feature or extension that holds the label.")
@click.option("--label-key", metavar="KEY", help="Member of the .json that holds the label.")
@click.option(
    "--label-offset",
    type=int,
    default=0,
    show_default=True,
    help="Added to every label: -1 where they count from 1.",
)
@classes_option
@click.option("--split", metavar="NAME", help="The split these shards are.  [default: read from their names]")
@click.option(
    "--validate",
    type=VALIDATION,
    default="none",
    show_default=True,
    help="Read headers only; read everything and make checksums; or decode the images too.",
)
@workers_option
@click.option("--overwrite", is_flag=True, help="Replace index files that are there and differ.")
def index(**call: Any) -> ExitStatus:
    """Make DALI indexes, sample tables and a manifest for shards made elsewhere.

    PATH is a folder of .tar or .tfrecord files, or such files of one folder. They may come from TensorFlow,
    the webdataset library, tar or img2dataset, and are never changed.
    """
    from dataprep.index import index_shards
    from dataprep.options import IndexOptions

    options = IndexOptions(
        call["image"], call["label"], call["label_key"], call["label_offset"], read_classes(call["classes"]),
        call["split"], call["validate"], call["overwrite"],
    )  # fmt: skip

    with ShardsBar() as bar:
        result = index_shards(call["paths"], options, workers=call["workers"], progress=bar)
    for error in result.errors:
        print_error(str(error))
    if result.manifest is None:
        failed = count(len(result.errors), "shard")
        print_error(f"{failed} could not be indexed, so nothing in {result.folder} was changed")
        return ExitStatus.DATA_PROBLEM
    for notice in result.notices:
        print_note(notice)
    for split in result.manifest.splits:
        click.echo(f"{split.name}: {contents(split.samples, split.bytes, len(split.shards))}")
    if result.rejected:
        click.echo(f"left out of the index: {count(result.rejected, 'record')}, see {result.folder}/rejected.jsonl")
        return ExitStatus.DATA_PROBLEM
    click.echo(f"{result.folder} is complete")
    return ExitStatus.SUCCESS
