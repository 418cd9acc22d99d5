"""The one interface of what datasets are stored in, and the function that chooses its implementation.

Paths are as the user writes them: of the file system, or URLs of an object store. The local implementation is a fast
path of its own: it maps, links and renames files. In an object store, nothing can be renamed, a write replaces the
whole object, and a reader sees the old content or all of the new.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from awscrt.checksums import crc32c

from dataprep.storage.local import translate_errors
from manifests.errors import DatasetError
from manifests.files import FileKind, kind_of
from manifests.remote.url import is_url
from manifests.schema import File
from manifests.store import checksum_text


class FileStat(NamedTuple):
    """What is known of a file without reading it.

    Attributes:
        bytes: its length.
        modified_ns: time of its last change, in ns since 1970.
        identity: changes when the file is replaced by another one: the inode, or a digest of the ETag, from 0 to 2**63.

    """

    bytes: int
    modified_ns: int
    identity: int


class Entry(NamedTuple):
    """A file or a folder in a folder.

    Attributes:
        name: its name.
        is_folder: whether it is a folder, or a link to one.
        is_link: whether it is a symbolic link.
        stat: `None` for a folder, and for a file that cannot be looked up.

    """

    name: str
    is_folder: bool
    is_link: bool
    stat: FileStat | None


class View(Protocol):
    """Random access to the bytes of a file. Implements `dataprep.formats.View`."""

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer that contains `n` bytes of the file from offset `at`, and their position in the buffer."""

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` can be read without waiting for a disk or a server."""

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes. Bytes that were read before may not be read again."""


class Files(Protocol):
    """What files are stored in. Every method raises `StorageError` for a fault of the disk or the server."""

    def stat(self, path: str) -> FileStat | None:
        """Look up a file; `None` if there is no file of this name."""

    def list(self, folder: str) -> Sequence[Entry]:
        """Return the files and folders in a folder, in any order.

        Raises:
            FileNotFoundError: the folder does not exist.

        """

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name. In an object store, an empty folder does not exist."""

    def open_view(self, path: str, span: int) -> AbstractContextManager[tuple[View, int]]:
        """Open a shard for random access, to read at least `span` bytes at once; return the view and its length."""

    def chunks(self, path: str, kind: FileKind) -> Iterator[memoryview]:
        """Read a file from end to end.

        Raises:
            FileNotFoundError: it does not exist.

        """

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Give complete temporary files their final paths, in this order. The temporary files are gone afterwards."""

    def publish_shard(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Do the same for the files of a shard; the last of them, its sample table, marks the shard as written.

        Several processes may publish the same shard at the same time. Because all of them write the same bytes, it
        does not matter which of them comes first.
        """

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def local_folder(self, folder: str) -> str:
        """Return the local folder in which temporary files of a folder are written, and which is locked for it."""


def files_of(path: str) -> Files:
    """Return the implementation for a path or URL."""
    if is_url(path):
        from dataprep.storage.remote import REMOTE

        return REMOTE
    from dataprep.storage.local_files import LOCAL

    return LOCAL


def stat(path: str) -> FileStat | None:
    """Look up a file; `None` if there is no file of this name."""
    return files_of(path).stat(path)


def file_length(path: str) -> int:
    """Return the length of a file in bytes; -1 if it does not exist."""
    found = stat(path)
    return -1 if found is None else found.bytes


def exists(path: str) -> bool:
    """Return whether there is a file or a folder of this name."""
    return stat(path) is not None or is_folder(path)


def is_folder(path: str) -> bool:
    """Return whether there is a folder of this name. In an object store, an empty folder does not exist."""
    return files_of(path).is_folder(path)


def list_folder(folder: str) -> Sequence[Entry]:
    """Return the files and folders in a folder, in any order.

    Raises:
        FileNotFoundError: the folder does not exist.

    """
    return files_of(folder).list(folder)


def publish_all(pairs: Iterable[tuple[str, str]]) -> None:
    """Give complete temporary files their final paths, in this order, after all of them are stored safely."""
    pairs = list(pairs)
    if pairs:
        files_of(pairs[0][1]).publish(pairs)


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    files_of(path).remove(path)


def open_view(path: str, span: int = 4096) -> AbstractContextManager[tuple[View, int]]:
    """Open a shard for random access; return its view and its length in bytes.

    Raises:
        ShardError: it is not a regular file.
        StorageError: it cannot be read.

    """
    return files_of(path).open_view(path, span)


def is_cached(path: str) -> bool:
    """Return whether the middle of a shard can be read without waiting; `True` if that is not known."""
    try:
        with open_view(path) as (view, size):
            return view.is_cached(size // 2)
    except DatasetError:
        return True


def describe(folder: str, name: str, kind: FileKind | None = None) -> File:
    """Read a complete file and return its name, length and checksum.

    Args:
        folder: the dataset folder.
        name: the file, relative to it.
        kind: what it is for. `None` means what its name says.

    Raises:
        DamagedError: it is not a regular file, or is too long.
        StorageError: it cannot be read.

    """
    path = os.path.join(folder, name)
    crc = length = 0
    with translate_errors(path, "the file cannot be read"):
        for chunk in files_of(path).chunks(path, kind or kind_of(name)):
            crc = crc32c(chunk, crc)
            length += len(chunk)
    return File(name, length, checksum_text(crc))
