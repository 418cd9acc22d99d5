"""Files in an object store."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from awscrt.checksums import crc32c

from dataprep.storage.local import Check, LocalFiles, made_status, translate_errors
from manifests.errors import (
    CallError,
    DatasetError,
    LostFolderError,
    ReplacedError,
    StorageError,
)
from manifests.files import FileKind, check_length, kind_of
from manifests.remote.store import (
    COALESCE_BYTES,
    ObjectInfo,
    Store,
    abort_uploads,
    begin_upload,
    may_have_parts,
    open_store,
)
from manifests.remote.url import parse_url
from manifests.store import read_manifest

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Bytes that a view reads at once. A request takes about as long as this many bytes do at 100 MB/s.
VIEW_BYTES = 4 << 20

#: Largest object that is compared byte for byte with what would be written: any index of a shard,
#: but few shards.
_COMPARED_BYTES = 4 << 20


class RemoteFiles(LocalFiles):
    """Files in an object store."""

    def __init__(self) -> None:
        self._remembered: dict[str, _Listing] | None = None
        self._checks: dict[str, Check] = {}

    def stat(self, path: str) -> os.stat_result:
        """Look up a file or a folder."""
        store, name = _place(path)
        if self._remembered is not None and name and str(store) in self._remembered:
            status = self._remembered[str(store)].by_name.get(name)
            if status is None:
                raise _missing(path)
            return status
        if name:
            with suppress(FileNotFoundError):
                return stat_of(store.stat(name))
        below = open_store(path)
        if below.url.is_read_only or next(below.list_objects(), None) is None:
            raise _missing(path)
        return _FOLDER

    def list(self, folder: str) -> Sequence[RemoteEntry]:
        """Return the files and folders in a folder, by name."""
        entries = self._listing(folder).by_name
        if not entries:
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        return [RemoteEntry(name, status) for name, status in entries.items()]

    @contextmanager
    def remember(self, folder: str) -> Iterator[None]:
        """In this block, look into each folder once, and now into this one."""
        self._remembered = {}
        try:
            if not parse_url(folder).is_read_only:
                self._listing(folder)
            yield
        finally:
            self._remembered = None

    def prefetch(self, folders: Iterable[str]) -> None:
        """Begin to list folders that are about to be listed in a block of `remember`, several at a time."""
        for folder in folders:
            self._listing(folder)

    def _listing(self, folder: str) -> _Listing:
        store = open_store(folder)
        if self._remembered is None:
            return _Listing(store)
        key = str(store)
        if key not in self._remembered:
            self._remembered[key] = _Listing(store)
        return self._remembered[key]

    def make_folder(self, folder: str) -> None:
        """Check that files can be written safely. An object store has no folders to make."""
        open_store(folder).check_conditions()

    @contextmanager
    def open_view(self, path: str, span: int) -> Iterator[tuple[RemoteView, int]]:
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

    @contextmanager
    def guarded(self, folder: str, check: Check) -> Iterator[None]:
        """In this block, call a function before each change of an object of a folder."""
        key = str(open_store(folder))
        outer = self._checks.get(key)
        self._checks[key] = check
        try:
            yield
        finally:
            if outer is None:
                del self._checks[key]
            else:
                self._checks[key] = outer

    def _check(self, store: Store, removed: str = "") -> None:
        if check := self._checks.get(str(store)):
            check(removed)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Upload temporary files, in this order, and remove each of them."""
        created: list[str] = []
        for temporary, path in pairs:
            store, name = _place(path)
            with _mapped(temporary) as data, _deleted_if_lost(store, created):
                if self._put(store, name, path, data):
                    created.append(name)
            _unlink(temporary)

    def _put(self, store: Store, name: str, path: str, data: bytes | mmap.mmap) -> bool:
        """Write an object. In a guarded folder, replace only an object that this run has looked at.

        Return whether there was none in a guarded folder.

        If another run takes the folder over between the look and the write, the store refuses the
        write. An upload in parts has no condition, so the owner is looked up again after it.
        """
        has_parts = may_have_parts(len(data))
        if has_parts or str(store) not in self._checks:
            self._check(store)
            if has_parts:
                begin_upload(parse_url(path))
            store.put(name, data)
            with _deleted_if_lost(store, [name]):
                self._check(store)
            return False
        found: ObjectInfo | None = None
        for _ in range(_TRIES):
            self._check(store)
            if store.create(name, data) if found is None else store.replace(name, data, found):
                return found is None
            try:
                found = store.stat(name)
            except FileNotFoundError:
                found = None
            if found is not None and _has_content(store, found, data):
                return False
        raise StorageError(
            "another run keeps changing the object",
            file=path,
            hint="wait until the other run ends, then run the same command again",
        )

    def publish_shard(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Upload the files of a shard; the table only if there is none.

        If the table exists, another process has written the shard. Its other files may be lost, or
        deleted by a process that looked before they had a table, so files that differ are uploaded
        again.

        Raises:
            StorageError: there is a table with other content.

        """
        *others, (temporary, path) = pairs
        store, name = _place(path)
        self._check(store)
        with _mapped(temporary) as table:
            if self._is_written(store, name, path, table):
                self.publish([pair for pair in others if _differs(*pair)])
            else:
                self.publish(others)
                written = [os.path.basename(each) for _, each in others]
                with _deleted_if_lost(store, written):
                    self._check(store)
                    if store.create(name, table):
                        # The process may have been suspended before the store had the table.
                        written.append(name)
                        self._check(store)
                    else:
                        self._is_written(store, name, path, table)
        for each, _ in pairs:
            _unlink(each)

    def _is_written(self, store: Store, name: str, path: str, table: bytes | mmap.mmap) -> bool:
        """Return whether a sample table exists.

        Raises:
            StorageError: it exists and has other content.

        """
        try:
            existing = store.get(name)
        except FileNotFoundError:
            return False
        if bytes(existing) == table[:]:
            return True
        self._check(store)
        raise StorageError(
            "the shard was written by another run, with another source or other options: its sample"
            " table differs",
            file=path,
            hint=(
                "wait until the other run ends, then run the same command with --overwrite, or"
                " choose another folder"
            ),
        )

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless there is one."""
        store, name = _place(path)
        return store.create(name, data)

    def replace(self, path: str, data: bytes, old: bytes) -> bool:
        """Replace a small file whose content is `old`."""
        store, name = _place(path)
        found = []
        self._check(store)

        def check(info: ObjectInfo) -> None:
            check_length(info.bytes, path, kind_of(path))
            found.append(info)

        try:
            if bytes(store.get(name, check)) == old and store.replace(name, data, found[-1]):
                return True
            # Another process may write the same content. So may the first attempt of a request that
            # had to be repeated.
            return bytes(store.get(name, check)) == data
        except FileNotFoundError:
            return False

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        store, name = _place(path)
        store.delete(name, lambda: self._check(store, name))

    def local_folder(self, folder: str) -> str:
        """Return the folder for temporary files of a URL: of this user, in the folder for temporary files."""
        parent = os.path.join(tempfile.gettempdir(), f"dataprep-{os.getuid()}")
        path = os.path.join(
            parent, hashlib.sha256(str(parse_url(folder)).encode()).hexdigest()[:16]
        )
        with translate_errors(path, "the folder for temporary files cannot be made"):
            for each in (parent, path):
                try:
                    os.mkdir(each, 0o700)
                except FileExistsError:
                    status = os.lstat(each)
                    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                        raise CallError(
                            f"{each} is not a folder of this user",
                            hint="remove it, or set TMPDIR to another folder",
                        ) from None
        return path


#: How often an object is looked at, and written if it is still the same, until a run gives up.
_TRIES = 5

REMOTE = RemoteFiles()


def _missing(path: str) -> FileNotFoundError:
    reason = "there is no object of this name, and none below it"
    return FileNotFoundError(errno.ENOENT, reason, path)


def _place(path: str) -> tuple[Store, str]:
    url = parse_url(path)
    return open_store(url.parent), url.name


class _Listing:
    """The content of a folder: requested now, awaited when it is needed."""

    def __init__(self, store: Store) -> None:
        self._future = store.start_listing()

    @cached_property
    def by_name(self) -> dict[str, os.stat_result]:
        """The folders and the files by name."""
        folders, objects = self._future.result()
        entries = dict.fromkeys(folders, _FOLDER)
        for info in objects:
            if info.name:
                entries[info.name] = stat_of(info)
        return entries


class RemoteEntry(NamedTuple):
    """An object, or a folder of objects; implements `dataprep.storage.files.Entry`."""

    name: str
    status: os.stat_result

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self.status is _FOLDER

    def is_symlink(self) -> bool:
        """Return `False`: an object store has no links."""
        return False

    def stat(self) -> os.stat_result:
        """Return length, time of the last change, and for the inode a number that follows the ETag."""
        return self.status


def stat_of(info: ObjectInfo) -> os.stat_result:
    """Return what is known of an object as `os.stat` does; its inode follows the ETag."""
    digest = hashlib.blake2b((info.etag or "").encode(), digest_size=8).digest()
    return made_status(
        stat.S_IFREG, info.bytes, info.modified_ns, int.from_bytes(digest, "big") >> 1
    )


_FOLDER = made_status(stat.S_IFDIR, 0, 0, 0)


def abort_upload(path: str, temporary: str, *, is_own: bool) -> None:
    """Abort the upload of a temporary file, if it is uploaded in parts.

    If the file is of this process, another one that is alive may upload the same shard: its upload
    goes on.
    """
    with suppress(OSError):
        if may_have_parts(os.stat(temporary).st_size):
            abort_uploads(parse_url(path), only_own=is_own)


@contextmanager
def _mapped(path: str) -> Iterator[bytes | mmap.mmap]:
    """Map a local file into memory, so that an upload needs no copy of it."""
    with translate_errors(path, "the file cannot be read"), open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    yield data  # the last user unmaps it: a request that is given up may still read from it


def _unlink(temporary: str) -> None:
    with suppress(
        FileNotFoundError
    ):  # another process that has finished the dataset removes all temporary files
        os.unlink(temporary)


@contextmanager
def _deleted_if_lost(store: Store, names: Collection[str]) -> Iterator[None]:
    """If this run has lost the folder, delete objects that it has written and that no manifest lists.

    While another conversion works, there is no manifest, and they stay. An append that works looks
    at all of its objects before it writes its manifest.
    """
    try:
        yield
    except LostFolderError:
        with suppress(DatasetError):
            manifest = read_manifest(str(store))
            listed = {file.name for file in manifest.shard_files}
            for name in names:
                if name not in listed:
                    store.delete(name)
        raise


def _has_content(store: Store, found: ObjectInfo, data: bytes | mmap.mmap) -> bool:
    """Return whether an object has this content: an equal run has written it, or a repeated request."""
    if found.bytes != len(data):
        return False
    crc = 0
    try:
        for chunk in store.chunks(found.name, found.bytes, etag=found.etag):
            crc = crc32c(chunk, crc)
    except (FileNotFoundError, ReplacedError):
        return False
    return crc == int(crc32c(data))


def _differs(temporary: str, path: str) -> bool:
    """Return whether an object is missing, or has another length than a file, or is short and has other content."""
    store, name = _place(path)
    with _mapped(temporary) as data:
        try:
            if store.stat(name).bytes != len(data):
                return True
            return len(data) <= _COMPARED_BYTES and bytes(store.get(name)) != data[:]
        except FileNotFoundError:
            return True


# --- random access to an object -------------------------------------------------------------------


class RemoteView:
    """Random access to the bytes of an object.

    While it is read in order, the next bytes are on their way.

    Args:
        store: the folder of the object.
        info: the object.
        span: number of bytes to read at once.
        first: number of bytes to read at once after a jump; it doubles up to `span` while the
            object is read in order. `None` means `span`.
        ahead: requests on their way while the object is read in order.

    """

    def __init__(
        self, store: Store, info: ObjectInfo, span: int, *, first: int | None = None, ahead: int = 1
    ) -> None:
        self._store = store
        self._info = info
        self._least, self._most, self._ahead = first or span, span, ahead
        self._span = self._least
        self._base = 0
        self._data = b""
        self._pending: deque[tuple[int, int, Future[Buffer]]] = deque()  # first byte, end, bytes
        self._crc = self._crc_end = 0  # of the bytes from the beginning that were read in order

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer with `n` bytes of the object from offset `at`, and their position in it."""
        i = at - self._base
        if i < 0 or i + n > len(self._data):
            self._advance(at, n)
            i = 0
        return self._data, i

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` is in the buffer."""
        return 0 <= at - self._base < len(self._data)

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes.

        Those that were read in order are not read again.
        """
        self._pending.clear()
        crc, end = (self._crc, self._crc_end) if self._crc_end <= size else (0, 0)
        for chunk in self._store.chunks(self._info.name, size, start=end, etag=self._info.etag):
            crc = crc32c(chunk, crc)
        return crc

    def _advance(self, at: int, n: int) -> None:
        end = self._base + len(self._data)
        in_order = self._base <= at <= end + self._gap
        self._span = min(2 * self._span, self._most) if in_order else self._least
        parts = [self._data[at - self._base :]] if self._base <= at <= end else []
        have = sum(map(len, parts))
        while have < n and (part := self._fetch(at + have, n - have)):
            parts.append(part)
            have += len(part)
        self._base, self._data = at, b"".join(parts)
        if in_order:
            self._read_ahead(at + have)

    @property
    def _gap(self) -> int:
        """Number of bytes that may be skipped while the object counts as read in order."""
        return COALESCE_BYTES if self._least < self._most else 0

    def _read_ahead(self, at: int) -> None:
        """Request the bytes from `at` on, as far ahead as configured."""
        if self._pending:
            at = self._pending[-1][1]
        while len(self._pending) < self._ahead and at < self._info.bytes:
            self._pending.append(self._start(at))
            at = self._pending[-1][1]

    def _fetch(self, at: int, n: int) -> bytes:
        """Return bytes from `at`, if possible `n` or more; none at the end of the object."""
        while self._pending and not self._pending[0][0] <= at < self._pending[0][1]:
            self._pending.popleft()
        if not self._pending and at >= self._info.bytes:
            return b""
        first, _, future = self._pending.popleft() if self._pending else self._start(at, n)
        data = bytes(future.result())
        if first == self._crc_end:
            self._crc, self._crc_end = crc32c(data, self._crc), first + len(data)
        return data[at - first :]

    def _start(self, at: int, n: int = 0) -> tuple[int, int, Future[Buffer]]:
        end = min(at + max(n, self._span), self._info.bytes)
        return at, end, self._store.start_range(self._info.name, at, end, etag=self._info.etag)
