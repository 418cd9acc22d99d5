"""Random access to the encoded images of a split, in memory-mapped shards, without copying. Never imports DALI."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from loaders.dataset.mapped_files import MappedFile, Mappings, prefetch
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import NO_CHECKSUM, VERIFY, SampleTables
from manifests.errors import ShardError, TableError
from manifests.faults import raise_machine_fault

_RESTORE = "restore a copy, or run `dataprep index --overwrite` if the shard was changed on purpose"


class Records:
    """The encoded images of a split, by row.

    Use it from one thread at a time. The images are views of mapped files, which stay mapped as long as any view
    exists, so a shard must not be truncated while it is read. When a shard is mapped, its length and the checksum of
    the first requested image are checked; `dataprep verify` checks everything.
    """

    def __init__(self, split: OpenSplit, tables: SampleTables) -> None:
        """Read the location of each image from the sample tables.

        Raises:
            TableError: a table is missing or damaged, or points outside its shard.

        """
        self._split = split
        columns = tables.columns(["offset", "size", "crc32c"], requested_by="a sampler")
        self._offsets, self._sizes, self._checksums = (columns[name] for name in ("offset", "size", "crc32c"))
        self._ends = np.cumsum([shard.samples for shard in split.shards])
        self._check_bounds()
        paths = [split.path(shard.file) for shard in split.shards]
        self._mappings = Mappings(paths, [shard.file.bytes for shard in split.shards])
        self._map_lock = threading.Lock()
        self._prefetcher = ThreadPoolExecutor(1, "prefetch")

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded images: read-only arrays, uint8 [bytes].

        Args:
            rows: int64 [B].

        Raises:
            ShardError: a shard is missing, or has changed since its sample table was made.

        """
        shards = np.searchsorted(self._ends, rows, side="right").tolist()
        begins, sizes = self._offsets[rows], self._sizes[rows]
        get_mapped = self._mappings.get
        return [
            (get_mapped(shard) or self._map(shard, row)).data[begin:end]
            for shard, row, begin, end in zip(
                shards, rows.tolist(), begins.tolist(), (begins + sizes).tolist(), strict=True
            )
        ]

    def prefetch(self, rows: NDArray[np.int64]) -> Future[None] | None:
        """Read images from disk into the page cache, in the background.

        Returns:
            A future that is done when the system has begun to read. `None` after Python's main thread has ended: the
            executor then accepts no more work, but other threads may still use the images.

        """
        try:
            return self._prefetcher.submit(self._prefetch, rows)
        except RuntimeError:
            return None

    def close(self) -> None:
        """Stop prefetching and release the shards."""
        self._prefetcher.shutdown(wait=True, cancel_futures=True)
        self._mappings.clear()

    def _prefetch(self, rows: NDArray[np.int64]) -> None:
        shards = np.searchsorted(self._ends, rows, side="right")
        needed, first, file_of_row = np.unique(shards, return_index=True, return_inverse=True)
        # Nothing waits for the future. If mapping fails here, `images` raises the same error.
        get_mapped = self._mappings.get
        files = [
            get_mapped(shard) or self._map(shard, row)
            for shard, row in zip(needed.tolist(), rows[first].tolist(), strict=True)
        ]
        addresses = np.array([file.address for file in files])
        prefetch(addresses[file_of_row] + self._offsets[rows], self._sizes[rows])

    def _map(self, shard: int, row: int) -> MappedFile:
        file = self._split.shards[shard].file
        path = self._split.path(file)
        try:
            with self._map_lock:
                return self._mappings.map(shard, lambda mapped: self._check_image(mapped, row, path))
        except OSError as error:
            raise_machine_fault(error)
            raise ShardError(f"the shard cannot be read ({error.strerror})", file=path, hint=_RESTORE) from None
        except ValueError as error:
            raise ShardError(
                f"the shard {error}, but the manifest states {file.bytes}", file=path, hint=_RESTORE
            ) from None

    def _check_image(self, file: MappedFile, row: int, path: str) -> None:
        """Check the first image requested from a shard, which detects a different shard of the same length."""
        expected = int(self._checksums[row])
        offset = int(self._offsets[row])
        image = file.data[offset : offset + int(self._sizes[row])]
        if expected != NO_CHECKSUM and crc32c(image.tobytes()) != expected:
            raise ShardError(
                "the shard has changed since its sample table was made: an image has another checksum",
                file=path,
                byte=offset,
                hint=_RESTORE,
            )

    def _check_bounds(self) -> None:
        lengths = np.repeat([shard.file.bytes for shard in self._split.shards], np.diff(self._ends, prepend=0))
        # No sums of offset and size: they could overflow.
        wrong = (
            (self._offsets < 0) | (self._sizes < 1) | (self._sizes > lengths) | (self._offsets > lengths - self._sizes)
        )
        if wrong.any():
            row = int(wrong.argmax())
            shard = int(np.searchsorted(self._ends, row, side="right"))
            raise TableError(
                "the table places an image outside its shard",
                file=self._split.path(self._split.shards[shard].table),
                record=row - int(self._ends[shard] - self._split.shards[shard].samples),
                hint=VERIFY,
            )
