"""Keep a cache within its limit: remove datasets that nobody uses, then evict the images that are needed latest."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loaders.cache.folder import disk_usage, remove_unused, unused_datasets
from loaders.cache.future import choose_victims
from manifests.errors import StorageError
from manifests.text import format_bytes

#: Evicting frees at least this part of the limit at once, because looking for what is needed latest takes a while.
_AT_ONCE = 1 / 32

#: The disk usage is measured again each time this part of the limit was written.
_MEASURE = 1 / 64


class Tenant(Protocol):
    """A split whose images a room may evict."""

    def evictable(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows that may be evicted, when each is needed next, and its disk space: int64 [N] each.

        When is counted in samples from now. Rows that are needed at once are left out.
        """
        ...

    def evict(self, rows: NDArray[np.int64]) -> int:
        """Remove images; return the bytes that this frees."""
        ...


class Room:
    """The disk space of one cache folder, shared by the loaders of this process.

    Other processes have a room of their own for the same folder. Each measures what all of them have written.

    Attributes:
        cache: the cache folder.
        limit: most bytes on disk; `None` means no limit but the disk's.

    """

    def __init__(self, cache: str, limit: int | None) -> None:
        self.cache = cache
        self.limit = limit
        self._tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()
        self._lock = threading.RLock()
        # Bytes on disk when they were last measured, written since then, and reserved.
        self._measured = self._written = self._coming = 0

    def add(self, tenant: Tenant) -> None:
        """Let the room evict images of a split."""
        with self._lock:
            self._tenants.add(tenant)

    def remove(self, tenant: Tenant) -> None:
        """No longer evict images of a split."""
        with self._lock:
            self._tenants.discard(tenant)

    def free(self, least: int = 0) -> int:
        """Return the bytes that may still be written; datasets that nobody uses are removed if less is left."""
        with self._lock:
            if self.limit is None:
                status = os.statvfs(self.cache)
                return status.f_bavail * status.f_frsize
            self._measure()
            for folder in unused_datasets(self.cache) if self.limit - self._used < least else ():
                remove_unused(folder)
                self._measure()
                if self.limit - self._used >= least:
                    break
            return self.limit - self._used

    def reserve(self, size: int) -> None:
        """Make sure that there is room for `size` more bytes. Call `release` when they are written.

        Raises:
            StorageError: nothing more can be evicted.

        """
        if self.limit is None:
            return
        with self._lock:
            self._coming += size
            try:
                if self._used > self.limit or self._written >= self.limit * _MEASURE:
                    self._measure()
                if self._used > self.limit:
                    self.free(0)
                excess = self._used - self.limit
                if excess > 0:
                    self._written -= self._evict(max(excess, int(self.limit * _AT_ONCE)), least=excess)
            except BaseException:
                self._coming -= size
                raise

    def release(self, size: int) -> None:
        """Say that the bytes of a reservation are written, or never will be."""
        if self.limit is None:
            return
        with self._lock:
            self._coming -= size
            self._written += size

    def make_room(self, size: int) -> None:
        """Free disk space because the disk is full, whatever the limit.

        Raises:
            StorageError: nothing more can be evicted.

        """
        with self._lock:
            for folder in unused_datasets(self.cache):
                if remove_unused(folder):
                    return
            self._evict(4 * size, least=size)

    @property
    def _used(self) -> int:
        return self._measured + self._written + self._coming

    def _measure(self) -> None:
        self._measured, self._written = disk_usage(self.cache), 0

    def _evict(self, needed: int, *, least: int) -> int:
        tenants, uses, pages, rows, owners = list(self._tenants), [], [], [], []
        for number, tenant in enumerate(tenants):
            found, when, space = tenant.evictable()
            rows.append(found)
            uses.append(when)
            pages.append(space)
            owners.append(np.full(len(found), number))
        freed = 0
        if tenants:
            victims = choose_victims(np.concatenate(uses), np.concatenate(pages), needed, keep=0)
            all_rows, all_owners = np.concatenate(rows)[victims], np.concatenate(owners)[victims]
            for number, tenant in enumerate(tenants):
                chosen = all_rows[all_owners == number]
                if len(chosen):
                    freed += tenant.evict(chosen)
        if freed < least:
            raise self._too_small(least - freed)
        return freed

    def _too_small(self, missing: int) -> StorageError:
        if self.limit is None:
            return StorageError(
                f"the disk of the cache is full ({os.strerror(errno.ENOSPC)}), and nothing in it can be removed",
                file=self.cache,
                hint="free some space, or choose a cache folder on a larger disk",
            )
        return StorageError(
            f"cache_limit is {format_bytes(self.limit)}, and the next batches need {format_bytes(missing)} more",
            file=self.cache,
            hint="raise cache_limit, or close the other loaders that use this cache",
        )


_rooms: dict[tuple[int, str], Room] = {}
_rooms_lock = threading.Lock()


def room_of(cache: str, limit: int | None) -> Room:
    """Return the room of a cache folder, one for each process and folder. The smallest limit counts."""
    key = (os.getpid(), os.path.realpath(cache))
    with _rooms_lock:
        room = _rooms.setdefault(key, Room(cache, limit))
        limits: Iterable[int] = [each for each in (room.limit, limit) if each is not None]
        room.limit = min(limits, default=None)
        return room
