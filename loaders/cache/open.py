"""Open a split of a dataset in an object store."""

from __future__ import annotations

import os
from dataclasses import replace

from loaders.cache.dataset import fetch_files, make_shards, open_dataset
from loaders.cache.needed import images_of
from loaders.cache.presence import Presence
from loaders.cache.room import room_of
from loaders.cache.shards import CachedSplit
from loaders.cache.sparse import can_punch_holes
from loaders.dataset.split import OpenSplit, open_split, select_split
from manifests.errors import CallError
from manifests.process.text import printable
from manifests.remote.store import open_store
from manifests.remote.url import is_url, local_path, parse_url, refuse_url


def open_anywhere(
    dataset: str,
    split: str,
    cache: str | os.PathLike[str] | None,
    limit: int | None,
    revision: int | None = None,
) -> OpenSplit:
    """Open a split of a dataset in a folder, or in an object store with a cache; see `open_cached`."""
    if is_url(dataset):
        return open_cached(dataset, split, cache, limit, revision)
    return open_split(dataset, split, revision)


def open_cached(
    dataset: str,
    split: str,
    cache: str | os.PathLike[str] | None,
    limit: int | None,
    revision: int | None = None,
) -> OpenSplit:
    """Read the manifest and the sample tables, and make the shards in the cache: sparse files without any image.

    Args:
        dataset: URL of the dataset.
        split: name of the split.
        cache: the cache folder.
        limit: maximum size of the cache on disk in bytes; `None` means no limit.
        revision: an older revision of the dataset. `None` means the newest one.

    Raises:
        CallError: the URL contains no dataset, it has no such split, or the cache folder cannot be
            used.
        DamagedError: the manifest or a table is damaged.
        StorageError: the object store or the disk cannot be used.

    """
    if cache is None:
        raise CallError(
            f"{printable(dataset)} is in an object store, and cache is missing",
            hint='pass cache= with a folder on a local disk, for example cache="/nvme/cache"',
        )
    folder = local_path(os.fspath(cache))
    refuse_url(
        folder, f"cache={printable(folder)!r} is a URL", hint="name a folder on a local disk"
    )
    opened = open_dataset(open_store(parse_url(dataset)), folder, revision)
    try:
        selected = select_split(opened.manifest, split, dataset, opened.root)
        fetch_files(opened, [shard.table for shard in selected.shards])
        make_shards(opened, [shard.file for shard in selected.shards])
        if limit is not None:
            _require_holes(opened.cache)
        presence = Presence(opened.presence_path(split), selected.samples * images_of(selected))
    except BaseException:
        opened.release()
        raise
    return replace(selected, cached=CachedSplit(opened, presence, room_of(opened.cache), limit))


def _require_holes(cache: str) -> None:
    if not can_punch_holes(cache):
        raise CallError(
            f"cache={printable(cache)!r} is on a file system that cannot free parts of files",
            hint="choose a folder on ext4, XFS, Btrfs or tmpfs, or remove cache_limit",
        )
