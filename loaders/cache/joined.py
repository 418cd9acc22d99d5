"""The images of several splits by row, as one: some are in object stores, others on the local disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.cache.images import CachedImages, CachedLabelImages
from loaders.dataset.joined import JoinedSplit
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.samplers.base import Upcoming
from manifests.errors import CallError
from manifests.process.text import format_bytes

#: The images of one split: never a `JoinedImages`, although a function that opens any split is
#: typed so.
_Part: TypeAlias = "Records | CachedImages | CachedLabelImages | JoinedImages"


class JoinedImages:
    """Random access to the encoded images of joined splits, by row.

    See `Records` and `CachedImages`.

    With a limit, the cache must have room for all of them: parts that evict each other's images are
    not supported.
    """

    def __init__(
        self, parts: Sequence[_Part], samples: Sequence[int], *, firsts: JoinedImages | None = None
    ) -> None:
        """Join parts.

        Args:
            parts: the images of each split.
            samples: number of samples of each split.
            firsts: the images, if the parts are masks or depth maps. One fetcher fetches both, so
                it must not get another plan from each of them.

        Raises:
            CallError: the cache has no room for all parts.

        """
        self._parts = parts
        self._firsts = firsts or self
        self._ends = np.cumsum(samples)
        self._upcoming: tuple[Upcoming, list[Upcoming]] | None = None
        cached = [part for part in parts if isinstance(part, CachedImages)]
        missing = sum(part.missing_space for part in cached)
        if not all(part.fits and part.has_room(missing) for part in cached):
            raise CallError(
                f"cache_limit has no room for all datasets, of which {format_bytes(missing)} are"
                " missing",
                hint="raise cache_limit, or read one dataset at a time",
            )

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded images: read-only arrays, uint8 [bytes].

        Waits until they are on the local disk.
        """
        found: list[NDArray[np.uint8]] = [np.zeros(0, np.uint8)] * len(rows)
        for part, (places, own) in zip(self._parts, self._split(rows), strict=True):
            if len(places):
                for place, image in zip(places.tolist(), part.images(own), strict=True):
                    found[place] = image
        return found

    def prefetch(self, rows: NDArray[np.int64]) -> None:
        """Ask the system to read images of local datasets."""
        for part, (_, own) in zip(self._parts, self._split(rows), strict=True):
            if isinstance(part, Records) and len(own):
                part.prefetch(own)

    def follow(self, number: int, upcoming: Upcoming) -> None:
        """Fetch the batches that come after batch `number`."""
        for part, own in zip(self._parts, self._firsts._upcoming_of_parts(upcoming), strict=True):
            if isinstance(part, (CachedImages, CachedLabelImages)):
                part.follow(number, own)

    def close(self) -> None:
        """Close all parts."""
        for part in self._parts:
            part.close()

    def lines(self) -> list[str]:
        """Describe the caches for `explain`."""
        return [
            line for part in self._parts if isinstance(part, CachedImages) for line in part.lines()
        ]

    def _split(self, rows: NDArray[np.int64]) -> list[tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """Return for each part which of the rows are its own, and their rows in it."""
        numbers = np.searchsorted(self._ends, rows, side="right")
        firsts = [0, *self._ends[:-1].tolist()]
        places = [np.flatnonzero(numbers == number) for number in range(len(self._parts))]
        return [(place, rows[place] - first) for place, first in zip(places, firsts, strict=True)]

    def _upcoming_of_parts(self, upcoming: Upcoming) -> list[Upcoming]:
        if self._upcoming is None or self._upcoming[0] is not upcoming:
            self._upcoming = (
                upcoming,
                [self._part_of(upcoming, number) for number in range(len(self._parts))],
            )
        return self._upcoming[1]

    def _part_of(self, upcoming: Upcoming, part: int) -> Upcoming:
        def own_rows(
            rows_of: Callable[[int], NDArray[np.int64]],
        ) -> Callable[[int], NDArray[np.int64]]:
            return lambda number: self._split(rows_of(number))[part][1]

        rank_rows, global_rows = own_rows(upcoming.rank_rows), own_rows(upcoming.global_rows)
        return Upcoming(rank_rows, global_rows, upcoming.batches, upcoming.batch_size)


def open_images(
    split: OpenSplit,
    tables: SampleTables,
    *,
    mmap: bool,
    tolerant: bool = False,
    with_label_images: bool = False,
) -> tuple[
    Records | CachedImages | JoinedImages, Records | CachedLabelImages | JoinedImages | None
]:
    """Return random access to the encoded images of a split, and to its masks or depth maps, wherever its shards are.

    Args:
        split: the split.
        tables: its sample tables.
        mmap: whether to map shards into memory.
        tolerant: whether a single damaged image is no error.
        with_label_images: whether to read masks or depth maps. Without, the second result is
            `None`.

    Raises:
        CallError, DamagedError: the cache cannot be used or has no room; a table or a shard is
            missing or damaged.

    """
    if not split.is_cached:
        images = Records(split, tables, mmap=mmap, tolerant=tolerant)
        if not with_label_images:
            return images, None
        return images, Records(split, tables, mmap=mmap, tolerant=tolerant, label_images=True)
    if not isinstance(split, JoinedSplit):
        cached = CachedImages(
            split, tables, mmap=mmap, tolerant=tolerant, with_label_images=with_label_images
        )
        return cached, CachedLabelImages(cached) if with_label_images else None
    return _open_parts(split, mmap=mmap, tolerant=tolerant, with_label_images=with_label_images)


def _open_parts(
    split: JoinedSplit, *, mmap: bool, tolerant: bool, with_label_images: bool
) -> tuple[JoinedImages, JoinedImages | None]:
    """Return the images of joined splits, of which some are in an object store."""
    images: list[_Part] = []
    label_images: list[_Part] = []
    try:
        for part in split.parts:
            own = SampleTables(part)
            of_part, labels = open_images(
                part, own, mmap=mmap, tolerant=tolerant, with_label_images=with_label_images
            )
            images.append(of_part)
            label_images += [] if labels is None else [labels]
            own.close()
        samples = [part.samples for part in split.parts]
        joined = JoinedImages(images, samples)
        return joined, (
            JoinedImages(label_images, samples, firsts=joined) if with_label_images else None
        )
    except BaseException:
        for opened in (*images, *label_images):
            opened.close()
        raise
