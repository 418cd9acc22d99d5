"""Frozen records of a prepared dataset, and which names its splits may have. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from manifests.arrays import ArrayKind
from manifests.json_members import is_unicode
from manifests.labels import LABEL_IMAGE, LabelSchema, LabelType, schema_of
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind
from manifests.records import record

SCHEMA_VERSION = 1
#: Schema version of a manifest whose shards are listed in a file of their own.
SHARD_LIST_VERSION = 2

#: Record format of a shard.
Format = Literal["tfrecord", "webdataset"]
FORMAT_NAMES: tuple[Format, ...] = ("tfrecord", "webdataset")

#: What a shard stores per image: the encoded file, or its pixels.
Store = Literal["encoded", "raw"]

#: The command that made a dataset: ``dataprep convert`` or ``dataprep index``.
Creator = Literal["convert", "index"]
CREATORS: tuple[Creator, ...] = ("convert", "index")

#: Split names in the order in which a manifest lists them.
SPLIT_NAMES = ("train", "val", "test")
#: Other common names of these splits.
SPLIT_ALIASES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
#: All words for splits, in names of folders and shards and in tables. `dev` and `eval` mean what
#: ``datasets`` takes them for.
SPLIT_WORDS = {
    **SPLIT_ALIASES,
    "trainval": "train",
    "dev": "val",
    "eval": "test",
    "evaluation": "test",
    "holdout": "test",
}

#: Arrow types of the columns of every sample table.
COLUMN_TYPES = {
    "key": "string",
    "label": "int64",
    "offset": "int64",
    "size": "int64",
    "width": "int32",
    "height": "int32",
    "source": "string",
    "crc32c": "uint32",
}

#: Columns of every sample table, in this order; ``label`` only if each sample has one class. Extra
#: columns of the source follow, and the columns of other labels among them
#: (`manifests.labels.LabelSchema`).
TABLE_COLUMNS = tuple(COLUMN_TYPES)

#: What precedes the name of a column of the source if sample tables already use that name:
#: ``column:label``.
COLUMN_PREFIX = "column:"

#: By default, integer labels without class names stay below this limit, because the manifest names
#: every class up to the largest label. A number that is no class, such as an image ID, would make
#: it very long.
DEFAULT_MAX_CLASSES = 1_000_000

#: Largest amount that is added to a stored label to get the label in the table.
MAX_LABEL_OFFSET = (1 << 31) - 1

#: Largest height and width of raw images, in pixels.
MAX_SIDE = 1 << 16

#: Used in place of a file size that could not be read.
UNREADABLE = -1


#: Texts and numbers in JSON; see `manifests.json_members.Member.read`.
Checksum = Annotated[str, r"crc32c:[0-9a-f]{8}", "`crc32c:` and 8 hex digits"]
Digest = Annotated[str, r"sha256:[0-9a-f]{64}", "`sha256:` and 64 hex digits"]
Positive = Annotated[int, 1]
_Side = Annotated[int, 1, MAX_SIDE]

#: A row of ``rejected.jsonl``: source, reason and detail.
RejectedRow = Mapping[str, str]

#: Height, width and channels of raw images.
Pixels = tuple[_Side, _Side, Annotated[int, 1, MAX_CHANNELS]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One image and its label: a row of a sample table.

    Attributes:
        key: name of the sample, unique in the dataset. Contains neither dots nor whitespace.
        label: class index, from 0. `None` if the dataset has no such labels; other labels are in
            `extra`.
        offset: first byte of the stored image in the shard.
        size: length of the stored image in bytes.
        width: width in pixels from the image header, before EXIF orientation is applied.
        height: height in pixels, likewise.
        source: path of the image in the source.
        crc32c: CRC-32C (RFC 3720) of the stored image. `None` if the image was never read.
        extra: values of the extra columns of the source.

    """

    key: str
    label: int | None
    offset: int
    size: int
    width: int
    height: int
    source: str
    crc32c: int | None
    extra: Mapping[str, Any] = field(default_factory=dict)


@record
class File:
    """A file of the dataset.

    Attributes:
        name: path relative to the dataset folder.
        bytes: length in bytes.
        checksum: ``crc32c:`` followed by 8 hex digits. `None` for a shard that was indexed without
            reading it.

    """

    name: str
    bytes: int
    checksum: Checksum | None


@record
class Shard:
    """A shard with its DALI index, its sample table, and the files of its array columns.

    The array files are in the order of `Manifest.arrays`.
    """

    file: File
    samples: int
    index: File
    table: File
    arrays: tuple[File, ...] = ()

    @property
    def name(self) -> str:
        """Path of the shard relative to the dataset folder."""
        return self.file.name

    @property
    def files(self) -> tuple[File, ...]:
        """The shard itself, its index, its table and its array files."""
        return (self.file, self.index, self.table, *self.arrays)


@record
class Split:
    """The shards of one split, in reading order."""

    name: str
    shards: tuple[Shard, ...]

    @property
    def samples(self) -> int:
        """Number of samples in all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Total length of the shards in bytes."""
        return sum(shard.file.bytes for shard in self.shards)


@record
class Components:
    """Names of the image and the label in a record.

    Attributes:
        image: one TFRecord feature name, or the WebDataset extensions that occur.
        label: TFRecord feature name or WebDataset extension. `None` if only the sample tables have
            labels.
        label_offset: added to a stored label to get the label in the table (-1 if stored labels
            count from 1).
        mask: TFRecord feature name or WebDataset extension of the label image of a sample: its mask
            or depth. `None` if there is none.

    """

    image: tuple[str, ...]
    label: str | None
    label_offset: Annotated[int, -MAX_LABEL_OFFSET, MAX_LABEL_OFFSET] = 0
    mask: str | None = None


def other_component(first: str, name: str) -> str:
    """Return the name of another image in a record, by the name of the first one.

    ``image/right/encoded`` beside ``image/encoded`` of TFRecord, and ``right.jpg`` beside ``jpg`` of
    WebDataset.
    """
    folder, slash, last = first.rpartition("/")
    return f"{folder}/{name}/{last}" if slash else f"{name}.{first}"


@record
class Added:
    """What a revision added to a split: its last shards, until the next revision.

    Attributes:
        shards: number of shards.
        samples: number of samples in them.

    """

    shards: Positive
    samples: Positive


@record
class Revision:
    """What ``dataprep convert --append`` or ``join`` added to a dataset, or ``dataprep remove`` took out.

    Attributes:
        parent: digest of the manifest of the revision before: ``sha256:`` and 64 hex digits.
        source: name of what was appended or joined, without its folder.
        source_digest: fingerprint of the whole source with these options. The same source gives the
            same.
        splits: what each split gained, by name. Empty for a join and for a removal.
        classes: number of classes since this revision. New ones are added at the end.
        options: the options, and the fingerprint of the plan.

    """

    parent: Digest
    source: str
    source_digest: str
    splits: Mapping[str, Added]
    classes: int
    options: Mapping[str, Any]

    @property
    def joined(self) -> tuple[str, ...]:
        """Names of the columns that a join added or replaced. Empty for others."""
        return tuple(self.options["join"]["columns"]) if "join" in self.options else ()

    @property
    def is_removal(self) -> bool:
        """Whether ``dataprep remove`` made the revision."""
        return "remove" in self.options

    @property
    def is_scrubbed(self) -> bool:
        """Whether the shards were written again without removed samples, and older revisions are gone."""
        return self.is_removal and bool(self.options["remove"].get("scrubbed"))

    @property
    def removed(self) -> Mapping[str, int]:
        """Number of samples that a removal took out of each split. Empty for others."""
        counts: Mapping[str, int] = {}
        if self.is_removal:
            counts = self.options["remove"]["samples"]
        return counts


@record
class Manifest:
    """Everything about a prepared dataset except its samples.

    Attributes:
        format: record format of every shard.
        store: what a shard stores per image: ``"encoded"`` (JPEG, PNG, ...) or ``"raw"`` pixels.
        components: names of the image and the label in a record.
        classes: class names in label order.
        splits: in the order train, val, test, then the others by name.
        rejected: the file ``rejected.jsonl``. `None` if every source image was written.
        options: the options that made the dataset, without paths.
        pixels: height, width and channels of every image if `store` is ``"raw"``: values of the
            type of `kind`, little-endian, in row-major order. `None` if `store` is ``"encoded"``.
        label_type: what the label of a sample is.
        creator: the command that made the dataset, ``"convert"`` or ``"index"``.
        kind: what a pixel of every image is.
        images: names of the images of each sample, the first image first. Empty if there is one.
        revisions: what was appended, joined or removed since the dataset was made, the oldest
            first.
        arrays: the array columns by name, whose values are beside the sample tables.
        removed: the list of removed samples. `None` if none was ever removed.

    """

    format: Format
    store: Store
    components: Components
    classes: tuple[str, ...]
    splits: tuple[Split, ...]
    rejected: File | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    pixels: Pixels | None = None
    label_type: LabelType = "class"
    creator: Creator = field(kw_only=True)
    revisions: tuple[Revision, ...] = ()
    kind: PixelKind = RGB8
    arrays: Mapping[str, ArrayKind] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    removed: File | None = None

    @property
    def raw_bytes(self) -> int:
        """Bytes of every image if `store` is ``"raw"``, else 0."""
        return self.pixels[0] * self.pixels[1] * self.kind.size if self.pixels else 0

    @property
    def labels(self) -> LabelSchema:
        """How the dataset holds its labels, and the other images of its samples."""
        return schema_of(self.label_type, self.images)

    def components_of(self, name: str) -> tuple[str, ...]:
        """Return the names that an image of `LabelSchema.others` can have in a record."""
        if name == LABEL_IMAGE:
            return (str(self.components.mask),)
        return tuple(other_component(first, name) for first in self.components.image)

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits, in order."""
        return [shard for split in self.splits for shard in split.shards]

    @property
    def shard_files(self) -> list[File]:
        """The files of all shards."""
        return [file for shard in self.shards for file in shard.files]

    @property
    def revision(self) -> int:
        """Number of times that something was appended, joined or removed."""
        return len(self.revisions)

    @property
    def joins(self) -> list[int]:
        """Numbers of the revisions that joined columns: each has tables of its own."""
        return [number for number, each in enumerate(self.revisions, 1) if each.joined]

    @property
    def removals(self) -> list[int]:
        """Numbers of the revisions that removed samples: shards have new indexes and tables."""
        return [number for number, each in enumerate(self.revisions, 1) if each.is_removal]

    @property
    def oldest(self) -> int:
        """Number of the oldest revision that can be read: the newest one that scrubbed samples, or 0."""
        numbers = [number for number in self.removals if self.revisions[number - 1].is_scrubbed]
        return max(numbers, default=0)

    @property
    def plans(self) -> list[str]:
        """Fingerprints of the plans of all revisions; an empty text if the dataset has none."""
        members = [self.options, *(revision.options for revision in self.revisions)]
        return [str(each.get("plan", "")) for each in members]

    def split(self, name: str) -> Split | None:
        """Return the split with this name, or `None`."""
        return next((split for split in self.splits if split.name == name), None)


@record
class Conversion:
    """How ``dataprep convert`` wrote a shard.

    Stored with the shard's sample table, and read on resume.

    Attributes:
        plan: fingerprint of the plan that the shard belongs to.
        samples: number of samples in the shard. 0 if every image was rejected; then there is no
            shard.
        images: number of images that were read for it, including rejected ones.
        bytes: total size of these images in bytes, as scanned.
        formats: image formats in the shard, sorted.
        shard: the shard file.
        index: its DALI index.
        rejected: rows for ``rejected.jsonl``, with the members ``source``, ``reason`` and
            ``detail``.
        changes: for each value of the column ``change``: number of samples, their total size in
            bytes in the source, and as stored. `None` if the options store every image unchanged.
        turned: rows whose image decoders turn on its side, as EXIF says: its height is ``width``.
            `None` if there are none.
        arrays: the files of its array columns. `None` if there are none.

    """

    plan: str
    samples: int
    images: int
    bytes: int
    formats: tuple[str, ...]
    shard: File
    index: File
    rejected: tuple[RejectedRow, ...]
    changes: Mapping[str, tuple[int, int, int]] | None = None
    turned: tuple[Annotated[int, 0], ...] | None = None
    arrays: tuple[File, ...] | None = None

    @property
    def files(self) -> tuple[File, ...]:
        """The files of the shard except its sample table: itself, its index and its array files."""
        return (self.shard, self.index, *(self.arrays or ()))


#: What a sample table stores next to its rows: how ``dataprep convert`` wrote the shard, or that
#: ``dataprep index`` made the table.
TableMetadata = Conversion | Literal["index"]


def split_order(names: set[str]) -> tuple[str, ...]:
    """Sort split names: train, val, test, then the others by name."""
    known = [name for name in SPLIT_NAMES if name in names]
    return (*known, *sorted(names - set(known)))


def read_splits(words: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the split of each word in names or tables, and what a message says of words such as `dev`.

    Such a word is the split that it is as a folder, unless another word is that split.
    """
    splits, read = {}, []
    taken = Counter(map(SPLIT_WORDS.get, {each.lower() for each in words}))
    for each in words:
        splits[each] = SPLIT_ALIASES.get(each.lower(), each)
        split = SPLIT_WORDS.get(each.lower(), each)
        if splits[each] == each != split and taken[split] == 1:
            read.append(f"{each} as {split}")
            splits[each] = split
    return splits, read


# --- names of splits ------------------------------------------------------------------------------

#: Longest name of a split, in bytes. File systems allow 255 for the temporary name of a shard,
#: which contains it.
MAX_SPLIT_NAME = 100


def is_split_name(name: str) -> bool:
    """Return whether shards can be named after a split of this name, and stay in the folder of the dataset."""
    is_short = 0 < len(name.encode("utf-8", "surrogateescape")) <= MAX_SPLIT_NAME
    is_file_name = "/" not in name and "\0" not in name and not name.startswith(".")
    return is_short and is_file_name and is_unicode(name)
