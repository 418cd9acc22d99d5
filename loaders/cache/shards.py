"""The shards of a split in a cache: sparse files that images are written to, and removed from."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from loaders.arrays import Bools, Bytes, Ints
from loaders.cache.folder import MAPPED, CachedDataset, named, try_lock
from loaders.cache.layout import Layout, Request
from loaders.cache.presence import ABSENT, PRESENT, Presence
from loaders.cache.room import Room
from manifests.errors import CallError, StorageError
from manifests.process.text import printable
from manifests.schema import Shard

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)

#: ``FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`` of fallocate(2).
_PUNCH_HOLE = 3


class CachedShards:
    """Where a `Fetcher` writes images, and a `Room` evicts them.

    Attributes:
        presence: which images are there.
        room: the disk space of the cache.

    """

    def __init__(
        self,
        dataset: CachedDataset,
        presence: Presence,
        room: Room,
        layout: Layout,
        shards: Sequence[Shard],
    ) -> None:
        """Open nothing yet.

        Args:
            dataset: the dataset in the cache.
            presence: which images of the split are there.
            room: the disk space of the cache.
            layout: where the images are.
            shards: the shards of the split.

        """
        self.presence = presence
        self.room = room
        self._dataset = dataset
        self._layout = layout
        self._shards = shards
        self._files = SparseFiles([os.path.join(dataset.root, shard.name) for shard in shards])
        self._evicting = threading.Lock()

    def states(self, rows: Ints) -> Bytes:
        """Return the state of rows; see `presence`."""
        return self.presence.states[rows]

    def read(self, request: Request) -> Sequence[memoryview]:
        """Read the ranges of a request from the store."""
        name = self._shards[request.shard].file.name
        return self._dataset.store.read_parts(name, request.ranges)

    def stored(self, row: int) -> bytes:
        """Return the bytes on the local disk where an image belongs."""
        shard = int(self._layout.shards_of(np.array([row]))[0])
        return self._files.read(shard, int(self._layout.offsets[row]), int(self._layout.sizes[row]))

    def write(self, request: Request, parts: Sequence[memoryview], rows: Ints) -> None:
        """Write the ranges of a request, and mark its intact images as present."""
        try:
            self._write(request, parts, rows)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(
                    f"the cache cannot be written: {error.strerror}", file=self._dataset.cache
                ) from None
            # The disk is full, whatever the limit of the cache.
            self.room.make_room(request.bytes)
            with named(self._dataset.cache):
                self._write(request, parts, rows)

    def _write(self, request: Request, parts: Sequence[memoryview], rows: Ints) -> None:
        with self.presence.fetching():
            if self._layout.images == 1:
                for (start, _), part in zip(request.ranges, parts, strict=True):
                    self._files.write(request.shard, start, part)
            else:
                # Between two images there may be a mask that is not needed.
                for number, begin, end in self._layout.places(request):
                    start = request.ranges[number][0] + begin
                    self._files.write(request.shard, start, parts[number][begin:end])
            self.presence.states[rows] = PRESENT

    def mark_verified(self, rows: Ints, intact: Bools) -> None:
        """Mark unverified images as present if they are intact, else as absent."""
        with self.presence.fetching():
            self.presence.states[rows[intact]] = PRESENT
            self.presence.states[rows[~intact]] = ABSENT

    def describe(self, shard: int) -> str:
        """Return the URL of a shard."""
        return f"{self._dataset.store}/{self._shards[shard].file.name}"

    def evict(self, rows: Ints) -> int:
        """Remove images; return the bytes that this frees."""
        with self._evicting:
            lock = try_lock(self._dataset.folder, MAPPED)
            if lock is None:  # another process has mapped them
                return 0
            try:
                with self.presence.evicting():
                    self.presence.states[rows] = ABSENT
                    absent = self.presence.states == ABSENT
                    for shard, start, end in self._layout.holes(rows, absent):
                        with self._files.open(shard) as handle:
                            _punch_hole(handle, start, end)
            finally:
                os.close(lock)
        return int(self._layout.pages(rows).sum())


class SparseFiles:
    """Files by number, each opened for each call. Several threads may use it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def write(self, number: int, offset: int, data: memoryview) -> None:
        """Write bytes at an offset.

        Raises:
            OSError: the disk is full, for example.

        """
        with self.open(number) as handle:
            while data:
                count = os.pwrite(handle, data, offset)
                data = data[count:]
                offset += count

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes from an offset; fewer at the end of the file."""
        with self.open(number) as handle:
            return os.pread(handle, size, offset)

    @contextmanager
    def open(self, number: int) -> Iterator[int]:
        """Open a file for reading and writing."""
        path = self._paths[number]
        with named(path):
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            yield handle
        finally:
            os.close(handle)


def _punch_hole(handle: int, start: int, end: int) -> None:
    """Give back the disk space of a part of a file.

    Raises:
        OSError: the file system cannot do this.

    """
    if _libc.fallocate(handle, _PUNCH_HOLE, start, end - start):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def require_holes(folder: str) -> None:
    """Check that the file system of a folder gives back the disk space of parts of files.

    Raises:
        CallError: it does not.

    """
    handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        os.ftruncate(handle, 8192)
        _punch_hole(handle, 0, 8192)
    except OSError:
        raise CallError(
            f"cache={printable(folder)!r} is on a file system that cannot free parts of files",
            hint="choose a folder on ext4, XFS, Btrfs or tmpfs, or remove cache_limit",
        ) from None
    finally:
        os.close(handle)
