"""Files on the file systems of this machine: the interface of all files, and the class that object stores follow."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from awscrt.checksums import crc32c

from manifests.errors import HINTS, StorageError, is_machine_fault
from manifests.files import SHARD, FileKind, check_length, open_handle

if TYPE_CHECKING:
    from dataprep.arrays import AnyArray


@contextmanager
def translate_errors(path: str, message: str) -> Iterator[None]:
    """Raise an `OSError` of the block as a `StorageError` with path, message, reason and hint."""
    try:
        yield
    except OSError as error:
        if is_machine_fault(
            error
        ):  # not a fault of this file, so no caller must take it for damage
            raise
        raise StorageError(
            f"{message}: {error.strerror or error}", file=path, hint=HINTS.get(error.errno or 0, "")
        ) from None


# --- whole files ---------------------------------------------------------------------------------


def flush(path: str) -> None:
    """Force a file or a folder to disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: Buffers that one call of pwritev(2) accepts: IOV_MAX of Linux.
_MAX_BUFFERS = 1024


def write_all(handle: int, buffers: Sequence[bytes], at: int) -> None:
    """Write buffers one after the other without joining them first, from byte `at` of the file on."""
    for first in range(0, len(buffers), _MAX_BUFFERS):
        some = buffers[first : first + _MAX_BUFFERS]
        total = sum(map(len, some))
        written = os.pwritev(handle, some, at)
        if written < total:
            rest = memoryview(b"".join(some))
            while written < total:
                written += os.pwrite(handle, rest[written:], at + written)
        at += total


# --- read files: by position, or from end to end --------------------------------------------------


class FileView:
    """Random access to the bytes of a file through a small buffer.

    Implements `dataprep.formats.ByteView`.

    Args:
        handle: file descriptor, open for reading.
        span: number of bytes to read at once.

    """

    def __init__(self, handle: int, span: int = 4096) -> None:
        self._handle = handle
        self._span = span
        self._base = 0
        self._data = b""

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer with `n` bytes of the file from offset `at`, and their position in it."""
        i = at - self._base
        if i < 0 or i + n > len(self._data):
            self._data = os.pread(self._handle, max(n, self._span), at)
            self._base = at
            i = 0
        return self._data, i

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes."""
        return checksum_of(self._handle, 0, size, memoryview(bytearray(self._span)))

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` is in the page cache; `True` if the system cannot tell."""
        try:
            os.preadv(self._handle, [bytearray(1)], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except (AttributeError, OSError):  # RWF_NOWAIT is not supported here
            return True
        return True


def checksum_of(handle: int, start: int, end: int, buffer: memoryview) -> int:
    """Return the CRC-32C of an open file from byte `start` to `end`, or to its end.

    Args:
        handle: file descriptor, open for reading.
        start: first byte.
        end: byte after the last one.
        buffer: where the bytes are read to, part by part.

    """
    crc = 0
    while start < end:
        length = os.preadv(handle, [buffer[: end - start]], start)
        if not length:
            break
        crc = crc32c(buffer[:length], crc)
        start += length
    return crc


# --- the interface of all files -------------------------------------------------------------------

#: Looks whether a run still owns a folder. It gets the name of a file that is about to be removed;
#: an empty text if a file is about to be written. See `dataprep.storage.guarded`.
Check = Callable[[str], None]


class Entry(Protocol):
    """A file or a folder in a folder: an `os.DirEntry`, or an object of an object store."""

    @property
    def name(self) -> str:
        """Its name."""

    def is_dir(self) -> bool:
        """Return whether it is a folder, or a link to one."""
        raise NotImplementedError

    def is_symlink(self) -> bool:
        """Return whether it is a symbolic link."""
        raise NotImplementedError

    def stat(self) -> os.stat_result:
        """Look it up. An object has a number that changes with its ETag in place of the inode."""
        raise NotImplementedError


def made_status(mode: int, size: int, modified_ns: int, inode: int) -> os.stat_result:
    """Return what is known of a file that is not on a file system, as `os.stat` does."""
    fields = (mode, inode, 0, 1, 0, 0, size, 0, modified_ns // 10**9, 0)
    return os.stat_result(fields, {"st_mtime_ns": modified_ns})


class RandomAccess(Protocol):
    """Random access to the bytes of a file. Implements `dataprep.formats.ByteView`."""

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer with `n` bytes of the file from offset `at`, and their position in it."""

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` can be read without waiting for a disk or a server."""

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes.

        Bytes that were read before may not be read again.
        """


class LocalFiles:
    """Files on a file system; `dataprep.storage.remote.RemoteFiles` overrides each method.

    Every method raises `StorageError` for a fault of the disk or the server.
    """

    def stat(self, path: str) -> os.stat_result:
        """Look up a file or a folder. In an object store, an empty folder does not exist.

        Raises:
            FileNotFoundError: there is nothing of this name.

        """
        return os.stat(path)

    def list(self, folder: str) -> Sequence[Entry]:
        """Return the files and folders in a folder, in any order.

        Raises:
            FileNotFoundError: the folder does not exist.

        """
        with os.scandir(folder) as entries:
            return [*entries]

    def remember(self, folder: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """In this block, which changes no file, look into each folder of an object store once.

        This folder is listed now. Only one thread may enter the block; all threads may use it. Of a file system, the operating
        system already caches metadata.
        """
        return nullcontext()

    def make_folder(self, folder: str) -> None:
        """Make a folder, and the folders above it.

        Of a store, check that it can be written safely: `Store.check_conditions`.

        Raises:
            OSError: the folder cannot be made.
            CallError, StorageError: the object store cannot be used.

        """
        os.makedirs(folder, exist_ok=True)

    @contextmanager
    def open_view(self, path: str, span: int) -> Iterator[tuple[RandomAccess, int]]:
        """Open a shard for random access, to read at least `span` bytes at once.

        Return the view and its length.
        """
        with translate_errors(path, "the file cannot be read"):
            handle = open_handle(path, SHARD)
            try:
                if (
                    span <= 1 << 14
                ):  # only headers are read: the kernel's read-ahead would be wasted
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
                yield FileView(handle, span), os.fstat(handle).st_size
            finally:
                os.close(handle)

    def chunks(self, path: str, kind: FileKind) -> Iterator[memoryview]:
        """Read a file from end to end, into one buffer that each chunk replaces.

        Raises:
            DamagedError: it is not a regular file, or is too long.
            FileNotFoundError: it does not exist.

        """
        buffer = memoryview(bytearray(1 << 20))
        handle = open_handle(path, kind)
        try:
            while count := os.readv(handle, [buffer]):
                yield buffer[:count]
        finally:
            os.close(handle)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename complete files to their final paths, in this order, after all are flushed to disk.

        The temporary files are gone afterwards.
        """
        for temporary, path in pairs:
            with translate_errors(path, "the file cannot be written"):
                flush(temporary)
        for temporary, path in pairs:
            with translate_errors(path, "the file cannot be renamed"):
                os.rename(temporary, path)
        for folder in {os.path.dirname(path) for _, path in pairs}:
            with translate_errors(folder, "the folder cannot be written"):
                flush(folder or ".")

    #: Do the same for the files of a shard. The last of them, its sample table, marks the shard as
    #: written. Several processes may publish the same shard at the same time. Because all of them
    #: write the same bytes, it does not matter which of them comes first.
    publish_shard = publish

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with translate_errors(path, "the file cannot be removed"), suppress(FileNotFoundError):
            os.unlink(path)

    def local_folder(self, folder: str) -> str:
        """Return the local folder for temporary files of a folder, which is also locked for it."""
        return folder


LOCAL = LocalFiles()


# --- temporary files, on the disk that ``TMPDIR`` names -------------------------------------------

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder, which is removed at the end of the block. The block writes no other files.

    Raises:
        StorageError: the disk is full, or there is no folder for temporary files.

    """
    import tempfile  # takes time to import, and a worker does not need it

    try:
        parent = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageError(
            f"temporary files cannot be written: {error.strerror}",
            hint="set TMPDIR to a folder with free space that this user can write to",
        ) from error
    try:
        with tempfile.TemporaryDirectory(prefix="dataprep-", dir=parent) as folder:
            yield folder
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StorageError(
            f"temporary files cannot be written: {error.strerror}",
            file=parent,
            hint=(
                "free some space there, or set TMPDIR to a folder with more, and run the same"
                " command again"
            ),
        ) from error


def save_array(path: str, array: AnyArray) -> None:
    """Write an array as `numpy.save` does, whose error on a full disk says nothing."""
    import numpy as np  # takes time to import

    array = np.ascontiguousarray(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


# --- files of archives ----------------------------------------------------------------------------

#: In the listing of a folder, what stands for a folder.
_FOLDER = -1


class ArchivedFiles(LocalFiles):
    """The files of an archive, listed once. `manifests.files.mounted` makes them readable by path.

    Args:
        path: path or URL of the archive.
        names: the name of each file, without ``..`` and without a slash at the beginning.
        sizes: the size of each file in bytes.
        status: what the file system says about the archive.
        read_row: returns the content of a file, by its row in `names`.

    """

    def __init__(
        self,
        path: str,
        names: Sequence[str],
        sizes: Sequence[int],
        status: os.stat_result,
        read_row: Callable[[int], bytes],
    ) -> None:
        self.path = path
        self._sizes, self._status, self._read_row = sizes, status, read_row
        # The rows of the files in each folder, by name.
        self._folders: dict[str, dict[str, int]] = {"": {}}
        for row, name in enumerate(names):
            folder, _, last = name.rpartition("/")
            self._folder(folder)[last] = row

    def _folder(self, folder: str) -> dict[str, int]:
        """Return the content of a folder, which is made with the folders above it."""
        content = self._folders.get(folder)
        if content is None:
            content = self._folders[folder] = {}
            above, _, last = folder.rpartition("/")
            self._folder(above)[last] = _FOLDER
        return content

    def _row(self, path: str) -> int:
        name = path[len(self.path) + 1 :].rstrip("/")
        if not name:
            return _FOLDER
        folder, _, last = name.rpartition("/")
        row = self._folders.get(folder, {}).get(last)
        if row is None:
            raise FileNotFoundError(errno.ENOENT, "the archive has no such file", path)
        return row

    def status(self, row: int) -> os.stat_result:
        """Return what is known of a file, or a folder, as `os.stat` does."""
        if row == _FOLDER:
            return made_status(stat.S_IFDIR, 0, 0, 0)
        archive = self._status
        return made_status(stat.S_IFREG, int(self._sizes[row]), archive.st_mtime_ns, archive.st_ino)

    def stat(self, path: str) -> os.stat_result:
        """Look up a file or a folder."""
        return self.status(self._row(path))

    def list(self, folder: str) -> Sequence[ArchivedEntry]:
        """Return the files and folders in a folder."""
        content = self._folders.get(folder[len(self.path) + 1 :].rstrip("/"))
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "the archive has no such folder", folder)
        return [ArchivedEntry(name, row, self) for name, row in content.items()]

    def read(self, path: str, kind: FileKind) -> bytes:
        """Return the content of a file; see `manifests.files.MountedArchive`."""
        row = self._row(path)
        if row == _FOLDER:
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        check_length(int(self._sizes[row]), path, kind)
        return self._read_row(row)


class ArchivedEntry(NamedTuple):
    """A file or folder in an archive; implements `dataprep.storage.files.Entry`."""

    name: str
    row: int
    files: ArchivedFiles

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self.row == _FOLDER

    def is_symlink(self) -> bool:
        """Return `False`: links are resolved, or rejected, when the archive is listed."""
        return False

    def stat(self) -> os.stat_result:
        """Return its length, and time and inode of the archive."""
        return self.files.status(self.row)
