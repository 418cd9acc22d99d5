"""The shards of a split in a cache: sparse files that images are written to, and removed from."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaders.cache.dataset import CachedDataset
from loaders.cache.disk import is_full, named
from loaders.cache.layout import Layout, Request
from loaders.cache.locks import lock_unmapped
from loaders.cache.presence import ABSENT, PRESENT, Presence
from loaders.cache.room import Room
from loaders.cache.sparse import SparseFiles
from manifests.errors import StorageError
from manifests.schema import Shard


@dataclass(frozen=True, slots=True)
class CachedSplit:
    """A split in a cache.

    Attributes:
        dataset: the dataset.
        presence: which of its images are there.
        room: the disk space of the cache.
        limit: maximum size of the cache on disk in bytes while the split is open; `None` means no
            limit.

    """

    dataset: CachedDataset
    presence: Presence
    room: Room
    limit: int | None


class CachedShards:
    """Where a `Fetcher` writes images, and a `Room` evicts them."""

    def __init__(
        self, split: CachedSplit, layout: Layout, shards: Sequence[Shard], paths: Sequence[str]
    ) -> None:
        """Open nothing yet.

        Args:
            split: the split in the cache.
            layout: where its images are.
            shards: its shards.
            paths: their sparse files.

        """
        self._dataset, self._presence, self._room = split.dataset, split.presence, split.room
        self._layout, self._shards = layout, shards
        self._files = SparseFiles(paths)
        self._evicting = threading.Lock()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

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
        name = self._shards[request.shard].file.name
        return self._dataset.store.read_parts(name, request.ranges)

    def stored(self, row: int) -> bytes:
        """Return the bytes on the local disk where an image belongs."""
        shard = int(self._layout.shards_of(np.array([row]))[0])
        return self._files.read(shard, int(self._layout.offsets[row]), int(self._layout.sizes[row]))

    def write(self, request: Request, parts: Sequence[memoryview], rows: NDArray[np.int64]) -> None:
        """Write the ranges of a request, and mark its intact images as present."""
        try:
            self._write(request, parts, rows)
        except OSError as error:
            if not is_full(error):
                raise StorageError(
                    f"the cache cannot be written: {error.strerror}", file=self._dataset.cache
                ) from None
            self._room.make_room(request.bytes)
            with named(self._dataset.cache):
                self._write(request, parts, rows)

    def _write(
        self, request: Request, parts: Sequence[memoryview], rows: NDArray[np.int64]
    ) -> None:
        with self._presence.fetching():
            for start, part in self._pieces(request, parts):
                self._files.write(request.shard, start, part)
            self._presence.mark(rows, PRESENT)

    def _pieces(
        self, request: Request, parts: Sequence[memoryview]
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield what to write, and where: between two images there may be a mask that is not needed."""
        starts = [start for start, _ in request.ranges]
        if self._layout.images == 1:
            yield from zip(starts, parts, strict=True)
            return
        for number, begin, end in self._layout.places(request):
            yield starts[number] + begin, parts[number][begin:end]

    def mark_verified(self, rows: NDArray[np.int64], *, intact: bool) -> None:
        """Mark unverified images as present, or as absent."""
        with self._presence.fetching():
            self._presence.mark(rows, PRESENT if intact else ABSENT)

    def describe(self, shard: int) -> str:
        """Return the URL of a shard."""
        return f"{self._dataset.store}/{self._shards[shard].file.name}"

    def evict(self, rows: NDArray[np.int64]) -> int:
        """Remove images; return the bytes that this frees."""
        with self._evicting:
            lock = lock_unmapped(self._dataset.folder)
            if lock is None:  # another process has mapped them
                return 0
            try:
                with self._presence.evicting():
                    self._presence.mark(rows, ABSENT)
                    for shard, start, end in self._layout.holes(
                        rows, self._presence.states == ABSENT
                    ):
                        self._files.punch(shard, start, end)
            finally:
                os.close(lock)
        return int(self._layout.pages(rows).sum())
