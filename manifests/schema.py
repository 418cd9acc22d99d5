"""Frozen records of a prepared dataset. No I/O, and nothing that knows a shard's bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1
Format = Literal["tfrecord", "webdataset"]
FORMATS: tuple[Format, ...] = ("tfrecord", "webdataset")
Store = Literal["encoded", "raw"]
STORES: tuple[Store, ...] = ("encoded", "raw")

#: Names of splits, in the order in which a manifest lists them, with other words that people use.
SPLIT_NAMES = ("train", "val", "test")
SPLIT_ALIASES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}

#: Columns that every sample table has; a source's further columns follow them.
TABLE_COLUMNS = ("key", "label", "offset", "size", "width", "height", "source", "crc32c")


#: The size that stands for what could not be looked at.
UNREADABLE = -1


@dataclass(frozen=True, slots=True)
class Sample:
    """One image with its label, as it lies in a shard.

    Attributes:
        key: unique in the dataset; neither dot nor blank.
        label: number of the class, from 0.
        offset: where the encoded image begins in the shard, in bytes.
        size: length of the encoded image in bytes.
        width: pixels, as the image's own header has them (before EXIF orientation is applied).
        height: likewise.
        source: the path as the source named it.
        crc32c: CRC-32C (RFC 3720) of the encoded image; none if the image was never read.
        extra: what further columns the source carried.

    """

    key: str
    label: int
    offset: int
    size: int
    width: int
    height: int
    source: str
    crc32c: int | None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the dataset: name relative to its folder, length in bytes, ``crc32c:`` and 8 hex digits.

    A shard that was indexed without being read has no checksum.
    """

    name: str
    bytes: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard with its DALI index and its sample table."""

    file: File
    samples: int
    index: File
    table: File

    @property
    def name(self) -> str:
        """The shard's file name, relative to the dataset's folder."""
        return self.file.name


@dataclass(frozen=True, slots=True)
class Split:
    """Shards that belong together, in reading order."""

    name: str
    shards: tuple[Shard, ...]

    @property
    def samples(self) -> int:
        """How many samples the split's shards hold."""
        return sum(shard.samples for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Total length of the split's shards."""
        return sum(shard.file.bytes for shard in self.shards)


@dataclass(frozen=True, slots=True)
class Components:
    """Where a reader finds image and label in a record.

    Attributes:
        image: TFRecord feature names (one), or WebDataset extensions (several where formats are mixed).
        label: TFRecord feature name or WebDataset extension; none if only the tables have labels.
        label_offset: added to a stored label to get the table's (-1 where the shards count from 1).

    """

    image: tuple[str, ...]
    label: str | None
    label_offset: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of a prepared dataset but its samples.

    Attributes:
        format: record format of every shard.
        store: what a stored image is: ``encoded`` (JPEG, PNG, ...) or ``raw`` pixels.
        components: where a reader finds image and label in a record.
        classes: names in label order.
        splits: in the order train, val, test, then others by name.
        rejected: how many source images were not written; ``rejected.jsonl`` says which and why.
        options: the options that made the dataset, without paths.
        pixels: height, width and channels of every stored image where `store` is ``raw``: uint8 RGB, row by row;
            none otherwise.

    """

    format: Format
    store: Store
    components: Components
    classes: tuple[str, ...]
    splits: tuple[Split, ...]
    rejected: File | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    pixels: tuple[int, int, int] | None = None
    schema_version: int = SCHEMA_VERSION

    def split(self, name: str) -> Split | None:
        """Return the split of that name, or none."""
        return next((split for split in self.splits if split.name == name), None)


def split_order(names: set[str]) -> tuple[str, ...]:
    """Put splits in the order in which they are listed: train, val, test, then others by name."""
    known = [name for name in SPLIT_NAMES if name in names]
    return (*known, *sorted(names - set(known)))
