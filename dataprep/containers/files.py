"""Open the files that containers are stored in. Everything that reads a container opens it here."""

from __future__ import annotations

import os
from typing import BinaryIO, Protocol

from manifests.errors import SourceVanishedError
from manifests.files import SOURCE_ARCHIVE, open_file


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


def open_container_file(path: str) -> LocalFile:
    """Open a file that contains images.

    Raises:
        OSError: it cannot be opened.
        SourceError: it is not a regular file.

    """
    return LocalFile(path, open_file(path, SOURCE_ARCHIVE))
