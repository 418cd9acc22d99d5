"""The options of ``dataprep convert`` that say how samples are put into shards."""

from __future__ import annotations

from typing import get_args

import click

from dataprep.commands.param_types import byte_size
from dataprep.commands.sections import section
from manifests.schema import Format

add_shard_options = section(
    "Shards",
    click.option(
        "--fmt",
        type=click.Choice(get_args(Format)),
        default="tfrecord",
        show_default=True,
        help="Record format of the shards.",
    ),
    click.option(
        "--shard-size",
        type=byte_size,
        metavar="SIZE",
        default="256MiB",
        show_default=True,
        help="Maximum total size of the images in one shard.",
    ),
    click.option(
        "--samples-per-shard",
        type=click.IntRange(1),
        metavar="N",
        help="Samples per shard. Overrides --shard-size.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        metavar="N",
        default=0,
        show_default=True,
        help="Random seed of the shuffle and of the new splits.",
    ),
    click.option(
        "--no-shuffle",
        is_flag=True,
        help="Store the images in the order of the source. Readers that shuffle only within a buffer need the shuffle.",
    ),
)
