"""Random access to the bytes of an object in an object store."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

from awscrt.checksums import crc32c

from manifests.remote.store import COALESCE_BYTES, ObjectInfo, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer


class RemoteView:
    """Random access to the bytes of an object.

    While it is read in order, the next bytes are on their way.

    Args:
        store: the folder of the object.
        info: the object.
        span: number of bytes to read at once.
        first: number of bytes to read at once after a jump; it doubles up to `span` while the
            object is read in order. `None` means `span`.
        ahead: requests on their way while the object is read in order.

    """

    def __init__(
        self, store: Store, info: ObjectInfo, span: int, *, first: int | None = None, ahead: int = 1
    ) -> None:
        self._store = store
        self._info = info
        self._least, self._most, self._ahead = first or span, span, ahead
        self._span = self._least
        self._base = 0
        self._data = b""
        self._pending: deque[tuple[int, int, Future[Buffer]]] = deque()  # first byte, end, bytes
        self._crc = self._crc_end = 0  # of the bytes from the beginning that were read in order

    def __call__(self, at: int, n: int) -> tuple[bytes, int]:
        """Return a buffer that contains `n` bytes of the object from offset `at`, and their position in the buffer."""
        i = at - self._base
        if i < 0 or i + n > len(self._data):
            self._advance(at, n)
            i = 0
        return self._data, i

    def is_cached(self, at: int) -> bool:
        """Return whether byte `at` is in the buffer."""
        return 0 <= at - self._base < len(self._data)

    def checksum(self, size: int) -> int:
        """Return the CRC-32C of the first `size` bytes.

        Those that were read in order are not read again.
        """
        self._pending.clear()
        crc, end = (self._crc, self._crc_end) if self._crc_end <= size else (0, 0)
        for chunk in self._store.chunks(self._info.name, size, start=end, etag=self._info.etag):
            crc = crc32c(chunk, crc)
        return crc

    def _advance(self, at: int, n: int) -> None:
        end = self._base + len(self._data)
        in_order = self._base <= at <= end + self._gap
        self._span = min(2 * self._span, self._most) if in_order else self._least
        parts = [self._data[at - self._base :]] if self._base <= at <= end else []
        have = sum(map(len, parts))
        while have < n and (part := self._fetch(at + have, n - have)):
            parts.append(part)
            have += len(part)
        self._base, self._data = at, b"".join(parts)
        if in_order:
            self._read_ahead(at + have)

    @property
    def _gap(self) -> int:
        """Number of bytes that may be skipped while the object counts as read in order."""
        return COALESCE_BYTES if self._least < self._most else 0

    def _read_ahead(self, at: int) -> None:
        """Request the bytes from `at`, and those after them."""
        if self._pending:
            at = self._pending[-1][1]
        while len(self._pending) < self._ahead and at < self._info.bytes:
            self._pending.append(self._start(at))
            at = self._pending[-1][1]

    def _fetch(self, at: int, n: int) -> bytes:
        """Return bytes from `at`, if possible `n` or more; none at the end of the object."""
        while self._pending and not self._pending[0][0] <= at < self._pending[0][1]:
            self._pending.popleft()
        if not self._pending and at >= self._info.bytes:
            return b""
        first, _, future = self._pending.popleft() if self._pending else self._start(at, n)
        data = bytes(future.result())
        if first == self._crc_end:
            self._crc, self._crc_end = crc32c(data, self._crc), first + len(data)
        return data[at - first :]

    def _start(self, at: int, n: int = 0) -> tuple[int, int, Future[Buffer]]:
        end = min(at + max(n, self._span), self._info.bytes)
        return at, end, self._store.start_range(self._info.name, at, end, etag=self._info.etag)
