"""``dataprep index``: index shards that other tools wrote."""

from __future__ import annotations

from typing import get_args

import click

from dataprep.commands.base import (
    Command,
    classes_option,
    max_classes_option,
    print_error,
    print_failed,
    print_line,
    print_note,
    read_classes,
    workers_option,
)
from dataprep.commands.param_types import path_or_url
from dataprep.commands.progress_bars import ProgressBar
from dataprep.humanize import format_totals
from dataprep.images.base import Validation
from dataprep.options import IndexOptions
from manifests.errors import CallError, ExitStatus
from manifests.labels import LabelType
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.process.text import plural


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=path_or_url, required=True, metavar="PATH...")
@click.option(
    "--image",
    metavar="NAME",
    help=(
        "TFRecord feature or WebDataset extension of the image. Separate several extensions with"
        " commas."
    ),
)
@click.option(
    "--label",
    metavar="NAME",
    help="TFRecord feature or WebDataset extension of the label, or of the caption.",
)
@click.option(
    "--label-type",
    type=click.Choice(("class", "none", "caption")),
    default="class",
    show_default=True,
    help=(
        "What the labels are. caption: text in .txt files, or in the feature image/caption, caption"
        " or text."
    ),
)
@click.option(
    "--unlabelled", is_flag=True, help="The records have no labels: the same as --label-type none."
)
@click.option(
    "--label-key", metavar="KEY", help="Member of a sample's .json file that contains the label."
)
@click.option(
    "--label-offset",
    type=int,
    metavar="N",
    default=0,
    show_default=True,
    help="Number to add to every label, for example -1 if labels start at 1.",
)
@classes_option()
@max_classes_option()
@click.option(
    "--split",
    metavar="NAME",
    help=(
        "Name of the split that all shards belong to.  [default: from their file and folder names]"
    ),
)
@click.option(
    "--validate",
    type=click.Choice(get_args(Validation)),
    default="none",
    show_default=True,
    help=(
        "none: read only record and image headers. header: read everything and compute checksums. "
        "decode: also decode every image."
    ),
)
@workers_option
@click.option("--overwrite", is_flag=True, help="Replace existing index files that differ.")
def index(
    paths: tuple[str, ...],
    *,
    image: str | None,
    label: str | None,
    label_type: LabelType,
    unlabelled: bool,
    label_key: str | None,
    label_offset: int,
    classes: str | None,
    max_classes: int,
    split: str | None,
    validate: Validation,
    workers: int | None,
    overwrite: bool,
) -> ExitStatus:
    """Index shards that other tools wrote.

    Writes a DALI index and a sample table for each shard, and a manifest. Shards are never changed.

    Each PATH is a folder of .tar or .tfrecord files, or one such file, or a URL of either; all
    files must be in one folder. Shards written by TensorFlow, the webdataset library, img2dataset
    or tar can be indexed.
    """
    from dataprep.index.index import index_shards

    if unlabelled and label_type == "caption":
        raise CallError(
            "--unlabelled and --label-type caption contradict each other", hint="leave one out"
        )
    options = IndexOptions(
        image=image,
        label=label,
        label_key=label_key,
        label_offset=label_offset,
        classes=read_classes(classes),
        max_classes=max_classes,
        split=split,
        validate=validate,
        overwrite=overwrite,
        label_type="none" if unlabelled else label_type,
    )
    with ProgressBar("indexing") as bar, cleanup_on_interrupt():
        result = index_shards(paths, options, workers=workers, progress=bar)
    for error in result.errors:
        print_error(str(error))
    if result.manifest is None:
        print_error(
            f"{plural(len(result.errors), 'shard')} cannot be indexed, so {result.folder} was not"
            " changed"
        )
        return ExitStatus.DATA_PROBLEM
    for notice in result.notices:
        print_note(notice)
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
