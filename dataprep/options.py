"""Every option of a conversion, declared once: its name, type, range, default and help.

An option is a field of a record::

    SourceOptions     how to read a source: LabelOptions and ClassOptions are a part of it
    Options           what determines the bytes of a dataset; Downscale and Raw are parts of it
    RunOptions        where to write and how: these do not change the bytes
    WorkerOptions     the number of processes, for every command that starts some
    WorkOptions       which shards `dataprep work` writes
    IndexOptions      how `dataprep index` reads shards
    VerifyOptions     and one record for each of the other commands

What is said of an option is a loop over these fields: the option of the command line
(`dataprep.commands.base`), the JSON in plans and manifests (`Options.as_json`,
`options_from_json`), the text that says how two conversions differ (`stored_flags`), what an append
takes from its dataset (`inherit`), and the tables in docs/. To add an option, add a field and use
it: the code where it acts reads the field by its name.

This module imports nothing heavy, because every worker process imports it first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import Field, asdict, field, fields, is_dataclass, replace
from functools import cache
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from manifests.errors import CallError
from manifests.json_members import MAX_INTEGER, Member, MemberError, shorten
from manifests.labels import LABELS, MAX_LABEL, LabelType
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind, PixelType
from manifests.records import keyword_record, record
from manifests.schema import DEFAULT_MAX_CLASSES, Format, Manifest, Pixels, Store

#: Images with more pixels are rejected as decompression bombs. The value is Pillow's default.
MAX_PIXELS = 178_956_970

#: How thoroughly images are checked. `dataprep.images.validate.check_image` explains the three levels.
Validation = Literal["none", "header", "decode"]

Filter = Literal["lanczos", "bicubic", "bilinear", "box"]
Subsampling = Literal["keep", "444", "422", "420"]
Fit = Literal["crop", "pad"]
#: The formats that images which DALI does not decode can be stored in.
Transcode = Literal["jpeg", "png", "webp", "tiff"]
#: Center and width of a window of the values of a DICOM.
Window = tuple[float, float]
ClassFolders = Literal["outer", "inner"]
MissingImages = Literal["valid"]
#: What an append does if images of the dataset are not in the source as they were.
Edits = Literal["refuse", "keep removed", "ignore"]
EngineName = Literal["local", "ray"]

#: What to do with images that occur more than once; see `dataprep.duplicates.results`.
Resolution = Literal["keep", "drop", "same-split"]

#: Bits in which the perceptual hashes of two copies differ at most, by default, and the largest
#: number to search for.
DEFAULT_DISTANCE, MAX_DISTANCE = 31, 63

#: The value of `Options.split_by` that stands for groups of copies, unless the source has such a
#: column.
BY_DUPLICATES = "duplicates"

#: Options with which stored images may differ from the source images.
CHANGING_OPTIONS = frozenset({"downscale", "raw", "transcode", "to_rgb8"})

#: Additional columns of a sample table if images are resized, transcoded or stored as pixels: width
#: and height in pixels and format of the source image, and the changes made to the image, separated
#: by spaces.
CHANGE_COLUMNS = ("original_width", "original_height", "original_format", "change")

#: Additional columns if gray of 16 bits is transcoded: what stored values are multiplied with, and
#: what is added then, to have the rescaled values of a DICOM. Null for other images.
RESCALE_COLUMNS = ("rescale_slope", "rescale_intercept")

#: Additional column of a sample table with the perceptual hash of each stored image: 64 hex digits.
#: Null if the image is too flat to have one.
HASH_COLUMN = "perceptual_hash"

#: Additional columns of a sample table with a list for each stored image, which has a number for
#: each band: smallest and largest value, mean, standard deviation, and share of pixels without data.
STATISTICS_COLUMNS = ("band_min", "band_max", "band_mean", "band_std", "band_nodata")

#: Additional columns of a sample table with the georeference of each GeoTIFF: EPSG code of its
#: coordinate system, tie points (six numbers each: place in the image, place on the Earth), size of a
#: pixel, and the 16 numbers of a matrix. Null for what an image does not state.
GEO_COLUMNS = ("geo_epsg", "geo_tiepoint", "geo_scale", "geo_transformation")

#: How hashes are computed; see `dataprep.images.perceptual_hash`. Hashes of different recipes
#: cannot be compared.
HASH_RECIPE = "dct256-1"

#: File in a prepared dataset with hashes that `dataprep duplicates` computed; see
#: `dataprep.duplicates.collection`.
HASHES_NAME = "perceptual-hashes.parquet"

#: Normalizations as the column ``change`` names them, and what each is. Its other values explain
#: themselves.
NORMALIZATIONS = {
    "turned": "rotated upright",
    "rgb": "converted to RGB",
    "alpha": "transparency removed",
    "icc": "color profile applied",
    "frame": "first of several frames or images",
    "window": "window applied",
}

#: Largest seed of a plan. On the command line, integers have 64 bits.
_MAX_SEED = 1 << 128

#: Mean bytes per pixel of a JPEG of quality 90, measured on ImageNet photographs whose shorter side
#: is 256.
JPEG_BYTES_PER_PIXEL = 0.35


# --- declarations ---------------------------------------------------------------------------------


@keyword_record
class Declaration:
    """Everything about an option that is not the name, the type and the default of its field.

    Attributes:
        help: its help text.
        group: heading of the options among which ``--help`` shows it.
        flag: its name on the command line, unless that is the name of the field. Empty if it has
            no option there.
        unit: placeholder of its value in the help, unless its type has a usual one.
        low: smallest number.
        high: largest number.
        closed: whether a fraction may be 1.
        names: its values, if they are not all that its type has.
        form: what the value is on the command line. A file of class names is a tuple of names in
            the record; bytes have a unit such as MiB; seconds, and frames in a second, are any
            number, other numbers with fractions are a part of 1.
        unset: what happens if it is not given, to show as its default.
        rare: whether only ``--help-all`` shows it.
        required: whether it must be given. A field that is a tuple can be given several times.
        commands: the commands that have it; empty if all have it that take its record.
        stored: whether JSON has it always, or only if it differs from its default.
        stored_as: what JSON has instead of the value.
        applies: property of the record that must be true for it to have an effect; else JSON does
            not have it.
        overridden_by: option that makes it ineffective; JSON has its default then.
        inherited: whether an append takes it from the dataset, unless it is given.

    """

    help: str
    group: str
    flag: str | None = None
    unit: str | None = None
    low: Any = 1
    high: Any = MAX_INTEGER
    closed: bool = False
    names: tuple[str, ...] = ()
    form: Literal["text", "path", "class names", "bytes", "seconds"] = "text"
    unset: str = ""
    rare: bool = False
    required: bool = False
    commands: tuple[str, ...] = ()
    stored: Literal["always", "if set"] = "always"
    stored_as: str | None = None
    applies: str | None = None
    overridden_by: str | None = None
    inherited: bool = False


def option(default: Any, text: str = "", group: str = "Options", **members: Any) -> Any:
    """Declare a field as an option; `members` are other attributes of `Declaration`."""
    declared = Declaration(help=text, group=group, **members)
    return field(default=default, metadata={"option": declared})


def declaration(member: Field[Any]) -> Declaration:
    """Return the declaration of a field."""
    declared: Declaration = member.metadata["option"]
    return declared


def flag_of(member: Field[Any]) -> str:
    """Return the name of an option on the command line; empty if it has none."""
    flag = declaration(member).flag
    return f"--{member.name.replace('_', '-')}" if flag is None else flag


@cache
def types_of(record: Any) -> dict[str, Any]:
    """Return the type of each field of a record, without `None`."""
    types = {}
    for name, hint in get_type_hints(record).items():
        members = [each for each in get_args(hint) if each is not NoneType]
        types[name] = members[0] if NoneType in get_args(hint) else hint
    return types


# --- how to read a source -------------------------------------------------------------------------

_SOURCE, _READING, _LABELS = "Source and output", "Reading the source", "Labels"
_SPLITS, _SHARDS, _IMAGES = "Splits and duplicates", "Shards", "Images"

#: Headings of the options in the help, in this order.
GROUPS = (_SOURCE, _READING, _LABELS, _SPLITS, _SHARDS, _IMAGES, "Options")


#: What labels that are neither yes nor no mean.
Unclear = Literal["drop", "negative", "positive"]


@record
class ClassOptions:
    """The class names, for sources and for shards of other tools."""

    classes: tuple[str, ...] | None = option(
        None,
        "File of class names in label order, one per line.",
        _LABELS,
        form="class names",
        unit="FILE",
    )
    max_classes: int = option(
        DEFAULT_MAX_CLASSES,
        "Refuse integer labels of N and more, unless --classes names them: the manifest lists every"
        " class up to the largest label.",
        _LABELS,
        rare=True,
        high=MAX_LABEL + 1,
    )


def _label_type() -> Any:
    return option(
        None,
        "What the labels are. By default, it is detected and printed before anything is written:"
        " lists, and text with vertical bars, are multi-label; numbers with fractions are a"
        " regression; text in a column called caption is a caption, a list of text captions; other"
        " labels are classes. none leaves the labels out: a folder may then contain images without"
        " class folders.",
        _LABELS,
    )


@record
class LabelOptions(ClassOptions):
    """How to read the labels of a source."""

    label_type: LabelType | None = _label_type()
    label_separator: str | None = option(
        None,
        "Text between the classes of an image that has several, or between its numbers.",
        _LABELS,
        unset="a vertical bar for classes",
        rare=True,
        unit="TEXT",
    )

    blank_labels: Unclear | None = option(
        None,
        "What a cell without a value means in columns of 0 and 1: drop leaves the image out,"
        " negative is 0, positive is 1. drop also leaves out images without a label in one column.",
        _LABELS,
        unset="such cells are refused",
        rare=True,
    )
    uncertain_labels: Unclear | None = option(
        None,
        "What -1 means in columns that also have 0 or cells without a value, as of CheXpert: drop"
        " leaves the image out, negative is 0, positive is 1.",
        _LABELS,
        unset="such cells are refused",
        rare=True,
    )

    @property
    def unlabelled(self) -> bool:
        """Whether labels are left out."""
        return self.label_type == "none"

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            CallError: they do not.

        """
        if self.label_separator == "":
            raise CallError(
                "--label-separator is empty",
                hint="give the text between two classes, for example ';'",
            )
        is_list = self.label_type is None or LABELS[self.label_type].is_separable
        if self.label_separator is not None and not is_list:
            raise CallError(
                "--label-separator needs labels of several classes or numbers",
                hint="set --label-type multi-label or regression, or leave it out",
            )


@record
class SourceOptions(LabelOptions):
    """How to read a source that does not follow the defaults."""

    image_root: str | None = option(
        None,
        "Folder or URL that the paths in a list or table are relative to.",
        _READING,
        unset="the folder of the list",
        form="path",
        unit="DIR",
    )
    path_column: str | None = option(None, "Table column that contains the paths.", _READING)
    image_columns: str | None = option(
        None,
        "Table columns with the images of each sample, separated by commas, the first image first:"
        " left,right. With {image} in --pattern, the names of the images in order.",
        _READING,
        rare=True,
        unit="NAMES",
    )
    missing_images: MissingImages | None = option(
        None,
        "What to do with a sample that lacks some of its images: valid keeps it if it has the first"
        " one, and the loader says which images are there.",
        _READING,
        unset="it is refused",
        rare=True,
    )
    split_column: str | None = option(
        None, "Table column that contains the split names.", _READING, rare=True
    )
    pattern: str | None = option(
        None,
        "How image files in a folder are named, for example '{identity}_c{camera}s*'. A {part}"
        " becomes a column, * matches any text, ? one character. The label is {identity} or"
        " {label}, or else the class folder. Files that differ only in {image} are one sample.",
        _READING,
        unit="PATTERN",
    )
    array: tuple[str, ...] = option(
        (),
        "Array of each image, such as an embedding: a column of lists of numbers, or NAME={stem}.npy"
        " for files, where {stem} is the path of the image without its suffix. Can be given several"
        " times.",
        _READING,
        rare=True,
        unit="ARRAY",
    )
    fps: float | None = option(
        None,
        "Of videos, take the frame that is shown at every 1/FPS seconds, and no frame twice. Or"
        " choose --every N or --all-frames. Needs the extra [video]. Frames are stored as JPEG, or in"
        " the format of --transcode, with the columns clip, frame and time.",
        _READING,
        form="seconds",
        unit="FPS",
        low=0.001,
        high=1000,
    )
    every: int | None = option(None, "Of videos: every Nth frame.", _READING, rare=True)
    all_frames: bool = option(False, "Of videos: all frames.", _READING, rare=True)
    class_folders: ClassFolders | None = option(
        None,
        "Which folder of a/b/1.jpg is the class of the image: the outer (a) or the inner (b).",
        _LABELS,
        unset="where all images are at one depth",
        rare=True,
    )
    zip_encoding: str | None = option(
        None,
        "Encoding of the names in zip archives that do not state it: gbk, shift_jis, cp1252.",
        _READING,
        unset="UTF-8",
        rare=True,
        unit="NAME",
    )
    label_column: str | None = option(
        None,
        "Table column, or {part} of --pattern, that contains the labels. Several columns, separated"
        " by commas, are numbers of a regression, or 0 or 1 for each class.",
        _LABELS,
    )
    rename_classes: str | None = option(
        None,
        "File of class names to rename, lines of `old,new`. Classes with the same new name become"
        " one. --classes then lists the new names.",
        _LABELS,
        rare=True,
        form="path",
        unit="FILE",
    )

    @property
    def frames(self) -> str:
        """The option that chooses frames of videos; empty if there is none."""
        if self.fps is not None:
            return f"--fps {self.fps:g}"
        if self.every is not None:
            return f"--every {self.every}"
        return "--all-frames" if self.all_frames else ""

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            CallError: they do not.

        """
        super().check()
        given = [self.fps is not None, self.every is not None, self.all_frames]
        if sum(given) > 1:
            raise CallError(
                "--fps, --every and --all-frames exclude each other", hint="set one of them"
            )


# --- what determines the bytes of a dataset -------------------------------------------------------


def _filter() -> Any:
    return option(
        "lanczos",
        "Resampling filter of resized and raw images.",
        _IMAGES,
        rare=True,
    )


@record
class Downscale:
    """The size that large images are reduced to before they are stored, and how they are encoded.

    Both sides of an image shrink by the same factor: the smallest reduction that meets both
    `shorter` and `longest`, or `pixels`. Images are never enlarged.
    """

    shorter: int | None = option(
        None,
        "Shrink images until the shorter side has at most N pixels.",
        _IMAGES,
        flag="--resize-shorter",
    )
    longest: int | None = option(
        None,
        "Shrink images until the longer side has at most N pixels.",
        _IMAGES,
        flag="--max-side",
    )
    pixels: int | None = option(
        None,
        "Shrink images until they have at most N pixels in all, for training at several shapes:"
        " 224 x 224 are 50176.",
        _IMAGES,
        flag="--resize-pixels",
        rare=True,
        stored="if set",
    )
    only_above: int | None = option(
        None,
        "Do not resize images whose shorter side (with only --max-side: longer side) has at most N"
        " pixels.",
        _IMAGES,
        rare=True,
    )
    quality: int = option(90, "JPEG quality of resized images.", _IMAGES, rare=True, high=100)
    subsampling: Subsampling = option(
        "keep",
        "Chroma subsampling of resized images. keep: the same as the source JPEG, or 444 for other"
        " formats.",
        _IMAGES,
        rare=True,
    )
    filter: Filter = _filter()

    @property
    def estimated_max_bytes(self) -> int:
        """Estimated bytes of the largest stored image.

        The plan uses it to divide shards before images are resized.
        """
        if self.pixels is not None:
            return int(self.pixels * JPEG_BYTES_PER_PIXEL)
        # Images up to this side are stored as they are; others have about 4:3.
        unchanged = self.only_above or 0
        if self.shorter is None:
            side = max(self.longest or 0, unchanged)
            return int(side * side * 3 / 4 * JPEG_BYTES_PER_PIXEL)
        side = max(self.shorter, unchanged)
        longer_side = min(side * 4 / 3, max(self.longest or math.inf, unchanged))
        return int(side * longer_side * JPEG_BYTES_PER_PIXEL)


@record
class Raw:
    """Store pixels of one size instead of encoded images: [size, size, channels], row by row."""

    size: int = option(
        256,
        "With --store raw: store images of N x N pixels.",
        _IMAGES,
        flag="--raw-size",
        rare=True,
        high=4096,
    )
    fit: Fit = option(
        "crop",
        "How raw images become square. crop: resize to cover the square, then center crop. pad:"
        " resize to fit, then pad with black.",
        _IMAGES,
        flag="--raw-fit",
        rare=True,
    )
    filter: Filter = _filter()


class Choice(NamedTuple):
    """What to take of an image that needs a choice.

    Attributes:
        window: center and width of the values of a gray DICOM to store; `None` to keep the values.
        page: number of the page of a TIFF, from 1; `None` if it has one.

    """

    window: Window | None = None
    page: int | None = None


NO_CHOICE = Choice()


@record
class Options:
    """Everything besides the source that determines the bytes of a dataset, and nothing else.

    The order of the fields is the order of the members in JSON. The fingerprint of a plan is
    computed from this JSON and is stored in the sample tables, so neither may change.

    Where each of them acts::

        fmt                            formats: FORMATS
        shard_bytes, shard_samples     plan.assign: make_plan
        shuffle, seed                  plan.assign, plan.splits: orders of samples, and new splits
        val_fraction, test_fraction,
        split_by                       plan.splits: assign_splits
        where                          plan.splits: filter_source
        duplicates, distance           duplicates.results: resolve_duplicates
        validate, max_pixels           images.validate: check_image rejects images. It is called for each image
                                       that is read: by shards.write, if it is stored as it is; by
                                       shards.source_image, otherwise (convert, work, append, repair,
                                       duplicates); by images.downscale, before it is resized; and by run.known,
                                       for label images of an append.
                                       verify --decode and duplicates have a --max-pixels of their own, because
                                       a manifest is not trusted to raise the limit (`max_pixels_of`); pictures
                                       of a report have the default limit
        channels, dtype                images.validate: check_image, where it checks the other limits
        downscale, raw, transcode,
        window, page, to_rgb8          images.downscale: prepare
        hash, statistics, georeference shards.source_image: load_image

    A finished dataset states them in its manifest: an append inherits them (`inherit`), and repair
    and the comparison with known images (run.known) read images with them.
    """

    fmt: Format = option(
        "tfrecord",
        "Record format of the shards.",
        _SHARDS,
        inherited=True,
    )
    shard_bytes: int = option(
        256 << 20,
        "Maximum total size of the images in one shard. A larger image gets a shard of its own.",
        _SHARDS,
        flag="--shard-size",
        inherited=True,
        overridden_by="shard_samples",
        form="bytes",
    )
    shard_samples: int | None = option(
        None,
        "Samples per shard. Overrides --shard-size.",
        _SHARDS,
        flag="--samples-per-shard",
        rare=True,
        inherited=True,
    )
    shuffle: bool = option(
        True,
        "Store the images in the order of the source. Readers that shuffle only within a buffer"
        " need the shuffle.",
        _SHARDS,
        flag="--no-shuffle",
        rare=True,
        inherited=True,
    )
    seed: int = option(
        0,
        "Random seed of the shuffle and of the new splits.",
        _SHARDS,
        inherited=True,
        low=0,
        high=_MAX_SEED,
    )
    val_fraction: float = option(
        0.0,
        "Move this fraction of the train split to a new val split, stratified by label.",
        _SPLITS,
    )
    test_fraction: float = option(
        0.0,
        "Move this fraction of the train split to a new test split, stratified by label.",
        _SPLITS,
        stored="if set",
    )
    split_by: str | None = option(
        None,
        "With --val-fraction or --test-fraction: keep images with the same value of COLUMN in the"
        " same split, instead of stratifying. Every source with classes has the column label."
        " duplicates: keep copies in the same split, and stratify. For a column of this name, write"
        " column:duplicates.",
        _SPLITS,
        unit="COLUMN",
    )
    validate: Validation = option(
        "header",
        "none: do not check the images. header: check the header and the end of each image. decode:"
        " also decode every image.",
        _IMAGES,
        inherited=True,
    )
    max_pixels: int = option(
        MAX_PIXELS,
        "Reject images with more than N pixels, which may be decompression bombs. A value above the"
        " default also accepts small files with very many pixels.",
        _IMAGES,
        rare=True,
        inherited=True,
    )
    channels: int | None = option(
        None,
        "Channels of every image: images with others are rejected.",
        _IMAGES,
        unset="as the images have; 3 for gray and RGB of 8 bits",
        rare=True,
        stored="if set",
        inherited=True,
        high=MAX_CHANNELS,
    )
    dtype: PixelType | None = option(
        None,
        "Type of the values of every image: images with others are rejected.",
        _IMAGES,
        unset="as the images have",
        rare=True,
        stored="if set",
        inherited=True,
    )
    downscale: Downscale | None = option(None, flag="", stored="if set", inherited=True)
    raw: Raw | None = option(
        None,
        "encoded: image files such as JPEG or PNG. raw: decoded pixels of one size, 256 x 256 unless"
        " --raw-size is set. They need no decoding when they are read, but far more disk space.",
        _IMAGES,
        flag="--store",
        stored="if set",
        inherited=True,
    )
    transcode: Transcode | None = option(
        None,
        "Store images of formats that DALI does not decode in this one: AVIF, HEIC (needs the extra"
        " [heic]), JPEG XL (extra [jxl]), DICOM (extra [dicom]), the first frame of a GIF, other TIFFs"
        " (extra [tiff]), and arrays in .npy files that a list or a table names. Photographs become"
        " upright sRGB without metadata. png also stores gray of 16 bits, and tiff any channels of"
        " uint8, uint16 and float32, without loss.",
        _IMAGES,
        unset="such images are rejected",
        rare=True,
        stored="if set",
        inherited=True,
    )
    window: str | None = option(
        None,
        "With --transcode: the rescaled values of a gray DICOM that become black to white. 40,400"
        " shows soft tissue of a CT.",
        _IMAGES,
        unset="values of 16 bits stay as they are",
        unit="CENTER,WIDTH",
        rare=True,
        stored="if set",
        inherited=True,
    )
    page: int | None = option(
        None,
        "With --transcode: the page to store of TIFFs that have several, from 1.",
        _IMAGES,
        unset="TIFFs of several pages are rejected",
        rare=True,
        high=100_000,
        stored="if set",
        inherited=True,
    )
    to_rgb8: bool = option(
        False,
        "Convert gray and RGB of other depths, and JPEG 2000 gray, to RGB of 8 bits: values of 16 bits are"
        " divided by 257 and rounded, alpha values are dropped. Other pixels are rejected. The images are stored"
        " as PNG, or in the format of --transcode.",
        _IMAGES,
        rare=True,
        stored="if set",
        inherited=True,
    )
    where: str | None = option(
        None,
        'Convert only images that match FILTER, a condition in SQL, for example "size > 10000 and'
        " label != 'n01440764'\". Columns: path, label (the class name), split, size, columns of"
        " the source, width and height of a prepared dataset. Needs the extra [sql].",
        _SOURCE,
        stored="if set",
        unit="FILTER",
    )
    hash: bool = option(
        False,
        "Store a perceptual hash of each image in the sample tables. dataprep duplicates and report"
        " use it.",
        _SPLITS,
        rare=True,
        stored="if set",
        stored_as=HASH_RECIPE,
        inherited=True,
    )
    statistics: bool = option(
        False,
        "Store the statistics of each band of each image in the sample tables. dataprep info and"
        " report show them, with the normalization that they give.",
        _IMAGES,
        rare=True,
        stored="if set",
        inherited=True,
    )
    georeference: bool = option(
        False,
        "Store the georeference of GeoTIFFs in the sample tables: EPSG code, tie points, size of a"
        " pixel, matrix. dataprep info shows how many images have which code.",
        _IMAGES,
        rare=True,
        stored="if set",
        inherited=True,
    )
    duplicates: Resolution = option(
        "keep",
        "What to do with images that occur more than once, also in another size, quality or"
        " orientation. drop: convert one of them, and list the others in rejected.jsonl."
        " same-split: move them to one split.",
        _SPLITS,
        stored="if set",
    )
    distance: int = option(
        DEFAULT_DISTANCE,
        "With --duplicates or --split-by duplicates: the 256-bit perceptual hashes of copies differ"
        " in at most N bits. -1: only images with the same bytes are copies.",
        _SPLITS,
        rare=True,
        applies="finds_duplicates",
        low=-1,
        high=MAX_DISTANCE,
    )

    @property
    def store(self) -> Store:
        """What a shard stores per image."""
        return "raw" if self.raw else "encoded"

    @property
    def pixels(self) -> PixelKind:
        """What a pixel of every image is."""
        return PixelKind(self.channels or RGB8.channels, self.dtype or RGB8.dtype)

    @property
    def raw_pixels(self) -> Pixels | None:
        """Height, width and channels of every image; `None` if images are encoded."""
        return (self.raw.size, self.raw.size, self.pixels.channels) if self.raw else None

    @property
    def raw_bytes(self) -> int:
        """Bytes of every image that is stored raw; 0 if images are encoded."""
        return self.raw.size**2 * self.pixels.size if self.raw else 0

    @property
    def changes_images(self) -> bool:
        """Whether stored images may differ from the source images."""
        return any(getattr(self, name) for name in CHANGING_OPTIONS)

    @property
    def window_values(self) -> Window | None:
        """Center and width of the window; `None` if there is none."""
        try:
            center, width = map(float, (self.window or "").split(","))
        except ValueError:
            return None
        if not math.isfinite(center) or not 1 < width < math.inf:
            return None
        return center, width

    @property
    def choice(self) -> Choice:
        """What to take of images that need a choice."""
        return Choice(self.window_values, self.page)

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Columns with numbers from the header of an image."""
        is_gray16 = self.pixels == (1, "uint16")
        return RESCALE_COLUMNS if self.transcode and is_gray16 else ()

    @property
    def finds_duplicates(self) -> bool:
        """Whether the images of the source have to be compared before the plan is made."""
        return self.duplicates != "keep" or self.split_by == BY_DUPLICATES

    @property
    def reads_pixels(self) -> bool:
        """Whether images are decoded, so that the CPU and not the disk limits the speed."""
        return self.adds_columns or self.validate == "decode"

    @property
    def adds_columns(self) -> bool:
        """Whether each image is decoded or changed, so that the tables say more about it."""
        return self.changes_images or self.hash or self.statistics or self.georeference

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Columns that are added to the sample tables."""
        columns = CHANGE_COLUMNS if self.changes_images else ()
        columns = (*columns, *self.measured_columns)
        if self.hash:
            columns = (*columns, HASH_COLUMN)
        if self.statistics:
            columns = (*columns, *STATISTICS_COLUMNS)
        return (*columns, *GEO_COLUMNS) if self.georeference else columns

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            CallError: they contradict each other, or one has no effect.

        """
        if self.duplicates == "same-split" and self.split_by not in (None, BY_DUPLICATES):
            raise CallError(
                f"--split-by {self.split_by} excludes --duplicates same-split: copies could be in"
                " groups of different splits",
                hint="use --duplicates drop, or leave one of them out",
            )
        changes = self.downscale or (self.transcode and self.raw) or self.hash
        if self.pixels != RGB8 and (changes or self.finds_duplicates):
            raise CallError(
                f"the images have {self.pixels}, but images are resized and compared only if they"
                " are gray or RGB of 8 bits",
                hint="leave out --resize-shorter, --max-side, --hash and --duplicates",
            )
        if not self.finds_duplicates and self.distance != DEFAULT_DISTANCE:
            raise CallError(
                f"--distance {self.distance} has no effect",
                hint="add --duplicates drop, --duplicates same-split or --split-by duplicates",
            )
        if self.to_rgb8 and (self.pixels != RGB8 or self.finds_duplicates):
            raise CallError(
                "--to-rgb8 excludes --channels, --dtype, raw pixels of other kinds, --duplicates and"
                " --split-by duplicates",
                hint="leave one of them out; search for copies in the dataset that is written",
            )
        for name in ("window", "page"):
            value = getattr(self, name)
            if value is not None and self.transcode is None:
                raise CallError(
                    f"--{name} {value} has no effect", hint="add --transcode png, or leave it out"
                )
        if self.window is not None and self.window_values is None:
            raise CallError(
                f"--window {self.window} is not a center and a width above 1",
                hint="write them like 40,400; with a negative center, like --window=-600,1500",
            )

    def as_json(self) -> dict[str, Any]:
        """Return the options as plans and manifests store them."""
        members = {}
        for each in fields(self):
            declared, value = declaration(each), getattr(self, each.name)
            if declared.overridden_by and getattr(self, declared.overridden_by):
                value = each.default
            if declared.stored == "if set" and value in (each.default, ""):
                continue
            if declared.applies and not getattr(self, declared.applies):
                continue
            if isinstance(value, (Downscale, Raw)):
                value = _part_as_json(value)
            members[each.name] = declared.stored_as or value
        # These two have no option: they state how the dataset was made.
        if (self.val_fraction or self.test_fraction) and not self.split_by:
            members["stratified"] = True
        if self.adds_columns or self.finds_duplicates:
            members["made_by"] = library_versions(transcodes=self.transcode is not None)
        return members

    def inherit(self, newest: Options, given: Collection[str]) -> Options:
        """Return the options of an append.

        Args:
            newest: options of the newest revision, which apply unless an option was given.
            given: names of the fields that the user set.

        """
        own = set(given)
        for each in fields(self):
            # A given option must not be overridden by an inherited one.
            other = declaration(each).overridden_by
            if other and (each.name in own or other in own):
                own |= {each.name, other}
        # The other options are the dataset's.
        taken = {}
        for each in fields(self):
            if declaration(each).inherited and each.name not in own:
                taken[each.name] = getattr(newest, each.name)
        return replace(self, **taken)


def _part_as_json(part: Downscale | Raw) -> dict[str, Any]:
    members = asdict(part)
    for each in fields(part):
        if declaration(each).stored == "if set" and members[each.name] == each.default:
            del members[each.name]
    return members


def max_pixels_of(manifest: Manifest) -> int:
    """Return the largest limit that a revision of a dataset was converted with, as the manifest states it."""
    limits = []
    for options in (manifest.options, *(revision.options for revision in manifest.revisions)):
        limit = options.get("max_pixels")
        if isinstance(limit, int):
            limits.append(limit)
    return max(limits, default=MAX_PIXELS)


#: Packages of the extras [heic], [jxl], [tiff], [dicom] and [video].
_TRANSCODERS = (
    *("pillow-heif", "pillow-jxl-plugin", "tifffile", "imagecodecs"),
    *("pydicom", "pylibjpeg", "pylibjpeg-libjpeg", "pylibjpeg-openjpeg", "pylibjpeg-rle"),
    "av",
)


def library_versions(*, transcodes: bool) -> dict[str, str]:
    """Return the versions of the libraries that process images.

    Other versions may produce other bytes.

    Args:
        transcodes: whether images of formats that DALI does not decode are transcoded.

    """
    from importlib.metadata import version

    import PIL
    import simplejpeg

    versions = {"Pillow": PIL.__version__, "simplejpeg": simplejpeg.__version__}
    versions["cykooz-resizer"] = version("cykooz-resizer")
    if transcodes:
        versions |= transcoder_versions()
    return versions


def transcoder_versions() -> dict[str, str]:
    """Return the versions of the packages that decode what DALI does not decode."""
    from importlib.metadata import PackageNotFoundError, version

    versions = dict.fromkeys(_TRANSCODERS, "none")
    for name in versions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def options_from_json(body: Member) -> Options:
    """Read the options in a plan or a manifest, which anybody can have written.

    The members must be the ones that `Options.as_json` writes.

    Raises:
        MemberError: a member is missing, unknown or wrong.

    """
    options = Options(**_read_fields(Options, body))
    # The versions of the libraries are compared elsewhere.
    known = {**options.as_json(), "made_by": None}
    members = {**body.mapping(), "made_by": None}
    if known != members or (options.downscale and options.raw):
        wrong = [name for name in {**known, **members} if known.get(name) != members.get(name)]
        raise MemberError(
            f"options has members that this release does not know: {', '.join(map(shorten, wrong))}"
        )
    return options


def _read_fields(record: Any, body: Member) -> dict[str, Any]:
    """Read the fields of a record from JSON, as far as they are there."""
    values: dict[str, Any] = {}
    for each in fields(record):
        declared, kind = declaration(each), types_of(record)[each.name]
        may_be_missing = declared.stored == "if set" or declared.applies
        if may_be_missing and each.name not in body.mapping():
            continue
        member = body[each.name]
        value = member.value
        if value is None and each.default is None:
            continue
        if declared.stored_as:
            value = True  # `options_from_json` compares the text
        elif kind in (Downscale, Raw):
            value = kind(**_read_fields(kind, member))
        elif kind is int:
            value = member.integer(declared.low, declared.high)
        elif kind is not float:
            value = member.read(kind)
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            member.fail("a number from 0 to 1")
        values[each.name] = value
    return values


def stored_flags() -> Iterator[tuple[str, str]]:
    """Yield each member of `Options.as_json` that has an option: ``downscale.quality``, ``--quality``."""
    for each in fields(Options):
        kind = types_of(Options)[each.name]
        if is_dataclass(kind):
            for member in fields(kind):
                yield f"{each.name}.{member.name}", flag_of(member)
        else:
            yield each.name, flag_of(each)


# --- what does not change the bytes ---------------------------------------------------------------


def _workers(commands: tuple[str, ...] = ()) -> Any:
    return option(None, "Maximum number of processes.", unset="one per CPU", commands=commands)


@record
class WorkerOptions:
    """How many processes a command starts."""

    workers: int | None = _workers(("convert", "work", "finish", "index", "repair", "sync"))


@record
class RunOptions(WorkerOptions):
    """Where a conversion writes, and how."""

    src: tuple[str, ...] = option(
        (),
        "The images or videos: path or URL of a folder, archive, list, table or dataset (docs/sources.md)."
        " Several --src are merged by class name.",
        _SOURCE,
        required=True,
        commands=("convert", "plan"),
        form="path",
        unit="SRC",
    )
    out: str | None = option(
        None,
        "Output folder, or its URL: s3://, gs:// or az://.",
        _SOURCE,
        unset="<SRC name>-<fmt> in the current folder",
        commands=("convert", "plan"),
        form="path",
        unit="OUT",
    )
    max_rejected: float = option(
        0.01,
        "Exit with status 1 if more than this fraction of the images is rejected: 0.02 or 2%.",
        commands=("convert", "finish"),
        closed=True,
    )
    engine: EngineName = option(
        "local",
        "Where shards are written. local: in processes on this machine. ray: on the machines of a"
        " Ray cluster, which must have the source and OUT at the same paths.",
        commands=("convert",),
    )
    address: str | None = option(
        None,
        "With --engine ray: auto, HOST:PORT or ray://HOST:PORT.",
        unset="auto, the cluster that this machine belongs to",
        rare=True,
        commands=("convert",),
        unit="ADDRESS",
    )
    overwrite: bool = option(
        False,
        "Start over instead of resuming, and replace a dataset in OUT that was made from another"
        " source or with other options.",
        commands=("convert", "plan"),
    )
    check_shards: bool = option(
        False,
        "Read the shards that an earlier run finished, and write damaged ones again. Indexes and"
        " tables are always checked.",
        rare=True,
        commands=("convert",),
    )
    keep_removed: bool = option(
        False,
        "With --append: accept that images of OUT are not in the source any more. They stay in OUT.",
        rare=True,
        commands=("convert", "plan"),
    )
    append: bool = option(
        False,
        "Add the images to the dataset OUT, as its next revision: new shards after the old ones,"
        " new classes at the end. Images that are in OUT are left out. Options that are not given"
        " are taken from OUT. `dataprep revert` undoes it.",
        commands=("convert", "plan"),
    )
    dry_run: bool = option(False, "Print the plan; write nothing.", commands=("convert",))

    @property
    def edits(self) -> Edits:
        """What an append does if images of the dataset are not in the source as they were."""
        return "keep removed" if self.keep_removed else "refuse"


@record
class WorkOptions:
    """Which shards of a plan a process writes."""

    task: str | None = option(
        None,
        "Write share I of N equal shares of the shards; I counts from 0. auto takes I and N from a"
        " Slurm array; auto/N takes I from a Slurm array or an indexed job of Kubernetes.",
        unit="I/N",
    )
    claim: bool = option(
        False,
        "Write shards that no other `work --claim` is writing, until all are finished. A process"
        " that sends no heartbeat for three times --heartbeat loses its shards to the others.",
    )
    heartbeat: float | None = option(
        None,
        "With --claim: time between two heartbeats.",
        unset="5",
        form="seconds",
        low=0.05,
        high=600,
    )


@record
class IndexOptions(ClassOptions):
    """How `index_shards` reads shards.

    It detects the image and the label of a record unless they are given.
    """

    image: str | None = option(
        None,
        "TFRecord feature or WebDataset extension of the image. Separate several extensions with"
        " commas.",
    )
    label: str | None = option(
        None, "TFRecord feature or WebDataset extension of the label, or of the caption."
    )
    label_type: LabelType = option(
        "class",
        "What the labels are. none: the records have no labels. caption: text in .txt files, or in"
        " the feature image/caption, caption or text.",
        names=("class", "none", "caption"),
    )
    label_key: str | None = option(
        None, "Member of a sample's .json file that contains the label.", unit="KEY"
    )
    label_offset: int = option(
        0, "Number to add to every label, for example -1 if labels start at 1.", low=-MAX_INTEGER
    )
    split: str | None = option(
        None,
        "Name of the split that all shards belong to.",
        unset="from their file and folder names",
    )
    validate: Validation = option(
        "none",
        "none: read only record and image headers. header: read everything and compute checksums."
        " decode: also decode every image.",
    )
    overwrite: bool = option(False, "Replace existing index files that differ.")


# --- commands that read datasets ------------------------------------------------------------------


def _max_pixels(text: str) -> Any:
    """Return the option for images of a dataset, whose manifest may be from anybody."""
    unset = f"the limit that the dataset was converted with, but at most {MAX_PIXELS}"
    return option(None, text, unset=unset)


@record
class InfoOptions:
    """How `dataprep info` prints a dataset."""

    json: bool = option(False, "Print JSON, including the number of samples of each class.")
    revision: str | None = option(
        None,
        "The revision to describe: its number, or a file of `loaders receipt CHECKPOINT --json`,"
        " which names the revision that the model was trained on.",
        unit="N|RECEIPT",
        unset="the newest one",
    )
    formats: bool = option(
        False,
        "Also count the formats of 256 images, which are read from the shards. A GPU's hardware"
        " decoder takes baseline JPEGs only: a progressive one takes four times as long.",
    )


@record
class DiffOptions:
    """How `dataprep diff` prints differences."""

    json: bool = option(False, "Print JSON.")
    limit: int = option(10, "Number of samples, and of classes, to list of each kind.", low=0)
    columns: bool = option(
        False,
        "Also compare the values of the other columns, and list columns that only one dataset has.",
    )
    revision: str | None = option(
        None,
        "The revision of A: its number, or a file of `loaders receipt CHECKPOINT --json`. A and B"
        " can be one dataset.",
        unit="N|RECEIPT",
        unset="the newest one",
    )
    b_revision: str | None = option(
        None, "The revision of B.", unit="N|RECEIPT", unset="the newest one"
    )


@record
class CroissantOptions:
    """What the owner of a dataset says about it; nothing of it is guessed."""

    out: str | None = option(None, "The file.", unit="FILE", unset="DATASET/croissant.json")
    name: str | None = option(None, "Name of the dataset.", unset="the name of its folder")
    license: str | None = option(None, "Its license: a URL or an SPDX name such as CC-BY-4.0.")
    creator: str | None = option(None, "Who made it.")
    cite_as: str | None = option(None, "How to cite it.")
    url: str | None = option(None, "Its home page.")
    description: str | None = option(None, "What it contains.")
    overwrite: bool = option(False, "Replace a file that this command did not write.")


@record
class VerifyOptions:
    """What `dataprep verify` checks."""

    decode: bool = option(False, "Also decode every image.")
    manifest_only: bool = option(
        False, "Read only the manifest, and compare the lengths of all files with it."
    )
    max_pixels: int | None = _max_pixels("With --decode: report images with more than N pixels.")
    workers: int | None = _workers()


@record
class DuplicatesOptions:
    """What `dataprep duplicates` looks for."""

    distance: int = option(
        DEFAULT_DISTANCE,
        "Images are near copies if their 256-bit perceptual hashes differ in at most N bits, 0 to"
        f" {MAX_DISTANCE}. -1 finds only images with the same bytes.",
        low=-1,
        high=MAX_DISTANCE,
    )
    across: bool = option(
        False, "Look for near copies in different splits and datasets only, which is faster."
    )
    limit: int = option(
        20,
        "Number of pairs to list. 0 prints only the totals, which always count all pairs.",
        low=0,
    )
    max_pixels: int | None = _max_pixels("Do not decode images with more than N pixels.")
    label_type: LabelType | None = _label_type()
    no_store: bool = option(
        False,
        f"Do not store computed hashes in the datasets. By default, the file {HASHES_NAME} in a"
        " prepared dataset gets them, so that the next run reads no images.",
    )
    json: bool = option(False, "Print JSON.")
    workers: int | None = _workers()


@record
class RepairOptions:
    """What `dataprep repair` repairs with."""

    src: tuple[str, ...] = option(
        (),
        "The source that the dataset, or one of its revisions, was made from; several if it was"
        " made from several.",
        form="path",
        unit="SRC",
    )
    dry_run: bool = option(False, "Print what would be repaired; write nothing.")


@record
class JoinOptions:
    """What `dataprep join` adds to a dataset."""

    on: Literal["key", "source", "crc32c"] = option(
        "source",
        "Column of the table and of the sample tables that has the same value: the key of a sample,"
        " the path of its image in the source, or the CRC-32C of its stored image.",
        required=True,
    )
    columns: str | None = option(
        None,
        "Columns of the table to join, separated by commas. A column of labels replaces the labels.",
        unit="NAMES",
        unset="all others",
    )
    missing: Literal["null", "keep"] | None = option(
        None,
        "What a sample without a row gets: null, or the values that it has, which are null in a new"
        " column.",
        unset="refuse the table",
    )
    dry_run: bool = option(False, "Print what would be joined; write nothing.")


@record
class RemoveOptions:
    """Which samples `dataprep remove` takes out of a dataset."""

    keys: str | None = option(
        None, "A text file with the key of a sample in each line.", form="path", unit="FILE"
    )
    sources: str | None = option(
        None,
        "A text file with the path of an image in each line, as the column source of the sample"
        " tables has it.",
        form="path",
        unit="FILE",
    )
    where: str | None = option(
        None,
        "Remove the samples for which this condition of a SQL WHERE clause is true, as in `dataprep"
        " convert --where`.",
        unit="FILTER",
    )
    reason: str | None = option(
        None, "Why the samples are removed, for the list of removed samples.", unit="TEXT"
    )
    scrub: bool = option(
        False,
        "Also write the shards again without these samples and all that were removed before, and"
        " forget the older revisions, so that no byte of these samples stays. This cannot be undone.",
    )
    dry_run: bool = option(False, "Print what would be removed; write nothing.")


@record
class SyncOptions:
    """How `dataprep sync` makes a dataset what its source is now."""

    src: tuple[str, ...] = option(
        (), "All sources of DATASET.", required=True, form="path", unit="SRC"
    )
    max_removed: float = option(
        0.05, "Largest share that may vanish or be relabelled: 0.1 or 10%.", closed=True
    )
    workers: int | None = _workers()
    dry_run: bool = option(False, "Print what would change; write nothing.")


@record
class ReportOptions:
    """How to make a report."""

    out: str = option(
        "report.html",
        "The HTML file. A JSON file of the same name is written beside it.",
        unit="FILE",
    )
    workers: int | None = _workers()
    source: str | None = option(
        None,
        "Folder that the dataset was converted from, to show the rejected images. Nothing outside"
        " of it is opened.",
        flag="--src",
        unit="DIR",
    )
    sample: int = option(
        20_000,
        "Number of random images to decode for pixel statistics. All other numbers come from all"
        " images.",
    )
    batch_size: int = option(256, "Images per batch, for the estimate of GPU memory.", high=1 << 20)
    max_size: int = option(
        8 << 20,
        "Limit on the size of the HTML file. It contains fewer pictures if necessary, and says so.",
        form="bytes",
    )
    seed: int = option(0, "Seed of the random images.", low=0)
    overwrite: bool = option(False, "Replace files that are not reports.")
    json: bool = option(False, "Also print the JSON.")
