"""The options of ``dataprep convert`` that say how samples are put into shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import click

from dataprep.commands.param_types import Count, byte_size
from dataprep.commands.sections import option, pass_record, section
from manifests.schema import Format

_SHARDS = section(
    "Shards",
    option(
        "--fmt",
        type=click.Choice(get_args(Format)),
        default="tfrecord",
        show_default=True,
        help="Record format of the shards.",
    ),
    option(
        "--shard-size",
        type=byte_size,
        metavar="SIZE",
        default="256MiB",
        show_default=True,
        help="Maximum total size of the images in one shard.",
    ),
    option(
        "--samples-per-shard",
        type=Count(1),
        metavar="N",
        help="Samples per shard. Overrides --shard-size.",
    ),
    option(
        "--seed",
        type=Count(0),
        metavar="N",
        default=0,
        show_default=True,
        help="Random seed of the shuffle and of the new splits.",
    ),
    option(
        "--no-shuffle",
        is_flag=True,
        help=(
            "Store the images in the order of the source. Readers that shuffle only within a buffer"
            " need the shuffle."
        ),
    ),
)


@dataclass(frozen=True)
class ShardArguments:
    """The values of these options; `None` means that an option was not given."""

    fmt: Format
    shard_size: int
    samples_per_shard: int | None
    seed: int
    no_shuffle: bool


add_shard_options = pass_record("shards", ShardArguments, _SHARDS)
