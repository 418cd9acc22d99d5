"""Rows of a split -> encoded images, from mapped shards, without a copy. It must never know DALI or an order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from loaders.dataset.mapped_files import MappedFile, Mappings, ask_ahead
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import NO_CHECKSUM, VERIFY, read_columns
from manifests.errors import ShardError, TableError


class Records:
    """The encoded images of a split, by row.

    One thread at a time may ask for images. What it gets are views of mapped files, which stay mapped as long as
    any view of them is held; so a shard must not be shortened while it is read. Of each shard its length and the
    checksum of the image that is asked of it first are checked when it is mapped; `dataprep verify` checks all.
    """

    def __init__(self, split: OpenSplit) -> None:
        """Read from the sample tables where each image lies.

        Raises:
            TableError: a table is missing, damaged, or leads out of its shard.

        """
        self._split = split
        columns = read_columns(split, ["offset", "size", "crc32c"], asked_by="a sampler")
        self._offsets, self._sizes, self._checksums = (columns[name] for name in ("offset", "size", "crc32c"))
        self._ends = np.cumsum([shard.samples for shard in split.shards])
        self._check_extents()
        paths = [split.path(shard.file) for shard in split.shards]
        self._mappings = Mappings(paths, [shard.file.bytes for shard in split.shards])
        self._mapping = threading.Lock()
        self._ahead = ThreadPoolExecutor(1, "ask-ahead")

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded images, each uint8 [bytes], read-only.

        Raises:
            ShardError: a shard is missing, or not the one that its table was made for.

        """
        shards = np.searchsorted(self._ends, rows, side="right").tolist()
        begins, sizes = self._offsets[rows], self._sizes[rows]
        mapped = self._mappings.get
        return [
            (mapped(shard) or self._map(shard, row)).data[begin:end]
            for shard, row, begin, end in zip(
                shards, rows.tolist(), begins.tolist(), (begins + sizes).tolist(), strict=True
            )
        ]

    def ask_ahead(self, rows: NDArray[np.int64]) -> None:
        """Have images fetched from the disk while this thread goes on."""
        # Python takes no work any more once its main thread has ended, and other threads may still be reading.
        with suppress(RuntimeError):
            self._ahead.submit(self._fetch, rows)

    def close(self) -> None:
        """Fetch nothing more, and let go of the shards."""
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._mappings.clear()

    def _fetch(self, rows: NDArray[np.int64]) -> None:
        shards = np.searchsorted(self._ends, rows, side="right")
        each, first, which = np.unique(shards, return_index=True, return_inverse=True)
        # An error is for the thread that asks for the images.
        mapped = self._mappings.get
        files = [
            mapped(shard) or self._map(shard, row)
            for shard, row in zip(each.tolist(), rows[first].tolist(), strict=True)
        ]
        addresses = np.array([file.address for file in files])
        ask_ahead(addresses[which] + self._offsets[rows], self._sizes[rows])

    def _map(self, shard: int, row: int) -> MappedFile:
        stated = self._split.shards[shard].file
        path = self._split.path(stated)
        try:
            with self._mapping:
                return self._mappings.map(shard, lambda file: self._check_image(file, row, path))
        except OSError as error:
            raise ShardError(f"cannot be read ({error.strerror})", file=path, hint=_ANEW) from None
        except ValueError as error:
            raise ShardError(f"{error}, and the manifest states {stated.bytes}", file=path, hint=_ANEW) from None

    def _check_image(self, file: MappedFile, row: int, path: str) -> None:
        """Check the first image that is asked of a shard: of another shard of this length it would not be whole."""
        stated = int(self._checksums[row])
        offset = int(self._offsets[row])
        image = file.data[offset : offset + int(self._sizes[row])]
        if stated != NO_CHECKSUM and crc32c(image.tobytes()) != stated:
            raise ShardError(
                "has changed since its sample table was made: an image is not what the table states",
                file=path,
                byte=offset,
                hint=_ANEW,
            )

    def _check_extents(self) -> None:
        lengths = np.repeat([shard.file.bytes for shard in self._split.shards], np.diff(self._ends, prepend=0))
        # Apart, so that no sum can run over.
        wrong = (
            (self._offsets < 0) | (self._sizes < 1) | (self._sizes > lengths) | (self._offsets > lengths - self._sizes)
        )
        if wrong.any():
            row = int(wrong.argmax())
            shard = int(np.searchsorted(self._ends, row, side="right"))
            raise TableError(
                "states an image outside of its shard",
                file=self._split.path(self._split.shards[shard].table),
                record=row - int(self._ends[shard] - self._split.shards[shard].samples),
                hint=VERIFY,
            )


_ANEW = "restore a copy, or run `dataprep index --overwrite` if it was changed on purpose"
