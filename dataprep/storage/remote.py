"""Files in an object store."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from awscrt.checksums import crc32c

from dataprep.storage.files import Entry, FileStat, View
from dataprep.storage.local import translate_errors
from manifests.errors import CallError, StorageError
from manifests.files import FileKind, check_length
from manifests.remote.store import ObjectInfo, Store, open_store
from manifests.remote.url import parse_url

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Bytes that a view reads at once. A request takes about as long as this many bytes do at 100 MB/s.
VIEW_BYTES = 4 << 20


class RemoteFiles:
    """Files in an object store; see `dataprep.storage.files.Files`."""

    def stat(self, path: str) -> FileStat | None:
        """Look up a file; `None` if there is no file of this name."""
        store, name = _place(path)
        if not name:
            return None
        try:
            return _stat_of(store.stat(name))
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> Sequence[Entry]:
        """Return the files and folders in a folder, by name."""
        folders, objects = open_store(folder).list_folder()
        if not folders and not objects:
            raise FileNotFoundError(2, "the folder does not exist", folder)
        files = [Entry(info.name, is_folder=False, is_link=False, stat=_stat_of(info)) for info in objects if info.name]
        return [*(Entry(name, is_folder=True, is_link=False, stat=None) for name in folders), *files]

    def is_folder(self, path: str) -> bool:
        """Return whether there is an object below a path."""
        store = open_store(path)
        return not store.url.is_read_only and next(store.list_objects(), None) is not None

    @contextmanager
    def open_view(self, path: str, span: int) -> Iterator[tuple[View, int]]:
        """Open a shard for random access; return its view and its length in bytes."""
        store, name = _place(path)
        with translate_errors(path, "the file cannot be read"):
            info = store.stat(name)
        yield RemoteView(store, info, max(span, VIEW_BYTES)), info.bytes

    def chunks(self, path: str, kind: FileKind) -> Iterator[memoryview]:
        """Read a file from end to end."""
        store, name = _place(path)
        info = store.stat(name)
        check_length(info.bytes, path, kind)
        return store.chunks(name, info.bytes, etag=info.etag)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Upload temporary files, in this order, then remove them."""
        for temporary, path in pairs:
            store, name = _place(path)
            with _mapped(temporary) as data:
                store.put(name, data)
            os.unlink(temporary)

    def publish_shard(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Upload the files of a shard; the table only if there is none.

        Raises:
            StorageError: there is a table with other content.

        """
        *others, (temporary, path) = pairs
        store, name = _place(path)
        with _mapped(temporary) as table:
            if not _is_written(store, name, path, table):
                self.publish(others)
                if not store.create(name, table):
                    _is_written(store, name, path, table)
        for each, _ in pairs:
            if os.path.lexists(each):
                os.unlink(each)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        store, name = _place(path)
        store.delete(name)

    def local_folder(self, folder: str) -> str:
        """Return the folder for temporary files of a URL: of this user, in the folder for temporary files."""
        parent = os.path.join(tempfile.gettempdir(), f"dataprep-{os.getuid()}")
        path = os.path.join(parent, hashlib.sha256(str(parse_url(folder)).encode()).hexdigest()[:16])
        with translate_errors(path, "the folder for temporary files cannot be made"):
            for each in (parent, path):
                try:
                    os.mkdir(each, 0o700)
                except FileExistsError:
                    status = os.lstat(each)
                    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                        raise CallError(
                            f"{each} is not a folder of this user", hint="remove it, or set TMPDIR to another folder"
                        ) from None
        return path


REMOTE = RemoteFiles()


def _place(path: str) -> tuple[Store, str]:
    url = parse_url(path)
    return open_store(url.parent), url.name


def _stat_of(info: ObjectInfo) -> FileStat:
    digest = hashlib.blake2b((info.etag or "").encode(), digest_size=8).digest()
    return FileStat(info.bytes, info.modified_ns, int.from_bytes(digest, "big") >> 1)


@contextmanager
def _mapped(path: str) -> Iterator[bytes | mmap.mmap]:
    """Map a local file into memory, so that an upload needs no copy of it."""
    with translate_errors(path, "the file cannot be read"), open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    try:
        yield data
    finally:
        data.close()


def _is_written(store: Store, name: str, path: str, table: bytes | mmap.mmap) -> bool:
    """Return whether a sample table exists.

    Raises:
        StorageError: it exists and has other content.

    """
    try:
        existing = store.get(name)
    except FileNotFoundError:
        return False
    if crc32c(memoryview(existing)) != crc32c(table) or memoryview(existing).nbytes != len(table):
        raise StorageError(
            "the shard was written by another run, with another source or other options: its sample table differs",
            file=path,
            hint="wait until the other run ends, then run the same command with --overwrite, or choose another folder",
        )
    return True


class RemoteView:
    """Random access to the bytes of an object. While it is read in order, the next bytes are on their way.

    Args:
        store: the folder of the object.
        info: the object.
        span: number of bytes to read at once.

    """

    def __init__(self, store: Store, info: ObjectInfo, span: int) -> None:
        self._store = store
        self._info = info
        self._span = span
        self._base = 0
        self._data = b""
        self._next: tuple[int, Future[Buffer]] | None = None
        self._crc = self._crc_end = 0  # of the bytes from the beginning that were read in order

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer that contains `n` bytes of the object from offset `at`, and their position in the buffer."""
        i = at - self._base
        if i < 0 or i + n > len(self._data):
            self._advance(at, n)
            i = 0
        return self._data, i

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` is in the buffer."""
        return 0 <= at - self._base < len(self._data)

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes. Those that were read in order are not read again."""
        self._next = None
        crc, end = (self._crc, self._crc_end) if self._crc_end <= size else (0, 0)
        for chunk in self._store.chunks(self._info.name, size, start=end, etag=self._info.etag):
            crc = crc32c(chunk, crc)
        return crc

    def _advance(self, at: int, n: int) -> None:
        end = self._base + len(self._data)
        in_order = self._base <= at <= end
        parts = [self._data[at - self._base :]] if in_order else []
        have = sum(map(len, parts))
        while have < n and (part := self._fetch(at + have)):
            parts.append(part)
            have += len(part)
        self._base, self._data = at, b"".join(parts)
        if in_order and self._next is None and (future := self._start(at + have)):
            self._next = (at + have, future)

    def _fetch(self, at: int) -> bytes:
        """Return the bytes from `at`; none at the end of the object."""
        pending, self._next = self._next, None
        future = pending[1] if pending and pending[0] == at else self._start(at)
        data = bytes(future.result()) if future else b""
        if at == self._crc_end:
            self._crc, self._crc_end = crc32c(data, self._crc), at + len(data)
        return data

    def _start(self, at: int) -> Future[Buffer] | None:
        end = min(at + self._span, self._info.bytes)
        return self._store.start_range(self._info.name, at, end, etag=self._info.etag) if at < end else None
