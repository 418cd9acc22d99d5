"""Random access to the encoded images of a split: mapped, without copying, or read.

Never imports DALI.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from loaders.dataset.mapped_files import MappedBytes, MappedFile, Mappings, prefetch
from loaders.dataset.read_files import OpenFiles
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import MASK_DTYPES, NO_CHECKSUM, SampleTables
from manifests.errors import ShardError, raise_machine_fault
from manifests.tables import outside_error

_RESTORE = "restore a copy, or run `dataprep index --overwrite` if the shard was changed on purpose"


@dataclass(frozen=True, slots=True)
class LastBytes:
    """The part of the mapped shards that some images need.

    Attributes:
        shards: numbers of the shards, each once.
        ends: number of bytes that are needed of each, from its beginning.
        mapped: the last of these bytes of each.

    """

    shards: NDArray[np.intp]
    ends: NDArray[np.int64]
    mapped: MappedBytes


class Records:
    """The encoded images of a split, by row.

    Several threads may use it. When a shard is opened, its length and the checksum of the first
    requested image are checked; `dataprep verify` checks everything.

    With mapping, the images are views of mapped files, which stay mapped as long as any view
    exists. Before images are returned, the last byte that they need of each shard is checked,
    because reading beyond the end of a file that was shortened ends the process. A shard that is
    shortened between this check and the decoding of the images, or whose disk fails, still does.
    """

    def __init__(
        self,
        split: OpenSplit,
        tables: SampleTables,
        *,
        mmap: bool = True,
        tolerant: bool = False,
        check: bool = True,
        label_images: bool = False,
    ) -> None:
        """Prepare to read the location of each image from the sample tables, all of them now if there are few shards.

        Args:
            split: the split.
            tables: the sample tables of the split.
            mmap: whether to map the shards instead of reading them.
            tolerant: whether a single damaged image is no error.
            check: whether to compare the checksum of the first requested image of each shard.
            label_images: whether to read the masks or depth maps instead of the images.

        Raises:
            TableError: a table is missing or damaged, or points outside its shard.

        """
        self._split = split
        self._tolerant = tolerant
        self._check = check
        self._bytes = np.array([shard.file.bytes for shard in split.shards], np.int64)
        self._ends = np.cumsum([shard.samples for shard in split.shards])
        names = MASK_DTYPES if label_images else ("offset", "size", "crc32c")
        self._columns, arrays = tables.lazy_columns([*names])
        self._offsets, self._sizes, self._checksums = arrays.values()
        self._columns.check(self._check_bounds)
        paths = [split.path(shard.file) for shard in split.shards]
        lengths = [shard.file.bytes for shard in split.shards]
        self._mappings = Mappings(paths, lengths)
        self._files = None if mmap else OpenFiles(paths, lengths)
        self._checked: set[int] = set()
        self._map_lock = threading.Lock()
        self._closed = False
        self._prefetcher = ThreadPoolExecutor(1, "prefetch")

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded images: read-only arrays, uint8 [bytes].

        Args:
            rows: int64 [B].

        Raises:
            ShardError: a shard is missing, cannot be read, or has changed since its sample table
                was made.
            TableError: a table that was not read before is missing or damaged, or points outside
                its shard.

        """
        return self.images_to_check(rows)[0]

    def images_to_check(self, rows: NDArray[np.int64]) -> tuple[list[NDArray[np.uint8]], LastBytes]:
        """Return what `images` returns, and the part of the shards that it needs, for `check_readable` later."""
        shards, begins, sizes = self._located(rows)
        ends = begins + sizes
        if self._files is not None:
            parts = zip(
                shards.tolist(), rows.tolist(), begins.tolist(), sizes.tolist(), strict=True
            )
            images = [self._read(self._files, *part) for part in parts]
        else:
            get_mapped = self._mappings.get
            parts = zip(shards.tolist(), rows.tolist(), begins.tolist(), ends.tolist(), strict=True)
            images = [
                (get_mapped(shard) or self._map(shard, row)).data[begin:end]
                for shard, row, begin, end in parts
            ]
        needed = self._last_bytes(shards, ends)
        self.check_readable(needed)
        return images, needed

    def check_readable(self, needed: LastBytes) -> None:
        """Check that the shards which are mapped have not been shortened below the last byte that is needed.

        Raises:
            ShardError: one has.

        """
        wrong = needed.mapped.find_unreadable()
        if wrong is not None:
            shard, end = int(needed.shards[wrong]), int(needed.ends[wrong])
            raise ShardError(
                "the shard was shortened while it was in use, or its disk cannot be read",
                file=self._split.path(self._split.shards[shard].file),
                byte=end - 1,
                hint=_RESTORE,
            )

    def prefetch(self, rows: NDArray[np.int64]) -> Future[None] | None:
        """Read images from disk into the page cache, in the background.

        Returns:
            A future that is done when the system has begun to read. `None` after Python's main
            thread has ended: the executor then accepts no more work, but other threads may still
            use the images.

        """
        try:
            return self._prefetcher.submit(self._prefetch, rows)
        except RuntimeError:
            return None

    def close(self) -> None:
        """Stop prefetching and release the shards."""
        self._prefetcher.shutdown(wait=True, cancel_futures=True)
        with self._map_lock:
            self._closed = True
            self._mappings.clear()
        if self._files is not None:
            self._files.clear()

    def _located(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """Return the shard of each row, and the offset and the size of its image."""
        shards = np.searchsorted(self._ends, rows, side="right")
        self._columns.load(shards)
        return shards, self._offsets[rows].astype(np.int64), self._sizes[rows].astype(np.int64)

    def _last_bytes(self, shards: NDArray[np.intp], ends: NDArray[np.int64]) -> LastBytes:
        order = np.lexsort((ends, shards))
        shards, ends = shards[order], ends[order]
        addresses = self._mappings.addresses[shards]
        needed = addresses != 0
        needed[:-1] &= shards[1:] != shards[:-1]
        shards, ends = shards[needed], ends[needed]
        return LastBytes(shards, ends, MappedBytes(addresses[needed] + ends - 1))

    def _prefetch(self, rows: NDArray[np.int64]) -> None:
        # Nothing waits for the future. If a table or a shard cannot be read, `images` raises the
        # same error.
        shards, begins, sizes = self._located(rows)
        if self._files is not None:
            for shard, begin, size in zip(
                shards.tolist(), begins.tolist(), sizes.tolist(), strict=True
            ):
                self._files.prefetch(shard, begin, size)
            return
        missing = self._mappings.addresses[shards] == 0
        for shard, row in zip(shards[missing].tolist(), rows[missing].tolist(), strict=True):
            self._map(shard, row)
        prefetch(self._mappings.addresses[shards] + begins, sizes)

    def _map(self, shard: int, row: int) -> MappedFile:
        def check(file: MappedFile) -> None:
            def get(row: int) -> NDArray[np.uint8]:
                begin = int(self._offsets[row])
                return file.data[begin : begin + int(self._sizes[row])]

            self._check_image(get, shard, row)

        with self._naming(shard), self._map_lock:
            if self._closed:
                raise RuntimeError("the shards have been released")
            return self._mappings.map(shard, check)

    def _read(
        self, files: OpenFiles, shard: int, row: int, begin: int, size: int
    ) -> NDArray[np.uint8]:
        with self._naming(shard):
            image = files.read(shard, begin, size)
        if shard not in self._checked:
            self._check_image(
                lambda row: files.read(shard, int(self._offsets[row]), int(self._sizes[row])),
                shard,
                row,
            )
            self._checked.add(shard)
        image.flags.writeable = False
        return image

    @contextmanager
    def _naming(self, shard: int) -> Iterator[None]:
        """Translate an error while a shard is opened or read into one that names it."""
        file = self._split.shards[shard].file
        path = self._split.path(file)
        try:
            yield
        except OSError as error:
            raise_machine_fault(error)
            raise ShardError(
                f"the shard cannot be read ({error.strerror})", file=path, hint=_RESTORE
            ) from None
        except ValueError as error:
            raise ShardError(
                f"the shard {error}, but the manifest states {file.bytes}", file=path, hint=_RESTORE
            ) from None

    def _check_image(self, get: Callable[[int], NDArray[np.uint8]], shard: int, row: int) -> None:
        """Check the first image requested from a shard, which detects a different shard of the same length.

        If the shard's first or last image is intact, the shard is the right one, and only this
        image is damaged.

        Args:
            get: returns the image of a row of the shard.
            shard: number of the shard.
            row: row of the image in the split.

        """
        if not self._check or self._is_intact(get, row):
            return
        path = self._split.path(self._split.shards[shard].file)
        end, byte = int(self._ends[shard]), int(self._offsets[row])
        start = end - self._split.shards[shard].samples
        if not any(self._is_intact(get, each) for each in (start, end - 1)):
            raise ShardError(
                "the shard has changed since its sample table was made: its images have other"
                " checksums",
                file=path,
                byte=byte,
                hint=_RESTORE,
            )
        if not self._tolerant:
            raise ShardError(
                "an image is damaged: its checksum is not that of the sample table",
                file=path,
                record=row - start,
                byte=byte,
                hint=f'{_RESTORE}, or build the loader with on_error="skip"',
            )

    def _is_intact(self, get: Callable[[int], NDArray[np.uint8]], row: int) -> bool:
        return int(self._checksums[row]) in (NO_CHECKSUM, crc32c(get(row).tobytes()))

    def _check_bounds(self, shard: int, rows: slice) -> None:
        length = self._bytes[shard]
        # Without an image there is nothing to decode, which is an error of its own.
        least = 0 if self._tolerant else 1
        offsets, sizes = self._offsets[rows], self._sizes[rows]
        # `SampleTable` has checked that each is from 0 to the length. No sums: they could overflow.
        wrong = (sizes < least) | (offsets > length - sizes)
        if wrong.any():
            path = self._split.path(self._split.shards[shard].table)
            raise outside_error(path, int(wrong.argmax()))
