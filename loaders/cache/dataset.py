"""A dataset in the cache: its folder, its manifest and tables, and sparse files in place of its shards."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from awscrt.checksums import crc32c

from loaders.cache.disk import has_length, named, touch, write_once
from loaders.cache.folder import REMOTE_NAME, open_cache
from loaders.cache.locks import MAPPED, Lock, share_use
from manifests.errors import CallError
from manifests.files import MANIFEST, FileKind, kind_of
from manifests.remote.store import ObjectInfo, Store
from manifests.schema import File, Manifest
from manifests.serialization import checksum_text
from manifests.store import MANIFEST_NAME, parse_manifest, read_older

_FILES = "files"

#: Tables that are fetched at a time.
_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """A dataset in a cache, in use by this process until `release`.

    Attributes:
        store: where its files come from.
        cache: the cache folder.
        folder: its folder in the cache.
        manifest: its manifest.
        lock: the shared lock of ``in-use``, which is also released when nothing uses the dataset
            any more.

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

    def release(self) -> None:
        """Release the lock: this process no longer uses the dataset."""
        self.lock.release()


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
        data = bytes(store.get(MANIFEST_NAME, _length_check(MANIFEST, f"{url}/{MANIFEST_NAME}")))
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
        lock = share_use(folder)
        files = os.path.join(folder, _FILES)
        os.makedirs(files, exist_ok=True)
        write_once(os.path.join(folder, REMOTE_NAME), json.dumps({"url": url}).encode() + b"\n")
        write_once(os.path.join(files, MANIFEST_NAME), data)
        touch(os.path.join(folder, MAPPED))
    return CachedDataset(store, cache, folder, manifest, lock)


def fetch_files(dataset: CachedDataset, files: Iterable[File]) -> None:
    """Fetch small files, such as sample tables, that are not in the cache, and check their checksums.

    Raises:
        DamagedError: a file is missing in the store, or is not the one that the manifest describes.
        StorageError: the store or the disk cannot be used.

    """
    missing = [
        file for file in files if not has_length(os.path.join(dataset.root, file.name), file.bytes)
    ]
    with ThreadPoolExecutor(_CONNECTIONS, "tables") as pool:
        for _ in pool.map(lambda file: _fetch_file(dataset, file), missing):
            pass


def make_shards(dataset: CachedDataset, shards: Iterable[File]) -> None:
    """Make the shards in the cache: empty sparse files of their true length."""
    for file in shards:
        path = os.path.join(dataset.root, file.name)
        if has_length(path, file.bytes):
            continue
        with named(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                os.ftruncate(handle, file.bytes)
            finally:
                os.close(handle)


def _fetch_file(dataset: CachedDataset, file: File) -> None:
    kind = kind_of(file.name)
    url = f"{dataset.store}/{file.name}"
    try:
        for _ in range(2):  # a first answer with other bytes may be the network's fault
            data = bytes(dataset.store.get(file.name, _length_check(kind, url, file.bytes)))
            if file.checksum in (None, checksum_text(crc32c(data))):
                break
        else:
            raise kind.error(
                "the object is not the one that the manifest describes: its checksum differs",
                file=url,
            )
    except FileNotFoundError:
        raise kind.error(
            "the object is missing", file=url, hint="restore it, or make the dataset again"
        ) from None
    path = os.path.join(dataset.root, file.name)
    with named(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_once(path, data)


def _length_check(
    kind: FileKind, url: str, expected: int | None = None
) -> Callable[[ObjectInfo], None]:
    def check(info: ObjectInfo) -> None:
        if info.bytes > kind.max_bytes:
            message = (
                f"the {kind.name} has {info.bytes:,} bytes, but the limit is {kind.max_bytes:,}"
            )
            raise kind.error(message, file=url, hint=f"check that this is a {kind.name}")
        if expected is not None and info.bytes != expected:
            message = f"the object is {info.bytes} bytes long, but the manifest states {expected}"
            raise kind.error(message, file=url, hint="restore it, or make the dataset again")

    return check
