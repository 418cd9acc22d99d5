"""``dataprep convert``: images into shards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataprep import engines
from dataprep.commands import image_options
from dataprep.commands.base import Command, classes_option, print_error, print_note, read_classes, workers_option
from dataprep.commands.param_types import VALIDATION, Bytes, Fraction
from dataprep.humanize import contents, count, duration, size
from manifests.errors import CallError, ExitStatus
from manifests.text import printable

if TYPE_CHECKING:
    from dataprep.options import Options
    from dataprep.plan import ShardPlan
    from dataprep.shards import ShardResult
    from dataprep.sources import Source


@click.command(cls=Command)
@click.option(
    "--src",
    required=True,
    metavar="SRC",
    help="An ImageFolder, a folder with train/ and val/, PaddleClas' or Kaggle's ImageNet, Market-1501 and its like, "
    "a list, CSV, TSV, Parquet.",
)
@click.option(
    "--fmt",
    type=click.Choice(["tfrecord", "webdataset"]),
    default="tfrecord",
    show_default=True,
    help="Record format of the shards.",
)
@click.option("--out", metavar="OUT", help="Folder to write into.  [default: <src name>-<fmt> in this folder]")
@click.option(
    "--shard-size",
    type=Bytes(),
    default="256MiB",
    show_default=True,
    help="A shard closes before its images exceed this.",
)
@click.option("--samples-per-shard", type=click.IntRange(1), help="Cut shards by count in place of size.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="For the shuffle and the split.")
@click.option(
    "--no-shuffle",
    is_flag=True,
    help="Keep the order of names. Readers shuffle within a buffer only, so training wants the shuffle.",
)
@click.option(
    "--val-fraction",
    type=Fraction(0, 1, max_open=True),
    default=0.0,
    metavar="FRACTION",
    help="Move this share of train into a new split val.",
)
@click.option("--split-by", metavar="COLUMN", help="With --val-fraction: train and val share no value of this column.")
@click.option(
    "--validate",
    type=VALIDATION,
    default="header",
    show_default=True,
    help="Trust the images; read their headers and look for their ends; or decode them in full.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    default=178_956_970,
    show_default=True,
    help="An image with more pixels is rejected as a decompression bomb.",
)
@click.option(
    "--max-rejected",
    type=Fraction(0, 1),
    default=0.01,
    show_default=True,
    metavar="FRACTION",
    help="Exit with 1 if a larger share of the images was rejected.",
)
@image_options.options
@click.option("--image-root", metavar="DIR", help="Folder that a list's or a table's paths are relative to.")
@click.option("--path-column", metavar="NAME", help="Column of a table that has the paths.")
@click.option("--label-column", metavar="NAME", help="Column of a table, or part of --pattern, that has the labels.")
@click.option("--split-column", metavar="NAME", help="Column of a table that has the splits.")
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="How a folder's images are named, '{identity}_c{camera}s*' say: a {part} is a column, * any text, "
    "? one character. The label is {identity} or {label}.",
)
@classes_option
@workers_option
@click.option("--overwrite", is_flag=True, help="Replace a dataset of other options in OUT.")
@click.option("--dry-run", is_flag=True, help="Print the plan and write nothing.")
def convert(**call: Any) -> ExitStatus:
    """Turn images into shards, each with its DALI index and sample table.

    Unless they are to be resized, the images' bytes are stored untouched. What is broken goes to rejected.jsonl
    with the reason, never into a shard. Interrupted or killed, the same command goes on where it stopped.
    """
    with closing(engines.LocalEngine(call["workers"])) as engine:
        if not call["dry_run"]:
            engine.start("dataprep.shards")  # while this process finds out what there is to do
        return _convert(call, engine)


def _convert(call: dict[str, Any], engine: engines.Engine) -> ExitStatus:
    from dataprep.convert import convert_dataset
    from dataprep.options import Options
    from dataprep.resume import check_output
    from dataprep.sources import SourceOptions, read_source

    downscale, raw = image_options.read(call)
    options = Options(
        fmt=call["fmt"],
        shard_bytes=call["shard_size"],
        shard_samples=call["samples_per_shard"],
        shuffle=not call["no_shuffle"],
        seed=call["seed"],
        val_fraction=call["val_fraction"],
        split_by=call["split_by"],
        validate=call["validate"],
        max_pixels=call["max_pixels"],
        downscale=downscale,
        raw=raw,
    )
    source = read_source(
        call["src"],
        SourceOptions(
            call["image_root"],
            call["path_column"],
            call["label_column"],
            call["split_column"],
            read_classes(call["classes"]),
            call["pattern"],
        ),
    )
    src = Path(call["src"]).absolute()
    if call["out"] == "":
        raise CallError("--out is empty", hint="name a folder")
    out = call["out"] or f"{src.name if src.is_dir() else src.stem}-{call['fmt']}"
    held = f"{count(len(source), 'image')} in {count(len(source.classes), 'class')}"
    click.echo(f"{printable(call['src'])}: {source.layout}, {held}", err=True)
    for notice in source.notices:
        print_note(notice)
    check_output(source, out)
    if call["dry_run"]:
        _print_plan(source, out, options, engine.workers, overwrite=call["overwrite"])
        return ExitStatus.SUCCESS
    with _ImagesBar() as bar:
        result = convert_dataset(source, out, options, engine=engine, overwrite=call["overwrite"], progress=bar)
    return _print_result(result, out, call["max_rejected"])


class _ImagesBar:
    """Progress on standard error, where that is a terminal: images/s, MB/s, time left; all of this run alone."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._bytes = 0

    def start(self, total: int) -> None:
        """Show the bar; `total` is the number of images."""
        from tqdm import tqdm

        self._bar = tqdm(total=total, unit=" images", smoothing=0.1, disable=None, dynamic_ncols=True)

    def advance(self, done: ShardResult) -> None:
        """Count the images and bytes of one finished shard."""
        if done.resumed and not self._bar.disable:  # neither the rate nor the time that is left follow from these
            self._bar.initial += done.images
            self._bar.n += done.images
            self._bar.last_print_n = self._bar.n
            self._bar.refresh()
            return
        self._bytes += done.bytes
        self._bar.update(done.images)
        seconds = self._bar.format_dict["elapsed"]
        if seconds:
            self._bar.set_postfix_str(f"{self._bytes / seconds / 1e6:,.0f} MB/s")

    def __enter__(self) -> _ImagesBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _print_plan(source: Source, out: str, options: Options, workers: int, *, overwrite: bool) -> None:
    import shutil

    from dataprep.convert import try_some
    from dataprep.plan import make_plan
    from dataprep.resume import check_writable, find_resumable

    plan = make_plan(source, options)
    there = check_writable(out)
    done = find_resumable(plan, source, out, options, overwrite=overwrite).shards
    for split in plan.splits:
        shards = [shard for shard in plan.shards if shard.split == split]
        samples = sum(len(shard.rows) for shard in shards)
        held = f"{count(samples, 'image')}, {size(_length(source, shards))}"
        click.echo(f"{split}: {held}, {count(len(shards), 'shard')}")
    left = [shard for shard in plan.shards if shard.name not in done]
    if done:
        click.echo(f"done by an earlier run: {count(len(done), 'shard')}; to do: {count(len(left), 'shard')}")
    trial = try_some(source, left, options)
    images = sum(len(shard.rows) for shard in left)
    length = trial.stored * images if options.alters else _length(source, left)
    free = shutil.disk_usage(there).free
    click.echo(f"out: {out}, {'about ' if options.downscale else ''}{size(length)} to write, {size(free)} free")
    if not left:
        return
    click.echo(image_options.costs(source, left, options, trial))
    busy = min(workers, len(left))
    seconds = images / trial.rate / busy
    click.echo(
        f"time: about {duration(seconds)} with {count(busy, 'worker')}, at {trial.rate:,.0f} images/s each, "
        f"measured by reading {trial.tried:,} of them (writing not included)"
    )
    if free < length * 1.02:
        print_note("the disk does not have enough free space")


def _length(source: Source, shards: Sequence[ShardPlan]) -> int:
    return sum(int(source.size[shard.rows].clip(min=0).sum()) for shard in shards)


def _print_result(result: Any, out: str, max_rejected: float) -> ExitStatus:
    for split in result.manifest.splits:
        click.echo(f"{split.name}: {contents(split.samples, split.bytes, len(split.shards))}")
    if result.resumed:
        click.echo(
            f"{count(result.resumed, 'shard')} {'was' if result.resumed == 1 else 'were'} done by an earlier run"
        )
    for line in image_options.table(result) if result.changes else ():
        click.echo(line)
    if result.rejected:
        share = result.rejected / result.images
        click.echo(
            f"rejected: {result.rejected:,} of {count(result.images, 'image')} ({share:.2%}), see {out}/rejected.jsonl"
        )
        if share > max_rejected:
            print_error(f"more than --max-rejected {max_rejected:g} of the images were rejected")
            return ExitStatus.DATA_PROBLEM
    click.echo(f"{out} is complete")
    return ExitStatus.SUCCESS
