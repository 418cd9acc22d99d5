"""The command line ``loaders``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import click

from manifests.errors import ExitStatus
from manifests.process.options import Number
from manifests.process.program import end_of, run_program
from manifests.process.text import one_line

if TYPE_CHECKING:
    from loaders.dataset.split import OpenSplit
    from loaders.memory import Estimates


class Command(click.Command):
    """A command that prints an error as one line, and exits with the status of the error.

    It has ``--verbose``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        help_text = "Also print what the command does in detail."
        self.params.append(
            click.Option(
                ["--verbose"],
                is_flag=True,
                expose_value=False,
                callback=_log_to_stderr,
                help=help_text,
            )
        )

    def invoke(self, ctx: click.Context) -> None:
        """Run the command, print an error as one line, and exit."""
        ctx.exit(
            end_of(
                "loaders", lambda: super(Command, self).invoke(ctx), reraise=(click.ClickException,)
            )
        )


def _log_to_stderr(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        import logging

        logging.basicConfig(format="%(name)s: %(message)s")
        for name in ("loaders", "manifests"):
            logging.getLogger(name).setLevel(logging.INFO)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dataprep-loaders", prog_name="loaders")
def main() -> None:
    """Tools for training with prepared datasets, which `loaders.build` reads in Python.

    Exit status: 0 success; 1 the dataset is damaged; 2 wrong usage; 3 stopped by a problem such as
    too little memory; 130 interrupted.
    """


# --- options that several commands have -----------------------------------------------------------

_Command = Callable[..., None]
_Decorator = Callable[[_Command], _Command]

_dataset = click.argument("dataset")
_option = partial(click.option, show_default=True)
_batch_size = partial(click.option, "--batch-size", metavar="N")
_overwrite = partial(click.option, "--overwrite", is_flag=True)
_cache = click.option(
    "--cache", metavar="DIR", help="Folder on a local disk, if DATASET is in an object store."
)
_split = _option("--split", metavar="NAME", default="train", help="The split to read.")
_measured_json = click.option(
    "--json", "json_output", is_flag=True, help="Print JSON, with all repeats in images per second."
)


def _transforms(preset: str) -> _Decorator:
    text = f"A preset such as {preset}, or a YAML file."
    return click.option("--transforms", required=True, metavar="NAME|FILE", help=text)


def _device(text: str) -> _Decorator:
    devices = click.Choice(["auto", "cpu", "gpu"])
    return _option("--device", type=devices, default="auto", help=text)


_DECODES = "What decodes and transforms the images. auto: a GPU if there is one."


def _several(*options: _Decorator) -> _Decorator:
    """Return a decorator that adds options, in the order of the help."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


#: The options that name a loader to measure.
_loader_options = _several(
    _dataset,
    _transforms("imagenet-train"),
    _split,
    _batch_size(
        type=click.IntRange(1, 2**20),
        help=(
            "Images per batch.  [default: 256; fewer if the images are large or the split is"
            " smaller]"
        ),
    ),
    _device(_DECODES),
    _cache,
    click.option(
        "--model",
        metavar="NAME|FILE:FUNCTION",
        help=(
            "Model that trains on the batches: one of torchvision, such as resnet50, or"
            " script.py:step with a function that takes images and labels."
        ),
    ),
)


def _method_options(seconds: float, repeats: int) -> _Decorator:
    """Add the options that say how long to measure."""
    return _several(
        _option(
            "--seconds",
            type=Number(0.01, 3600),
            metavar="S",
            default=seconds,
            help="Minimum duration of the warm-up and of each repeat.",
        ),
        _option(
            "--repeats",
            type=click.IntRange(1, 100),
            metavar="N",
            default=repeats,
            help="Repeats of each measurement.",
        ),
    )


def require_cache(dataset: str, cache: str | None) -> None:
    """Check that a dataset in an object store comes with ``--cache``.

    Raises:
        CallError: it does not.

    """
    from manifests.process.text import printable
    from manifests.remote.url import refuse_url

    if cache is None:
        refuse_url(
            dataset,
            f"{printable(dataset)} is in an object store, and --cache is missing",
            hint="set --cache to a folder on a local disk, for example --cache /nvme/cache",
        )


# --- commands --------------------------------------------------------------------------------------


@main.command(cls=Command, short_help="Estimate the GPU memory for loading a dataset.")
@_dataset
@click.option("--split", metavar="NAME", help="Only this split.  [default: all splits]")
@_batch_size(type=click.IntRange(1, 2**20), required=True, help="Images per batch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with sizes in bytes.")
def memory(dataset: str, *, split: str | None, batch_size: int, as_json: bool) -> None:
    """Estimate the GPU memory for loading DATASET, as it is and with smaller images.

    The estimate covers one process that loads batches of N images with the presets imagenet-train
    and imagenet-eval.
    """
    from loaders.dataset.split import open_splits
    from manifests.process.text import printable
    from manifests.remote.url import refuse_url

    refuse_url(
        dataset,
        f"{printable(dataset)} is in an object store",
        hint="name a copy on a local disk",
    )
    estimates = {}
    for opened in open_splits(dataset, split):
        estimates[opened.name] = _estimate(opened, batch_size)
    if as_json:
        splits = {name: {"gpu_memory": estimate} for name, estimate in estimates.items()}
        _print_json({"batch_size": batch_size, "splits": splits})
        return
    for number, (name, estimate) in enumerate(estimates.items()):
        if number:
            click.echo()
        click.echo(f"{name}: estimated GPU memory for batches of {batch_size:,} images")
        _print_table(estimate)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, ensure_ascii=False))


def _estimate(split: OpenSplit, batch_size: int) -> Estimates | None:
    from loaders.dataset.tables import SampleTables
    from loaders.memory import ImageSizes, estimate_presets

    if not split.samples:
        return None
    columns = SampleTables(split).columns(("width", "height"), requested_by="`loaders memory`")
    sizes = ImageSizes(columns["width"], columns["height"])
    return estimate_presets(sizes, batch_size, encoded=split.manifest.store == "encoded")


def _print_table(estimate: Estimates | None) -> None:
    if estimate is None:
        click.echo("  unknown, because the split contains no samples")
        return
    variants = list(next(iter(estimate.values())))
    if len(variants) > 1:
        click.echo("  images as they are, or resized by `dataprep convert --resize-shorter PIXELS`")
        click.echo(f"  {'':14}" + "".join(f"{variant:>12}" for variant in variants))
    for preset, totals in estimate.items():
        click.echo(
            f"  {preset:14}" + "".join(f"{total / 2**30:>8.2f} GiB" for total in totals.values())
        )


@main.command(cls=Command, short_help="Show samples before and after the transforms.")
@_dataset
@_transforms("imagenet-train")
@_option(
    "--out",
    metavar="FILE",
    default="preview.png",
    help="What to write: .png, .jpg or .webp for a picture, or .html.",
)
@_split
@_option(
    "--samples",
    type=int,
    metavar="N",
    default=6,
    help="Number of samples; with --pk or --balanced, number of groups.",
)
@click.option(
    "--draws", type=int, metavar="N", help="Results for each sample.  [default: 4; with groups 1]"
)
@click.option(
    "--pk",
    metavar="PxK",
    help="Show a batch of PKSampler: P identities with K samples each, such as 8x4.",
)
@click.option("--balanced", is_flag=True, help="Show a batch of ClassBalancedSampler.")
@_option(
    "--by",
    metavar="COLUMN",
    default="label",
    help="Column of --pk and --balanced for the groups.",
)
@_batch_size(type=click.IntRange(1, 4096), help="Images of the batch of --balanced.")
@click.option(
    "--threshold",
    type=Number(0, 1, min_open=True),
    metavar="X",
    help=(
        "With --balanced: repeat classes in less than this share of the samples, instead of all"
        " classes alike. Needed if a sample has several classes."
    ),
)
@_device(_DECODES)
@_cache
@_option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    help="Seed of all draws.",
)
@_overwrite(help="Replace a file that is not a preview.")
def preview(dataset: str, *, out: str, overwrite: bool, **options: Any) -> None:
    """Show samples of DATASET before and after the transforms.

    Writes a picture or an HTML page: the stored image of each sample with its key and class, then
    several results of the transforms, as the model gets them.
    """
    from loaders.build import build
    from loaders.preview.command import check_out, make_preview

    require_cache(dataset, options["cache"])
    check_out(out, overwrite=overwrite)
    made = make_preview(build, dataset, **options)
    made.save(out)
    click.echo(one_line(f"{out} is written: {len(made.items)} samples"))


@main.command(cls=Command, short_help="Find out what limits the speed of training.")
@_loader_options
@click.option(
    "--torchvision",
    is_flag=True,
    help="Compare with torchvision's DataLoader on the same images, and with decode_jpeg on a GPU.",
)
@click.option(
    "--tuning", metavar="FILE", help="File of `loaders tune` that gives the options of the loader."
)
@click.option("--html", metavar="FILE", help="Also write a page with a chart.")
@_overwrite(help="Replace the file of --html, even if `loaders bench` did not write it.")
@_measured_json
@_method_options(1.0, 5)
def bench(
    dataset: str,
    *,
    html: str | None,
    overwrite: bool,
    json_output: bool,
    seconds: float,
    repeats: int,
    **options: Any,
) -> None:
    """Measure how fast each stage of loading DATASET is, and say which one limits training.

    Measures reading, then also decoding, augmentation, and the delivery to torch; with --model,
    also a training step on one batch in memory, and training that the loader feeds. Then it tries
    changes to the stage that is the limit, such as smaller images, and says in one sentence what to
    do.
    """
    from loaders.bench.command import bench as measure
    from loaders.bench.measure import Method
    from loaders.bench.show import GENERATOR, as_json, as_text, page, print_status
    from manifests.process.options import check_output_file, write_output_file

    if not options["torchvision"]:  # which refuses every URL
        require_cache(dataset, options["cache"])
    if html is not None:
        check_output_file(
            html,
            "page of `loaders bench`",
            [GENERATOR.encode()],
            overwrite=overwrite,
            option="--html",
        )
    results = measure(dataset, method=Method(seconds, repeats), announce=print_status, **options)
    print_status("")
    if html is not None:
        write_output_file(html, page(results), "page")
    if json_output:
        _print_json(as_json(results))
    else:
        click.echo(as_text(results))


@main.command(cls=Command, short_help="Find the fastest options for a dataset and a machine.")
@_loader_options
@click.option(
    "--objective",
    type=click.Choice(["images", "model"]),
    help=(
        "images: highest rate of the loader alone. model: highest training rate of --model. "
        " [default: model with --model, else images]"
    ),
)
@_option(
    "--out",
    metavar="FILE",
    default="tune.json",
    help="File to write. Results for other machines, datasets and transforms in it are kept.",
)
@_overwrite(help="Replace the file of --out, even if `loaders tune` did not write it.")
@_measured_json
@_method_options(0.5, 3)
def tune(
    dataset: str,
    *,
    out: str,
    overwrite: bool,
    json_output: bool,
    seconds: float,
    repeats: int,
    **options: Any,
) -> None:
    """Find the number of threads, the prefetching and the share of the hardware decoder that suit DATASET best.

    Begins with the defaults, tries neighboring values as long as the gain is more than the noise,
    and writes what it found. `loaders.build(..., tuning="tune.json")` uses the file on the same
    kind of machine, for the same dataset and transforms.
    """
    from loaders.bench.measure import Method
    from loaders.bench.show import print_status
    from loaders.tune.command import as_json, as_text, kept_entries
    from loaders.tune.command import tune as measure
    from loaders.tuning import MARK, with_entry
    from manifests.process.options import check_output_file, write_output_file

    require_cache(dataset, options["cache"])
    check_output_file(out, "file of `loaders tune`", [f'"{MARK}"'.encode()], overwrite=overwrite)
    entries = kept_entries(out, overwrite=overwrite)
    tuned = measure(dataset, method=Method(seconds, repeats), announce=print_status, **options)
    print_status("")
    write_output_file(out, with_entry(entries, tuned.entry), "file")
    if json_output:
        _print_json(as_json(tuned))
    else:
        click.echo(as_text(tuned, out))


def _show_counting(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{what and f'counting {what}'}", nl=False, err=True)


@main.command(cls=Command, short_help="Print which samples a model was trained on.")
@click.argument("checkpoints", metavar="CHECKPOINT...", nargs=-1, required=True)
@click.option(
    "--keys",
    is_flag=True,
    help="Print the key and source of each sample, and how often the model has seen it.",
)
@click.option(
    "--find",
    metavar="KEY|SOURCE",
    multiple=True,
    help="Only the sample with this key or source. Exit status 1 if the model has not seen it.",
)
@click.option(
    "--dataset", metavar="DIR", help="Where the dataset is.  [default: where the script had it]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def receipt(
    checkpoints: tuple[str, ...],
    *,
    keys: bool,
    find: tuple[str, ...],
    dataset: str | None,
    as_json: bool,
) -> int:
    """Print the dataset, revision, transforms, sampler, seed and epochs of the model in CHECKPOINT.

    CHECKPOINT is a file of torch.save or JSON that contains loader.state_dict(), at any depth. It is
    read without running code from it. Name several for several ranks or stages of a training.
    """
    from loaders.receipt import find_receipts, seen_keys

    receipts = []
    for path in checkpoints:
        receipts += find_receipts(path)
    if not keys and not find:
        if as_json:
            _print_json([each.to_dict() for each in receipts])
        else:
            # The receipts of the ranks of a run are equal.
            click.echo("\n\n".join(dict.fromkeys("\n".join(each.lines()) for each in receipts)))
        return ExitStatus.SUCCESS
    counted = seen_keys(receipts, dataset, _show_counting)
    rows = []
    for (key, source), times in counted.items():
        if not find or key in find or source in find:
            rows.append((key, source, times))
    if as_json:
        _print_json([dict(zip(("key", "source", "times"), row, strict=True)) for row in rows])
    else:
        for key, source, times in rows:
            click.echo(f"{one_line(key)}\t{one_line(source)}\t{times}")
    return ExitStatus.DATA_PROBLEM if find and not rows else ExitStatus.SUCCESS


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        from manifests.process.text import parse_bytes

        try:
            size = parse_bytes(value)
        except ValueError as error:
            self.fail(f"{error}. Hint: for example 500GB.", param, ctx)
        if not size:
            self.fail("it must be above 0. Hint: for example 500GB.", param, ctx)
        return size


@main.command(
    cls=Command, short_help="Predict what a run on many nodes reads from an object store."
)
@_dataset
@_split
@click.option(
    "--nodes", type=click.IntRange(1, 2**16), metavar="N", required=True, help="Machines."
)
@_option("--gpus", type=click.IntRange(1, 64), metavar="N", default=8, help="GPUs of a machine.")
@_batch_size(type=click.IntRange(1, 2**20), required=True, help="Images per batch of one GPU.")
@_option("--epochs", type=click.IntRange(1, 100), metavar="N", default=2, help="Epochs.")
@_option(
    "--images-per-second",
    "rate",
    type=Number(0.1, 1e7),
    metavar="X",
    default=3000,
    help="Images that one GPU trains on per second.",
)
@click.option(
    "--window", type=click.IntRange(1), metavar="N", help="Shuffle within a window of N shards."
)
@click.option("--node-disk", type=_Size(), help="Limit of the cache of a machine.  [default: none]")
@_option("--node-bandwidth", type=_Size(), default="3GB", help="Received per second by a machine.")
@click.option(
    "--store-bandwidth", type=_Size(), help="Sent per second to all.  [default: no limit]"
)
@_option(
    "--latency", type=Number(0, 10_000), metavar="MS", default=20, help="Milliseconds of a request."
)
@_option(
    "--request-price", type=Number(0), metavar="X", default=0.0004, help="Price of 1,000 requests."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with bytes and seconds.")
def simulate(
    dataset: str,
    *,
    split: str,
    window: int | None,
    request_price: float,
    latency: float,
    as_json: bool,
    **machines: Any,
) -> None:
    """Predict what a training on many machines reads from a copy of DATASET in an object store.

    Computed from manifest and sample tables, which must be in a local folder, the order of the
    samples and the decisions of the cache. Only the time is a model.
    """
    from dataclasses import asdict

    from loaders.simulate import command
    from loaders.simulate.model import Cluster
    from manifests.process.text import printable
    from manifests.remote.url import refuse_url

    refuse_url(
        dataset,
        f"{printable(dataset)} is in an object store",
        hint="copy manifest.json and the sample tables (*.parquet) to a folder, and name it",
    )
    cluster = Cluster(latency=latency / 1000, **machines)
    found = command.simulate(dataset, split, cluster, window)
    if as_json:
        _print_json(asdict(found))
    else:
        click.echo(command.as_text(found, dataset, request_price))


@main.command(cls=Command, short_help="Write the transforms of an evaluation for a server.")
@_dataset
@click.argument("out")
@_transforms("imagenet-eval")
@click.option(
    "--for",
    "target",
    type=click.Choice(["triton", "onnx"]),
    required=True,
    help=(
        "triton: a model repository whose model decodes and transforms. onnx: a model that"
        " transforms decoded images."
    ),
)
@_device("Where the server decodes and transforms. auto: on a GPU if this machine has one.")
@click.option(
    "--split",
    metavar="NAME",
    help="Split of the golden batch.  [default: val, test or train, the first that exists]",
)
@_option(
    "--name",
    metavar="NAME",
    default="preprocess",
    help="With triton: name of the model.",
)
@_option(
    "--max-batch-size",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=64,
    help="With triton: images in the largest batch of the server.",
)
@_option(
    "--samples",
    type=click.IntRange(1, 256),
    metavar="N",
    default=8,
    help="Images in the golden batch, at most --max-batch-size.",
)
@_option(
    "--dtype",
    type=click.Choice(["float32", "float16", "uint8"]),
    default="float32",
    help="Type of the image values.",
)
@_option(
    "--layout",
    type=click.Choice(["NCHW", "NHWC"]),
    default="NCHW",
    help="Order of the axes.",
)
@_overwrite(help="Replace an export of this name.")
def export(dataset: str, out: str, **options: Any) -> None:
    """Write the transforms of an evaluation for a server, as the folder OUT.

    With the transforms come the names of the classes and a golden batch of DATASET: inputs, and the
    outputs that the server must give. Random transforms, Python functions and samplers are errors.
    """
    from loaders.export.command import as_text
    from loaders.export.command import export as write

    click.echo(one_line(as_text(write(dataset, out, **options))))


def run() -> NoReturn:
    """Run the program ``loaders`` and end the process."""
    run_program("loaders", __name__)
