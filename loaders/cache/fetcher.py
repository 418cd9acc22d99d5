"""Fetch the images of the coming batches in the background, in the order of need."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from awscrt.checksums import crc32c

from loaders.arrays import Bools, Ints
from loaders.cache.ahead import CONNECTIONS, Lookahead
from loaders.cache.layout import Layout, Request
from loaders.cache.presence import ABSENT, PRESENT, UNVERIFIED
from loaders.cache.shards import CachedShards
from loaders.dataset.tables import NO_CHECKSUM
from loaders.progress import Upcoming
from manifests.errors import RefusedError, ReplacedError, ShardError, StorageError

_log = logging.getLogger(__name__)

#: How long to repeat requests to a store that does not answer, in seconds.
TIMEOUT = 600.0
#: Pause between two attempts, in seconds. The store's client has already repeated each request for
#: a minute.
_PAUSE = 1.0


class Fetcher:
    """Fetches images in the background.

    One thread decides what to fetch next: images that a caller waits for, then the batches after
    the current one. It combines neighboring images into requests, which other threads send.

    Attributes:
        bytes: bytes that were fetched so far.

    """

    def __init__(
        self,
        layout: Layout,
        shards: CachedShards,
        *,
        limit: int | None,
        timeout: float = TIMEOUT,
    ) -> None:
        """Start no thread yet: the first call of `follow` or `wait` does.

        Args:
            layout: where the images are.
            shards: where they go.
            limit: size of the cache in bytes, if it is smaller than the split; see `Lookahead.of`.
            timeout: how long to repeat requests that fail, in seconds.

        """
        self.bytes = 0
        #: Images that were on the disk when they were needed, and images that were waited for.
        self.hits = self.misses = 0
        self._layout = layout
        self._shards = shards
        self._timeout = timeout
        self._changed = threading.Condition()
        self._upcoming: Upcoming | None = None
        self._current = self._planned = 0
        self._wanted: list[Ints] = []
        #: Which rows are being fetched, bool [rows of the layout].
        self.on_the_way = np.zeros(layout.rows, bool)
        self._failed: dict[int, Exception] = {}
        self._closed = False
        self._slots = threading.BoundedSemaphore(2 * CONNECTIONS)
        self._threads: ThreadPoolExecutor | None = None
        self._planner: threading.Thread | None = None
        self._lookahead = Lookahead.of(layout, limit)

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Set the batch that the loader reads now."""
        with self._changed:
            if upcoming != self._upcoming:
                self._upcoming = upcoming
                self._planned = number
            self._current = number
            self._planned = max(self._planned, number)
            self._start()
            self._changed.notify_all()

    def position(self) -> tuple[Upcoming | None, int, int]:
        """Return the batches of the loader, the current one, and the one after the last fetched one."""
        with self._changed:
            return self._upcoming, self._current, self._planned

    def wait(self, rows: Ints) -> None:
        """Wait until images are on the local disk.

        Raises:
            ShardError: an image, or its shard, is missing or damaged in the store.
            StorageError: the store did not answer within the timeout, or the cache has no room.

        """
        present = int(np.count_nonzero(self._shards.states(rows) == PRESENT))
        self.hits += present
        self.misses += len(rows) - present
        if present == len(rows):
            return
        with self._changed:
            self._start()
            asked = False
            while not self._closed:
                missing = rows[self._shards.states(rows) != PRESENT]
                if not len(missing):
                    return
                self._raise_failure(missing)
                if not asked or not self.on_the_way[missing].all():
                    self._wanted.append(missing)
                    asked = True
                    self._changed.notify_all()
                # Other processes that share the cache do not notify this one.
                self._changed.wait(0.2)
        raise StorageError("the loader was closed while it waited for images")

    def close(self) -> None:
        """Stop fetching, and wait for the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._planner is not None and self._planner is not threading.current_thread():
            self._planner.join()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _raise_failure(self, rows: Ints) -> None:
        for row in np.unique(rows).tolist():
            error = self._failed.get(row)
            if error is not None:
                # Asking again tries again, for all images of the request that failed.
                self._failed = {
                    row: each for row, each in self._failed.items() if each is not error
                }
                raise error

    # --- in the planning thread -----------------------------------------------------------------

    def _start(self) -> None:
        if self._planner is None:
            self._threads = ThreadPoolExecutor(CONNECTIONS, "fetch")
            self._planner = threading.Thread(target=self._plan, name="fetch plan", daemon=True)
            self._planner.start()

    def _plan(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._wanted and not self._may_look_ahead():
                    self._changed.wait()
                if self._closed:
                    return
                wanted = self._wanted
                self._wanted = []
                ahead = self._planned - self._current
            if wanted:
                self._request(np.concatenate(wanted))
                continue
            try:
                rows = self._next_rows()
            except Exception as error:
                # A custom sampler's plan fails: the loader itself meets the same error.
                _log.debug("planning stopped: %s", error)
                with self._changed:
                    self._upcoming = None
                continue
            self._request(rows, ahead)

    def _may_look_ahead(self) -> bool:
        upcoming = self._upcoming
        if upcoming is None:
            return False
        most = self._lookahead.most(upcoming.batch_size, upcoming.batches)
        return self._planned < self._current + most

    def _next_rows(self) -> Ints:
        with self._changed:
            upcoming = self._upcoming
            first = self._planned
            if upcoming is None:
                return np.zeros(0, np.int64)
            count = self._lookahead.at_once(self._planned - self._current, upcoming.batches)
        samples = [upcoming.of_rank(number) for number in range(first, first + count)]
        with self._changed:
            if upcoming == self._upcoming:
                self._planned = max(self._planned, first + count)
        return self._layout.rows_of(np.concatenate(samples))

    def _request(self, rows: Ints, ahead: int = 0) -> None:
        """Fetch rows, or verify them if they were fetched before the machine was started."""
        _, first = np.unique(rows, return_index=True)
        rows = rows[np.sort(first)]
        if self._lookahead.in_blocks:
            absent = rows[(self._shards.states(rows) == ABSENT) & ~self.on_the_way[rows]]
            blocks = self._lookahead.blocks(self._layout, absent, ahead)
            if blocks is not None:
                rows = np.concatenate([rows[self._shards.states(rows) == UNVERIFIED], blocks])
        with self._changed:
            rows = rows[~self.on_the_way[rows]]
            states = self._shards.states(rows)
            self.on_the_way[rows[states != PRESENT]] = True
        unverified = rows[states == UNVERIFIED]
        if len(unverified):
            self._verify(unverified)
        for request in self._layout.requests(rows[states == ABSENT]):
            try:
                self._shards.room.reserve(request.bytes)
            except Exception as error:
                self._finish(request.rows, error)
                continue
            while not self._slots.acquire(timeout=0.1):
                if self._closed:
                    return
            assert self._threads is not None  # noqa: S101
            try:
                self._threads.submit(self._run, request)
            except RuntimeError:  # the interpreter is ending
                return

    def _verify(self, rows: Ints) -> None:
        """Compare the checksums of images that were fetched before the machine was started."""
        intact = np.zeros(len(rows), bool)
        checksums = self._layout.checksums[rows].tolist()
        for place, (row, checksum) in enumerate(zip(rows.tolist(), checksums, strict=True)):
            # Without a checksum, nothing tells a damaged image from an intact one.
            if checksum != NO_CHECKSUM:
                intact[place] = crc32c(self._shards.stored(row)) == checksum
        self._shards.mark_verified(rows, intact)
        self._finish(rows)
        if not intact.all():
            self._request(rows[~intact])

    # --- in the fetching threads ----------------------------------------------------------------

    def _run(self, request: Request) -> None:
        error: Exception | None = None
        try:
            # Of processes that share the cache, another one may have fetched it since it was planned.
            if (self._shards.states(request.rows) != PRESENT).any():
                self._fetch(request)
        except Exception as failure:
            error = failure
        finally:
            self._shards.room.release(request.bytes)
            self._slots.release()
            self._finish(request.rows, error)

    def _finish(self, rows: Ints, error: Exception | None = None) -> None:
        with self._changed:
            self.on_the_way[rows] = False
            for row in rows.tolist():
                if error is not None:
                    self._failed[row] = error
                else:
                    self._failed.pop(row, None)
            self._changed.notify_all()

    def _fetch(self, request: Request) -> None:
        """Fetch a request, compare the checksums of its images, and write the intact ones.

        Raises:
            ShardError: an image, or its shard, is missing or damaged in the store.
            StorageError: the store did not answer within the timeout.

        """
        url = self._shards.describe(request.shard)
        for attempt in range(2):  # wrong bytes may be the network's fault, so fetch them once more
            parts = self._read(request)
            self.bytes += request.bytes
            intact = self._intact(request, parts)
            self._shards.write(request, parts, request.rows[intact])
            if intact.all():
                return
            if attempt == 0:
                _log.warning("%s: an image arrived damaged, fetching it again", url)
        first = int(request.rows[~intact][0])
        raise ShardError(
            "the object has an image with another checksum than the sample table states: it is"
            " damaged, or was replaced after the loader was built",
            file=url,
            record=self._layout.record_of(first),
            byte=int(self._layout.offsets[first]),
            hint="restore the object, or build the loader again if the dataset was created again",
        )

    def _intact(self, request: Request, parts: Sequence[memoryview]) -> Bools:
        """Return which images of a request have the checksum of the sample table, bool [rows]."""
        intact = np.ones(len(request.rows), bool)
        checksums = self._layout.checksums[request.rows].tolist()
        for place, (number, begin, end) in enumerate(self._layout.places(request)):
            if checksums[place] != NO_CHECKSUM:
                intact[place] = crc32c(parts[number][begin:end]) == checksums[place]
        return intact

    def _read(self, request: Request) -> Sequence[memoryview]:
        """Read a request, again and again until the timeout if the store does not answer."""
        deadline = 0.0
        while True:
            try:
                return self._shards.read(request)
            except (RefusedError, ReplacedError):
                raise
            except FileNotFoundError:
                raise ShardError(
                    "the object is missing, although it is part of the dataset",
                    file=self._shards.describe(request.shard),
                    hint="restore it, or make the dataset again",
                ) from None
            except StorageError as error:
                now = time.monotonic()
                if not deadline:
                    deadline = now + self._timeout
                    _log.warning("%s; trying again for %g s", error.message, self._timeout)
                if now >= deadline or self._closed:
                    raise StorageError(
                        f"{error.message}; gave up after {self._timeout:g} s",
                        file=error.file,
                        hint=error.hint,
                    ) from None
                time.sleep(_PAUSE)
