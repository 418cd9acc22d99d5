"""Files: open, lock, read by position, and publish under a temporary name, then rename.

It must never know what is in a file. An `OSError` leaves here as a `StorageError` in plain words.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from awscrt.checksums import crc32c

from manifests.errors import StorageError
from manifests.schema import File
from manifests.store import checksum_text

#: What a file's name begins with until it is whole.
PARTIAL = ".partial-"


@contextmanager
def explained(path: str, doing: str) -> Iterator[None]:
    """Answer an `OSError` inside with a `StorageError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot {doing}: {error.strerror or error}", file=path, hint=_HINTS.get(error.errno or 0, "")
        ) from None


_HINTS = {
    errno.ENOSPC: "free some space and run the same command again; finished shards are kept",
    errno.EFBIG: "raise the limit on a file's size (ulimit -f) or lower --shard-size",
    errno.EDQUOT: "free some of the quota and run the same command again; finished shards are kept",
    errno.EACCES: "make it writable for this user, or name another folder with --out",
    errno.EPERM: "make it writable for this user, or name another folder with --out",
    errno.EROFS: "the file system is read-only: name another folder with --out",
    errno.EIO: "the disk or network under it fails: hint that and run the same command again",
    errno.ENOENT: "the folder is gone: run the same command again",
    errno.ENOTDIR: "something on that path is a file: name another folder with --out",
    errno.EEXIST: "something of that name is there: name another folder with --out",
}


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold a folder for this process alone; the lock ends with the process, however it ends.

    Raises:
        StorageError: another run holds it.

    """
    with explained(folder, "open"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError("another run is at work in it", file=folder, hint="wait for that to end") from None
        except OSError:
            pass  # a file system without locks: nothing to be had there
        yield
    finally:
        os.close(handle)


def sweep(folder: str) -> None:
    """Remove what a killed run left under temporary names."""
    with explained(folder, "clear"):
        for name in os.listdir(folder):
            if name.startswith(PARTIAL):
                with suppress(FileNotFoundError):  # a worker of a killed run was quicker
                    os.unlink(os.path.join(folder, name))


@contextmanager
def swept(folders: Iterable[str]) -> Iterator[None]:
    """Remove what has a temporary name in some folders, before and after, however the work inside ends."""
    known = list(folders)
    for folder in known:
        sweep(folder)
    try:
        yield
    finally:
        for folder in known:
            sweep(folder)


def partial(path: str) -> str:
    """Return the temporary name of a file, in the same folder."""
    return os.path.join(os.path.dirname(path), f"{PARTIAL}{os.getpid()}-{os.path.basename(path)}")


def publish(paths: Sequence[str]) -> None:
    """Rename finished files from the temporary names that this process gave them, in this order."""
    publish_all((partial(path), path) for path in paths)


def publish_all(pairs: Iterable[tuple[str, str]]) -> None:
    """Rename files from temporary to final names, all on the disk before the first has its name."""
    known = list(pairs)
    for temporary, _ in known:
        with explained(temporary, "write"):
            flush(temporary)
    for temporary, path in known:
        with explained(path, "rename"):
            os.rename(temporary, path)
    for folder in {os.path.dirname(path) for _, path in known}:
        with explained(folder, "write"):
            flush(folder or ".")


def discard(paths: Sequence[str]) -> None:
    """Remove the temporary files that this process gave a name, and will not finish."""
    for path in paths:
        with suppress(OSError):
            os.unlink(partial(path))


def flush(path: str) -> None:
    """Force a file or a folder onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: str, data: bytes) -> None:
    """Write a small file whole or not at all."""
    with explained(path, "write"):
        try:
            with open(partial(path), "wb") as file:
                file.write(data)
        except OSError:
            discard([path])
            raise
    publish([path])


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    with explained(path, "remove"), suppress(FileNotFoundError):
        os.unlink(path)


def write_all(handle: int, buffers: Sequence[bytes]) -> int:
    """Write buffers one after the other without joining them; return their total length."""
    total = sum(map(len, buffers))
    written = os.writev(handle, buffers)
    if written < total:
        rest = memoryview(b"".join(buffers))
        while written < total:
            written += os.write(handle, rest[written:])
    return total


def describe(folder: str, name: str) -> File:
    """Read a finished file for its length and checksum."""
    path = os.path.join(folder, name)
    with explained(path, "read"):
        length = os.stat(path).st_size
    return File(name, length, checksum(path))


def checksum(path: str) -> str:
    """Read a file from end to end for its checksum."""
    crc = 0
    buffer = memoryview(bytearray(1 << 20))
    with explained(path, "read"), open(path, "rb", buffering=0) as file:
        while length := file.readinto(buffer):
            crc = crc32c(buffer[:length], crc)
    return checksum_text(crc)


def is_cached(path: str) -> bool:
    """Tell whether the middle of a file is in memory, as far as the system says so."""
    with explained(path, "read"), open(path, "rb", buffering=0) as file:
        middle = os.fstat(file.fileno()).st_size // 2
        try:
            os.preadv(file.fileno(), [bytearray(1)], middle, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except (AttributeError, OSError):  # no such question on this system
            return True
    return True


class ReadBack:
    """Reads a file that is being written, from its start on, for the checksum of what is really there.

    Args:
        handle: file descriptor, open for reading.

    """

    def __init__(self, handle: int) -> None:
        self.position = 0
        self.crc = 0
        self._handle = handle
        self._buffer = memoryview(bytearray(1 << 18))

    def advance(self, end: int) -> None:
        """Read on, up to byte `end` or the end of the file."""
        while self.position < end:
            length = os.preadv(self._handle, [self._buffer[: end - self.position]], self.position)
            if not length:
                return
            self.crc = crc32c(self._buffer[:length], self.crc)
            self.position += length


class Window:
    """Bytes of a file by position, a few pages at a time: a `dataprep.formats.View`.

    Args:
        handle: file descriptor, open for reading.
        span: bytes read at once.

    """

    def __init__(self, handle: int, span: int = 4096) -> None:
        self._handle = handle
        self._span = span
        self._base = 0
        self._data = b""

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Give a buffer that holds `n` bytes of the file from `at` on, and where in it they begin."""
        i = at - self._base
        if i < 0 or i + n > len(self._data):
            self._data = os.pread(self._handle, max(n, self._span), at)
            self._base = at
            i = 0
        return self._data, i


@contextmanager
def window(path: str, span: int = 4096) -> Iterator[tuple[Window, int]]:
    """Open a file to be read by position; give its view and its length in bytes."""
    with explained(path, "read"):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if span <= 1 << 14:  # headers only: what the kernel reads ahead would be thrown away
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
            yield Window(handle, span), os.fstat(handle).st_size
        finally:
            os.close(handle)
