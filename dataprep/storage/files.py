"""The one interface of what datasets are stored in, and the function that chooses its implementation.

Paths are as the user writes them: of the file system, or URLs of an object store. The local
implementation is a fast path of its own: it maps, links and renames files. In an object store,
nothing can be renamed, a write replaces the whole object, and a reader sees the old content or all
of the new.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from stat import S_ISDIR, S_ISREG

from awscrt.checksums import crc32c

from dataprep.storage.local import (
    LOCAL,
    Check,
    Entry,
    LocalFiles,
    RandomAccess,
    translate_errors,
)
from manifests.errors import CallError, DatasetError
from manifests.files import FileKind, kind_of, mounted_at
from manifests.remote.url import is_url
from manifests.schema import File
from manifests.serialization import checksum_text


def files_of(path: str) -> LocalFiles:
    """Return the implementation for a path or URL."""
    archive = mounted_at(path)
    if isinstance(archive, LocalFiles):
        return archive
    if is_url(path):
        from dataprep.storage.remote import REMOTE

        return REMOTE
    return LOCAL


def has_locks(path: str) -> bool:
    """Return whether a lock can keep other runs out: on a file system, not in an object store.

    There, files also get their names by renaming.
    """
    return files_of(path) is LOCAL


def has_latency(path: str) -> bool:
    """Return whether each read waits for a server: in an object store."""
    return files_of(path) is not LOCAL


def exists(path: str) -> bool:
    """Return whether a file of this name, or a link, prevents that a file is created."""
    return os.path.lexists(path) if has_locks(path) else is_file(path)


def remove_empty_folder(path: str) -> None:
    """Remove a folder from a file system if it is empty."""
    if has_locks(path):
        with suppress(OSError):
            os.rmdir(path)


@contextmanager
def scan_folder(path: str) -> Iterator[Iterable[Entry]]:
    """Iterate over the files and folders in a folder, as `os.scandir` does."""
    if files_of(path) is LOCAL:
        with os.scandir(path) as entries:  # large folders are never in memory as a whole
            yield entries
    else:
        yield list_folder(path)


def prefetch_folders(paths: Iterable[str]) -> None:
    """Begin to list the folders of an object store that are about to be scanned."""
    urls = [path for path in paths if is_url(path) and not mounted_at(path)]
    if urls:
        from dataprep.storage.remote import REMOTE

        REMOTE.prefetch(urls)


def identify(folder: str) -> tuple[int, int]:
    """Return what is the same for all paths of a folder."""
    if files_of(folder) is LOCAL:
        status = os.stat(folder)
        return status.st_dev, status.st_ino
    return -1, hash(folder.rstrip("/"))  # without links, its name identifies it


def walk(folder: str) -> Iterator[str]:
    """Iterate over the paths of all files below a folder that are not hidden."""
    if is_url(folder):
        from manifests.remote.store import open_store

        for info in open_store(folder).list_objects():
            if not any(part.startswith(".") for part in info.name.split("/")):
                yield f"{folder}/{info.name}"
        return
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            if not name.startswith("."):
                yield os.path.join(parent, name)


def stat(path: str) -> os.stat_result:
    """Look up a file or a folder; see `LocalFiles.stat`."""
    return files_of(path).stat(path)


def list_folder(folder: str) -> Sequence[Entry]:
    """Return the files and folders in a folder, in any order; see `LocalFiles.list`."""
    return files_of(folder).list(folder)


def names_in(folder: str) -> set[str]:
    """Return the names of the files and folders in a folder."""
    return {entry.name for entry in list_folder(folder)}


def is_file(path: str) -> bool:
    """Return whether there is a file of this name."""
    return S_ISREG(_mode(path))


def is_folder(path: str) -> bool:
    """Return whether there is a folder of this name.

    In an object store, an empty folder does not exist.
    """
    return S_ISDIR(_mode(path))


def file_length(path: str) -> int:
    """Return the length of a file in bytes; -1 if it does not exist."""
    try:
        return stat(path).st_size
    except (OSError, ValueError):
        return -1


def _mode(path: str) -> int:
    try:
        return stat(path).st_mode
    except CallError:
        raise
    except (OSError, ValueError):
        return 0


def make_folder(folder: str) -> None:
    """Make a folder, or check that an object store can be written; see `LocalFiles.make_folder`."""
    files_of(folder).make_folder(folder)


def remember(folder: str) -> AbstractContextManager[None]:
    """In this block, look into each folder of an object store once; see `LocalFiles.remember`."""
    return files_of(folder).remember(folder)


@contextmanager
def guarded(folder: str, check: Check | None) -> Iterator[None]:
    """In this block, call a function before each change of a file that is directly in a folder.

    Nothing locks a folder in an object store, so the function looks whether this run still owns it.
    A local folder is locked: there, the function is not called.

    Args:
        folder: an output folder.
        check: raises an error if the run does not own the folder any more.

    """
    if check is None or has_locks(folder):
        yield
        return
    from dataprep.storage.remote import REMOTE

    with REMOTE.guarded(folder, check):
        yield


def publish_all(pairs: Iterable[tuple[str, str]]) -> None:
    """Give temporary files their final paths, in this order, after all are stored safely."""
    pairs = list(pairs)
    if pairs:
        files_of(pairs[0][1]).publish(pairs)


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    files_of(path).remove(path)


def remove_all(folder: str, names: Iterable[str]) -> None:
    """Remove files of a folder that exist, in this order."""
    for name in names:
        remove(os.path.join(folder, name))


def open_view(path: str, span: int = 4096) -> AbstractContextManager[tuple[RandomAccess, int]]:
    """Open a shard for random access; return its view and its length in bytes.

    Raises:
        ShardError: it is not a regular file.
        StorageError: it cannot be read.

    """
    return files_of(path).open_view(path, span)


def is_cached(path: str) -> bool:
    """Return whether the middle of a shard can be read without waiting.

    `True` if that is not known.
    """
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
