"""Read a request from the store, compare the checksums of its images, and write those that are intact."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from loaders.cache.layout import Layout, Request
from loaders.dataset.tables import NO_CHECKSUM
from manifests.errors import RefusedError, ReplacedError, ShardError, StorageError

_log = logging.getLogger(__name__)

#: How long to repeat requests to a store that does not answer, in seconds.
TIMEOUT = 600.0
#: Pause between two attempts, in seconds. The store's client has already repeated each request for
#: a minute.
_PAUSE = 1.0


class Destination(Protocol):
    """Where fetched images go, and which are there."""

    def states(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the state of rows; see `presence`."""
        ...

    def reserve(self, size: int) -> None:
        """Make sure that there is room for this many bytes."""
        ...

    def release(self, size: int) -> None:
        """Release a reservation, whether its bytes were written or not."""
        ...

    def read(self, request: Request) -> Sequence[memoryview]:
        """Read the ranges of a request from the store."""
        ...

    def stored(self, row: int) -> bytes:
        """Return the bytes on the local disk where an image belongs."""
        ...

    def write(self, request: Request, parts: Sequence[memoryview], rows: NDArray[np.int64]) -> None:
        """Write the ranges of a request, and mark its intact images as present."""
        ...

    def mark_verified(self, rows: NDArray[np.int64], *, intact: bool) -> None:
        """Mark unverified images as present, or as absent."""
        ...

    def describe(self, shard: int) -> str:
        """Return the URL of a shard."""
        ...


class Transfer:
    """Fetches requests, each of them in the thread that calls `fetch`.

    Attributes:
        bytes: bytes that were fetched so far.

    """

    def __init__(self, layout: Layout, destination: Destination, timeout: float) -> None:
        """Fetch nothing yet.

        Args:
            layout: where the images are.
            destination: where they go.
            timeout: how long to repeat requests that fail, in seconds.

        """
        self._layout, self._destination, self._timeout = layout, destination, timeout
        self._closed = False
        self.bytes = 0

    def close(self) -> None:
        """Repeat no request any more."""
        self._closed = True

    def fetch(self, request: Request) -> None:
        """Fetch a request, compare the checksums of its images, and write them.

        Raises:
            ShardError: an image, or its shard, is missing or damaged in the store.
            StorageError: the store did not answer within the timeout.

        """
        for attempt in range(2):  # wrong bytes may be the network's fault, so fetch them once more
            parts = self._read(request)
            self.bytes += request.bytes
            intact = self._intact(request, parts)
            self._destination.write(request, parts, request.rows[intact])
            if intact.all():
                return
            if attempt == 0:
                _log.warning(
                    "%s: an image arrived damaged, fetching it again",
                    self._destination.describe(request.shard),
                )
        first = int(request.rows[~intact][0])
        raise ShardError(
            "the object has an image with another checksum than the sample table states: it is"
            " damaged, or was replaced after the loader was built",
            file=self._destination.describe(request.shard),
            record=self._layout.record_of(first),
            byte=int(self._layout.offsets[first]),
            hint="restore the object, or build the loader again if the dataset was created again",
        )

    def _intact(self, request: Request, parts: Sequence[memoryview]) -> NDArray[np.bool_]:
        """Return which images of a request have the checksum of the sample table, bool [rows]."""
        checksums = self._layout.checksums[request.rows].tolist()
        places = zip(checksums, self._layout.places(request), strict=True)
        intact = [
            checksum in (NO_CHECKSUM, crc32c(parts[at][begin:end]))
            for checksum, (at, begin, end) in places
        ]
        return np.array(intact, bool)

    def _read(self, request: Request) -> Sequence[memoryview]:
        """Read a request, again and again until the timeout if the store does not answer."""
        deadline = 0.0
        while True:
            try:
                return self._destination.read(request)
            except (RefusedError, ReplacedError):
                raise
            except FileNotFoundError:
                raise ShardError(
                    "the object is missing, although it is part of the dataset",
                    file=self._destination.describe(request.shard),
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
