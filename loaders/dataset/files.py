"""Any number of files: mapped into memory without keeping them open, or read.

Files that are read are slower, but a failing disk is an error. Works for files of any content.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

# NumPy imports it when it is first used. If that is in a thread, and Ctrl-C interrupts an import of
# the main thread, the thread may wait for the lock of imports without end.
from numpy.ctypeslib import as_array

from loaders.arrays import Bytes, Ints, Words
from manifests.files import SHARD, open_handle

# Python's `mmap` keeps a file descriptor open for every file, and its `madvise` holds the
# interpreter lock.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = (
    ctypes.c_int,
    *(ctypes.c_void_p, ctypes.c_ulong) * 2,
    ctypes.c_ulong,
)
_libc.syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_uint,
)

#: Number of the system call on every architecture, and the largest number of ranges that one call
#: accepts.
_PROCESS_MADVISE, _MAX_RANGES = 440, 1024

#: ``MADV_POPULATE_READ``: read pages as an access would, but return an error where an access would
#: end the process.
_POPULATE_READ = 22

_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file in memory. It stays mapped as long as any view of its bytes exists.

    Attributes:
        data: content of the file, uint8 [length], read-only.
        address: address of the first byte.

    """

    data: Bytes
    address: int


def open_checked(path: str, length: int) -> int:
    """Open a file for reading, and return its descriptor.

    See `map_file` for arguments and errors.
    """
    handle = open_handle(path, SHARD)
    actual = os.fstat(handle).st_size
    if actual != length:
        os.close(handle)
        raise ValueError(f"is {actual} bytes long")
    return handle


def map_file(path: str, length: int) -> MappedFile:
    """Map a file for reading.

    Args:
        path: path of the file.
        length: length of the file in bytes, at least 1.

    Raises:
        OSError: the file cannot be read.
        ShardError: it is not a regular file.
        ValueError: the file has another length.

    """
    handle = open_checked(path, length)
    try:
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    finally:
        os.close(handle)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    pages = (ctypes.c_ubyte * length).from_address(address)
    # Not at exit: other threads may still be reading, and the system unmaps everything anyway.
    weakref.finalize(pages, _libc.munmap, address, length).atexit = False
    data = as_array(pages)
    data.flags.writeable = False
    return MappedFile(data, address)


def is_readable(address: int) -> bool:
    """Return whether the page of a mapped byte can be read: the file may have been shortened.

    Reading such a page would end the process. Always true before Linux 5.14, which cannot tell.
    """
    return (
        not _libc.madvise(address & -mmap.PAGESIZE, 1, _POPULATE_READ)
        or ctypes.get_errno() != errno.EFAULT
    )


@dataclass(frozen=True, slots=True)
class MappedRanges:
    """Ranges of mapped files, all of one length. The files stay mapped as long as this exists.

    Attributes:
        files: the files.
        addresses: start of each range, int64 [ranges], at least one.
        size: length of every range in bytes, at most 65,535.

    """

    files: Sequence[MappedFile]
    addresses: Ints
    size: int

    def gather(self) -> Bytes:
        """Return copies of the ranges in one array, uint8 [ranges, size]."""
        first = int(self.addresses.min())
        # NumPy copies all ranges in one call, without the interpreter lock.
        shape = (int(self.addresses.max()) - first + 1, self.size)
        memory = {"data": (first, True), "shape": shape, "strides": (1, 1), "typestr": "|u1"}
        windows = np.asarray(SimpleNamespace(__array_interface__={**memory, "version": 3}))
        copied: Bytes = windows[self.addresses - first]
        return copied


class MappedBytes:
    """Single bytes of mapped files, ready to be checked: one system call for each 1,024 of them.

    The files must stay mapped. One thread at a time may use it.
    """

    def __init__(self, addresses: Ints) -> None:
        """Prepare the check of the bytes at some addresses, int64 [bytes]."""
        self._addresses = addresses
        # What `process_vm_readv` takes: address and length of each part, there and here.
        self._there = np.ones((len(addresses), 2), np.uint64)
        self._there[:, 0] = addresses
        self._copies = np.empty(min(len(addresses), _MAX_RANGES), np.uint8)
        self._here = np.array([self._copies.ctypes.data, len(self._copies)], np.uint64)
        self._there_at = self._there.ctypes.data
        self._here_at = self._here.ctypes.data

    def find_unreadable(self) -> int | None:
        """Return the index of the first byte that cannot be read, `None` if all can.

        See `is_readable`.
        """
        for first in range(0, len(self._addresses), _MAX_RANGES):
            count = min(len(self._addresses) - first, _MAX_RANGES)
            if self._copy(first, count) != count:
                # Some containers do not permit the system call.
                for index, address in enumerate(
                    self._addresses[first : first + count].tolist(), first
                ):
                    if not is_readable(address):
                        return index
        return None

    def _copy(self, first: int, count: int) -> int:
        """Let the system copy some of the bytes, and return how many it can."""
        part = self._there_at + first * self._there.itemsize * 2
        return int(_libc.process_vm_readv(os.getpid(), self._here_at, 1, part, count, 0))


def resident_bytes(file: MappedFile) -> int:
    """Return how many bytes of a mapped file are in the page cache, rounded up to pages.

    The system tells this only about files that the user owns or may write; of others, it claims
    that all are.

    Raises:
        OSError: the system does not tell.

    """
    pages = np.empty(-(-len(file.data) // mmap.PAGESIZE), np.uint8)
    if _libc.mincore(file.address, len(file.data), pages.ctypes.data):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return min(len(file.data), int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE)


def prefetch(addresses: Ints, sizes: Ints) -> None:
    """Start reading mapped bytes from disk, without waiting or holding the interpreter lock.

    Args:
        addresses: start of each range, [ranges].
        sizes: length of each range in bytes, [ranges].

    """
    starts = addresses & -mmap.PAGESIZE
    ranges = np.stack([starts, addresses + sizes - starts], axis=1).astype(np.uint64)
    for first in range(0, len(ranges), _MAX_RANGES):
        part = np.ascontiguousarray(ranges[first : first + _MAX_RANGES])
        if not _advise_all(part):
            # The result does not matter: prefetching only saves time.
            for start, length in part.tolist():
                _libc.madvise(start, length, mmap.MADV_WILLNEED)


def _advise_all(ranges: Words) -> bool:
    """Advise all ranges in one system call.

    Return whether it worked: before Linux 6.13, only root may do this.
    """
    try:
        handle = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    advised = _libc.syscall(
        _PROCESS_MADVISE, handle, ranges.ctypes.data, len(ranges), mmap.MADV_WILLNEED, 0
    )
    os.close(handle)
    return bool(advised == ranges[:, 1].sum())


class Mappings:
    """Files by number. Maps each file when it is first needed, at most `max_mapped` at a time.

    Attributes:
        max_mapped: maximum number of mapped files. To map one more, all others are released.
        get: returns a file by its number if it is already mapped, else `None`.
        addresses: address of the first byte of each mapped file, int64 [files]; 0 if it is not
            mapped.

    """

    #: A quarter of the mappings that a Linux process may have by default (``vm.max_map_count``).
    max_mapped = 16_384

    def __init__(self, paths: Sequence[str], lengths: Sequence[int]) -> None:
        self._paths = paths
        self._lengths = lengths
        self._mapped: dict[int, MappedFile] = {}
        self.addresses = np.zeros(len(paths), np.int64)
        # The dictionary's own method, because it is called for every image.
        self.get = self._mapped.get

    def __len__(self) -> int:
        return len(self._mapped)

    def map(self, number: int) -> MappedFile:
        """Return a file, and map it if it is not mapped yet.

        Args:
            number: index of the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file has another length.

        """
        file = self._mapped.get(number)
        if file is None:
            file = map_file(self._paths[number], self._lengths[number])
            if len(self._mapped) >= self.max_mapped:
                self.clear()
            self._mapped[number] = file
            self.addresses[number] = file.address
        return file

    def clear(self) -> None:
        """Release every file. Each stays mapped as long as any view of it exists."""
        self._mapped.clear()
        self.addresses[:] = 0


class OpenFiles:
    """Files by number. Opens each file when it is first needed; several threads may use it.

    Attributes:
        max_open: maximum number of open files. To open one more, the one that was opened first is
            closed.

    """

    #: A quarter of the files that a Linux process may open by default.
    max_open = 256

    def __init__(self, paths: Sequence[str], lengths: Sequence[int]) -> None:
        self._paths = paths
        self._lengths = lengths
        self._handles: dict[int, int] = {}
        self._lock = threading.Lock()
        # A loader that is dropped without `close` must not keep its files open.
        weakref.finalize(self, _close_all, self._handles).atexit = False

    def read(self, number: int, offset: int, size: int) -> Bytes:
        """Return a part of a file, uint8 [size].

        Args:
            number: index of the file.
            offset: first byte.
            size: number of bytes.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file has another length.

        """
        data = np.empty(size, np.uint8)
        view = data.data
        with self._lock:
            handle = self._handle(number)
            while view:
                count = os.preadv(handle, [view], offset + size - len(view))
                if not count:
                    raise ValueError(f"is {os.fstat(handle).st_size} bytes long")
                view = view[count:]
        return data

    def prefetch(self, number: int, offset: int, size: int) -> None:
        """Ask the system to read a part of a file in advance, without waiting."""
        with self._lock:
            os.posix_fadvise(self._handle(number), offset, size, os.POSIX_FADV_WILLNEED)

    def clear(self) -> None:
        """Close every file."""
        with self._lock:
            _close_all(self._handles)

    def _handle(self, number: int) -> int:
        handle = self._handles.get(number)
        if handle is None:
            if len(self._handles) >= self.max_open:
                os.close(self._handles.pop(next(iter(self._handles))))
            handle = self._handles[number] = open_checked(
                self._paths[number], self._lengths[number]
            )
        return handle


def _close_all(handles: dict[int, int]) -> None:
    while handles:
        os.close(handles.popitem()[1])


# --- file systems ---------------------------------------------------------------------------------

#: Values of `f_type` in Linux's ``struct statfs``, from ``linux/magic.h`` and the file systems'
#: sources.
_NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "CIFS",
    0x65735546: "FUSE",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x00C36400: "Ceph",
    0x19830326: "BeeGFS",
    0x01021997: "9P",
    0x5346414F: "AFS",
}


def network_filesystem(path: str) -> str | None:
    """Return the name of the network file system that contains a path.

    `None` if it is local, or not known.

    FUSE counts as a network file system, because most of them are: s3fs, gcsfuse, sshfs, rclone.
    """
    # The structure differs between architectures, but all 64-bit ones start with `f_type` as a
    # long.
    buffer = ctypes.create_string_buffer(512)
    if _libc.statfs(os.fsencode(path), buffer):
        return None
    return _NETWORK.get(ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF)
