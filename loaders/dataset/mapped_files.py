"""Files mapped into memory, as many as there are, without holding them open. It must never know what is in them."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Python's own `mmap` keeps a descriptor open for every file, and it asks ahead with the interpreter stopped.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint)

#: System call 440 on every architecture, and the most ranges that it takes.
_PROCESS_MADVISE, _MOST_RANGES = 440, 1024

_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file in memory; it stays there as long as any view of its bytes.

    Attributes:
        data: its bytes, uint8 [length], read-only.
        address: where they begin.

    """

    data: NDArray[np.uint8]
    address: int


def map_file(path: str, length: int) -> MappedFile:
    """Map a file for reading.

    Args:
        path: of the file.
        length: of it, in bytes, at least 1.

    Raises:
        OSError: it cannot be read.
        ValueError: it has another length.

    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(handle).st_size
        if found != length:
            raise ValueError(f"is {found} bytes long")
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    finally:
        os.close(handle)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    pages = (ctypes.c_ubyte * length).from_address(address)
    # At the interpreter's end threads that read may still run; the system lets go of everything then.
    weakref.finalize(pages, _libc.munmap, address, length).atexit = False
    data = np.ctypeslib.as_array(pages)
    data.flags.writeable = False
    return MappedFile(data, address)


def ask_ahead(addresses: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Let the system fetch mapped bytes, and do not wait for them; other threads run meanwhile.

    Args:
        addresses: where they begin, [ranges].
        sizes: how many they are.

    """
    begins = addresses & -mmap.PAGESIZE
    ranges = np.stack([begins, addresses + sizes - begins], axis=1).astype(np.uint64)
    for first in range(0, len(ranges), _MOST_RANGES):
        part = np.ascontiguousarray(ranges[first : first + _MOST_RANGES])
        # That they are fetched sooner is all there is to gain, so that a refusal of this too loses nothing else.
        for begin, length in () if _ask_at_once(part) else part.tolist():
            _libc.madvise(begin, length, mmap.MADV_WILLNEED)


def _ask_at_once(ranges: NDArray[np.uint64]) -> bool:
    """Ask for all in one call, which Linux before 6.13 grants to privileged processes only; tell whether it did."""
    try:
        handle = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    asked = _libc.syscall(_PROCESS_MADVISE, handle, ranges.ctypes.data, len(ranges), mmap.MADV_WILLNEED, 0)
    os.close(handle)
    return bool(asked == ranges[:, 1].sum())


class Mappings:
    """Files by number, mapped when they are first asked for, a bounded number of them at once.

    Attributes:
        most: how many are mapped at once; where one more is asked for, all others are let go.
        get: from a file's number to the file if it is mapped already, else None.

    """

    #: A quarter of what Linux grants a process (``vm.max_map_count``).
    most = 16_384

    def __init__(self, paths: Sequence[str], lengths: Sequence[int]) -> None:
        self._paths, self._lengths = paths, lengths
        self._mapped: dict[int, MappedFile] = {}
        # As it is asked for every image, it is the dictionary's own, without a function of ours around it.
        self.get = self._mapped.get

    def __len__(self) -> int:
        return len(self._mapped)

    def map(self, number: int, check: Callable[[MappedFile], None] | None = None) -> MappedFile:
        """Map a file, or return it as it is mapped already.

        Args:
            number: of the file.
            check: is called with the file before anybody else can get it, and keeps it back by raising.

        Raises:
            OSError: it cannot be read.
            ValueError: it has another length.

        """
        found = self._mapped.get(number)
        if found is None:
            found = map_file(self._paths[number], self._lengths[number])
            if check is not None:
                check(found)
            if len(self._mapped) >= self.most:
                self._mapped.clear()
            self._mapped[number] = found
        return found

    def clear(self) -> None:
        """Let go of every file; each stays mapped as long as any view of it."""
        self._mapped.clear()
