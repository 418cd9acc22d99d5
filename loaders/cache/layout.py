"""Where the images of a split are: in which shard, at which bytes.

And the requests that fetch them. No I/O.

If samples have several images, such as masks or depth maps, sample n of two has the rows 2n and
2n + 1 of a layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Bools, Ints
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from manifests.labels import place_columns
from manifests.schema import Manifest

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
    rows: Ints

    @property
    def bytes(self) -> int:
        """Length of all ranges."""
        return sum(end - start for start, end in self.ranges)


def images_of(manifest: Manifest) -> int:
    """Return the number of images of each sample: 2 in datasets with masks or depth maps."""
    return 1 + len(manifest.labels.others)


def layout_of(split: OpenSplit, tables: SampleTables, others: Sequence[str]) -> Layout:
    """Return where the images of a split are, of which the loader reads the first and some others.

    Raises:
        TableError: a table is missing or damaged.

    """
    components = ("", *split.manifest.labels.others)
    places = [*map(place_columns, components)]
    lazy, columns = tables.lazy_columns(sum(places, ()))
    lazy.load()
    found = []
    for names in zip(*places, strict=True):
        # Of each sample the value of its first image, then of the others.
        values = np.stack(list(map(columns.__getitem__, names)), axis=1)
        found.append(values.astype(np.int64).ravel())
    offsets, sizes, checksums = found
    return Layout(
        offsets=offsets,
        sizes=sizes,
        checksums=checksums,
        ends=len(components) * split.ends,
        lengths=split.lengths,
        components=components,
        wanted=("", *others),
    )


@dataclass(frozen=True)
class Layout:
    """Where each image of a split is.

    Attributes:
        offsets: first byte in the shard, int64 [rows].
        sizes: length in bytes, int64 [rows].
        checksums: CRC-32C, 0 if unknown, int64 [rows].
        ends: row after the last one of each shard, int64 [shards].
        lengths: length of each shard in bytes.
        components: names of the images of each sample, as in `loaders.dataset.images.Images`.
        wanted: the ones that the loader reads.

    """

    offsets: Ints
    sizes: Ints
    checksums: Ints
    ends: Ints
    lengths: Sequence[int]
    components: Sequence[str] = ("",)
    wanted: Sequence[str] = ("",)

    @property
    def images(self) -> int:
        """Number of images of each sample."""
        return len(self.components)

    @property
    def rows(self) -> int:
        """Number of images."""
        return len(self.offsets)

    def rows_of(self, samples: Ints) -> Ints:
        """Return the rows that the loader reads of samples, int64 [rows]."""
        if self.images == 1:
            return samples
        wanted = np.array([*map(self.components.index, self.wanted)])
        rows: Ints = (samples[:, None] * self.images + wanted).ravel()
        # An image that a sample does not have is never fetched.
        return rows[self.sizes[rows] > 0]

    def component_rows(self, samples: Ints, component: str) -> Ints:
        """Return the row of an image of each sample; of the first image if a sample does not have it."""
        rows = samples * self.images + self.components.index(component)
        return np.where(self.sizes[rows] > 0, rows, samples * self.images)

    def all_rows(self) -> Ints:
        """Return every row that the loader reads."""
        return self.rows_of(np.arange(self.rows // self.images))

    def shards_of(self, rows: Ints) -> NDArray[np.intp]:
        """Return the shard of each row."""
        return np.searchsorted(self.ends, rows, side="right")

    def first_row(self, shard: int) -> int:
        """Return the first row of a shard."""
        return int(self.ends[shard - 1]) if shard else 0

    def record_of(self, row: int) -> int:
        """Return the number of an image's record in its shard."""
        return (row - self.first_row(int(self.shards_of(np.array([row]))[0]))) // self.images

    def blocks(self, rows: Ints) -> Ints:
        """Return all rows of the blocks that contain some of these rows, in the order of need.

        If all of these rows are first images of their samples, the returned ones are too.

        Args:
            rows: different rows, in the order in which they are needed, int64 [N].

        """
        shards = self.shards_of(rows)
        numbers = self.offsets[rows] // BLOCK_BYTES
        _, first = np.unique(np.stack([shards, numbers]), axis=1, return_index=True)
        found = [rows[:0]]
        for place in np.sort(first).tolist():
            shard = int(shards[place])
            start = self.first_row(shard)
            end = int(self.ends[shard])
            in_block = self.offsets[start:end] // BLOCK_BYTES == numbers[place]
            in_block &= (self.sizes[start:end] > 0) | (self.images == 1)
            found.append(np.flatnonzero(in_block) + start)
        blocks = np.concatenate(found)
        if self.images == 1:
            return blocks
        return blocks[np.isin(blocks % self.images, rows % self.images)]

    def requests(self, rows: Ints) -> list[Request]:
        """Combine images of a shard into requests, in the order in which they are first needed.

        Args:
            rows: different rows, in the order in which they are needed, int64 [N].

        """
        shards = self.shards_of(rows)
        order = np.lexsort((self.offsets[rows], shards))
        rows = rows[order]
        numbers = shards[order].tolist()
        begins = self.offsets[rows]
        ends = self.offsets[rows] + self.sizes[rows]
        # The requests, with the place of their first row, and the ranges of the one that is open.
        found: list[tuple[int, Request]] = []
        ranges: list[tuple[int, int]] = []
        first = total = 0

        def finish(end: int) -> None:
            request = Request(numbers[first], tuple(ranges), rows[first:end])
            found.append((int(order[first:end].min()), request))

        places = zip(numbers, begins.tolist(), ends.tolist(), strict=True)
        for place, (shard, begin, stop) in enumerate(places):
            joins = bool(ranges) and begin - ranges[-1][1] <= GAP_BYTES
            total += stop - (ranges[-1][1] if joins else begin)
            if ranges and (
                shard != numbers[first]
                or total > REQUEST_BYTES
                or (not joins and len(ranges) == REQUEST_RANGES)
            ):
                finish(place)
                ranges = []
                first = place
                total = stop - begin
                joins = False
            if joins:
                ranges[-1] = (ranges[-1][0], max(stop, ranges[-1][1]))
            else:
                ranges.append((begin, stop))
        if ranges:
            finish(len(rows))
        return [request for _, request in sorted(found, key=lambda each: each[0])]

    def places(self, request: Request) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the range, first byte in it, byte after the last) of each image."""
        number = 0
        sizes = self.sizes[request.rows].tolist()
        for offset, size in zip(self.offsets[request.rows].tolist(), sizes, strict=True):
            while offset + size > request.ranges[number][1]:
                number += 1
            begin = offset - request.ranges[number][0]
            yield number, begin, begin + size

    def cost(self, rows: Ints) -> int:
        """Return the estimated cost of fetching images, in bytes of equal transfer time.

        Args:
            rows: different rows, int64 [N].

        """
        requests = self.requests(rows)
        return sum(request.bytes + RANGE_COST * len(request.ranges) for request in requests)

    def pages(self, rows: Ints) -> Ints:
        """Return the approximate disk space of images in bytes, int64 [rows]."""
        begins = self.offsets[rows]
        ends = self.offsets[rows] + self.sizes[rows]
        if self.images == 1:
            begins = np.zeros_like(begins)
            ends = self.sizes[rows]
        # Of two images of a sample, the one before or after may be absent, so no page is shared.
        return (-(-ends // PAGE) - begins // PAGE) * PAGE

    def holes(self, rows: Ints, absent: Bools) -> Iterator[tuple[int, int, int]]:
        """Yield (shard, first byte, byte after the last) of whole pages that evicted images free.

        Args:
            rows: the images that were evicted, int64 [N].
            absent: whether each image of the split is absent, these included: bool [samples].

        """
        shards = self.shards_of(rows)
        for shard in np.unique(shards).tolist():
            first = self.first_row(shard)
            end = int(self.ends[shard])
            by_offset = first + np.argsort(self.offsets[first:end], kind="stable")
            begins = self.offsets[by_offset]
            stops = begins + self.sizes[by_offset]
            evicted = np.isin(by_offset, rows[shards == shard])
            # Runs of absent images that contain an evicted one, from the end of the image before to
            # the next one.
            gone = absent[by_offset].astype(np.int8)
            edges = np.flatnonzero(np.diff(gone, prepend=0, append=0))
            for run, run_end in edges.reshape(-1, 2).tolist():
                if not evicted[run:run_end].any():
                    continue
                start = 0
                stop = self.lengths[shard]
                if run:
                    start = int(stops[:run].max())
                if run_end < len(begins):
                    stop = int(begins[run_end])
                start = -(-start // PAGE) * PAGE
                stop = stop // PAGE * PAGE
                if start < stop:
                    yield shard, start, stop
