"""Open files that may come from anybody: regular files only, of a bounded length, without blocking.

A named pipe or a device under a name that is about to be opened would block the process, or never
end. Every file that this project did not write itself in the same run is opened here: sources, and
all files of a prepared dataset.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from manifests.errors import (
    CallError,
    DatasetError,
    IndexFileError,
    ManifestError,
    PlanError,
    ShardError,
    SourceError,
    TableError,
    raise_machine_fault,
)
from manifests.process.text import plural
from manifests.records import record
from manifests.remote.url import is_url, parse_url

if TYPE_CHECKING:
    from manifests.remote.store import ObjectInfo


#: A path or a URL.
StrPath = str | os.PathLike[str]


@record
class FileKind:
    """What a file is for, and how long it may be.

    Attributes:
        name: what messages call it.
        max_bytes: a longer file is refused.
        error: raised for a file that is refused.
        hint: how to fix that.

    """

    name: str
    max_bytes: int
    error: type[DatasetError]
    hint: str


_REMAKE = "restore the file from a copy, or make the dataset again"
_PLAN_AGAIN = "run the same `dataprep plan` again; finished shards are kept"
_GIVE_FILE = "write its content to a regular file, and give that file"

#: Suffixes of images. A source skips files with other suffixes, with a notice. The content of a
#: file decides its actual format.
IMAGE_SUFFIXES = frozenset(
    [
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".webp",
        ".bmp",
        ".dib",
        ".tif",
        ".tiff",
        ".gif",
        ".avif",
        ".heic",
        ".heif",
        ".jp2",
        ".j2k",
        ".jxl",
        ".dcm",
        ".ppm",
        ".pgm",
        ".pbm",
        ".pnm",
    ]
)

#: Suffixes of videos, also of formats that are refused by name.
VIDEO_SUFFIXES = frozenset(
    [
        *(".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".avi"),
        *(".mpg", ".mpeg", ".wmv", ".flv", ".ogv", ".mts", ".m2ts"),
    ]
)

SOURCE_TABLE = FileKind("table", 16 << 30, SourceError, _GIVE_FILE)
SOURCE_LIST = FileKind("list", 16 << 30, SourceError, _GIVE_FILE)
SOURCE_ANNOTATIONS = FileKind("annotation file", 16 << 30, SourceError, _GIVE_FILE)
SOURCE_VOC = FileKind("annotation file", 16 << 20, SourceError, _GIVE_FILE)
SOURCE_ARCHIVE = FileKind("archive", 1 << 43, SourceError, "give a regular file")
CLASS_NAMES = FileKind("--classes file", 1 << 27, CallError, _GIVE_FILE)
CONFIG = FileKind("config file", 1 << 20, CallError, "give a YAML file")
TUNING = FileKind("tuning file", 1 << 24, CallError, "give a file that `loaders tune` wrote")
MANIFEST = FileKind("manifest", 1 << 28, ManifestError, _REMAKE)
SHARD_LIST = FileKind("list of shards", 1 << 28, ManifestError, _REMAKE)
SHARD = FileKind("shard", 1 << 40, ShardError, "restore the shard from a copy, or make it again")
INDEX = FileKind("index", 1 << 28, IndexFileError, _REMAKE)
TABLE = FileKind("sample table", 1 << 30, TableError, _REMAKE)
ARRAY = FileKind("array file", 1 << 40, TableError, _REMAKE)
REJECTED = FileKind("list of rejected images", 1 << 30, ManifestError, _REMAKE)
REMOVED = FileKind("list of removed samples", 1 << 30, ManifestError, _REMAKE)
PLAN = FileKind("plan", 1 << 28, PlanError, _PLAN_AGAIN)
PLAN_TABLE = FileKind("source table of the plan", 16 << 30, PlanError, _PLAN_AGAIN)

#: Kinds of files by name, with the number of a revision in it or not.
_KINDS_BY_NAME = {
    r"rejected\.(?:[0-9]+\.)?jsonl": REJECTED,
    r"removed\.(?:[0-9]+\.)?parquet": REMOVED,
    r"manifest\.shards\.(?:[0-9]+\.)?parquet": SHARD_LIST,
    r"(?s).+\.json": MANIFEST,
    r"(?s).+\.idx": INDEX,
    r"(?s).+\.parquet": TABLE,
    r"(?s).+\.npy": ARRAY,
}

#: A longer line of a list or a table is refused. Linux limits paths to 4,096 bytes.
MAX_LINE_BYTES = 1 << 20

_TYPES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a disk",
}


class ParquetError(ValueError):
    """A Parquet file is damaged, or unpacks to more than `manifests.parquet` allows.

    The message names the column.
    """


@contextmanager
def reading(what: str, file: StrPath, error_type: type[DatasetError], hint: str) -> Iterator[None]:
    """Raise what goes wrong when a file is read in this block as an error about the file."""
    try:
        yield
    except (OSError, ParquetError) as error:
        raise_machine_fault(error)
        raise error_type(
            f"{what} cannot be read ({getattr(error, 'strerror', error)})", file=file, hint=hint
        ) from None


def kind_of(name: str) -> FileKind:
    """Return the kind of a file of a prepared dataset, from its name.

    A name without a known extension is a shard.
    """
    for pattern, kind in _KINDS_BY_NAME.items():
        if re.fullmatch(pattern, os.path.basename(name)):
            return kind
    return SHARD


def open_handle(path: StrPath, kind: FileKind) -> int:
    """Open a file for reading; return its file descriptor.

    The content of an object in an object store is read first, and kept in memory or in a temporary
    file.

    Args:
        path: the file, a link to it, or the URL of an object.
        kind: what the file is for.

    Raises:
        OSError: the file cannot be opened.
        DatasetError: it is not a regular file, or is too long. The type depends on the kind.

    """
    archive = mounted_at(path)
    if archive is not None and path != archive.path:
        return _file_in_memory(str(path), [memoryview(archive.read(str(path), kind))])
    if is_url(path):
        return open_downloaded(str(path), lambda length: check_length(length, path, kind))
    try:
        # Without O_NONBLOCK, opening a named pipe waits until some process writes to it.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            file_length(path, kind)
        raise
    try:
        _check(os.fstat(handle), path, kind)
        os.set_blocking(handle, True)  # some network file systems pass the flag on to `read`
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_file(path: StrPath, kind: FileKind) -> BinaryIO:
    """Open a file for reading, as the built-in `open` does in the mode ``"rb"``.

    See `open_handle`.
    """
    return os.fdopen(open_handle(path, kind), "rb")


def read_file(path: StrPath, kind: FileKind) -> bytes:
    """Read a whole file; see `open_handle`."""
    with open_file(path, kind) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # not to its end, which may move away


def read_lines(path: StrPath, kind: FileKind) -> Iterator[bytes]:
    """Iterate over the lines of a file with their line feeds; see `open_handle`.

    Raises:
        DatasetError: a line is longer than `MAX_LINE_BYTES`.

    """
    with open_file(path, kind) as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise kind.error(
                    f"the line is longer than {plural(MAX_LINE_BYTES, 'byte')}",
                    file=path,
                    line=number,
                    hint=f"check that this is a {kind.name}",
                )
            yield line


def file_length(path: StrPath, kind: FileKind) -> int:
    """Return the length of a file in bytes without opening it.

    Raises:
        OSError: the file does not exist, or its folder cannot be read.
        DatasetError: it is not a regular file, or is too long. The type depends on the kind.

    """
    if is_url(path):
        from manifests.remote.store import open_store  # takes time to import

        place = parse_url(str(path))
        length = open_store(place.parent).stat(place.name).bytes
        check_length(length, path, kind)
        return length
    status = os.stat(path)
    _check(status, path, kind)
    return status.st_size


class MountedArchive(Protocol):
    """An archive whose files are read as if they were in a folder with the path of the archive."""

    #: Path or URL.
    path: str

    def read(self, path: str, kind: FileKind) -> bytes:
        """Return the content of a file; the errors are like the errors of `open_handle`."""


_mounted: list[MountedArchive] = []


@contextmanager
def mounted(archive: MountedArchive) -> Iterator[None]:
    """In this block, paths below the path of an archive are files in it."""
    _mounted.append(archive)
    try:
        yield
    finally:
        _mounted.remove(archive)


def mounted_at(path: StrPath) -> MountedArchive | None:
    """Return the archive that contains a path, if there is one."""
    for archive in _mounted:
        if f"{path}/".startswith(f"{archive.path}/"):
            return archive
    return None


def _check(status: os.stat_result, path: StrPath, kind: FileKind) -> None:
    if not stat.S_ISREG(status.st_mode):
        actual = _TYPES.get(stat.S_IFMT(status.st_mode), "not a file")
        message = f"the {kind.name} cannot be read: it is {actual}, not a regular file"
        raise kind.error(message, file=path, hint=kind.hint)
    check_length(status.st_size, path, kind)


def check_length(length: int, path: StrPath, kind: FileKind) -> None:
    """Refuse a file that is too long for its kind.

    Raises:
        DatasetError: it is too long. The type depends on the kind.

    """
    if length > kind.max_bytes:
        message = f"the {kind.name} has {length:,} bytes, but the limit is {kind.max_bytes:,}"
        raise kind.error(message, file=path, hint=f"check that this is a {kind.name}")


# --- files in object stores -----------------------------------------------------------------------

#: An object of up to this many bytes is kept in memory; a longer one in a temporary file without a
#: name.
IN_MEMORY_BYTES = 16 << 20

#: Threads that wait for the answers of an object store.
_THREADS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


class _TooLongForMemoryError(Exception):
    pass


def open_downloaded(url: str, check: Callable[[int], None]) -> int:
    """Return a file descriptor with the content of an object, at its first byte.

    Args:
        url: the object.
        check: is called with its length before the content is read, and may raise an error.

    Raises:
        FileNotFoundError: it does not exist.
        CallError, StorageError: it cannot be read.

    """
    from manifests.remote.store import open_store  # takes time to import

    place = parse_url(url)
    store = open_store(place.parent)
    found = []

    def check_object(info: ObjectInfo) -> None:
        found.append(info)
        check(info.bytes)
        if info.bytes > IN_MEMORY_BYTES:
            raise _TooLongForMemoryError

    try:
        return _file_in_memory(place.name, [memoryview(store.get(place.name, check_object))])
    except _TooLongForMemoryError:
        info = found[0]
    with tempfile.TemporaryFile() as file:
        handle = os.dup(file.fileno())
    return _filled(handle, store.chunks(place.name, info.bytes, etag=info.etag))


def _file_in_memory(name: str, parts: Iterable[memoryview]) -> int:
    return _filled(os.memfd_create(name[-60:], os.MFD_CLOEXEC), parts)


def _filled(handle: int, parts: Iterable[memoryview]) -> int:
    """Write a file, and return its file descriptor at its first byte."""
    try:
        for part in parts:
            written = 0
            while written < len(part):
                written += os.write(handle, part[written:])
        os.lseek(handle, 0, os.SEEK_SET)
    except BaseException:
        os.close(handle)
        raise
    return handle


#: Files that `some_files` lists.
_MAX_LISTED = 1000


def some_files(folder: str) -> list[str] | None:
    """Return names of some files below a folder; `None` if it does not exist."""
    if not is_url(folder):
        if not os.path.isdir(folder):
            return None
        found = chain.from_iterable(files for _, _, files in os.walk(folder))
        return list(islice(found, _MAX_LISTED))
    url = parse_url(folder)
    if url.is_read_only:
        return []
    from manifests.remote.store import open_store

    return [each.name for each in islice(open_store(url).list_objects(), _MAX_LISTED)] or None


def map_files(
    folder: str, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Apply a function that reads files to each item, in order.

    Several at a time in an object store, and at most `_THREADS` results ahead.
    """
    if not is_url(folder):
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # takes time, and local files do not need it

    rest = iter(items)
    with ThreadPoolExecutor(_THREADS) as threads:
        while some := [*islice(rest, _THREADS)]:
            yield from threads.map(function, some)
