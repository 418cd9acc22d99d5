"""Random access to the encoded images of a split, by row: stored on disk, joined, or in memory.

`loaders.cache` has the images of splits in object stores. Never imports DALI.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import singledispatch
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from loaders.arrays import Bytes, Ints, bounds_of
from loaders.dataset.files import (
    MappedBytes,
    MappedFile,
    MappedRanges,
    Mappings,
    OpenFiles,
    prefetch,
)
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import NO_CHECKSUM, SampleTables
from loaders.progress import Upcoming
from manifests.errors import CallError, DatasetError, ShardError, raise_machine_fault
from manifests.labels import place_columns
from manifests.process.text import format_bytes
from manifests.tables import outside_error

#: An encoded image or raw pixels: read-only, uint8 [bytes].
Encoded: TypeAlias = Bytes

#: Images of one size, as raw pixels have, are copied into one array for each batch if they have at most
#: this many bytes. For larger ones, the copy takes longer than DALI saves by not handling each image.
#: Images per second on an H200 in batches of 256, with and without the copy: of 96x96 126,000 and 100,000,
#: of 128x128 101,000 and 104,000.
COPIED_BYTES = 32_768

_RESTORE = "restore a copy, or run `dataprep index --overwrite` if the shard was changed on purpose"


class Images(ABC):
    """Random access to the encoded images of a split, by row. Several threads may use it.

    A sample has several components if it has more than one image: the first one has an empty name,
    and the others are `manifests.labels.LabelSchema.others`. In place of an image that a sample does
    not have, its first image is returned.

    Attributes:
        is_remote: whether images may have to be fetched from an object store before they are read.
        gathers: whether all images are small, raw and mapped, so that copying them takes as long as
            locating them.

    """

    is_remote = False
    gathers = False

    @abstractmethod
    def images(self, rows: Ints, component: str = "") -> list[Encoded]:
        """Return encoded images. Waits until they are on the local disk.

        Raises:
            ShardError: a shard is missing, cannot be read, or has changed since its sample table
                was made.
            TableError: a table that was not read before is missing or damaged, or points outside
                its shard.
            StorageError: an object store did not answer in time, or its cache has no room.

        """

    def images_to_check(
        self, rows: Ints, component: str = ""
    ) -> tuple[list[Encoded] | MappedRanges, Callable[[], None]]:
        """Return what `images` returns, and a function to call before the images are used later.

        Small images of one size may be ranges that are not copied yet. The function raises a
        `ShardError` if an image cannot be read any more.
        """
        return self.images(rows, component), do_nothing

    def prefetch(self, rows: Ints, component: str = "") -> object:
        """Read images of a local disk into the page cache, in the background."""

    def read_tables(self, rows: Ints) -> None:
        """Read the sample tables of images of a local disk. A damaged one is no error yet."""

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""

    def require_room(self, batch: int) -> None:
        """Check that there is room for the batches that are in use at a time.

        Args:
            batch: samples of a batch over all ranks.

        Raises:
            CallError: the cache has no room for them.

        """

    def keeps(self, size: int) -> bool:
        """Return whether all images stay on the disk after this many bytes were fetched."""
        return True

    def lines(self) -> list[str]:
        """Describe the images for `explain`."""
        return []

    @property
    def warning(self) -> str | None:
        """A warning for the user, about a small cache for example."""
        return None

    @property
    def missing_space(self) -> int:
        """Disk space in bytes of the images that must still be fetched."""
        return 0

    def close(self) -> None:
        """Stop reading ahead, and release the shards."""


def do_nothing() -> None:
    """Check nothing: the images are copies, or are not read again."""


# `loaders.cache` registers how to open the images of its splits.
@singledispatch
def open_images(
    split: OpenSplit,
    tables: SampleTables,
    *,
    mmap: bool,
    tolerant: bool = False,
    others: Sequence[str] = (),
) -> Images:
    """Return random access to the encoded images of a split, wherever its shards are.

    Args:
        split: the split.
        tables: its sample tables.
        mmap: whether to map shards into memory.
        tolerant: whether a single damaged image is no error.
        others: names of the other images of a sample to read too.

    Raises:
        CallError, DamagedError: the cache cannot be used or has no room; a table or a shard is
            missing or damaged.

    """
    if not split.is_remote:
        return StoredImages(split, tables, mmap=mmap, tolerant=tolerant, others=others)
    opened: list[Images] = []
    try:
        for part in split.parts:
            own = SampleTables(part)
            opened.append(open_images(part, own, mmap=mmap, tolerant=tolerant, others=others))
            own.close()
        return JoinedImages(opened, [part.samples for part in split.parts])
    except BaseException:
        for images in opened:
            images.close()
        raise


class StoredImages(Images):
    """The images of a split in local shards.

    When a shard is opened, its length is checked, and the checksum of the first requested image;
    `dataprep verify` checks everything.

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
        others: Sequence[str] = (),
    ) -> None:
        """Prepare to read the location of each image from the sample tables.

        If there are few shards, all tables are read now.

        Args:
            split: the split.
            tables: the sample tables of the split.
            mmap: whether to map the shards instead of reading them.
            tolerant: whether a single damaged image is no error.
            check: whether to compare the checksum of the first requested image of each shard.
            others: names of the other images of a sample to read too.

        Raises:
            TableError: a table is missing or damaged, or points outside its shard.

        """
        self._split = split
        self._tolerant = tolerant
        components = ("", *others)
        places = dict(zip(components, map(place_columns, components), strict=True))
        self._columns, arrays = tables.lazy_columns(sum(places.values(), ()))
        paths = [split.path(shard.file) for shard in split.shards]
        self._mappings = Mappings(paths, split.lengths)
        self._files = None if mmap else OpenFiles(paths, split.lengths)
        self.gathers = mmap and 0 < split.manifest.raw_bytes <= COPIED_BYTES
        # Offsets, sizes and checksums of each component, and the shards whose checksum was not
        # compared.
        self._places = {}
        self._unchecked = {}
        for component, names in places.items():
            self._places[component] = tuple(map(arrays.__getitem__, names))
            self._unchecked[component] = np.full(len(paths), check)
        self._columns.check(self._check_bounds)
        self._process = os.getpid()
        self._map_lock = threading.Lock()
        self._closed = False
        self._prefetcher = ThreadPoolExecutor(1, "prefetch")

    def images(self, rows: Ints, component: str = "") -> list[Encoded]:
        """Return encoded images. Of mapped shards, only small ones of one size are copies."""
        found, _ = self.images_to_check(rows, component)
        return [*found.gather()] if isinstance(found, MappedRanges) else found

    def images_to_check(
        self, rows: Ints, component: str = ""
    ) -> tuple[list[Encoded] | MappedRanges, Callable[[], None]]:
        """Return encoded images, and a check that their shards were not shortened meanwhile."""
        shards, begins, sizes = self._located(rows, component)
        ends = begins + sizes
        check_readable = do_nothing
        images: list[Encoded] | MappedRanges
        if self._files is not None:
            images = [
                self._image(*place)
                for place in zip(shards.tolist(), begins.tolist(), sizes.tolist(), strict=True)
            ]
        else:
            numbers, of_image = np.unique(shards, return_inverse=True)
            files = [self._mappings.get(shard) or self._map(shard) for shard in numbers.tolist()]
            # Another shard may have released the mappings of these.
            addresses = np.array([file.address for file in files], np.int64)[of_image] + begins
            check_readable = self._check_of(shards, ends, addresses + sizes - 1)
            check_readable()
            if len(rows) and sizes[0] <= COPIED_BYTES and (sizes == sizes[0]).all():
                images = MappedRanges(files, addresses, int(sizes[0]))
            else:
                places = zip(of_image.tolist(), begins.tolist(), ends.tolist(), strict=True)
                images = [files[file].data[begin:end] for file, begin, end in places]
        unchecked = self._unchecked[component]
        new = np.flatnonzero(unchecked[shards])
        for shard, row in zip(shards[new].tolist(), rows[new].tolist(), strict=True):
            if unchecked[shard]:
                self._check_shard(shard, row, component)
        return images, check_readable

    def read_tables(self, rows: Ints) -> None:
        """Read the sample tables of the rows. `images` raises the error of a damaged one."""
        with suppress(DatasetError):
            self._columns.load_rows(rows)

    def prefetch(self, rows: Ints, component: str = "") -> Future[None] | None:
        """Read images from disk into the page cache, in the background.

        Returns:
            A future that is done when the system has begun to read. `None` after Python's main
            thread has ended: the executor then accepts no more work, but other threads may still
            use the images.

        """
        try:
            return self._prefetcher.submit(self._prefetch, rows, component)
        except RuntimeError:
            return None

    def close(self) -> None:
        """Stop prefetching and release the shards."""
        if os.getpid() != self._process:
            # A thread of the parent process may have had a lock when it forked.
            return
        self._prefetcher.shutdown(wait=True, cancel_futures=True)
        with self._map_lock:
            self._closed = True
            self._mappings.clear()
        if self._files is not None:
            self._files.clear()

    def _located(self, rows: Ints, component: str) -> tuple[NDArray[np.intp], Ints, Ints]:
        """Return the shard of each row, and the offset and the size of its image."""
        shards = self._split.shards_of(rows)
        self._columns.load(shards)
        offsets, sizes, _ = self._places[component]
        begins = offsets[rows].astype(np.int64)
        lengths = sizes[rows].astype(np.int64)
        missing = lengths == 0
        if component and missing.any():
            offsets, sizes, _ = self._places[""]
            begins[missing], lengths[missing] = offsets[rows[missing]], sizes[rows[missing]]
        return shards, begins, lengths

    def _prefetch(self, rows: Ints, component: str) -> None:
        # Nothing waits for the future. If a table or a shard cannot be read, `images` raises the
        # same error.
        shards, begins, sizes = self._located(rows, component)
        if self._files is not None:
            for place in zip(shards.tolist(), begins.tolist(), sizes.tolist(), strict=True):
                self._files.prefetch(*place)
            return
        for shard in np.unique(shards[self._mappings.addresses[shards] == 0]).tolist():
            self._map(shard)
        prefetch(self._mappings.addresses[shards] + begins, sizes)

    def _map(self, shard: int) -> MappedFile:
        with self._naming(shard), self._map_lock:
            if self._closed:
                raise RuntimeError("the shards have been released")
            return self._mappings.map(shard)

    def _image(self, shard: int, begin: int, size: int) -> Encoded:
        """Return one image by its place."""
        if self._files is None:
            return (self._mappings.get(shard) or self._map(shard)).data[begin : begin + size]
        with self._naming(shard):
            image = self._files.read(shard, begin, size)
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

    # --- checks ---------------------------------------------------------------------------------

    def _check_of(
        self, shards: NDArray[np.intp], ends: Ints, addresses: Ints
    ) -> Callable[[], None]:
        """Return a function that checks the last byte that is needed of each mapped shard.

        Args:
            shards: number of the shard of each image.
            ends: end of each image in its shard.
            addresses: address of the last byte of each image.

        """
        order = np.lexsort((ends, shards))
        shards = shards[order]
        last = np.ones(len(shards), np.bool_)
        last[:-1] = shards[1:] != shards[:-1]
        shards = shards[last]
        ends = ends[order][last]
        needed = MappedBytes(addresses[order][last])

        def check_readable() -> None:
            wrong = needed.find_unreadable()
            if wrong is not None:
                raise ShardError(
                    "the shard was shortened while it was in use, or its disk cannot be read",
                    file=self._path(int(shards[wrong])),
                    byte=int(ends[wrong]) - 1,
                    hint=_RESTORE,
                )

        return check_readable

    def _check_shard(self, shard: int, row: int, component: str) -> None:
        """Check the first image requested from a shard: it may be another shard of the same length.

        If the shard's first or last image is intact, the shard is the right one, and only this
        image is damaged.
        """
        offsets, sizes, checksums = self._places[component]
        if component and not sizes[row]:
            return

        def is_intact(row: int) -> bool:
            image = self._image(shard, int(offsets[row]), int(sizes[row]))
            # An image that a sample does not have says nothing.
            is_there = bool(sizes[row]) or not component
            return is_there and int(checksums[row]) in (NO_CHECKSUM, crc32c(image.tobytes()))

        end = int(self._split.ends[shard])
        first = end - self._split.counts[shard]
        if not is_intact(row):
            if not (is_intact(first) or is_intact(end - 1)):
                # A shard that is restored must be opened again.
                self._mappings.clear()
                raise ShardError(
                    "the shard has changed since its sample table was made: its images have other"
                    " checksums",
                    file=self._path(shard),
                    byte=int(offsets[row]),
                    hint=_RESTORE,
                )
            if not self._tolerant:
                raise ShardError(
                    "an image is damaged: its checksum is not the one in the sample table",
                    file=self._path(shard),
                    record=row - first,
                    byte=int(offsets[row]),
                    hint=f'{_RESTORE}, or build the loader with on_error="skip"',
                )
        self._unchecked[component][shard] = False

    def _check_bounds(self, shard: int, rows: slice) -> None:
        length = np.int64(self._split.lengths[shard])
        # Without an image there is nothing to decode, which is an error of its own.
        for component, (offsets, sizes, _) in self._places.items():
            least = 0 if self._tolerant or component else 1
            # `SampleTable` has checked that each is from 0 to the length. No sums: they could
            # overflow.
            wrong = (sizes[rows] < least) | (offsets[rows] > length - sizes[rows])
            if wrong.any():
                path = self._split.path(self._split.shards[shard].table)
                raise outside_error(path, int(wrong.argmax()))

    def _path(self, shard: int) -> str:
        return self._split.path(self._split.shards[shard].file)


class MemoryImages(Images):
    """A few images in memory in place of all images of a split: row i is image i modulo n."""

    def __init__(self, images: Sequence[Encoded]) -> None:
        self._images = images

    def images(self, rows: Ints, component: str = "") -> list[Encoded]:
        """Return encoded images."""
        return [self._images[row] for row in (rows % len(self._images)).tolist()]


class JoinedImages(Images):
    """The images of several splits, as one: some are in object stores, others on the local disk.

    With a limit, the cache must have room for all of them: parts that evict each other's images are
    not supported.
    """

    is_remote = True

    def __init__(self, parts: Sequence[Images], samples: Sequence[int]) -> None:
        """Join the images of splits, which have these numbers of samples.

        Raises:
            CallError: the cache has no room for all parts.

        """
        self._parts = parts
        self._bounds = list(pairwise(bounds_of(np.array(samples)).tolist()))
        missing = sum(part.missing_space for part in parts)
        for part in parts:
            if not part.keeps(missing):
                raise CallError(
                    f"cache_limit has no room for all datasets, of which {format_bytes(missing)}"
                    " are missing",
                    hint="raise cache_limit, or read one dataset at a time",
                )

    def images(self, rows: Ints, component: str = "") -> list[Encoded]:
        """Return encoded images."""
        found: list[Encoded] = [np.zeros(0, np.uint8)] * len(rows)
        for part, places, own in self._divided(rows):
            images = part.images(own, component)
            for place, image in zip(places.tolist(), images, strict=True):
                found[place] = image
        return found

    def read_tables(self, rows: Ints) -> None:
        """Read the sample tables of local datasets."""
        for part, _, own in self._divided(rows):
            part.read_tables(own)

    def prefetch(self, rows: Ints, component: str = "") -> None:
        """Ask the system to read images of local datasets."""
        for part, _, own in self._divided(rows):
            part.prefetch(own, component)

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""
        for part, within in zip(self._parts, self._bounds, strict=True):
            part.follow(number, replace(upcoming, within=within))

    def lines(self) -> list[str]:
        """Describe the images of each part."""
        lines = []
        for part in self._parts:
            lines += part.lines()
        return lines

    def close(self) -> None:
        """Close all parts."""
        for part in self._parts:
            part.close()

    def _divided(self, rows: Ints) -> Iterator[tuple[Images, NDArray[np.intp], Ints]]:
        """Yield each part that has some of the rows, their places among them, and its own rows."""
        for part, (first, end) in zip(self._parts, self._bounds, strict=True):
            places = np.flatnonzero((rows >= first) & (rows < end))
            if len(places):
                yield part, places, rows[places] - first
