"""The interface of a record format, and the records that cross it.

A format writes a record around an image that is copied unchanged from the source: `RecordFormat.frame` returns only
the bytes before and after it. It reads a shard by walking the headers: DALI indexes and sample tables of shards made
by other tools come from `RecordFormat.scan`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from dataprep.images.base import MAX_BYTES, ImageInfo, MoreNeeded, Rejected
from dataprep.images.validate import parse_header
from manifests.schema import Components

#: Random access to a shard. ``view(at, n)`` returns a buffer, and the position in it of the shard's byte `at`. The
#: buffer has at least `n` bytes from that position on, or fewer if the shard ends before.
View = Callable[[int, int], tuple["bytes | mmap.mmap", int]]


class PendingSample(NamedTuple):
    """A sample that is about to be written: its row of the sample table, without the offset.

    Attributes:
        key: name of the sample, unique in the dataset.
        label: class index, from 0.
        class_name: name of the class.
        info: format, width and height of the image as stored.
        size: length of the image as stored, in bytes.
        crc32c: CRC-32C of these bytes.
        source: path of the image in the source.
        extra: values of the columns that the source added.

    """

    key: str
    label: int
    class_name: str
    info: ImageInfo
    size: int
    crc32c: int
    source: str
    extra: Mapping[str, Any]


class Record(NamedTuple):
    """A record in a shard. Positions are bytes from the start of the shard.

    Attributes:
        start: first byte of the record.
        end: first byte of the next record.
        index_line: line of the record in the DALI index, without the line feed.
        key: name of the sample. Empty for TFRecord, which has no keys.
        offset: first byte of the image.
        size: length of the image in bytes.
        component: feature name or extension of the image.
        label: label as stored. `None` if the record has none.
        class_name: class name as stored. Empty if the record has none.
        source: source path as stored. Empty if the record has none.

    """

    start: int
    end: int
    index_line: str
    key: str
    offset: int
    size: int
    component: str
    label: int | None
    class_name: str
    source: str


class RecordDamage(NamedTuple):
    """What is wrong inside a record, and the byte of the shard where it is."""

    message: str
    byte: int


class ScanOptions(NamedTuple):
    """What `RecordFormat.scan` reads from each record.

    Attributes:
        components: where the image and the label are.
        label_key: member of a ``.json`` file that holds the label. Replaces `components.label`.
        texts: whether to read class names and source paths.

    """

    components: Components
    label_key: str | None = None
    texts: bool = True


class RecordFormat(Protocol):
    """What the module of each format provides."""

    #: Suffix of the shards that this package writes.
    SUFFIX: str
    #: Suffixes of shards that other tools write.
    SUFFIXES: tuple[str, ...]
    #: Bytes after the last record.
    END: bytes
    #: Where the written records have the image and the label.
    COMPONENTS: Components
    #: The same if images are stored as raw pixels.
    RAW: Components

    def frame(self, sample: PendingSample) -> tuple[bytes, bytes]:
        """Return the bytes of a record before and after the image."""

    def index_line(self, start: int, sample: PendingSample, frame: tuple[bytes, bytes]) -> str:
        """Return the line in the DALI index of a record with this frame that begins at byte `start`."""

    def scan(self, view: View, size: int, file: str, options: ScanOptions) -> Iterator[Record]:
        """Walk the records of a shard by their headers, without reading the images.

        Args:
            view: the shard.
            size: its length in bytes.
            file: its name, for errors.
            options: what to read from each record.

        Raises:
            ShardError: the shard is truncated or damaged, or a record has no image where `options` says.

        """

    def find_damage(self, view: View, record: Record, file: str) -> RecordDamage | None:
        """Read a whole record and check everything that the format protects, except the image itself."""

    def find_end(self, view: View, at: int, size: int, file: str) -> int:
        """Return where the end of the shard begins: after it, only zeros may follow. The last record ends at `at`.

        Raises:
            ShardError: the bytes after the last record are damaged.

        """

    def find_components(self, view: View, size: int, file: str, image: str | None) -> Components:
        """Find the image and the label in the first record.

        Args:
            view: the shard.
            size: its length in bytes.
            file: its name, for errors.
            image: feature or extension of the image. `None` searches for it.

        Raises:
            CallError: the first record has no image named `image`.
            ShardError: the first record has no image, or more than one, or cannot be read.

        """


def image_header(view: View, at: int, size: int) -> ImageInfo:
    """Parse the header of an image inside a shard, reading as little of the image as possible.

    Args:
        view: the shard.
        at: first byte of the image.
        size: length of the image in bytes.

    Raises:
        Rejected: DALI cannot decode the image, or its header is truncated.

    """
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, the limit is {MAX_BYTES}")
    for span in (1, 1 << 14, 1 << 16, size):
        length = min(span, size)
        data, i = view(at, length)
        # First try the bytes already read: most image headers are short, in the same page as the record's header.
        length = max(length, min(size, len(data) - i, 4096))
        try:
            return parse_header(data[i : i + length])
        except MoreNeeded:
            if length == size:
                break
    raise Rejected("truncated", f"the header goes on past the image's {size} bytes")
