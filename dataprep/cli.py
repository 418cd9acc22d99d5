"""The command line: it parses and prints; nothing else. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from dataprep import engines, storing
from dataprep.words import count, duration, size
from manifests.errors import CallError, DamagedError, DatasetError, SourceError, StoppedError, printable

if TYPE_CHECKING:
    from dataprep.options import Options
    from dataprep.plan import ShardPlan
    from dataprep.shards import Done
    from manifests.sources import Source

#: Exit status: the call was wrong; the machine stopped the work; interrupted by the user.
WRONG_CALL, STOPPED, INTERRUPTED = 2, 3, 130
#: Done, and something is wrong with the data.
WRONG_DATA = 1

Command = TypeVar("Command", bound=Callable[..., Any])


class Bytes(click.ParamType[int]):
    """A length in bytes with a unit: 256MiB, 1GB, 4096."""

    name = "size"
    _UNITS = {"": 1, "b": 1} | {
        prefix + end: base**power
        for power, prefix in enumerate("kmgt", 1)
        for end, base in (("", 1024), ("b", 1000), ("ib", 1024))
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn ``256MiB`` into 268435456."""
        if isinstance(value, int):
            return value
        digits = value.strip().rstrip("BbIiKkMmGgTt ")
        unit = value.strip()[len(digits) :].strip().lower()
        try:
            length = int(float(digits) * self._UNITS[unit])
        except (KeyError, ValueError, OverflowError):
            self.fail(f"{value!r} is no size; write it like 256MiB, 1GB or 4096", param, ctx)
        if length < 1:
            self.fail(f"{value!r} is less than one byte", param, ctx)
        return min(length, 1 << 60)


class Fraction(click.FloatRange):
    """A share from 0 to 1; NaN is none."""

    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn ``0.01`` into a number."""
        number = float(super().convert(value, param, ctx))
        if number != number:  # noqa: PLR0124  (only NaN differs from itself)
            self.fail(f"{value!r} is no number from 0 to 1", param, ctx)
        return number


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dataprep-loaders", prog_name="dataprep")
def main() -> None:
    """Turn image folders, lists and tables into TFRecord or WebDataset shards with their DALI indexes.

    \b
    dataprep convert --src ILSVRC2012/ --fmt tfrecord    shards, from images
    dataprep index   some-one-elses-shards/              an index, for shards made elsewhere
    dataprep verify  ILSVRC2012-tfrecord/                what is wrong, and where
    dataprep info    ILSVRC2012-tfrecord/                what is in it

    Exit status: 0 done; 1 done, and something is wrong with the data; 2 the call was wrong;
    3 the machine stopped the work (full disk, lost source), run it again to go on; 130 interrupted.
    """  # noqa: D301  (click reads the backslash)


def command(function: Command) -> Command:
    """Make a command of a function: errors become one line and an exit status."""

    def guarded(**options: Any) -> None:
        try:
            status = function(**options)
        except DatasetError as error:
            _fail(str(error), _status_of(error))
        except BrokenPipeError:  # `dataprep info ... | head`
            sys.stderr.close()
            sys.exit(0)
        except KeyboardInterrupt:
            _fail("interrupted; what was finished is kept, and the same command goes on from there", INTERRUPTED)
        sys.exit(status or 0)

    guarded.__name__, guarded.__doc__ = function.__name__, function.__doc__
    if hasattr(function, "__click_params__"):
        guarded.__click_params__ = function.__click_params__  # type: ignore[attr-defined]
    return cast("Command", main.command()(guarded))


def _status_of(error: DatasetError) -> int:
    if isinstance(error, StoppedError):
        return STOPPED
    return WRONG_DATA if isinstance(error, DamagedError) else WRONG_CALL


def _fail(message: str, status: int) -> None:
    click.echo(f"dataprep: {message}", err=True)
    sys.exit(status)


def _say(message: str) -> None:
    click.echo(message, err=True)


workers_option = click.option("--workers", type=click.IntRange(1), help="Processes.  [default: one a processor]")

# --- convert ------------------------------------------------------------------------------------


@command
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
    type=click.Choice(["none", "header", "decode"]),
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
@storing.options
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
@click.option("--classes", metavar="FILE", help="Class names in label order, one a line.")
@workers_option
@click.option("--overwrite", is_flag=True, help="Replace a dataset of other options in OUT.")
@click.option("--dry-run", is_flag=True, help="Print the plan and write nothing.")
def convert(**call: Any) -> int:
    """Turn images into shards, each with its DALI index and sample table.

    Unless they are to be resized, the images' bytes are stored untouched. What is broken goes to rejected.jsonl
    with the reason, never into a shard. Interrupted or killed, the same command goes on where it stopped.
    """
    with closing(engines.Engine(call["workers"])) as engine:
        if not call["dry_run"]:
            engine.start("dataprep.shards")  # while this process finds out what there is to do
        return _convert(call, engine)


def _convert(call: dict[str, Any], engine: engines.Engine) -> int:
    from dataprep import convert as work
    from dataprep.earlier import check_out
    from dataprep.options import Options
    from manifests.sources import SourceOptions, read_source

    downscale, raw = storing.read(call)
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
            _classes(call["classes"]),
            call["pattern"],
        ),
    )
    src = Path(call["src"]).absolute()
    if call["out"] == "":
        raise CallError("--out is empty", mend="name a folder")
    out = call["out"] or f"{src.name if src.is_dir() else src.stem}-{call['fmt']}"
    held = f"{count(len(source), 'image')} in {count(len(source.classes), 'class')}"
    _say(f"{printable(call['src'])}: {source.layout}, {held}")
    for notice in source.notices:
        _say(f"note: {notice}")
    check_out(source, out)
    if call["dry_run"]:
        _print_plan(source, out, options, engine.workers, overwrite=call["overwrite"])
        return 0
    with _bar(source) as bar:
        result = work.convert(source, out, options, engine=engine, overwrite=call["overwrite"], progress=bar)
    return _print_result(result, out, call["max_rejected"])


def _classes(file: str | None) -> tuple[str, ...] | None:
    if file is None:
        return None
    try:
        names = tuple(line.strip() for line in Path(file).read_text("utf-8-sig").rstrip().split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise CallError(f"--classes {file}: {getattr(error, 'strerror', None) or error}") from None
    if not any(names):
        raise SourceError("names no class", file=file)
    if "" in names:
        raise SourceError("has a blank line where a class was expected", file=file, line=names.index("") + 1)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"names {twice!r} twice", file=file, mend="a class has one line")
    return names


class _bar:  # noqa: N801  (used as a function)
    """Progress on standard error, where that is a terminal: images/s, MB/s, time left; all of this run alone."""

    def __init__(self, source: Source) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=len(source), unit=" images", smoothing=0.1, disable=None, dynamic_ncols=True)
        self._bytes = 0

    def __call__(self, done: Done) -> None:
        if done.earlier and not self._bar.disable:  # neither the rate nor the time that is left follow from these
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

    def __enter__(self) -> _bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


def _print_plan(source: Source, out: str, options: Options, workers: int, *, overwrite: bool) -> None:
    import shutil

    from dataprep import convert as work
    from dataprep.earlier import check_writable, find_earlier
    from dataprep.plan import make_plan

    plan = make_plan(source, options)
    there = check_writable(out)
    done = find_earlier(plan, source, out, options, overwrite=overwrite).done
    for split in plan.splits:
        shards = [shard for shard in plan.shards if shard.split == split]
        samples = sum(len(shard.rows) for shard in shards)
        held = f"{count(samples, 'image')}, {size(_length(source, shards))}"
        click.echo(f"{split}: {held}, {count(len(shards), 'shard')}")
    left = [shard for shard in plan.shards if shard.name not in done]
    if done:
        click.echo(f"done by an earlier run: {count(len(done), 'shard')}; to do: {count(len(left), 'shard')}")
    trial = work.try_some(source, left, options)
    images = sum(len(shard.rows) for shard in left)
    length = trial.stored * images if options.alters else _length(source, left)
    free = shutil.disk_usage(there).free
    click.echo(f"out: {out}, {'about ' if options.downscale else ''}{size(length)} to write, {size(free)} free")
    if not left:
        return
    click.echo(storing.costs(source, left, options, trial))
    busy = min(workers, len(left))
    seconds = images / trial.rate / busy
    click.echo(
        f"time: about {duration(seconds)} with {count(busy, 'worker')}, at {trial.rate:,.0f} images/s each, "
        f"measured by reading {trial.tried:,} of them (writing not included)"
    )
    if free < length * 1.02:
        _say("note: the disk has not enough room")


def _length(source: Source, shards: Sequence[ShardPlan]) -> int:
    return sum(int(source.size[shard.rows].clip(min=0).sum()) for shard in shards)


def _print_result(result: Any, out: str, max_rejected: float) -> int:
    for split in result.manifest.splits:
        click.echo(f"{split.name}: {_held(split.samples, split.bytes, len(split.shards))}")
    if result.resumed:
        click.echo(
            f"{count(result.resumed, 'shard')} {'was' if result.resumed == 1 else 'were'} done by an earlier run"
        )
    for line in storing.table(result) if result.changes else ():
        click.echo(line)
    if result.rejected:
        share = result.rejected / result.images
        click.echo(
            f"rejected: {result.rejected:,} of {count(result.images, 'image')} ({share:.2%}), see {out}/rejected.jsonl"
        )
        if share > max_rejected:
            _say(f"dataprep: more than --max-rejected {max_rejected:g} of the images were rejected")
            return WRONG_DATA
    click.echo(f"{out} is complete")
    return 0


# --- index --------------------------------------------------------------------------------------


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
@click.option("--classes", metavar="FILE", help="Class names in label order, one a line.")
@click.option("--split", metavar="NAME", help="The split these shards are.  [default: read from their names]")
@click.option(
    "--validate",
    type=click.Choice(["none", "header", "decode"]),
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
    from dataprep import index as work

    options = work.IndexOptions(
        call["image"], call["label"], call["label_key"], call["label_offset"], _classes(call["classes"]),
        call["split"], call["validate"], call["overwrite"],
    )  # fmt: skip

    with _Shards() as bar:
        result = work.index(call["paths"], options, workers=call["workers"], progress=bar)
    for error in result.errors:
        _say(f"dataprep: {error}")
    if result.manifest is None:
        failed = count(len(result.errors), "shard")
        _say(f"dataprep: {failed} could not be indexed, so nothing in {result.folder} was changed")
        return WRONG_DATA
    for notice in result.notices:
        _say(f"note: {notice}")
    for split in result.manifest.splits:
        click.echo(f"{split.name}: {_held(split.samples, split.bytes, len(split.shards))}")
    if result.rejected:
        click.echo(f"left out of the index: {count(result.rejected, 'record')}, see {result.folder}/rejected.jsonl")
        return WRONG_DATA
    click.echo(f"{result.folder} is complete")
    return 0


# --- verify -------------------------------------------------------------------------------------


@command
@click.argument("out")
@click.option("--decode", is_flag=True, help="Decode every image too.")
@workers_option
def verify(**call: Any) -> int:
    """Re-read a whole dataset and say what is wrong with it, where, and what mends it."""
    from dataprep import verify as work

    with _Shards() as bar:
        report = work.verify(
            call["out"],
            decode=call["decode"],
            workers=call["workers"],
            progress=lambda manifest: bar(sum(len(split.shards) for split in manifest.splits)),
        )
    for fault in report.faults:
        click.echo(str(fault))
    if report.without_checksum:
        click.echo(
            f"{count(report.without_checksum, 'shard')} were indexed without being read and have no checksum: "
            "their images were not checked (`dataprep index --validate header --overwrite` gives them one)"
        )
    if report.faults:
        click.echo(f"{count(len(report.faults), 'fault')} in {call['out']}")
        return WRONG_DATA
    click.echo(f"{call['out']} is sound: {count(report.samples, 'sample')} in {count(report.shards, 'shard')}")
    return 0


class _Shards:
    """Progress over shards on standard error, where that is a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, total: int) -> Callable[[Any], None]:
        from tqdm import tqdm

        self._bar = tqdm(total=total, unit=" shards", disable=None, dynamic_ncols=True)
        return lambda _: self._bar.update()

    def __enter__(self) -> _Shards:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


# --- info ---------------------------------------------------------------------------------------


@command
@click.argument("out")
@click.option("--json", "as_json", is_flag=True, help="For programs: everything, the count of each class included.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 2**20),
    metavar="N",
    help="Foretell the GPU memory that loading batches of N images takes, and what smaller images would make of it.",
)
def info(out: str, *, as_json: bool, batch_size: int | None) -> int:
    """Print what is in a dataset: splits, classes, sizes of images, bytes."""
    import json

    from dataprep.report import describe

    facts = describe(out, batch_size)
    if as_json:
        click.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return 0
    held = f"{count(facts['samples'], 'sample')} in {count(facts['classes'], 'class')}"
    raw = f" raw {'x'.join(map(str, facts['pixels']))}," if "pixels" in facts else ""
    click.echo(f"{out}: {facts['format']},{raw} {held}, {size(facts['bytes'])}")
    for name, split in facts["splits"].items():
        click.echo(f"\n{name}: {_held(split['samples'], split['bytes'], split['shards'])}")
        click.echo(f"  {'':14}" + "".join(f"{word:>10}" for word in split["width"]))
        for word, unit in (("width", "pixels"), ("height", "pixels"), ("size", "bytes")):
            click.echo(f"  {word + ', ' + unit:14}" + "".join(f"{value:>10,}" for value in split[word].values()))
        click.echo(f"  {_counted(split['labels'])}")
        if batch_size:
            _tell_memory(split["gpu_memory"], batch_size)
    if facts["rejected"]:
        click.echo(f"\nrejected: {count(facts['rejected'], 'image')}, see {out}/rejected.jsonl")
    return 0


def _tell_memory(memory: dict[str, dict[str, int]] | None, batch_size: int) -> None:
    if memory is None:
        click.echo("  the images' sizes are not all known, so nothing can be foretold of memory")
        return
    ways = next(iter(memory.values()))
    resized = ", or resized to a shorter side of" if len(ways) > 1 else ""
    click.echo(f"  GPU memory of batches of {batch_size:,}, foretold, as the images are{resized}")
    if resized:
        click.echo(f"  {'':14}" + "".join(f"{'' if way == 'as they are' else way:>12}" for way in ways))
    for name, found in memory.items():
        click.echo(f"  {name:14}" + "".join(f"{taken / 2**30:>8.2f} GiB" for taken in found.values()))


def _counted(labels: dict[str, int]) -> str:
    if not labels:
        return "no classes"
    ordered = sorted(labels.items(), key=lambda item: item[1])
    (fewest, least), (_, median), (fullest, most) = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    text = f"images a class: {least:,} ({printable(fewest)}) to {most:,} ({printable(fullest)}), median {median:,}"
    empty = sum(count == 0 for count in labels.values())
    return text + (f"; {count(empty, 'class')} have none" if empty else "")


def _held(samples: int, length: int, shards: int) -> str:
    return f"{count(samples, 'sample')}, {size(length)}, {count(shards, 'shard')}"


def run() -> None:
    """Be the program `dataprep`."""
    try:
        main()
    except SystemExit as ending:
        with suppress(OSError, ValueError):  # nobody may be reading any more
            sys.stdout.flush()
            sys.stderr.flush()
        # All is done. Python's own way out would turn an interrupt that met an import into a death by the signal, and
        # run the ends of libraries' threads, of which one in some thousand aborts.
        os._exit(ending.code if isinstance(ending.code, int) else bool(ending.code))


if __name__ == "__main__":
    run()
