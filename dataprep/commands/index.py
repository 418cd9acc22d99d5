"""``dataprep index``: indexes for shards made elsewhere."""

from __future__ import annotations

from typing import Any

import click

from dataprep.commands.base import (
    WRONG_DATA,
    ShardsBar,
    classes_option,
    command,
    read_classes,
    say,
    workers_option,
)
from dataprep.commands.param_types import VALIDATION
from dataprep.humanize import contents, count


@command
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
def index(**call: Any) -> int:
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
        say(f"dataprep: {error}")
    if result.manifest is None:
        failed = count(len(result.errors), "shard")
        say(f"dataprep: {failed} could not be indexed, so nothing in {result.folder} was changed")
        return WRONG_DATA
    for notice in result.notices:
        say(f"note: {notice}")
    for split in result.manifest.splits:
        click.echo(f"{split.name}: {contents(split.samples, split.bytes, len(split.shards))}")
    if result.rejected:
        click.echo(f"left out of the index: {count(result.rejected, 'record')}, see {result.folder}/rejected.jsonl")
        return WRONG_DATA
    click.echo(f"{result.folder} is complete")
    return 0
