"""``dataprep convert``: write images into shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, get_args

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
from dataprep.commands.engine_options import EngineName, add_engine_options, make_engine
from dataprep.commands.image_options import add_image_options, resolve_images
from dataprep.commands.param_types import Fraction, byte_size
from dataprep.commands.progress_bars import ImagesBar, ShardsBar
from dataprep.humanize import format_bytes, format_totals
from dataprep.images.base import MAX_PIXELS, Validation
from dataprep.options import Filter, Fit, Options, Subsampling
from manifests.errors import CallError, ExitStatus
from manifests.interrupts import cleanup_on_interrupt
from manifests.schema import Format, Store
from manifests.text import one_line, plural

if TYPE_CHECKING:
    from dataprep.convert import ConvertResult


@click.command(cls=Command)
@click.option(
    "--src",
    required=True,
    metavar="SRC",
    help="The images: an ImageFolder, a folder with train/ and val/, ImageNet as Kaggle or PaddleClas distribute it, "
    "Market-1501 and similar re-ID datasets, Parquet files with images (Hugging Face), a list, or a CSV, TSV, JSON "
    "Lines or Parquet table.",
)
@click.option(
    "--fmt",
    type=click.Choice(get_args(Format)),
    default="tfrecord",
    show_default=True,
    help="Record format of the shards.",
)
@click.option("--out", metavar="OUT", help="Output folder.  [default: <SRC name>-<fmt> in the current folder]")
@click.option(
    "--shard-size",
    type=byte_size,
    metavar="SIZE",
    default="256MiB",
    show_default=True,
    help="Maximum total size of the images in one shard.",
)
@click.option(
    "--samples-per-shard",
    type=click.IntRange(1),
    metavar="N",
    help="Samples per shard. Overrides --shard-size.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Random seed of the shuffle and of the new splits.",
)
@click.option(
    "--no-shuffle",
    is_flag=True,
    help="Store the images in the order of the source. Readers that shuffle only within a buffer need the shuffle.",
)
@click.option(
    "--val-fraction",
    type=Fraction(0, 1, max_open=True),
    default=0.0,
    metavar="FRACTION",
    help="Move this fraction of the train split to a new val split, stratified by label.",
)
@click.option(
    "--test-fraction",
    type=Fraction(0, 1, max_open=True),
    default=0.0,
    metavar="FRACTION",
    help="Move this fraction of the train split to a new test split, stratified by label.",
)
@click.option(
    "--split-by",
    metavar="COLUMN",
    help="With --val-fraction or --test-fraction: keep images with the same value of COLUMN in the same split, instead "
    "of stratifying. Every source has the column label.",
)
@click.option(
    "--validate",
    type=click.Choice(get_args(Validation)),
    default="header",
    show_default=True,
    help="none: do not check the images. header: check the header and the end of each image. decode: also decode "
    "every image.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    metavar="N",
    default=MAX_PIXELS,
    show_default=True,
    help="Reject images with more than N pixels, which may be decompression bombs. A value above the default also "
    "accepts small files with very many pixels.",
)
@click.option(
    "--max-rejected",
    type=Fraction(0, 1),
    default=0.01,
    show_default=True,
    metavar="FRACTION",
    help="Exit with status 1 if more than this fraction of the images is rejected.",
)
@add_image_options
@click.option("--image-root", metavar="DIR", help="Folder that the paths in a list or table are relative to.")
@click.option("--path-column", metavar="NAME", help="Table column that contains the paths.")
@click.option("--label-column", metavar="NAME", help="Table column, or {part} of --pattern, that contains the labels.")
@click.option("--split-column", metavar="NAME", help="Table column that contains the split names.")
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="How image files in a folder are named, for example '{identity}_c{camera}s*'. A {part} becomes a column, "
    "* matches any text, ? one character. The label is {identity} or {label}, or else the class folder.",
)
@classes_option
@max_classes_option
@workers_option
@add_engine_options
@click.option(
    "--overwrite",
    is_flag=True,
    help="Start anew instead of resuming, and replace a dataset in OUT that was made from another source or with other "
    "options.",
)
@click.option(
    "--check-shards",
    is_flag=True,
    help="Read the shards that an earlier run finished, and write damaged ones again. Indexes and tables are always "
    "checked.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
def convert(
    *,
    src: str,
    fmt: Format,
    out: str | None,
    shard_size: int,
    samples_per_shard: int | None,
    seed: int,
    no_shuffle: bool,
    val_fraction: float,
    test_fraction: float,
    split_by: str | None,
    validate: Validation,
    max_pixels: int,
    max_rejected: float,
    resize_shorter: int | None,
    max_side: int | None,
    only_above: int | None,
    quality: int | None,
    subsampling: Subsampling | None,
    filter: Filter | None,  # noqa: A002  (the name of the option)
    store: Store,
    raw_size: int | None,
    raw_fit: Fit | None,
    image_root: str | None,
    path_column: str | None,
    label_column: str | None,
    split_column: str | None,
    pattern: str | None,
    classes: str | None,
    max_classes: int,
    workers: int | None,
    engine: EngineName,
    address: str | None,
    overwrite: bool,
    check_shards: bool,
    dry_run: bool,
) -> ExitStatus:
    """Write images into shards.

    Each shard gets a DALI index and a sample table. Images are stored byte for byte, unless you resize them or set
    --store raw. Broken images are never written to a shard; rejected.jsonl lists them with the reason. If the command
    is interrupted or killed, run it again to resume.
    """
    with closing(make_engine(engine, address, workers)) as runner:
        if not dry_run:
            runner.start("dataprep.shards")  # the worker starts while this process reads the source
        downscale, raw = resolve_images(
            store=store,
            resize_shorter=resize_shorter,
            max_side=max_side,
            only_above=only_above,
            quality=quality,
            subsampling=subsampling,
            resampling=filter,
            raw_size=raw_size,
            raw_fit=raw_fit,
        )
        options = Options(
            fmt=fmt,
            shard_bytes=shard_size,
            shard_samples=samples_per_shard,
            shuffle=not no_shuffle,
            seed=seed,
            val_fraction=val_fraction,
            test_fraction=test_fraction,
            split_by=split_by,
            validate=validate,
            max_pixels=max_pixels,
            downscale=downscale,
            raw=raw,
        )
        if out == "":
            raise CallError("--out is empty", hint="set a folder")

        from dataprep.convert import convert_dataset
        from dataprep.output import check_output
        from dataprep.sources import SourceOptions, read_source

        source = read_source(
            src,
            SourceOptions(
                image_root=image_root,
                path_column=path_column,
                label_column=label_column,
                split_column=split_column,
                classes=read_classes(classes),
                pattern=pattern,
                max_classes=max_classes,
            ),
        )
        contents = f"{plural(len(source), 'image')} in {plural(len(source.classes), 'class')}"
        click.echo(one_line(f"{src}: {source.layout}, {contents}"), err=True)
        for notice in source.notices:
            print_note(notice)
        out = out or _default_out(src, fmt)
        check_output(source, out)
        if dry_run:
            from dataprep.commands.dry_run import print_plan

            print_plan(source, out, options, runner.workers, overwrite=overwrite)
            return ExitStatus.SUCCESS
        with ShardsBar("checking") as check_bar, ImagesBar() as bar, cleanup_on_interrupt():
            result = convert_dataset(
                source,
                out,
                options,
                engine=runner,
                overwrite=overwrite,
                check_shards=check_shards,
                progress=bar,
                check_progress=check_bar,
            )
    return _print_result(result, out, max_rejected)


def _default_out(src: str, fmt: Format) -> str:
    path = Path(src).absolute()
    return f"{path.name if path.is_dir() else path.stem}-{fmt}"


def _print_result(result: ConvertResult, out: str, max_rejected: float) -> ExitStatus:
    for notice in result.notices:
        print_note(notice)
    for split in result.manifest.splits:
        print_line(f"{split.name}: {format_totals(split.samples, split.bytes, len(split.shards))}")
    if result.resumed:
        were = "was" if result.resumed == 1 else "were"
        print_line(f"{plural(result.resumed, 'shard')} {were} done by an earlier run")
    if result.changes:
        for line in _change_table(result):
            print_line(line)
    if result.rejected:
        fraction = result.rejected / result.images
        images = f"{result.rejected:,} of {plural(result.images, 'image')} ({fraction:.2%})"
        print_line(f"rejected: {images}, see {out}/rejected.jsonl")
        print_failed(result.failed)
        if fraction > max_rejected:
            print_error(
                f"the fraction of rejected images is greater than --max-rejected {max_rejected:g}. "
                "Hint: replace these images, or raise --max-rejected to accept the dataset without them."
            )
            return ExitStatus.DATA_PROBLEM
    print_line(f"{out} is complete")
    return ExitStatus.SUCCESS


#: Repairs as the table column ``change`` names them, and what to print for each.
_REPAIRS = {
    "turned": "rotated upright",
    "rgb": "converted to RGB",
    "alpha": "transparency removed",
    "icc": "color profile applied",
}


def _change_table(result: ConvertResult) -> Iterator[str]:
    """Yield the lines of a table: images and bytes before and after, kept, resized and rejected."""
    unchanged = result.changes.get("", (0, 0, 0))
    changed = [counts for change, counts in result.changes.items() if change]
    rows = {"kept": unchanged, "resized": [sum(column) for column in zip((0, 0, 0), *changed, strict=True)]}
    before, after = (sum(counts[column] for counts in rows.values()) for column in (1, 2))
    yield f"{'':10}{'images':>12}{'before':>12}{'after':>12}"
    for name, (images, source_bytes, stored_bytes) in rows.items():
        yield f"{name:10}{images:>12,}{format_bytes(source_bytes):>12}{format_bytes(stored_bytes):>12}"
    yield f"{'rejected':10}{result.rejected:>12,}{format_bytes(result.bytes - before):>12}{'-':>12}"
    yield f"{'all':10}{result.images:>12,}{format_bytes(result.bytes):>12}{format_bytes(after):>12}"
    repairs = {text: _count_changed(result, change) for change, text in _REPAIRS.items()}
    if any(repairs.values()):
        counts = ", ".join(f"{text} {images:,}" for text, images in repairs.items() if images)
        yield f"repaired: {plural(_count_changed(result, *_REPAIRS), 'image')} ({counts})"


def _count_changed(result: ConvertResult, *changes: str) -> int:
    """Count the images that had at least one of these changes."""
    return sum(counts[0] for made, counts in result.changes.items() if not set(changes).isdisjoint(made.split()))
