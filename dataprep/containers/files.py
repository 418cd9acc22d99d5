"""Open the files that containers are stored in. Everything that reads a container opens it here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Protocol

from manifests.errors import SourceVanishedError
from manifests.files import SOURCE_ARCHIVE, open_file
from manifests.remote import is_url, parse_url

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer


class ContainerFile(Protocol):
    """Random access to a file; threads may share it."""

    #: Length in bytes.
    size: int

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`.

        Raises:
            OSError: the file cannot be read.
            SourceVanishedError: the file ends before.

        """

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.View` does: fewer bytes at the end of the file."""


class LocalFile:
    """A file on a file system. Implements `ContainerFile`."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`; see `ContainerFile`."""
        data = os.pread(self.file.fileno(), length, at)
        while 0 < len(data) < length and (more := os.pread(self.file.fileno(), length - len(data), at + len(data))):
            data += more
        if len(data) < length:
            raise SourceVanishedError(
                f"the file ends at byte {at + len(data)}, but had an image there when the source was scanned",
                file=self.path,
                hint="wait until no program writes to the source, then run the same command with --overwrite",
            )
        return data

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.View` does: fewer bytes at the end of the file."""
        return os.pread(self.file.fileno(), n, at), 0


class RemoteFile:
    """An object in an object store, of which only the parts that are needed are read. Implements `ContainerFile`."""

    def __init__(self, path: str) -> None:
        from manifests.remote import open_store

        url = parse_url(path)
        self._store, self._name = open_store(url.parent), url.name
        info = self._store.stat(self._name)
        self.size, self._etag = info.bytes, info.etag

    def read(self, at: int, length: int) -> bytes:
        """Return exactly `length` bytes from byte `at`; see `ContainerFile`."""
        return bytes(self.start(at, length).result())

    def start(self, at: int, length: int) -> Future[Buffer]:
        """Begin to read bytes; the future returns them."""
        return self._store.start_range(self._name, at, at + length, etag=self._etag)

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Read as `dataprep.formats.View` does: fewer bytes at the end of the file."""
        length = min(n, self.size - at)
        return (self.read(at, length) if length > 0 else b""), 0


def open_container_file(path: str) -> LocalFile | RemoteFile:
    """Open a file that contains images.

    Raises:
        OSError: it cannot be opened.
        SourceError: it is not a regular file.

    """
    return RemoteFile(path) if is_url(path) else open_local_file(path)


def open_local_file(path: str) -> LocalFile:
    """Open a file that contains images, and that a library reads by itself. Of a URL, this is a whole copy.

    Raises:
        OSError: it cannot be opened.
        SourceError: it is not a regular file.

    """
    return LocalFile(path, open_file(path, SOURCE_ARCHIVE))
