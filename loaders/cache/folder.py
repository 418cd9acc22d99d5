"""The cache folder, and the datasets in it: manifest, tables, and sparse files as shards.

::

    CACHE/dataprep-cache.json   marks the folder as a cache: nothing outside of one is ever removed
    CACHE/NAME-DIGEST/          one dataset: the digest of its URL and its manifest
        remote.json             the URL from which everything here can be fetched again
        in-use, mapped          empty; locked by the processes that use the dataset, or have
                                mapped its shards
        fetching                empty; locked by the process that fetches tables
        split-0.presence        see `presence`
        files/                  manifest, sample tables, and shards: sparse files of true length
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from awscrt.checksums import crc32c

from manifests.errors import HINTS, CallError, StorageError, raise_machine_fault
from manifests.files import MANIFEST, kind_of, read_file
from manifests.process.text import printable
from manifests.remote.store import Store
from manifests.schema import COLUMN_PREFIX, File, Manifest, Shard
from manifests.serialization import checksum_text
from manifests.store import MANIFEST_NAME, parse_manifest, read_older

CACHE_MARK = "dataprep-cache.json"
_MARK_BYTES = b'{"cache_version": 1}\n'

_REMOTE_NAME = "remote.json"
_FILES = "files"
_IN_USE, MAPPED, _FETCHING = "in-use", "mapped", "fetching"

#: Tables that are fetched at a time.
_CONNECTIONS = 16

_RESTORE = "restore it, or make the dataset again"


def open_cache(cache: str) -> None:
    """Make the cache folder, or check that it is one.

    Raises:
        CallError: it contains other files, or this user cannot use it.

    """
    mark = os.path.join(cache, CACHE_MARK)
    with named(cache):
        os.makedirs(cache, exist_ok=True)
        names = os.listdir(cache)
        if CACHE_MARK not in names:
            if any(not name.startswith(f"{CACHE_MARK}.") for name in names):
                raise CallError(
                    f"cache={printable(cache)!r} contains files of other programs",
                    hint="choose an empty folder, or one that does not exist",
                )
            write_once(mark, _MARK_BYTES)
        with open(mark, "rb") as file:
            if file.read(len(_MARK_BYTES) + 1) != _MARK_BYTES:
                raise CallError(
                    f"cache={printable(cache)!r} was made by another release",
                    hint="choose another cache folder",
                )


def dataset_folders(cache: str) -> Iterator[str]:
    """Yield the folders of the datasets in a cache."""
    for name in sorted(os.listdir(cache)):
        folder = os.path.join(cache, name)
        if os.path.isfile(os.path.join(folder, _REMOTE_NAME)) and not os.path.islink(folder):
            yield folder


def remove_unused(folder: str) -> bool:
    """Remove the folder of a dataset unless a process uses it. Return whether it was removed."""
    handle = try_lock(folder, _IN_USE)
    if handle is None:
        return False
    try:
        # `remote.json` last, because without it nothing here may be removed.
        others = set(os.listdir(folder)) - {_IN_USE, _REMOTE_NAME}
        for name in (*others, _REMOTE_NAME, _IN_USE):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(path)
        os.rmdir(folder)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


# --- a dataset ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """A dataset in a cache, in use by this process until its lock is released.

    Attributes:
        store: where its files come from.
        cache: the cache folder.
        folder: its folder in the cache.
        manifest: its manifest.
        lock: the shared lock of ``in-use``.

    """

    store: Store
    cache: str
    folder: str
    manifest: Manifest
    lock: Lock

    @property
    def root(self) -> str:
        """Folder of the dataset's files."""
        return os.path.join(self.folder, _FILES)

    def presence_path(self, split: str) -> str:
        """Return the path of the presence file of a split."""
        number = [each.name for each in self.manifest.splits].index(split)
        return os.path.join(self.folder, f"split-{number}.presence")


def open_dataset(store: Store, cache: str, revision: int | None = None) -> CachedDataset:
    """Read the manifest of a dataset in an object store, and make its folder in the cache.

    Args:
        store: the dataset.
        cache: the cache folder.
        revision: an older revision of the dataset. `None` means the newest one.

    Raises:
        CallError: the URL contains no dataset, it has no such revision, or the cache folder cannot
            be used.
        ManifestError: the manifest is damaged.
        StorageError: the store or the disk cannot be used.

    """
    cache = os.path.abspath(cache)
    open_cache(cache)
    url = str(store)
    try:
        data = read_file(f"{url}/{MANIFEST_NAME}", MANIFEST)
    except FileNotFoundError:
        raise CallError(
            f"{url} contains no {MANIFEST_NAME}, so it is not a prepared dataset, or `dataprep"
            " convert` has not ended",
            hint="give the URL that was given to `dataprep convert` as --out",
        ) from None
    manifest = parse_manifest(data, f"{url}/{MANIFEST_NAME}")
    if revision not in (None, manifest.revision):
        manifest, data = read_older(url, manifest, revision)
    digest = hashlib.sha256(url.encode() + b"\0" + data).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", store.url.name or store.url.bucket)[:60]
    folder = os.path.join(cache, f"{name}-{digest}")
    with named(folder):
        lock = _share_use(folder)
        files = os.path.join(folder, _FILES)
        os.makedirs(files, exist_ok=True)
        write_once(os.path.join(folder, _REMOTE_NAME), json.dumps({"url": url}).encode() + b"\n")
        write_once(os.path.join(files, MANIFEST_NAME), data)
        mapped = os.path.join(folder, MAPPED)
        if not os.path.exists(mapped):
            os.close(_create(mapped))
    return CachedDataset(store, cache, folder, manifest, lock)


def fetch_tables(dataset: CachedDataset, shards: Iterable[Shard], fields: Sequence[str]) -> None:
    """Fetch the sample tables and arrays that are not in the cache, and check their checksums.

    Only arrays that are among the fields are fetched. The ranks of a machine start at the same
    time: one of them fetches, while the others wait.

    Raises:
        DamagedError: a table is missing in the store, or differs from what the manifest states.
        StorageError: the store or the disk cannot be used.

    """
    files = []
    for shard in shards:
        files.append(shard.table)
        for name, file in zip(dataset.manifest.arrays, shard.arrays, strict=True):
            if name in fields or f"{COLUMN_PREFIX}{name}" in fields:
                files.append(file)

    def is_missing(file: File) -> bool:
        return not has_length(os.path.join(dataset.root, file.name), file.bytes)

    def fetch(file: File) -> None:
        path = os.path.join(dataset.root, file.name)
        data = _download(dataset.store, file)
        with named(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_once(path, data)

    if not any(map(is_missing, files)):
        return
    with named(dataset.folder):
        handle = _open_lock(os.path.join(dataset.folder, _FETCHING))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with ThreadPoolExecutor(_CONNECTIONS, "tables") as pool:
            list(pool.map(fetch, filter(is_missing, files)))
    finally:
        os.close(handle)


def _download(store: Store, file: File) -> bytes:
    """Return the content of a small file, with the checksum that the manifest states."""
    kind = kind_of(file.name)
    url = f"{store}/{file.name}"
    try:
        for _ in range(2):  # a first answer with other bytes may be the network's fault
            data = read_file(url, kind)
            if len(data) == file.bytes and file.checksum in (None, checksum_text(crc32c(data))):
                return data
    except FileNotFoundError:
        raise kind.error("the object is missing", file=url, hint=_RESTORE) from None
    raise kind.error(
        "the object is not the one that the manifest describes: its length or checksum differs",
        file=url,
        hint=_RESTORE,
    )


def make_shards(dataset: CachedDataset, shards: Iterable[Shard]) -> None:
    """Make the shards in the cache: empty sparse files of their true length."""
    for shard in shards:
        path = os.path.join(dataset.root, shard.name)
        if has_length(path, shard.file.bytes):
            continue
        with named(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle = _create(path)
            try:
                os.ftruncate(handle, shard.file.bytes)
            finally:
                os.close(handle)


# --- locks between the processes that use a dataset -----------------------------------------------


class Lock:
    """The lock of an open file.

    Attributes:
        release: closes the file, also when nothing refers to the lock any more.

    """

    def __init__(self, handle: int) -> None:
        self.release = weakref.finalize(self, os.close, handle)
        self.release.atexit = False


def _share_use(folder: str) -> Lock:
    """Make the folder of a dataset, and share its lock, so that no process removes it."""
    path = os.path.join(folder, _IN_USE)
    while True:
        os.makedirs(folder, exist_ok=True)
        try:
            handle = _open_lock(path)
        except FileNotFoundError:  # it is just being removed
            continue
        fcntl.flock(handle, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return Lock(handle)
        os.close(handle)


def _open_lock(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:  # a cache that can only be read
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def lock_mapped(folder: str) -> Lock:
    """Tell other processes that this one reads the shards of a dataset as mapped files.

    Nobody evicts images of the dataset until the lock is released.
    """
    handle = os.open(os.path.join(folder, MAPPED), os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return Lock(handle)


def try_lock(folder: str, name: str) -> int | None:
    """Return an exclusive lock of a file; `None` if a process has it locked, or there is none.

    A lock of `MAPPED` keeps others from mapping shards of a dataset.
    """
    try:
        handle = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


# --- files on the local disk ----------------------------------------------------------------------


def has_length(path: str, length: int) -> bool:
    """Return whether there is a file of this length."""
    try:
        return os.stat(path).st_size == length
    except OSError:
        return False


def write_once(path: str, data: bytes) -> None:
    """Write a small file atomically.

    Other threads, and other machines or containers, may be writing the same bytes.
    """
    if has_length(path, len(data)):
        return
    temporary = f"{path}.{secrets.token_hex(8)}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _create(path: str) -> int:
    """Open a file for writing, and create it if it does not exist."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)


def disk_usage(folder: str) -> int:
    """Return the bytes that a folder takes on disk; sparse files count only what is there."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    total += disk_usage(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


@contextmanager
def named(path: str) -> Iterator[None]:
    """Raise an `OSError` of the block as an error that names the cache and the file.

    Raises:
        CallError: this user may not use the cache folder.
        StorageError: the disk is full or fails.

    """
    try:
        yield
    except OSError as error:
        raise_machine_fault(error)
        if isinstance(error, (PermissionError, NotADirectoryError, FileExistsError)):
            raise CallError(
                f"the cache folder cannot be used: {printable(path)}: {error.strerror}",
                hint="make it writable for this user, or choose another cache folder",
            ) from None
        raise StorageError(
            f"the cache cannot be written: {error.strerror or error}",
            file=path,
            hint=HINTS.get(error.errno or 0, ""),
        ) from None
