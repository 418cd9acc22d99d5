"""Open the files that containers are stored in. Everything that reads a container opens it here."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Protocol

from dataprep.containers.base import Location
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
