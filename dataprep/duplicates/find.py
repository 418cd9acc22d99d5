"""Find the images of a collection that occur more than once.

Images with the same bytes count as one item. Items whose perceptual hashes differ in few bits, in
any of the eight rotations and reflections, are near copies. Small images have few details: see
`small`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection
from dataprep.duplicates.content import digest, map_images
from dataprep.duplicates.groups import connected, numbered
from dataprep.duplicates.near import keep_closest, search_hashes
from dataprep.duplicates.pixel_check import pixels_agree
from dataprep.duplicates.search import Pairs, join_pairs
from dataprep.duplicates.small import SMALL, doubt, search_small
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress, divide
from manifests.process.interrupts import cleanup_on_interrupt


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What occurs more than once in a collection.

    Attributes:
        item: for each image, the number of its item, int64 [images]; equal for images with the same
            bytes.
        first_image: the first image of each item, int64 [items].
        pairs: items whose images are near copies, as positions in `first_image`.
        symmetry: what turns the image of the second item into that of the first: positions in
            `SYMMETRIES`, uint8 [pairs].
        distance: the largest distance of a near copy.
        notes: what a user should know about the search.

    """

    item: NDArray[np.int64]
    first_image: NDArray[np.int64]
    pairs: Pairs
    symmetry: NDArray[np.uint8]
    distance: int
    notes: tuple[str, ...] = ()

    @property
    def group(self) -> NDArray[np.int64]:
        """The first image of each image's group: of those that copies link, directly or through others."""
        root = connected(len(self.first_image), self.pairs.first, self.pairs.second)
        first: NDArray[np.int64] = self.first_image[root[self.item]]
        return first


@cleanup_on_interrupt()  # the search makes folders for temporary files
def find_duplicates(
    images: Collection,
    distance: int = DEFAULT_DISTANCE,
    *,
    across: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Duplicates:
    """Find all copies in a collection.

    Args:
        images: the images.
        distance: number of different bits of the hashes of near copies, at most, if at least one is
            not small; of two small ones in proportion. -1 finds only equal bytes.
        across: compare the hashes of images in different splits or sources only.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in images.

    Raises:
        CallError: there are too many pairs.
        SourceVanishedError: an image is gone, or its size changed after it was read.

    """
    candidate, repeated = _same_checksums(images)
    with divide(progress, _shares(images, len(repeated), distance)) as (same, *parts):
        item, first_image = _items(images, candidate, repeated, workers, same)
        hashed = (
            np.flatnonzero(images.has_hash[first_image]) if distance >= 0 else np.empty(0, np.int64)
        )
        rows = first_image[hashed]
        near, symmetry, notes = _near(
            images, rows, distance, across=across, workers=workers, parts=parts
        )
    pairs = Pairs(
        hashed[near.first].astype(np.int32), hashed[near.second].astype(np.int32), near.distance
    )
    return Duplicates(item, first_image, pairs, symmetry, distance, notes)


def _shares(images: Collection, repeated: int, distance: int) -> tuple[int, int, int, int]:
    """Divide the images by the work of each part of the search, about.

    The parts are the comparison of bytes, the search among hashes, that among small images, and the
    check of pixels.
    """
    count = len(images)
    same = count if distance < 0 else repeated // 2
    small = round((count - same) * float((images.shorter < SMALL).mean())) if count else 0
    return same, count - same - small, small // 3, small - small // 3


def _near(
    images: Collection,
    rows: NDArray[np.int64],
    distance: int,
    *,
    across: bool,
    workers: int | None,
    parts: Sequence[Progress],
) -> tuple[Pairs, NDArray[np.uint8], tuple[str, ...]]:
    """Find the near copies among some images, as positions in `rows`.

    Return also their symmetries, and notes.

    `parts` receive the progress of the search among hashes, of that among small images, and of the
    check of pixels.
    """
    in_hashes, in_small, in_pixels = parts
    is_small = images.shorter[rows] < SMALL
    side = images.part[rows] if across else None
    found, symmetries, note = [], [np.empty(0, np.uint8)], ""
    if not is_small.all():
        # `search_small` alone finds pairs of two small images, of which there can be too many.
        pairs, symmetry = search_hashes(
            images.hashes[rows], distance, side, skip=is_small, workers=workers, progress=in_hashes
        )
        found.append(pairs)
        symmetries.append(symmetry)
    if is_small.any():
        small = np.flatnonzero(is_small)
        sides = None if side is None else side[small]
        pairs, symmetry, note = search_small(
            images.hashes[rows[small]], distance, sides, workers=workers, progress=in_small
        )
        found.append(
            Pairs(
                small[pairs.first].astype(np.int32),
                small[pairs.second].astype(np.int32),
                pairs.distance,
            )
        )
        symmetries.append(symmetry)
    pairs, symmetry = keep_closest(join_pairs(found), np.concatenate(symmetries))
    keep = np.ones(len(pairs.first), np.bool_)
    check = np.flatnonzero(is_small[pairs.first] | is_small[pairs.second])
    first, second = rows[pairs.first[check]], rows[pairs.second[check]]
    keep[check] = pixels_agree(
        images, first, second, symmetry[check], workers=workers, progress=in_pixels
    )
    near = Pairs(pairs.first[keep], pairs.second[keep], pairs.distance[keep])
    return near, symmetry[keep], tuple(each for each in (note, doubt(near, is_small)) if each)


# --- the same bytes -------------------------------------------------------------------------------


def _same_checksums(images: Collection) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each checksum and length, equal for equal ones, and the images that share theirs."""
    # An image that cannot be read is an item of its own.
    alone = np.where(images.readable, -1, np.arange(len(images)))
    candidate, first = numbered(images.crc32c, images.size, alone)
    return candidate, np.flatnonzero(np.bincount(candidate, minlength=len(first))[candidate] > 1)


def _items(
    images: Collection,
    candidate: NDArray[np.int64],
    repeated: NDArray[np.int64],
    workers: int | None,
    progress: Progress,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the item of each image, and the first image of each item.

    Equal checksums are not proof enough.
    """
    digests = np.zeros((2, len(images)), np.uint64)
    bounds = np.searchsorted(repeated, images.starts).tolist()
    with divide(progress, np.diff(bounds).tolist()) as shares:
        for number, (source, share) in enumerate(zip(images.sources, shares, strict=True)):
            inside, start = (
                repeated[bounds[number] : bounds[number + 1]],
                int(images.starts[number]),
            )
            if not len(inside):
                continue
            for row, value in map_images(
                source, inside - start, digest, workers=workers, progress=share
            ).items():
                if isinstance(value, bytes):
                    digests[:, start + row] = np.frombuffer(value, np.uint64)
                else:  # it was readable before; it is not a copy of anything now
                    digests[:, start + row] = row + 1, number
    return numbered(candidate, digests[0], digests[1])
