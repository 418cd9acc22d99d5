"""Files that contain images: ranges of bytes, members of a zip archive, records of RecordIO.

Everything that reads a container opens its file here.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

from dataprep.containers.base import Location, ReaderName
from dataprep.images.base import Rejected
from manifests.errors import SourceVanishedError
from manifests.files import SOURCE_ARCHIVE, open_file
from manifests.remote.url import is_url, parse_url

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

    from manifests.remote.store import ObjectInfo, Store

#: While a container in an object store is listed: bytes of a request after a jump, and the maximum.
_FIRST_BYTES, _MOST_BYTES = 64 << 10, 4 << 20
#: Requests on their way while it is listed in order.
_AHEAD = 4
#: Bytes that `ReadAhead` requests when fewer are needed beside the bytes that were read in advance.
_BLOCK_BYTES = 64 << 10


class ContainerFile(Protocol):
    """Random access to a file; threads may share it."""

    #: Path or URL.
    path: str
    #: Length in bytes.
    size: int

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`.

        Raises:
            OSError: the file cannot be read.
            SourceVanishedError: the file ends before.

        """

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.ByteView` does: fewer bytes at the end of the file."""


def read_some(file: ContainerFile, at: int, length: int) -> bytes:
    """Return bytes of a file: fewer at its end."""
    data, i = file(at, length)
    return bytes(data[i : i + length])


#: Returns an image of a file; see `ContainerReader.read`.
ReadImage = Callable[[ContainerFile, Location, int], bytes]


class LocalFile:
    """A file on a file system. Implements `ContainerFile`.

    Attributes:
        status: what the file system says about it.

    """

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.status = os.fstat(file.fileno())
        self.size = self.status.st_size

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`; see `ContainerFile`."""
        data = b""
        # The system may return fewer bytes than are asked for.
        while len(data) < length:
            more = os.pread(self.file.fileno(), length - len(data), at + len(data))
            if not more:
                raise SourceVanishedError(
                    f"the file ends at byte {at + len(data)}, but had an image there when the"
                    " source was scanned",
                    file=self.path,
                    hint=(
                        "wait until no program writes to the source, then convert or plan again"
                        " with --overwrite"
                    ),
                )
            data += more
        return data

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.ByteView` does: fewer bytes at the end of the file."""
        return os.pread(self.file.fileno(), n, at), 0


class RemoteFile:
    """An object in an object store, of which only the parts that are needed are read.

    Implements `ContainerFile`.

    Attributes:
        status: what the store says about it, as `os.stat` does.

    """

    def __init__(self, path: str, *, in_order: bool = False) -> None:
        """Look up the object.

        Args:
            path: its URL.
            in_order: whether one thread reads it roughly in order, a few bytes here and there. As
                long as the next bytes are less than `manifests.remote.store.COALESCE_BYTES` ahead,
                a call reads everything in long requests, several at a time; otherwise only what is
                needed, in short ones.

        """
        from dataprep.storage.remote import RemoteView, stat_of
        from manifests.remote.store import open_store

        url = parse_url(path)
        self.path = path
        self.store: Store = open_store(url.parent)
        self.info: ObjectInfo = self.store.stat(url.name)
        self.status = stat_of(self.info)
        self.size = self.info.bytes
        self._view: RemoteView | None = None
        if in_order:
            self._view = RemoteView(
                self.store, self.info, _MOST_BYTES, first=_FIRST_BYTES, ahead=_AHEAD
            )

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`; see `ContainerFile`."""
        parts = self.store.chunks(self.info.name, at + length, start=at, etag=self.info.etag)
        return b"".join(map(bytes, parts))

    def start(self, at: int, length: int) -> Future[Buffer]:
        """Begin to read bytes; the future returns them."""
        return self.store.start_range(self.info.name, at, at + length, etag=self.info.etag)

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.ByteView` does: fewer bytes at the end of the file."""
        if self._view is not None:
            return self._view(at, n)
        length = min(n, self.size - at)
        return (self.read(at, length) if length > 0 else b""), 0


class ReadAhead:
    """A file of which some bytes were read in advance; others are read in blocks.

    Implements `ContainerFile`.

    One thread uses it.

    Args:
        file: the file.
        start: first of these bytes.
        data: the bytes.

    """

    def __init__(self, file: ContainerFile, start: int, data: bytes) -> None:
        self.path, self.size = file.path, file.size
        self._file = file
        self._in_advance, self._block = (start, data), (0, b"")

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`; see `ContainerFile`."""
        # Headers and padding around the image are often in the same block.
        for start, data in (self._in_advance, self._block):
            if start <= at and at + length <= start + len(data):
                return data[at - start : at - start + length]
        if length >= _BLOCK_BYTES or at + length > self.size:
            return self._file.read(at, length)
        self._block = at, self._file.read(at, min(_BLOCK_BYTES, self.size - at))
        return self._block[1][:length]

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.ByteView` does: fewer bytes at the end of the file."""
        return self.read(at, max(0, min(n, self.size - at))), 0


class FileReader:
    """Reads images from a container that is one file. Implements `ContainerReader`.

    Args:
        path: the container.
        read_image: returns an image; see `ContainerReader.read`.
        overhead: bytes that an image usually takes in the file beside its own, at most.

    """

    def __init__(self, path: str, read_image: ReadImage, overhead: int) -> None:
        self._file = open_container_file(path)
        self._read_image = read_image
        self._overhead = overhead

    def read(self, location: Location, size: int, data: Buffer | None = None) -> bytes:
        """Return the bytes of an image; see `ContainerReader`. `data` is the result of `start`."""
        file: ContainerFile = self._file
        if data is not None:
            file = ReadAhead(file, location.position, bytes(data))
        return self._read_image(file, location, size)

    def start(self, location: Location) -> Future[Buffer] | None:
        """Begin to read an image; `None` for a file on a file system."""
        file = self._file
        if not isinstance(file, RemoteFile):
            return None
        length = min(location.length + self._overhead, file.size - location.position)
        return file.start(location.position, max(location.length, length))


def open_container_file(path: str, *, in_order: bool = False) -> LocalFile | RemoteFile:
    """Open a file that contains images: to read them, or to find where they are in it.

    Args:
        path: the file.
        in_order: see `RemoteFile`.

    Raises:
        OSError: it cannot be opened.
        SourceError: it is not a regular file.

    """
    return RemoteFile(path, in_order=in_order) if is_url(path) else open_local_file(path)


def open_listed_file(path: str) -> LocalFile | RemoteFile:
    """Open a file that contains images, to find where they are in it; see `open_container_file`."""
    return open_container_file(path, in_order=True)


def open_local_file(path: str) -> LocalFile:
    """Open a file that contains images, and that a library reads by itself.

    Of a URL, this is a whole copy.

    Raises:
        OSError: it cannot be opened.
        SourceError: it is not a regular file.

    """
    return LocalFile(path, open_file(path, SOURCE_ARCHIVE))


# --- ranges of bytes: members of a tar, records of a shard ----------------------------------------


def _read_range(file: ContainerFile, location: Location, size: int) -> bytes:  # noqa: ARG001  (the length says it)
    return file.read(location.position, location.length)


# --- zip archives: stored or deflated members -----------------------------------------------------

#: Header before the data of a member: signature, version, flags, method, time, CRC-32, sizes,
#: lengths of name and extra field (APPNOTE.TXT 4.3.7).
_LOCAL_HEADER = struct.Struct("<4sHHHIIIIHH")
_SIGNATURE = b"PK\x03\x04"
#: Bytes of this header, without the name and the extra field.
MIN_HEADER_BYTES = _LOCAL_HEADER.size

STORED, DEFLATED = 0, 8


def _read_member(file: ContainerFile, location: Location, size: int) -> bytes:
    header = file.read(location.position, _LOCAL_HEADER.size)
    signature, _, _, method, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if signature != _SIGNATURE or method not in (STORED, DEFLATED):
        raise Rejected("corrupt", f"the zip archive has no member at byte {location.position}")
    start = location.position + len(header) + name_length + extra_length
    if start + location.length > file.size:
        raise Rejected("truncated", "the zip archive ends before the end of the member")
    data = file.read(start, location.length)
    if method == DEFLATED:
        data = _inflate(data, size)
    if len(data) != size or zlib.crc32(data) != int.from_bytes(location.key, "big"):
        raise Rejected(
            "corrupt", "the bytes do not have the length and checksum in the zip archive"
        )
    return data


def max_deflated_bytes(size: int) -> int:
    """Return the maximum length of `size` deflated bytes: 9 bits for each byte, and the headers of blocks."""
    return size + size // 8 + 4096


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress at most `size` bytes and one more, whatever the data claims."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        return inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise Rejected(
            "corrupt", f"the member of the zip archive cannot be decompressed ({error})"
        ) from None


# --- MXNet RecordIO -------------------------------------------------------------------------------
#
# A record has the magic number, a word with a flag and a length, and data that is padded to 4 bytes.
# If the data contains the magic number at a multiple of 4 bytes, it is stored in several fragments,
# and the number between them is left out.

MAGIC = 0xCED7230A
WORD = struct.Struct("<I")
_PREFIX = struct.Struct("<II")
#: Flags of the fragments of a record.
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
#: The header of an image: number of labels (0: the one that follows), the label, two identifiers.
IMAGE_HEADER = struct.Struct("<IfQQ")


class Fragment(NamedTuple):
    """A fragment of a record: first byte and length of its data."""

    position: int
    length: int


class RecordIOError(ValueError):
    """The file is not RecordIO, or is damaged."""

    def __init__(self, message: str, byte: int) -> None:
        super().__init__(message)
        self.byte = byte


def read_parts(file: ContainerFile, at: int) -> tuple[list[Fragment], int]:
    """Return the parts of the record at a byte, and the first byte of the next record.

    Raises:
        RecordIOError: there is no complete record.

    """
    parts: list[Fragment] = []
    start = at
    flag = _FIRST
    while flag not in (_WHOLE, _LAST):
        prefix = read_some(file, at, _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise RecordIOError("the file ends within a record", start)
        magic, word = _PREFIX.unpack(prefix)
        flag, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC:
            raise RecordIOError("there is no record here", at)
        if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
            raise RecordIOError("the parts of a record are in a wrong order", at)
        parts.append(Fragment(at + _PREFIX.size, length))
        end = at + _PREFIX.size + (length + 3) // 4 * 4
        if end > file.size:
            raise RecordIOError(
                f"the record continues after the end of the file, which has {file.size:,} bytes", at
            )
        at = end
    return parts, at


def walk(file: ContainerFile) -> Iterator[list[Fragment]]:
    """Iterate over the parts of all records.

    Raises:
        RecordIOError: the file is damaged.

    """
    at = 0
    while at < file.size:
        parts, at = read_parts(file, at)
        yield parts


def _read_record(file: ContainerFile, location: Location, size: int) -> bytes:
    try:
        parts, _ = read_parts(file, location.position)
    except RecordIOError as error:
        raise Rejected("corrupt", f"{error} (byte {error.byte})") from None
    data = WORD.pack(MAGIC).join(file.read(part.position, part.length) for part in parts)
    if len(data) < location.length or location.length < size:
        raise Rejected(
            "corrupt", f"the record at byte {location.position} has another length than in the scan"
        )
    return data[location.length - size : location.length]


# --- open a file ----------------------------------------------------------------------------------

#: Function that reads an image, and the bytes that headers, names and padding of an image usually
#: take in the file, at most.
_READERS: dict[ReaderName, tuple[ReadImage, int]] = {
    "range": (_read_range, 0),
    "pixels": (_read_range, 0),
    "zip": (_read_member, 512),
    "recordio": (_read_record, 64),
}


def open_members(path: str, name: ReaderName) -> FileReader:
    """Open a file to read images of it."""
    return FileReader(path, *_READERS[name])
