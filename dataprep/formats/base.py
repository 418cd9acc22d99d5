"""The interface of a record format, and the types in its signatures.

To write a record, `RecordFormat.envelope` returns only the bytes before and after the image; the
caller copies the image between them unchanged. To read a shard, `RecordFormat.scan` walks the
headers of its records. Scans also give the DALI indexes and sample tables of shards made by other
tools.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from dataprep.images.base import MAX_BYTES, ImageInfo, IncompleteHeader, Rejected, check_pixel_kind
from dataprep.images.validate import parse_header
from dataprep.labels.base import LabelKind, PendingSample
from manifests.pixels import RGB8, PixelKind
from manifests.schema import Components, Store

#: Random access to a shard. ``view(at, n)`` returns a buffer, and the position in that buffer of
#: the shard's byte `at`. At least `n` bytes of the buffer start at this position, or fewer if the
#: shard ends there.
ByteView = Callable[[int, int], tuple["bytes | mmap.mmap", int]]


def read_bytes(view: ByteView, at: int, size: int) -> bytes:
    """Return `size` bytes of a shard from byte `at` on; fewer if the shard ends there."""
    data, i = view(at, size)
    return bytes(data[i : i + size])


#: Longest text in bytes or characters (a class name, a source path) that is read from a record.
MAX_TEXT = 4096

#: Longest caption that is read from a record, in bytes.
MAX_CAPTION = 1 << 16


class Envelope(NamedTuple):
    """The bytes of a record around its image.

    Attributes:
        head: the bytes before the image.
        tail: the bytes after the image.
        line: line of a WebDataset sample in the DALI index, with ``%d`` for each position.
        places: these positions: the first byte of each file in the record.
        others: the first byte of each of `PendingSample.others` in the record.

    """

    head: bytes
    tail: bytes
    line: str = ""
    places: Sequence[int] = ()
    others: Sequence[int] = ()


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
        caption: the caption as stored. `None` if the record has none, or if it was not requested.

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
    caption: str | None = None


class RecordDamage(NamedTuple):
    """What is damaged in a record, and the position of the damage in the shard, in bytes."""

    message: str
    byte: int


class ScanOptions(NamedTuple):
    """What `RecordFormat.scan` reads from each record.

    Attributes:
        components: names of the image and the label.
        label_key: member of the ``.json`` file that contains the label. Replaces
            `components.label`.
        texts: whether to read class names and source paths.
        caption: TFRecord feature or WebDataset extension of the caption. `None` reads none.

    """

    components: Components
    label_key: str | None = None
    texts: bool = True
    caption: str | None = None


class RecordFormat(Protocol):
    """The interface that the module of each format provides."""

    #: Suffix of the shards that this package writes.
    SUFFIX: str
    #: Suffixes of shards that other tools write.
    SUFFIXES: tuple[str, ...]
    #: Bytes after the last record.
    END: bytes

    def components(self, store: Store, labels: LabelKind) -> Components:
        """Return the names of the image, the label and the label image in written records."""
        raise NotImplementedError

    def envelope(self, sample: PendingSample) -> Envelope:
        """Return the bytes of a record around its image."""

    def index_line(self, start: int, sample: PendingSample, envelope: Envelope) -> str:
        """Return the DALI index line of a record that begins at byte `start` and has this envelope."""

    def scan(
        self, view: ByteView, size: int, file: str, options: ScanOptions, start: int = 0
    ) -> Iterator[Record]:
        """Walk the records of a shard by their headers, without reading the images, up to the end of the shard.

        Args:
            view: the shard.
            size: its length in bytes.
            file: its name, for errors.
            options: what to read from each record.
            start: first byte of the first record to read.

        Raises:
            ShardError: the shard is truncated or damaged, or a record has no image of the name in
                `options`.

        """

    def find_damage(self, view: ByteView, record: Record, file: str) -> RecordDamage | None:
        """Read a whole record and check everything that the format protects, except the image itself."""

    def find_components(
        self, view: ByteView, size: int, file: str, image: str | None
    ) -> Components:
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


#: Largest width or height that a sample table can state, in pixels: an int32.
_MAX_SIDE = 2**31 - 1


def image_header(view: ByteView, at: int, size: int, kind: PixelKind | None = RGB8) -> ImageInfo:
    """Parse the header of an image inside a shard, reading as little of the image as possible.

    Args:
        view: the shard.
        at: first byte of the image.
        size: length of the image in bytes.
        kind: what its pixels must be; `None` accepts all.

    Raises:
        Rejected: the pixels are others, DALI cannot decode the image, or its header is truncated.

    """
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    for span in (1, 1 << 14, 1 << 16, size):
        length = min(span, size)
        data, i = view(at, length)
        # Parse the bytes that are already in memory first: most image headers are short.
        length = max(length, min(size, len(data) - i, 4096))
        try:
            info = parse_header(data[i : i + length])
            if kind is not None:
                check_pixel_kind(info, kind)
        except IncompleteHeader:
            if length == size:
                break
            continue
        if max(info.width, info.height) > _MAX_SIDE:
            raise Rejected(
                "too-large",
                f"{info.width}x{info.height} pixels, but the limit is {_MAX_SIDE} per side",
            )
        return info
    raise Rejected("truncated", f"the header continues after the last of the image's {size} bytes")
