"""Where the images of a split are: in which shard, at which bytes, and which of them a request brings. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Disk space is given back in pages of this many bytes.
PAGE = 4096

#: Bytes between two images that are read although nobody asked for them, to save a request: if the images among them
#: stay in the cache, and if not.
GAP_BYTES, WASTED_GAP_BYTES = 256 << 10, 16 << 10

#: A longer request is divided, so that several connections share the work.
REQUEST_BYTES = 8 << 20


class Request(NamedTuple):
    """A range of bytes to fetch from one shard.

    Attributes:
        shard: number of the shard.
        start: first byte.
        end: byte after the last.
        rows: the images in it that were asked for, int64 [N].

    """

    shard: int
    start: int
    end: int
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Where each image of a split is.

    Attributes:
        offsets: first byte in the shard, int64 [samples].
        sizes: length in bytes, int64 [samples].
        checksums: CRC-32C, 0 if unknown, int64 [samples].
        ends: row after the last one of each shard, int64 [shards].
        lengths: length of each shard in bytes.

    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    checksums: NDArray[np.int64]
    ends: NDArray[np.int64]
    lengths: Sequence[int]

    @property
    def samples(self) -> int:
        """Number of images."""
        return len(self.offsets)

    def shards_of(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the shard of each row."""
        return np.searchsorted(self.ends, rows, side="right")

    def first_row(self, shard: int) -> int:
        """Return the first row of a shard."""
        return int(self.ends[shard - 1]) if shard else 0

    def requests(self, rows: NDArray[np.int64], *, gap: int = GAP_BYTES) -> list[Request]:
        """Combine images that are close to each other into requests, in the order in which they are first needed.

        Args:
            rows: different rows, in the order in which they are needed, int64 [N].
            gap: most bytes between two images of a request.

        """
        shards = self.shards_of(rows)
        order = np.lexsort((self.offsets[rows], shards))
        rows, shards = rows[order], shards[order]
        begins, stops = self.offsets[rows], self.offsets[rows] + self.sizes[rows]
        found: list[tuple[int, Request]] = []
        first = 0
        for last in range(1, len(rows) + 1):
            if (
                last < len(rows)
                and shards[last] == shards[first]
                and begins[last] - stops[last - 1] <= gap
                and stops[last] - begins[first] <= REQUEST_BYTES
            ):
                continue
            start, end = int(begins[first]), int(stops[first:last].max())
            found.append((int(order[first:last].min()), Request(int(shards[first]), start, end, rows[first:last])))
            first = last
        return [request for _, request in sorted(found, key=lambda each: each[0])]

    def rows_within(self, request: Request) -> NDArray[np.int64]:
        """Return every row whose image is completely within a request, also those that nobody asked for."""
        first, end = self.first_row(request.shard), int(self.ends[request.shard])
        offsets = self.offsets[first:end]
        inside = (offsets >= request.start) & (offsets + self.sizes[first:end] <= request.end)
        return np.flatnonzero(inside) + first

    def pages(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the approximate disk space of images in bytes, int64 [rows]."""
        return -(-self.sizes[rows] // PAGE) * PAGE

    def holes(self, rows: NDArray[np.int64], absent: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
        """Yield (shard, first byte, byte after the last) of whole pages that can be freed when images were evicted.

        Args:
            rows: the images that were evicted, int64 [N].
            absent: whether each image of the split is absent, these included: bool [samples].

        """
        shards = self.shards_of(rows)
        for shard in np.unique(shards).tolist():
            first, end = self.first_row(shard), int(self.ends[shard])
            by_offset = np.argsort(self.offsets[first:end], kind="stable")
            begins = self.offsets[first:end][by_offset]
            stops = begins + self.sizes[first:end][by_offset]
            gone = absent[first:end][by_offset]
            evicted = np.zeros(end - first, bool)
            evicted[rows[shards == shard] - first] = True
            evicted = evicted[by_offset]
            # Runs of absent images that contain an evicted one, from the end of the image before to the next one.
            edges = np.flatnonzero(np.diff(np.concatenate([[0], gone.astype(np.int8), [0]])))
            for run, run_end in edges.reshape(-1, 2).tolist():
                if not evicted[run:run_end].any():
                    continue
                start = int(stops[:run].max()) if run else 0
                stop = int(begins[run_end]) if run_end < len(begins) else int(self.lengths[shard])
                start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
                if start < stop:
                    yield shard, start, stop
