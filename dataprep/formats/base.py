"""What a record format is: each other module here holds the writer, reader and DALI index of one format.

A writer is a pure function, `frame`: it gives the bytes that stand before and after an image, so that
the image itself goes from the source to the shard untouched and uncopied. A reader is `scan`: it walks
a shard by its headers, and the DALI index and the sample table are both made of what it finds.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from dataprep.images.base import MAX_BYTES, ImageInfo, MoreNeeded, Rejected
from dataprep.images.validate import parse_header
from manifests.schema import Components

#: ``view(at, n)`` gives a buffer and the index in it where the shard's byte `at` stands; the buffer
#: holds at least `n` bytes from there, or fewer only where the shard ends.
View = Callable[[int, int], tuple["bytes | mmap.mmap", int]]


class PendingSample(NamedTuple):
    """A sample about to be written: what its table row says, but for the offset."""

    key: str
    label: int
    class_name: str
    info: ImageInfo
    size: int
    crc32c: int
    source: str
    extra: Mapping[str, Any]


class Record(NamedTuple):
    """A record as `scan` finds it. Positions are bytes from the start of the shard.

    Attributes:
        start: where the record begins.
        end: where the next one begins.
        line: the record's line in the DALI index, without the line feed.
        key: name of the sample; empty where the format has none.
        image: where the encoded image begins.
        size: its length.
        component: feature name or extension under which the image was found.
        label: as stored; none where there is none.
        class_name: as stored; empty where there is none.
        source: likewise.

    """

    start: int
    end: int
    line: str
    key: str
    image: int
    size: int
    component: str
    label: int | None
    class_name: str
    source: str


class RecordFormat(Protocol):
    """What each format's module gives."""

    #: What a shard's file name ends in.
    SUFFIX: str
    #: What shards made elsewhere may end in.
    SUFFIXES: tuple[str, ...]
    #: What follows the last record.
    END: bytes
    #: Where a record written here has image and label.
    COMPONENTS: Components
    #: Likewise where images are stored as raw pixels.
    RAW: Components

    def frame(self, draft: PendingSample) -> tuple[bytes, bytes]:
        """Give the bytes before and after the image in a record."""

    def index_line(self, start: int, draft: PendingSample, frame: tuple[bytes, bytes]) -> str:
        """Give the line in the DALI index of a record that was framed so and begins at `start`."""

    def index_bytes(self, lines: list[str]) -> bytes:
        """Give the DALI index of a shard from the lines of its records."""

    def index_starts(self, index: bytes) -> list[int]:
        """Read where each record begins out of a DALI index.

        Raises:
            ValueError, IndexError: it is none.

        """

    def scan(self, view: View, size: int, file: str, want: ScanOptions) -> Iterator[Record]:
        """Walk a shard's records by their headers.

        Raises:
            ShardError: it is truncated or damaged, or a record lacks what `want` names.

        """

    def fault(self, view: View, record: Record, file: str) -> RecordDamage | None:
        """Read a whole record and check all that the format itself lets check, its image excepted."""

    def find_end(self, view: View, at: int, size: int, file: str) -> int:
        """Give where a shard's end begins, after which there may be nothing but zeros; its last record ends `at`.

        Raises:
            ShardError: what follows the last record is damaged.

        """

    def find_components(self, view: View, size: int, file: str, image: str | None) -> Components:
        """Look into the first record for where image and label lie.

        Raises:
            CallError: the record has no image of that name.
            ShardError: there is no image, or more than one.

        """


class RecordDamage(NamedTuple):
    """Something wrong inside a record, and at which byte of the shard."""

    message: str
    byte: int


class ScanOptions(NamedTuple):
    """What `scan` is to look for in a record.

    Attributes:
        components: where image and label lie.
        label_key: member of a ``.json`` component that holds the label, instead of `components.label`.
        texts: whether class names and sources are wanted too.

    """

    components: Components
    label_key: str | None = None
    texts: bool = True


def image_header(view: View, at: int, size: int) -> ImageInfo:
    """Parse the header of an image inside a shard, reading no more of it than that takes.

    Raises:
        Rejected: it is no image that DALI decodes, or its header is not whole.

    """
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, the limit is {MAX_BYTES}")
    for span in (1, 1 << 14, 1 << 16, size):
        length = min(span, size)
        data, i = view(at, length)
        # First what is at hand: most headers are short, and stand in the page that the record's own header is in.
        length = max(length, min(size, len(data) - i, 4096))
        try:
            return parse_header(data[i : i + length])
        except MoreNeeded:
            if length == size:
                break
    raise Rejected("truncated", f"the header goes on past the image's {size} bytes")
