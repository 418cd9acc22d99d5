"""The options of ``dataprep convert`` that divide the samples into splits, and that treat duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import click

from dataprep.commands.param_types import Fraction
from dataprep.commands.sections import option, pass_record, section
from dataprep.options import BY_DUPLICATES, DEFAULT_DISTANCE, MAX_DISTANCE, Options, Resolution
from manifests.errors import CallError

_SPLITS = section(
    "Splits and duplicates",
    option(
        "--val-fraction",
        type=Fraction(0, 1, max_open=True),
        default=0.0,
        metavar="FRACTION",
        help="Move this fraction of the train split to a new val split, stratified by label.",
    ),
    option(
        "--test-fraction",
        type=Fraction(0, 1, max_open=True),
        default=0.0,
        metavar="FRACTION",
        help="Move this fraction of the train split to a new test split, stratified by label.",
    ),
    option(
        "--split-by",
        metavar="COLUMN",
        help=(
            "With --val-fraction or --test-fraction: keep images with the same value of COLUMN in"
            " the same split, instead of stratifying. Every source with classes has the column"
            " label. duplicates: keep copies in the same split, and stratify."
        ),
    ),
    option(
        "--duplicates",
        type=click.Choice(get_args(Resolution)),
        default="keep",
        show_default=True,
        help=(
            "What to do with images that occur more than once, also in another size, quality or"
            " orientation. drop: convert one of them, and list the others in rejected.jsonl."
            " same-split: move them to one split."
        ),
    ),
    option(
        "--distance",
        type=click.IntRange(-1, MAX_DISTANCE),
        metavar="N",
        default=DEFAULT_DISTANCE,
        show_default=True,
        help=(
            "With --duplicates or --split-by duplicates: the 256-bit perceptual hashes of copies"
            " differ in at most N bits. -1: only images with the same bytes are copies."
        ),
    ),
    option(
        "--hash",
        is_flag=True,
        help=(
            "Store a perceptual hash of each image in the sample tables. dataprep duplicates and"
            " report use it."
        ),
    ),
)


@dataclass(frozen=True)
class SplitArguments:
    """The values of these options; `None` means that an option was not given."""

    val_fraction: float
    test_fraction: float
    split_by: str | None
    duplicates: Resolution
    distance: int
    hash: bool


add_split_options = pass_record("splits", SplitArguments, _SPLITS)


def check_duplicates(options: Options) -> None:
    """Check the options that treat duplicates.

    Raises:
        CallError: they contradict each other, or one has no effect.

    """
    if options.duplicates == "same-split" and options.split_by not in (None, BY_DUPLICATES):
        raise CallError(
            f"--split-by {options.split_by} excludes --duplicates same-split: copies could be in"
            " groups of different splits",
            hint="use --duplicates drop, or leave one of them out",
        )
    if not options.finds_duplicates and options.distance != DEFAULT_DISTANCE:
        raise CallError(
            f"--distance {options.distance} has no effect",
            hint="add --duplicates drop, --duplicates same-split or --split-by duplicates",
        )
