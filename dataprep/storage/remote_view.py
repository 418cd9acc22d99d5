"""Random access to the bytes of an object in an object store."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from awscrt.checksums import crc32c

from manifests.remote import ObjectInfo, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer


class RemoteView:
    """Random access to the bytes of an object. While it is read in order, the next bytes are on their way.

    Args:
        store: the folder of the object.
        info: the object.
        span: number of bytes to read at once.

    """

    def __init__(self, store: Store, info: ObjectInfo, span: int) -> None:
        self._store = store
        self._info = info
        self._span = span
        self._base = 0
        self._data = b""
        self._next: tuple[int, Future[Buffer]] | None = None
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
        """Return the CRC-32C of the first `size` bytes. Those that were read in order are not read again."""
        self._next = None
        crc, end = (self._crc, self._crc_end) if self._crc_end <= size else (0, 0)
        for chunk in self._store.chunks(self._info.name, size, start=end, etag=self._info.etag):
            crc = crc32c(chunk, crc)
        return crc

    def _advance(self, at: int, n: int) -> None:
        end = self._base + len(self._data)
        in_order = self._base <= at <= end
        parts = [self._data[at - self._base :]] if in_order else []
        have = sum(map(len, parts))
        while have < n and (part := self._fetch(at + have)):
            parts.append(part)
            have += len(part)
        self._base, self._data = at, b"".join(parts)
        if in_order and self._next is None and (future := self._start(at + have)):
            self._next = (at + have, future)

    def _fetch(self, at: int) -> bytes:
        """Return the bytes from `at`; none at the end of the object."""
        pending, self._next = self._next, None
        future = pending[1] if pending and pending[0] == at else self._start(at)
        data = bytes(future.result()) if future else b""
        if at == self._crc_end:
            self._crc, self._crc_end = crc32c(data, self._crc), at + len(data)
        return data

    def _start(self, at: int) -> Future[Buffer] | None:
        end = min(at + self._span, self._info.bytes)
        return self._store.start_range(self._info.name, at, end, etag=self._info.etag) if at < end else None
