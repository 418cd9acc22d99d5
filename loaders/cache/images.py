"""The images of a split whose shards are in an object store, read from sparse shards on the local disk."""

from __future__ import annotations

import os
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from loaders.cache.fetcher import Fetcher
from loaders.cache.layout import BLOCK_BYTES
from loaders.cache.locks import lock_mapped
from loaders.cache.needed import Needed, layout_of
from loaders.cache.next_use import next_uses
from loaders.cache.presence import ABSENT, PRESENT
from loaders.cache.shards import CachedShards
from loaders.cache.transfer import TIMEOUT
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.samplers.base import Upcoming
from manifests.errors import CallError
from manifests.process.text import format_bytes

#: With a limit, at most this part of it is fetched before it is needed.
_LOOKAHEAD = 1 / 4

#: Batches of all ranks that the cache must have room for: the current one, and those that are
#: fetched in advance.
_LEAST_BATCHES = 8


class CachedImages:
    """Random access to the encoded images of a split, by row; `Records` for a cache.

    If the whole split fits into the cache, the shards are mapped, and no process evicts images of
    it meanwhile. Otherwise images are copied, and read again if one was evicted in the meantime.
    """

    def __init__(
        self,
        split: OpenSplit,
        tables: SampleTables,
        *,
        mmap: bool,
        tolerant: bool = False,
        with_label_images: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        """Read the location of each image from the sample tables.

        Args:
            split: the split; `OpenSplit.cached` is set.
            tables: the sample tables of the split.
            mmap: whether to map the shards if the split fits into the cache.
            tolerant: whether a single damaged image is no error.
            with_label_images: whether to read masks or depth maps too; see `CachedLabelImages`.
            timeout: how long to repeat requests that the store does not answer, in seconds.

        Raises:
            CallError: the cache is read-only and not complete.
            TableError: a table is missing or damaged, or points outside its shard.

        """
        if split.cached is None:
            raise TypeError("the split is not in a cache")
        self._split, self._cached = split, split.cached
        self._presence, self._room = self._cached.presence, self._cached.room
        self._layout = layout_of(split, tables)
        self._wanted = Needed(self._layout.images, with_label_images)
        self._followed: tuple[Upcoming, Upcoming] | None = None
        self._resources = ExitStack()
        self._room.enter(self, self._cached.limit)
        self.fits = self._fits()
        self._records = [
            Records(
                split,
                tables,
                mmap=mmap and self.fits,
                tolerant=tolerant,
                check=False,
                label_images=bool(part),
            )
            for part in range(2 if with_label_images else 1)
        ]
        paths = [split.path(shard.file) for shard in split.shards]
        self._shards = CachedShards(self._cached, self._layout, split.shards, paths)
        self._fetcher = Fetcher(self._layout, self._shards, timeout=timeout)
        if self._presence.read_only:
            self._require_complete()
        elif self.fits:
            handle = lock_mapped(self._cached.dataset.folder)
            self._resources.callback(os.close, handle)
        else:
            limit = self._room.limit or 0
            self._fetcher.limit_lookahead(int(limit * _LOOKAHEAD))
            self._room.add(self)

    # --- for the loader -------------------------------------------------------------------------

    def images(self, rows: NDArray[np.int64], part: int = 0) -> list[NDArray[np.uint8]]:
        """Return encoded images: read-only arrays, uint8 [bytes].

        Waits until they are on the local disk.

        Args:
            rows: int64 [B].
            part: 1 for the masks or depth maps.

        Raises:
            ShardError: an image or its shard is missing or damaged in the object store.
            StorageError: the store did not answer in time, or the cache has no room.

        """
        records, needed = self._records[part], rows * self._layout.images + part
        while True:
            self._fetcher.wait(needed)
            if self.fits:
                return records.images(rows)
            before = self._presence.evictions
            if before % 2:
                self._presence.end_eviction()
            elif (self._presence.states[needed] == PRESENT).all():
                images = records.images(rows)
                if self._presence.evictions == before:
                    return images

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""
        if self._followed is None or self._followed[0] is not upcoming:
            self._followed = upcoming, self._wanted.upcoming(upcoming)
        self._fetcher.follow(number, self._followed[1])

    def close(self) -> None:
        """Stop fetching and release the shards. What was fetched stays in the cache."""
        self._fetcher.close()
        self._room.leave(self)
        for records in self._records:
            records.close()
        self._shards.close()
        self._resources.close()

    @property
    def fetched_bytes(self) -> int:
        """Bytes that this loader has fetched so far."""
        return self._fetcher.bytes

    @property
    def missing_bytes(self) -> int:
        """Size of the images that are not in the cache."""
        return int(self._layout.sizes[self._missing].sum())

    @property
    def missing_space(self) -> int:
        """Disk space that the images take that are not in the cache, in bytes."""
        return int(self._layout.pages(self._missing).sum())

    @property
    def _all(self) -> NDArray[np.int64]:
        """Every row that the loader reads."""
        return self._wanted.rows(np.arange(self._split.samples))

    @property
    def _missing(self) -> NDArray[np.int64]:
        rows = self._all
        missing: NDArray[np.int64] = rows[self._presence.snapshot()[rows] == ABSENT]
        return missing

    def has_room(self, size: int) -> bool:
        """Return whether the cache can have this many bytes more."""
        return self._room.limit is None or self._room.free(size) >= size

    def require_room(self, batch: int) -> None:
        """Check that the cache has room for the batches that are in use at a time.

        Args:
            batch: samples of a batch over all ranks.

        Raises:
            CallError: it does not.

        """
        limit = self._room.limit
        if self.fits or limit is None:
            return
        pages = self._layout.pages(self._all)
        needed = min(
            _LEAST_BATCHES * batch * int(pages.sum()) // self._split.samples, int(pages.sum())
        )
        free = self._room.free(needed) + int(
            self._layout.pages(np.flatnonzero(self._presence.snapshot())).sum()
        )
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
        pages = int(self._layout.pages(self._all).sum())
        limit = self._room.limit or 0
        if self.fits or pages <= limit:
            return None
        return (
            f"cache_limit is smaller than split {self._split.name!r} ({format_bytes(pages)}), so"
            f" every epoch fetches about {format_bytes(max(0, pages - limit))} again;"
            f" cache_limit={format_bytes(self._needed())!r} would keep everything"
        )

    def lines(self) -> list[str]:
        """Describe the cache for `explain`."""
        total = int(self._layout.sizes[self._all].sum())
        there = total - self.missing_bytes
        blocks = -(-sum(self._layout.lengths) // BLOCK_BYTES)
        requests = (
            f"about {blocks:,} to {2 * blocks:,}" if self.fits else f"up to {len(self._all):,}"
        )
        return [
            (
                f"cache {self._cached.dataset.folder}: {format_bytes(there)} of"
                f" {format_bytes(total)} are there"
            ),
            f"  an epoch from an empty cache takes {requests} requests",
        ]

    def _needed(self) -> int:
        return int(1.05 * int(self._layout.pages(self._all).sum())) + (64 << 20)

    def _fits(self) -> bool:
        if self._presence.read_only or self._room.limit is None:
            return True
        return self.has_room(self.missing_space)

    def _require_complete(self) -> None:
        if len(self._missing):
            raise CallError(
                f"the cache {self._cached.dataset.cache} can only be read by this user, and does"
                f" not contain all of {self._split.folder}",
                hint="make it writable for this user, or choose another cache folder",
            )

    # --- for the room ---------------------------------------------------------------------------

    def evictable(
        self, *, ahead: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows that may be evicted, when each is needed next, and its disk space.

        See `room`.
        """
        upcoming, current, planned = self._fetcher.position()
        present = np.flatnonzero(self._presence.snapshot())
        if upcoming is None:  # nothing of it is being read
            uses = np.full(len(present), np.iinfo(np.int64).max - 1)
            return present, uses, self._layout.pages(present)
        # DALI may still use the batch before the current one; the other ranks are about as far.
        first, stop = max(0, current - 1), current + 2 if ahead else planned + 1
        keep = self._fetcher.being_fetched().copy()
        keep[np.concatenate([upcoming.global_rows(number) for number in range(first, stop)])] = True
        last = current + 2 * upcoming.batches
        after = next_uses(
            [upcoming.global_rows(number) for number in range(stop, last)], self._layout.rows
        )
        present = present[~keep[present]]
        return present, after[present], self._layout.pages(present)

    def evict(self, rows: NDArray[np.int64]) -> int:
        """Remove images; return the bytes that this frees."""
        return self._shards.evict(rows)


class CachedLabelImages:
    """Random access to the masks or depth maps of a split, by row, which `CachedImages` fetches with the images."""

    def __init__(self, cached: CachedImages) -> None:
        self._cached = cached

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded masks or depth maps, as `CachedImages.images` does."""
        return self._cached.images(rows, part=1)

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""
        self._cached.follow(number, upcoming)

    def close(self) -> None:
        """Do nothing: `CachedImages` owns what is open."""
