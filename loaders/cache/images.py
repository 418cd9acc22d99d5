"""The images of a split whose shards are in an object store, read from sparse shards on the local disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaders.cache.dataset import CachedDataset
from loaders.cache.disk import is_full, named
from loaders.cache.fetcher import Fetcher, Upcoming
from loaders.cache.future import next_uses
from loaders.cache.layout import BLOCK_BYTES, Layout, Request
from loaders.cache.locks import lock_mapped, lock_unmapped
from loaders.cache.presence import ABSENT, PRESENT, Presence
from loaders.cache.room import Room
from loaders.cache.sparse import SparseFiles
from loaders.cache.transfer import TIMEOUT
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from manifests.errors import CallError, StorageError
from manifests.text import format_bytes

#: With a limit, at most this part of it is fetched before it is needed.
_LOOKAHEAD = 1 / 4

#: Batches of all ranks that the cache must have room for: the current one, and those that are fetched in advance.
_LEAST_BATCHES = 8


@dataclass(frozen=True, slots=True)
class CachedSplit:
    """A split in a cache.

    Attributes:
        dataset: the dataset.
        presence: which of its images are there.
        room: the disk space of the cache.

    """

    dataset: CachedDataset
    presence: Presence
    room: Room


class CachedImages:
    """Random access to the encoded images of a split, by row; `Records` for a cache.

    If the whole split fits into the cache, the shards are mapped, and nobody evicts images of the dataset meanwhile.
    Otherwise images are copied, and read again if one was evicted in the meantime.
    """

    def __init__(
        self, split: OpenSplit, tables: SampleTables, *, mmap: bool, tolerant: bool = False, timeout: float = TIMEOUT
    ) -> None:
        """Read the location of each image from the sample tables.

        Args:
            split: the split; `OpenSplit.cached` is set.
            tables: the sample tables of the split.
            mmap: whether to map the shards if the split fits into the cache.
            tolerant: whether a single damaged image is no error.
            timeout: how long to repeat requests that the store does not answer, in seconds.

        Raises:
            CallError: the cache is read-only and not complete.
            TableError: a table is missing or damaged, or points outside its shard.

        """
        if split.cached is None:
            raise TypeError("the split is not in a cache")
        self._split, self._cached = split, split.cached
        self._presence, self._room = self._cached.presence, self._cached.room
        columns = tables.columns(["offset", "size", "crc32c"], requested_by="a sampler")
        offsets, sizes, checksums = (columns[name].astype(np.int64) for name in ("offset", "size", "crc32c"))
        ends = np.cumsum([shard.samples for shard in split.shards])
        self._layout = Layout(offsets, sizes, checksums, ends, [shard.file.bytes for shard in split.shards])
        self._resources = ExitStack()
        self._evicting = threading.Lock()
        self.fits = self._fits()
        self._records = Records(split, tables, mmap=mmap and self.fits, tolerant=tolerant, check=False)
        self._files = SparseFiles([split.path(shard.file) for shard in split.shards])
        self._fetcher = Fetcher(self._layout, self, timeout=timeout)
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

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded images: read-only arrays, uint8 [bytes]. Waits until they are on the local disk.

        Raises:
            ShardError: an image or its shard is missing or damaged in the object store.
            StorageError: the store did not answer in time, or the cache has no room.

        """
        while True:
            self._fetcher.wait(rows)
            if self.fits:
                return self._records.images(rows)
            before = self._presence.evictions
            if before % 2:
                self._presence.end_eviction()
            elif (self._presence.states[rows] == PRESENT).all():
                images = self._records.images(rows)
                if self._presence.evictions == before:
                    return images

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""
        self._fetcher.follow(number, upcoming)

    def close(self) -> None:
        """Stop fetching and release the shards. What was fetched stays in the cache."""
        self._fetcher.close()
        self._room.remove(self)
        self._records.close()
        self._files.close()
        self._resources.close()

    @property
    def fetched_bytes(self) -> int:
        """Bytes that this loader has fetched so far."""
        return self._fetcher.bytes

    @property
    def missing_bytes(self) -> int:
        """Size of the images that are not in the cache."""
        return int(self._layout.sizes[self._presence.states == ABSENT].sum())

    @property
    def missing_space(self) -> int:
        """Disk space that the images take that are not in the cache, in bytes."""
        return int(self._layout.pages(np.flatnonzero(self._presence.snapshot() == ABSENT)).sum())

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
        if self.fits or self._room.limit is None:
            return
        needed = _LEAST_BATCHES * batch * int(self._layout.pages(np.arange(self._layout.samples)).mean())
        needed = min(needed, int(self._layout.pages(np.arange(self._layout.samples)).sum()))
        free = self._room.free(needed) + int(self._layout.pages(np.flatnonzero(self._presence.snapshot())).sum())
        if free < needed:
            total = self._room.limit + needed - free
            raise CallError(
                f"cache_limit leaves {format_bytes(max(0, free))} for {self._split.folder}, but batches of {batch:,} "
                f"samples need at least {format_bytes(needed)}",
                hint=f"set cache_limit to at least {format_bytes(total)}, or close other loaders that use this cache",
            )

    @property
    def warning(self) -> str | None:
        """What a cache that is smaller than the split means; `None` if everything fits."""
        if self.fits:
            return None
        pages = int(self._layout.pages(np.arange(self._layout.samples)).sum())
        limit = self._room.limit or 0
        return (
            f"cache_limit is smaller than split {self._split.name!r} ({format_bytes(pages)}), so every epoch fetches "
            f"about {format_bytes(max(0, pages - limit))} again; cache_limit={format_bytes(self._needed())!r} would "
            "keep everything"
        )

    def lines(self) -> list[str]:
        """Describe the cache for `explain`."""
        total, there = int(self._layout.sizes.sum()), int(self._layout.sizes.sum()) - self.missing_bytes
        blocks = -(-sum(self._layout.lengths) // BLOCK_BYTES)
        requests = f"about {blocks:,} to {2 * blocks:,}" if self.fits else f"up to {self._layout.samples:,}"
        return [
            f"cache {self._cached.dataset.folder}: {format_bytes(there)} of {format_bytes(total)} are there",
            f"  an epoch from an empty cache takes {requests} requests",
        ]

    def _needed(self) -> int:
        pages = int(self._layout.pages(np.arange(self._layout.samples)).sum())
        return int(1.05 * pages) + (64 << 20)

    def _fits(self) -> bool:
        if self._presence.read_only or self._room.limit is None:
            return True
        return self.has_room(self.missing_space)

    def _require_complete(self) -> None:
        if (self._presence.states == ABSENT).any():
            raise CallError(
                f"the cache {self._cached.dataset.cache} can only be read by this user, and does not contain all of "
                f"{self._split.folder}",
                hint="make it writable for this user, or choose another cache folder",
            )

    # --- for the fetcher ------------------------------------------------------------------------

    def states(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the state of rows; see `presence`."""
        states: NDArray[np.uint8] = self._presence.states[rows]
        return states

    def reserve(self, size: int) -> None:
        """Make sure that the cache has room for this many bytes."""
        self._room.reserve(size)

    def release(self, size: int) -> None:
        """Release a reservation, whether its bytes were written or not."""
        self._room.release(size)

    def read(self, request: Request) -> Sequence[memoryview]:
        """Read the ranges of a request from the store."""
        name = self._split.shards[request.shard].file.name
        return self._cached.dataset.store.read_parts(name, request.ranges)

    def stored(self, row: int) -> bytes:
        """Return the bytes on the local disk where an image belongs."""
        shard = int(self._layout.shards_of(np.array([row]))[0])
        return self._files.read(shard, int(self._layout.offsets[row]), int(self._layout.sizes[row]))

    def write(self, request: Request, parts: Sequence[memoryview], rows: NDArray[np.int64]) -> None:
        """Write the ranges of a request, and mark those of its images that are intact as present."""
        try:
            self._write(request, parts, rows)
        except OSError as error:
            if not is_full(error):
                raise StorageError(
                    f"the cache cannot be written: {error.strerror}", file=self._cached.dataset.cache
                ) from None
            self._room.make_room(request.bytes)
            with named(self._cached.dataset.cache):
                self._write(request, parts, rows)

    def _write(self, request: Request, parts: Sequence[memoryview], rows: NDArray[np.int64]) -> None:
        with self._presence.fetching():
            for (start, _), part in zip(request.ranges, parts, strict=True):
                self._files.write(request.shard, start, part)
            self._presence.mark(rows, PRESENT)

    def mark_verified(self, rows: NDArray[np.int64], *, intact: bool) -> None:
        """Mark unverified images as present, or as absent."""
        with self._presence.fetching():
            self._presence.mark(rows, PRESENT if intact else ABSENT)

    def describe(self, shard: int) -> str:
        """Return the URL of a shard."""
        return f"{self._cached.dataset.store}/{self._split.shards[shard].file.name}"

    # --- for the room ---------------------------------------------------------------------------

    def evictable(self, *, ahead: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows that may be evicted, when each is needed next, and its disk space; see `room`."""
        upcoming, current, planned = self._fetcher.position()
        present = np.flatnonzero(self._presence.snapshot())
        if upcoming is None:  # nothing of it is being read
            uses = np.full(len(present), np.iinfo(np.int64).max - 1)
            return present, uses, self._layout.pages(present)
        # DALI may still use the batch before the current one; the other ranks are about as far.
        first, stop = max(0, current - 1), current + 2 if ahead else planned + 1
        keep = self._fetcher.being_fetched().copy()
        keep[np.concatenate([upcoming.everyone(number) for number in range(first, stop)])] = True
        last = current + 2 * upcoming.batches
        after = next_uses([upcoming.everyone(number) for number in range(stop, last)], self._layout.samples)
        present = present[~keep[present]]
        return present, after[present], self._layout.pages(present)

    def evict(self, rows: NDArray[np.int64]) -> int:
        """Remove images; return the bytes that this frees."""
        with self._evicting:
            lock = lock_unmapped(self._cached.dataset.folder)
            if lock is None:  # another process has mapped them
                return 0
            try:
                with self._presence.evicting():
                    self._presence.mark(rows, ABSENT)
                    for shard, start, end in self._layout.holes(rows, self._presence.states == ABSENT):
                        self._files.punch(shard, start, end)
            finally:
                os.close(lock)
        return int(self._layout.pages(rows).sum())
