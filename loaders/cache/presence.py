"""Which images of a split are on the local disk: a byte for each, in a file that processes share."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from loaders.arrays import Bytes
from manifests.errors import CallError, raise_machine_fault
from manifests.process.text import printable

#: The image is not there; it is there; it was there before the machine was started, so its checksum
#: must be compared.
ABSENT, PRESENT, UNVERIFIED = 0, 1, 2

_MAGIC = b"presence 1\n"
_HEADER_BYTES = 4096
_BOOT_AT, _BOOT_BYTES = 64, 64
_EVICTIONS_AT = 256

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Presence:
    """One byte per row of a `Layout`: `ABSENT`, `PRESENT`, or `UNVERIFIED`.

    A process that is killed leaves every byte true, because an image is written before it is
    marked. After a power failure the disk may have the mark without the image: so images that were
    marked before the machine was started are `UNVERIFIED`.

    Readers must be protected from eviction only. Evicting locks the file exclusively, and fetching
    shares the lock. A reader that copies images compares `evictions` before and after: the same
    even number means that nothing was evicted in between.

    Attributes:
        read_only: whether this user may not write the file.
        states: the state of every row, uint8 [rows]. Other threads and processes change it. Set it
            within `fetching` or `evicting`.

    """

    def __init__(self, path: str, rows: int) -> None:
        """Open the file; create it if there is none, or if it belongs to another number of rows.

        Raises:
            CallError: this user cannot use it.

        """
        self._path = path
        self._rows = rows
        self.read_only = False
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError:
            self.read_only = True
            handle = _open_read_only(path)
        try:
            with self._locked(fcntl.LOCK_SH if self.read_only else fcntl.LOCK_EX):
                self._map(handle)
        finally:
            os.close(handle)  # the mapping stays

    def _map(self, handle: int) -> None:
        length = _HEADER_BYTES + self._rows
        if os.fstat(handle).st_size != length or os.pread(handle, len(_MAGIC), 0) != _MAGIC:
            if self.read_only:
                raise _unusable(self._path, "it is not complete, and this user may only read it")
            os.ftruncate(handle, 0)
            os.ftruncate(handle, length)
            os.pwrite(handle, _MAGIC, 0)
        protection = mmap.PROT_READ if self.read_only else mmap.PROT_READ | mmap.PROT_WRITE
        content = np.frombuffer(mmap.mmap(handle, length, mmap.MAP_SHARED, protection), np.uint8)
        self.states = content[_HEADER_BYTES:]
        self._evictions = content[_EVICTIONS_AT : _EVICTIONS_AT + 8].view(np.uint64)
        boot = _boot_id()
        if content[_BOOT_AT : _BOOT_AT + _BOOT_BYTES].tobytes() != boot and not self.read_only:
            self.states[self.states == PRESENT] = UNVERIFIED
            content[_BOOT_AT : _BOOT_AT + _BOOT_BYTES] = np.frombuffer(boot, np.uint8)

    def snapshot(self) -> Bytes:
        """Return a copy of `states`: NumPy's searches fail on an array that changes meanwhile."""
        return self.states.copy()

    @property
    def evictions(self) -> int:
        """A number that every eviction increases twice: odd while images are being evicted."""
        return int(self._evictions[0])

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Block evictions while images are written and marked."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def evicting(self) -> Iterator[None]:
        """Block all other processes while images are first marked as absent, and then removed."""
        with self._locked(fcntl.LOCK_EX):
            self._evictions[0] |= np.uint64(
                1
            )  # already odd if a process was killed while it evicted
            try:
                yield
            finally:
                self._evictions[0] += np.uint64(1)

    def end_eviction(self) -> None:
        """Wait until nothing is being evicted."""
        if self.read_only:
            return
        with self._locked(fcntl.LOCK_EX):
            self._evictions[0] += self._evictions[0] % np.uint64(2)

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        # A lock belongs to an open file, so every user opens the file for itself.
        handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, kind)
            yield
        finally:
            os.close(handle)


def _open_read_only(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise_machine_fault(error)
        raise _unusable(path, error.strerror or str(error)) from None


def _unusable(path: str, reason: str) -> CallError:
    return CallError(
        f"the cache folder {printable(os.path.dirname(path))} cannot be used: {reason}",
        hint="make it writable for this user, or choose another cache folder",
    )


def _boot_id() -> bytes:
    """Return what identifies the time since the machine was started, 64 bytes.

    Zeros if it cannot be told.
    """
    try:
        with open(_BOOT_ID, "rb") as file:
            return file.read(_BOOT_BYTES).strip().ljust(_BOOT_BYTES, b"\0")
    except OSError:
        return bytes(_BOOT_BYTES)
