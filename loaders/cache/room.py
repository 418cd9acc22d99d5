"""Keep a cache within its limit: remove unused datasets, then evict what is needed last."""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from typing import Protocol

import numpy as np

from loaders.arrays import Ints
from loaders.cache.ahead import AT_ONCE, choose_victims
from loaders.cache.folder import dataset_folders, disk_usage, remove_unused
from manifests.errors import StorageError
from manifests.process.text import format_bytes

#: How long to wait for other loaders that share a cache which is just large enough, in seconds.
PATIENCE = 30.0
_PAUSE = 0.05

#: The disk usage is measured again each time this part of the limit was written.
_MEASURE = 1 / 64


class Tenant(Protocol):
    """A split whose images a room may evict."""

    def evictable(self, *, ahead: bool) -> tuple[Ints, Ints, Ints]:
        """Return the rows that may be evicted, when each is needed next, and its disk space.

        Each int64 [N]; time is counted in samples from now. Rows of the current batches are left
        out, and rows that were fetched in advance, unless `ahead` is true.
        """

    def evict(self, rows: Ints) -> int:
        """Remove images; return the bytes that this frees."""


class Room:
    """The disk space of one cache folder, shared by the loaders of this process.

    Other processes have a room of their own for the same folder. Each measures what all of them
    have written.

    Attributes:
        cache: the cache folder.

    """

    def __init__(self, cache: str) -> None:
        self.cache = cache
        self._limits: weakref.WeakKeyDictionary[Tenant, int | None] = weakref.WeakKeyDictionary()
        self._tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()
        self._lock = threading.RLock()
        # Bytes on disk when they were last measured, written since then, and reserved.
        self._measured = self._written = self._coming = 0

    @property
    def limit(self) -> int | None:
        """Maximum size on disk in bytes, the smallest of the open splits.

        `None` means no limit but the disk's.
        """
        with self._lock:
            limits = [each for each in self._limits.values() if each is not None]
        return min(limits, default=None)

    def enter(self, tenant: Tenant, limit: int | None) -> None:
        """Respect the limit of a split until it leaves."""
        with self._lock:
            self._limits[tenant] = limit

    def add(self, tenant: Tenant) -> None:
        """Let the room evict images of a split until it leaves."""
        with self._lock:
            self._tenants.add(tenant)

    def leave(self, tenant: Tenant) -> None:
        """Forget the limit of a split, and no longer evict its images."""
        with self._lock:
            self._limits.pop(tenant, None)
            self._tenants.discard(tenant)

    def free(self, least: int = 0) -> int:
        """Return the bytes that may still be written.

        Unused datasets are removed if less is left.
        """
        with self._lock:
            limit = self.limit
            if limit is None:
                status = os.statvfs(self.cache)
                return status.f_bavail * status.f_frsize
            self._measure()
            if limit - self._used < least:
                for folder in dataset_folders(self.cache):
                    if remove_unused(folder):
                        self._measure()
                    if limit - self._used >= least:
                        break
            return limit - self._used

    def reserve(self, size: int) -> None:
        """Make sure that there is room for `size` more bytes. Call `release` when they are written.

        Raises:
            StorageError: nothing more can be evicted, although other loaders had time to continue.

        """
        deadline = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                self._coming += size
                limit = self.limit
                missing = 0 if limit is None else self._make_room(limit)
                if missing <= 0:
                    return
                self._coming -= size
            if time.monotonic() > deadline:
                raise self._too_small(missing)
            time.sleep(_PAUSE)

    def _make_room(self, limit: int) -> int:
        """Evict what is too much; return the bytes that are still too much."""
        if self._used > limit or self._written >= limit * _MEASURE:
            self._measure()
        if self._used > limit:
            self.free(0)
        if self._used > limit:
            self._written -= self._evict(max(self._used - limit, int(limit * AT_ONCE)))
        return self._used - limit

    def release(self, size: int) -> None:
        """Release a reservation, whether its bytes were written or not."""
        with self._lock:
            self._coming -= size
            self._written += size

    def make_room(self, size: int) -> None:
        """Free disk space because the disk is full, whatever the limit.

        Raises:
            StorageError: nothing more can be evicted.

        """
        with self._lock:
            if any(map(remove_unused, dataset_folders(self.cache))):
                return
            if self._evict(4 * size) < size:
                raise self._too_small(size)

    @property
    def _used(self) -> int:
        return self._measured + self._written + self._coming

    def _measure(self) -> None:
        self._measured = disk_usage(self.cache)
        self._written = 0

    def _evict(self, needed: int) -> int:
        """Evict what is needed latest, and if that is not enough what was fetched in advance.

        Return what is freed.
        """
        freed = self._evict_latest(needed, ahead=False)
        if freed < needed:
            freed += self._evict_latest(needed - freed, ahead=True)
        return freed

    def _evict_latest(self, needed: int, *, ahead: bool) -> int:
        tenants = list(self._tenants)
        if not tenants:
            return 0
        found = [tenant.evictable(ahead=ahead) for tenant in tenants]
        rows, uses, pages = map(np.concatenate, zip(*found, strict=True))
        owners = np.repeat(np.arange(len(tenants)), [len(each[0]) for each in found])
        victims = choose_victims(uses, pages, needed)
        freed = 0
        for number, tenant in enumerate(tenants):
            chosen = rows[victims][owners[victims] == number]
            if len(chosen):
                freed += tenant.evict(chosen)
        return freed

    def _too_small(self, missing: int) -> StorageError:
        limit = self.limit
        if limit is None:
            return StorageError(
                f"the disk of the cache is full ({os.strerror(errno.ENOSPC)}), and nothing in it"
                " can be removed",
                file=self.cache,
                hint="free some space, or choose a cache folder on a larger disk",
            )
        return StorageError(
            f"cache_limit is {format_bytes(limit)}, and the next batches need"
            f" {format_bytes(missing)} more",
            file=self.cache,
            hint="raise cache_limit, or close the other loaders that use this cache",
        )


_rooms: dict[tuple[int, str], Room] = {}
_rooms_lock = threading.Lock()


def room_of(cache: str) -> Room:
    """Return the room of a cache folder, one for each process and folder."""
    key = (os.getpid(), os.path.realpath(cache))
    with _rooms_lock:
        return _rooms.setdefault(key, Room(cache))
