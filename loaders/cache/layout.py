"""Where the images of a split are: in which shard, at which bytes.

And the requests that fetch them. No I/O.

If samples have label images, masks or depth maps, sample n has the rows 2n and 2n + 1 of a layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Disk space is given back in pages of this many bytes.
PAGE = 4096

#: Maximum gap between two images in bytes that is fetched too, to save a range.
GAP_BYTES = 16 << 10

#: Maximum number of bytes and of ranges in a request: several connections share the work, and a
#: retry repeats little.
REQUEST_BYTES, REQUEST_RANGES = 4 << 20, 32

#: Images are fetched in blocks of about this length if all that is in them stays in the cache: a
#: request costs as much time as 0.5 to 5 MB.
BLOCK_BYTES = 2 << 20

#: What a range costs besides its bytes, in bytes.
RANGE_COST = 512 << 10


class Request(NamedTuple):
    """Ranges of bytes to fetch from one shard.

    Attributes:
        shard: number of the shard.
        ranges: first byte of each range, and the byte after its last, ascending.
        rows: the images in these ranges, by offset, int64 [N].

    """

    shard: int
    ranges: tuple[tuple[int, int], ...]
    rows: NDArray[np.int64]

    @property
    def bytes(self) -> int:
        """Length of all ranges."""
        return sum(end - start for start, end in self.ranges)


@dataclass(frozen=True)
class Layout:
    """Where each image of a split is.

    Attributes:
        offsets: first byte in the shard, int64 [rows].
        sizes: length in bytes, int64 [rows].
        checksums: CRC-32C, 0 if unknown, int64 [rows].
        ends: row after the last one of each shard, int64 [shards].
        lengths: length of each shard in bytes.
        images: images of each sample: 1, or 2 with masks or depth maps.

    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    checksums: NDArray[np.int64]
    ends: NDArray[np.int64]
    lengths: Sequence[int]
    images: int = 1

    @property
    def rows(self) -> int:
        """Number of images."""
        return len(self.offsets)

    def shards_of(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the shard of each row."""
        return np.searchsorted(self.ends, rows, side="right")

    def first_row(self, shard: int) -> int:
        """Return the first row of a shard."""
        return int(self.ends[shard - 1]) if shard else 0

    def record_of(self, row: int) -> int:
        """Return the number of an image's record in its shard."""
        return (row - self.first_row(int(self.shards_of(np.array([row]))[0]))) // self.images

    def blocks(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return all rows of the blocks that contain some of these rows, in the order in which they are needed.

        If all of these rows are first images of their samples, those that are returned are too.

        Args:
            rows: different rows, in the order in which they are needed, int64 [N].

        """
        shards, numbers = self.shards_of(rows), self.offsets[rows] // BLOCK_BYTES
        _, first = np.unique(np.stack([shards, numbers]), axis=1, return_index=True)
        found = []
        for place in np.sort(first).tolist():
            shard = int(shards[place])
            start, end = self.first_row(shard), int(self.ends[shard])
            found.append(
                np.flatnonzero(self.offsets[start:end] // BLOCK_BYTES == numbers[place]) + start
            )
        blocks = np.concatenate(found) if found else rows
        return blocks if self.images == 1 else blocks[np.isin(blocks % 2, rows % 2)]

    def requests(self, rows: NDArray[np.int64]) -> list[Request]:
        """Combine images of a shard into requests, in the order in which they are first needed.

        Args:
            rows: different rows, in the order in which they are needed, int64 [N].

        """
        shards = self.shards_of(rows)
        order = np.lexsort((self.offsets[rows], shards))
        rows, shards = rows[order], shards[order]
        begins = self.offsets[rows].tolist()
        stops = (self.offsets[rows] + self.sizes[rows]).tolist()
        numbers = shards.tolist()
        found: list[tuple[int, Request]] = []
        ranges: list[tuple[int, int]] = []
        first = total = 0
        for place, (shard, begin, stop) in enumerate(zip(numbers, begins, stops, strict=True)):
            joins = bool(ranges) and begin - ranges[-1][1] <= GAP_BYTES
            total += stop - (ranges[-1][1] if joins else begin)
            if ranges and (
                shard != numbers[first]
                or total > REQUEST_BYTES
                or (not joins and len(ranges) == REQUEST_RANGES)
            ):
                found.append(
                    (
                        int(order[first:place].min()),
                        Request(numbers[first], tuple(ranges), rows[first:place]),
                    )
                )
                ranges, first, total, joins = [], place, stop - begin, False
            if joins:
                ranges[-1] = (ranges[-1][0], max(stop, ranges[-1][1]))
            else:
                ranges.append((begin, stop))
        if ranges:
            found.append(
                (int(order[first:].min()), Request(numbers[first], tuple(ranges), rows[first:]))
            )
        return [request for _, request in sorted(found, key=lambda each: each[0])]

    def places(self, request: Request) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the range, first byte in it, byte after the last) of each image of a request."""
        number = 0
        for offset, size in zip(
            self.offsets[request.rows].tolist(), self.sizes[request.rows].tolist(), strict=True
        ):
            while offset + size > request.ranges[number][1]:
                number += 1
            begin = offset - request.ranges[number][0]
            yield number, begin, begin + size

    def cost(self, rows: NDArray[np.int64]) -> int:
        """Return the estimated cost of fetching images, in bytes of equal transfer time.

        Args:
            rows: different rows, int64 [N].

        """
        return sum(
            request.bytes + RANGE_COST * len(request.ranges) for request in self.requests(rows)
        )

    def pages(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the approximate disk space of images in bytes, int64 [rows]."""
        if self.images == 1:
            return -(-self.sizes[rows] // PAGE) * PAGE
        # The image before or after may be absent, so no page is shared.
        begins, ends = self.offsets[rows], self.offsets[rows] + self.sizes[rows]
        return (-(-ends // PAGE) - begins // PAGE) * PAGE

    def holes(
        self, rows: NDArray[np.int64], absent: NDArray[np.bool_]
    ) -> Iterator[tuple[int, int, int]]:
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
            # Runs of absent images that contain an evicted one, from the end of the image before to
            # the next one.
            edges = np.flatnonzero(np.diff(np.concatenate([[0], gone.astype(np.int8), [0]])))
            for run, run_end in edges.reshape(-1, 2).tolist():
                if not evicted[run:run_end].any():
                    continue
                start = int(stops[:run].max()) if run else 0
                stop = int(begins[run_end]) if run_end < len(begins) else int(self.lengths[shard])
                start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE
                if start < stop:
                    yield shard, start, stop
