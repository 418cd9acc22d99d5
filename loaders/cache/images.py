"""A split in an object store, and its images, read from sparse shards on the local disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loaders.arrays import Ints
from loaders.cache.ahead import least_room, next_uses
from loaders.cache.fetcher import TIMEOUT, Fetcher
from loaders.cache.folder import (
    CachedDataset,
    Lock,
    fetch_tables,
    lock_mapped,
    make_shards,
    open_dataset,
)
from loaders.cache.layout import BLOCK_BYTES, images_of, layout_of
from loaders.cache.presence import ABSENT, PRESENT, Presence
from loaders.cache.room import Room, room_of
from loaders.cache.shards import CachedShards, require_holes
from loaders.dataset.images import Encoded, Images, StoredImages, open_images
from loaders.dataset.split import OpenSplit, select_shards
from loaders.dataset.tables import SampleTables
from loaders.progress import Upcoming
from manifests.errors import CallError
from manifests.process.text import format_bytes, printable
from manifests.remote.store import open_store
from manifests.remote.url import local_path, parse_url, refuse_url


@dataclass(frozen=True, kw_only=True)
class CachedSplit(OpenSplit):
    """A split of a dataset in an object store, in use by this process.

    Attributes:
        dataset: the dataset in the cache.
        presence: which of its images are there.
        room: the disk space of the cache.
        limit: maximum size of the cache on disk in bytes while the split is open; `None` means no
            limit.

    """

    dataset: CachedDataset
    presence: Presence
    room: Room
    limit: int | None


def open_cached(
    dataset: str,
    split: str,
    cache: str | os.PathLike[str] | None,
    limit: int | None,
    revision: int | None = None,
    *,
    fields: Sequence[str] = (),
) -> CachedSplit:
    """Read the manifest and the tables, and make the shards in the cache: sparse, without any image.

    Args:
        dataset: URL of the dataset.
        split: name of the split.
        cache: the cache folder.
        limit: maximum size of the cache on disk in bytes; `None` means no limit.
        revision: an older revision of the dataset. `None` means the newest one.
        fields: fields of a batch. The files of the arrays among them are fetched too.

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
        shards = select_shards(opened.manifest, split, dataset)
        fetch_tables(opened, shards, fields)
        make_shards(opened, shards)
        if limit is not None:
            require_holes(opened.cache)
        count = sum(shard.samples for shard in shards) * images_of(opened.manifest)
        return CachedSplit(
            folder=dataset,
            root=opened.root,
            name=split,
            manifest=opened.manifest,
            shards=shards,
            cache_folder=opened.cache,
            dataset=opened,
            presence=Presence(opened.presence_path(split), count),
            room=room_of(opened.cache),
            limit=limit,
        )
    except BaseException:
        opened.lock.release()
        raise


class CachedImages(Images):
    """The images of a split in an object store.

    If the whole split fits into the cache, the shards are mapped, and no process evicts images of
    it meanwhile. Otherwise images are copied, and read again if one was evicted in the meantime.

    Attributes:
        fits: whether the whole split fits into the cache.

    """

    is_remote = True

    def __init__(
        self,
        split: CachedSplit,
        tables: SampleTables,
        *,
        mmap: bool,
        tolerant: bool = False,
        others: Sequence[str] = (),
        timeout: float = TIMEOUT,
    ) -> None:
        """Read the location of each image from the sample tables.

        Args:
            split: the split.
            tables: the sample tables of the split.
            mmap: whether to map the shards if the split fits into the cache.
            tolerant: whether a single damaged image is no error.
            others: names of the other images of a sample to read too.
            timeout: how long to repeat requests that the store does not answer, in seconds.

        Raises:
            CallError: the cache is read-only and not complete.
            TableError: a table is missing or damaged, or points outside its shard.

        """
        self._split = split
        self._presence = split.presence
        self._room = split.room
        self._layout = layout_of(split, tables, others)
        self._lock: Lock | None = None
        self._room.enter(self, split.limit)
        self.fits = self._presence.read_only or self._has_room(self.missing_space)
        self._stored = StoredImages(
            split,
            tables,
            mmap=mmap and self.fits,
            tolerant=tolerant,
            check=False,
            others=others,
        )
        self._shards = CachedShards(
            split.dataset, self._presence, self._room, self._layout, split.shards
        )
        limit = None if self.fits else self._room.limit or 0
        self._fetcher = Fetcher(self._layout, self._shards, limit=limit, timeout=timeout)
        if self._presence.read_only:
            self._require_complete()
        elif self.fits:
            self._lock = lock_mapped(split.dataset.folder)
        else:
            self._room.add(self)

    # --- for the loader -------------------------------------------------------------------------

    def images(self, rows: Ints, component: str = "") -> list[Encoded]:
        """Return encoded images."""
        needed = self._layout.component_rows(rows, component)
        while True:
            self._fetcher.wait(needed)
            if self.fits:
                return self._stored.images(rows, component)
            # An image that was evicted while it was copied is read again.
            before = self._presence.evictions
            if before % 2:
                self._presence.end_eviction()
            elif (self._presence.states[needed] == PRESENT).all():
                images = self._stored.images(rows, component)
                if self._presence.evictions == before:
                    return images

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""
        self._fetcher.follow(number, upcoming)

    def close(self) -> None:
        """Stop fetching and release the shards. What was fetched stays in the cache."""
        self._fetcher.close()
        self._room.leave(self)
        self._stored.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def traffic(self) -> tuple[int, int, int]:
        """Images that were in the cache when needed, images that were waited for, bytes fetched."""
        return self._fetcher.hits, self._fetcher.misses, self._fetcher.bytes

    @property
    def missing_space(self) -> int:
        """Disk space that the images take that are not in the cache, in bytes."""
        return int(self._layout.pages(self._missing()).sum())

    def _missing(self) -> Ints:
        """Return the rows that are not in the cache."""
        rows = self._layout.all_rows()
        missing: Ints = rows[self._presence.snapshot()[rows] == ABSENT]
        return missing

    def _space(self) -> int:
        """Return the disk space of all images that the loader reads, in bytes."""
        return int(self._layout.pages(self._layout.all_rows()).sum())

    def _has_room(self, size: int) -> bool:
        """Return whether the cache can have this many bytes more."""
        return self._room.limit is None or self._room.free(size) >= size

    def keeps(self, size: int) -> bool:
        """Return whether the cache has room for all images after this many bytes were fetched."""
        return self.fits and self._has_room(size)

    def require_room(self, batch: int) -> None:
        """Check that the cache has room for the batches that are in use at a time."""
        limit = self._room.limit
        if self.fits or limit is None:
            return
        needed = least_room(self._space(), batch, self._split.samples)
        present = np.flatnonzero(self._presence.snapshot())
        free = self._room.free(needed) + int(self._layout.pages(present).sum())
        if free < needed:
            total = limit + needed - free
            raise CallError(
                f"cache_limit leaves {format_bytes(max(0, free))} for {self._split.folder}, but"
                f" batches of {batch:,} samples need at least {format_bytes(needed)}",
                hint=(
                    f"set cache_limit to at least {format_bytes(total)}, or close other loaders"
                    " that use this cache"
                ),
            )

    @property
    def warning(self) -> str | None:
        """What a cache that is smaller than the split means; `None` if everything fits."""
        space = self._space()
        limit = self._room.limit or 0
        if self.fits or space <= limit:
            return None
        enough = int(1.05 * space) + (64 << 20)
        return (
            f"cache_limit is smaller than split {self._split.name!r} ({format_bytes(space)}), so"
            f" every epoch fetches about {format_bytes(max(0, space - limit))} again;"
            f" cache_limit={format_bytes(enough)!r} would keep everything"
        )

    def lines(self) -> list[str]:
        """Describe the cache for `explain`."""
        rows = self._layout.all_rows()
        total = int(self._layout.sizes[rows].sum())
        there = total - int(self._layout.sizes[self._missing()].sum())
        requests = f"up to {len(rows):,}"
        if self.fits:
            blocks = -(-sum(self._layout.lengths) // BLOCK_BYTES)
            requests = f"about {blocks:,} to {2 * blocks:,}"
        return [
            (
                f"cache {self._split.dataset.folder}: {format_bytes(there)} of"
                f" {format_bytes(total)} are there"
            ),
            f"  an epoch from an empty cache takes {requests} requests",
        ]

    def _require_complete(self) -> None:
        if len(self._missing()):
            raise CallError(
                f"the cache {self._split.dataset.cache} can only be read by this user, and does"
                f" not contain all of {self._split.folder}",
                hint="make it writable for this user, or choose another cache folder",
            )

    # --- for the room ---------------------------------------------------------------------------

    def evictable(self, *, ahead: bool) -> tuple[Ints, Ints, Ints]:
        """Return the rows that may be evicted, when each is needed next, and its disk space.

        See `room`.
        """
        upcoming, current, planned = self._fetcher.position()
        present = np.flatnonzero(self._presence.snapshot())
        if upcoming is None:  # nothing of it is being read
            uses = np.full(len(present), np.iinfo(np.int64).max - 1)
            return present, uses, self._layout.pages(present)

        def rows_of(batches: range) -> list[Ints]:
            return [self._layout.rows_of(upcoming.of_all(number)) for number in batches]

        # DALI may still use the batch before the current one; the other ranks are about as far.
        first = max(0, current - 1)
        stop = planned + 1
        if ahead:
            stop = current + 2
        keep = self._fetcher.on_the_way.copy()
        keep[np.concatenate(rows_of(range(first, stop)))] = True
        last = current + 2 * upcoming.batches
        after = next_uses(rows_of(range(stop, last)), self._layout.rows)
        present = present[~keep[present]]
        return present, after[present], self._layout.pages(present)

    def evict(self, rows: Ints) -> int:
        """Remove images; return the bytes that this frees."""
        return self._shards.evict(rows)


open_images.register(CachedSplit, CachedImages)
