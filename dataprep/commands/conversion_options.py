"""The options of ``dataprep convert`` and ``dataprep plan`` that say what to convert, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from dataprep.commands.base import print_note
from dataprep.commands.image_options import ImageArguments, add_image_options
from dataprep.commands.param_types import path_or_url
from dataprep.commands.progress_bars import ProgressBar
from dataprep.commands.sections import option, pass_record, section
from dataprep.commands.shard_options import ShardArguments, add_shard_options
from dataprep.commands.source_options import SourceArguments, add_source_options, print_source
from dataprep.commands.split_options import SplitArguments, add_split_options, check_duplicates
from dataprep.options import Options
from manifests.errors import CallError
from manifests.remote.url import is_url, parse_url
from manifests.schema import Format

if TYPE_CHECKING:
    from dataprep.sources import Source

overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    help=(
        "Start over instead of resuming, and replace a dataset in OUT that was made from another"
        " source or with other options."
    ),
)

_INPUT = section(
    "Source and output",
    option(
        "--src",
        required=True,
        multiple=True,
        type=path_or_url,
        metavar="SRC",
        help=(
            "The images: an ImageFolder, a folder with train/ and val/, a tar or zip archive of"
            " class folders, ImageNet in its archives or as Kaggle or PaddleClas arrange it,"
            " Market-1501 and similar re-ID datasets, Parquet files with images (Hugging Face),"
            " MXNet RecordIO, LMDB of Caffe or LSUN, COCO, Pascal VOC, Cityscapes, ADE20K, images/"
            " with masks/ or depth/, a folder without classes (--unlabelled), a prepared dataset, a"
            " list, or a CSV, TSV, JSON Lines or Parquet table. A path, or a URL: s3://, gs://,"
            " az://; https:// for lists, tables and archives. Several --src are merged by class"
            " name."
        ),
    ),
    option(
        "--out",
        type=path_or_url,
        metavar="OUT",
        help=(
            "Output folder, or its URL: s3://, gs:// or az://.  [default: <SRC name>-<fmt> in the"
            " current folder]"
        ),
    ),
    option(
        "--where",
        metavar="FILTER",
        help=(
            'Convert only images that match FILTER, a condition in SQL, for example "size > 10000'
            " and label != 'n01440764'\". Columns: path, label (the class name), split, size,"
            " columns of the source, width and height of a prepared dataset. Needs the extra [sql]."
        ),
    ),
)


@dataclass(frozen=True)
class Conversion:
    """The values of these options; `None` means that an option was not given."""

    src: tuple[str, ...]
    out: str | None
    where: str | None
    reading: SourceArguments
    splits: SplitArguments
    shards: ShardArguments
    images: ImageArguments

    def resolve(self) -> Options:
        """Combine the options that say what is stored.

        Raises:
            CallError: they contradict each other, or one has no effect.

        """
        downscale, raw = self.images.resolve()
        options = Options(
            fmt=self.shards.fmt,
            shard_bytes=self.shards.shard_size,
            shard_samples=self.shards.samples_per_shard,
            shuffle=not self.shards.no_shuffle,
            seed=self.shards.seed,
            val_fraction=self.splits.val_fraction,
            test_fraction=self.splits.test_fraction,
            split_by=self.splits.split_by,
            validate=self.images.validate,
            max_pixels=self.images.max_pixels,
            downscale=downscale,
            raw=raw,
            where=self.where,
            hash=self.splits.hash,
            duplicates=self.splits.duplicates,
            distance=self.splits.distance,
        )
        check_duplicates(options)
        return options


#: Adds the options of `convert` and `plan` to a callback, which gets a `Conversion`.
add_conversion_options = pass_record(
    "conversion",
    Conversion,
    _INPUT,
    add_source_options,
    add_split_options,
    add_shard_options,
    add_image_options,
)


@dataclass(frozen=True)
class Request:
    """What these options ask for.

    Attributes:
        options: options of the conversion.
        out: the output folder.
        name: name of the source, without its folder.

    """

    options: Options
    out: str
    name: str


#: The fields of `Options` that each parameter sets, as far as an append inherits them.
_FIELDS = {
    "fmt": ("fmt",),
    "shard_size": ("shard_bytes", "shard_samples"),
    "samples_per_shard": ("shard_bytes", "shard_samples"),
    "no_shuffle": ("shuffle",),
    "seed": ("seed",),
    "validate": ("validate",),
    "max_pixels": ("max_pixels",),
    "hash": ("hash",),
    **dict.fromkeys(
        ("resize_shorter", "max_side", "only_above", "quality", "subsampling", "filter"),
        ("downscale",),
    ),
    **dict.fromkeys(("store", "raw_size", "raw_fit"), ("raw",)),
}


def _given_fields() -> frozenset[str]:
    """Return the fields of `Options` that the user set on the command line."""
    context = click.get_current_context()
    given = (
        name
        for name in _FIELDS
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return frozenset(field for name in given for field in _FIELDS[name])


def resolve_request(conversion: Conversion, *, append: bool = False) -> Request:
    """Combine the options, except those that say how to read the source.

    Args:
        conversion: the values of the options.
        append: whether to append to the dataset in the output folder, whose options are the
            defaults.

    Raises:
        DatasetError: an option is wrong, or the dataset to append to.

    """
    src, out = conversion.src, conversion.out
    options = conversion.resolve()
    if out == "":
        raise CallError("--out is empty", hint="set a folder")
    if append:
        options = _appended_options(out, options)

    if out is None and len(src) > 1:
        raise CallError(
            "several --src require --out", hint="set --out to the folder of the new dataset"
        )
    return Request(
        options, out or _default_out(src[0], conversion.shards.fmt), " + ".join(map(_name_of, src))
    )


def read_samples(conversion: Conversion, request: Request, workers: int | None = None) -> Source:
    """Open the source, print what was found to stderr, and return the samples to convert.

    Args:
        conversion: the values of the options.
        request: what `resolve_request` returned for them.
        workers: maximum number of processes that compare images; `None` means one per CPU.

    Raises:
        DatasetError: the source is wrong, or an option does not fit it.

    """
    from dataprep.run.source import open_source

    reading = conversion.reading
    with ProgressBar("hashing") as bar, ProgressBar("comparing") as search_bar:
        opened = open_source(
            conversion.src,
            reading.resolve(),
            request.options,
            out=request.out,
            renames=reading.rename_classes,
            workers=workers,
            progress=bar,
            search_progress=search_bar,
        )
    print_source(opened)
    # Not the sources before they were merged, which take as much memory.
    return opened.samples


def _appended_options(out: str | None, options: Options) -> Options:
    """Return the options of an append: the dataset's options are the defaults."""
    if out is None:
        raise CallError("--append requires --out", hint="set --out to the dataset to append to")

    from dataprep.run.base import inherited_options, read_base

    base = read_base(out)
    made = base.manifest.options
    if (made.get("val_fraction") or made.get("test_fraction")) and not (
        options.val_fraction or options.test_fraction
    ):
        print_note(
            f"{out} was made with --val-fraction or --test-fraction, but this append is not: images"
            " without a split go to train"
        )
    return inherited_options(base, options, _given_fields())


def _default_out(src: str, fmt: Format) -> str:
    if is_url(src):
        return f"{Path(parse_url(src).name or parse_url(src).bucket).stem}-{fmt}"
    path = Path(src).absolute()
    return f"{path.name if path.is_dir() else path.stem}-{fmt}"


def _name_of(src: str) -> str:
    if is_url(src):
        return parse_url(src).name or parse_url(src).bucket
    return Path(src).absolute().name
