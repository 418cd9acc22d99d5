"""Find the images of a collection that occur more than once.

Images with the same bytes count as one item. Items whose perceptual hashes differ in few bits, in any of the eight
rotations and reflections, are near copies. Small images have few details, so their pixels are compared as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection
from dataprep.duplicates.content import digest, map_images, reduced
from dataprep.duplicates.groups import connected, numbered
from dataprep.duplicates.near import search_hashes
from dataprep.duplicates.search import Pairs
from dataprep.duplicates.symmetries import SYMMETRIES, transform_pixels
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress

#: Images whose shorter side has fewer pixels are compared by their pixels as well.
SMALL = 64

#: Least correlation of the gradients of two small images. Pairs of CIFAR-10 that show the same have 0.6 and more.
_MIN_CORRELATION = 0.6


@dataclass(frozen=True, slots=True)
class Duplicates:
    """What occurs more than once in a collection.

    Attributes:
        item: for each image, the number of its item, int64 [images]; equal for images with the same bytes.
        first_image: the first image of each item, int64 [items].
        pairs: items whose images are near copies, as positions in `first_image`.
        symmetry: what turns the image of the second item into that of the first: positions in `SYMMETRIES`,
            uint8 [pairs].
        distance: the largest distance of a near copy.

    """

    item: NDArray[np.int64]
    first_image: NDArray[np.int64]
    pairs: Pairs
    symmetry: NDArray[np.uint8]
    distance: int

    @property
    def group(self) -> NDArray[np.int64]:
        """The first image of each image's group: of those that copies link, directly or through others."""
        root = connected(len(self.first_image), self.pairs.first, self.pairs.second)
        first: NDArray[np.int64] = self.first_image[root[self.item]]
        return first


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
        distance: number of different bits of the hashes of near copies, at most. -1 finds only equal bytes.
        across: compare the hashes of images in different splits or sources only.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress of the search, in images.

    Raises:
        CallError: there are too many pairs.
        SourceVanishedError: an image is gone, or its size changed after it was read.

    """
    item, first_image = _items(images, workers)
    hashed = np.flatnonzero(images.has_hash[first_image]) if distance >= 0 else np.empty(0, np.int64)
    rows = first_image[hashed]
    side = images.part[rows] if across else None
    near, symmetry = search_hashes(images.hashes[rows], distance, side, workers=workers, progress=progress)
    pairs = Pairs(hashed[near.first].astype(np.int32), hashed[near.second].astype(np.int32), near.distance)
    keep = _pixels_agree(images, first_image, pairs, symmetry, workers)
    pairs = Pairs(pairs.first[keep], pairs.second[keep], pairs.distance[keep])
    return Duplicates(item, first_image, pairs, symmetry[keep], distance)


# --- the same bytes -------------------------------------------------------------------------------


def _items(images: Collection, workers: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the item of each image, and the first image of each item. Equal checksums are not proof enough."""
    # An image that cannot be read is an item of its own.
    alone = np.where(images.readable, -1, np.arange(len(images)))
    candidate, first = numbered(images.crc32c, images.size, alone)
    repeated = np.flatnonzero(np.bincount(candidate, minlength=len(first))[candidate] > 1)
    digests = np.zeros((2, len(images)), np.uint64)
    for number, source in enumerate(images.sources):
        inside = repeated[(repeated >= images.starts[number]) & (repeated < images.starts[number + 1])]
        if not len(inside):
            continue
        start = int(images.starts[number])
        for row, value in map_images(source, inside - start, digest, workers=workers).items():
            if isinstance(value, bytes):
                digests[:, start + row] = np.frombuffer(value, np.uint64)
            else:  # it was readable before; it is not a copy of anything now
                digests[:, start + row] = row + 1, number
    return numbered(candidate, digests[0], digests[1])


# --- small images ---------------------------------------------------------------------------------


def _pixels_agree(
    images: Collection,
    first_image: NDArray[np.int64],
    pairs: Pairs,
    symmetry: NDArray[np.uint8],
    workers: int | None,
) -> NDArray[np.bool_]:
    """Return which pairs also have similar pixels, or are large enough that their hashes suffice."""
    a, b = first_image[pairs.first], first_image[pairs.second]
    check = np.flatnonzero(np.minimum(images.shorter[a], images.shorter[b]) < SMALL)
    result = np.ones(len(a), np.bool_)
    if not len(check):
        return result
    needed = np.unique(np.concatenate([a[check], b[check]]))
    pixels = np.zeros((len(needed), 32, 32), np.uint8)
    for number, source in enumerate(images.sources):
        start = int(images.starts[number])
        inside = needed[(needed >= start) & (needed < images.starts[number + 1])] - start
        if len(inside):
            for row, value in map_images(source, inside, reduced, workers=workers).items():
                if isinstance(value, np.ndarray):
                    pixels[np.searchsorted(needed, start + row)] = value
    at_a, at_b = np.searchsorted(needed, a[check]), np.searchsorted(needed, b[check])
    for number, name in enumerate(SYMMETRIES):
        some = np.flatnonzero(symmetry[check] == number)
        for start in range(0, len(some), 4096):
            part = some[start : start + 4096]
            likeness = correlation(pixels[at_a[part]], transform_pixels(pixels[at_b[part]], name))
            result[check[part]] = likeness >= _MIN_CORRELATION
    return result


def correlation(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return how similar the gradients of images are, float64 [N]: 1 for equal images, about 0 for unrelated ones.

    Args:
        a: uint8 [N, H, W].
        b: uint8 [N, H, W].

    """
    (ax, ay), (bx, by) = _gradients(a), _gradients(b)
    product = (ax * bx).sum((1, 2)) + (ay * by).sum((1, 2))
    scale = ((ax**2).sum((1, 2)) + (ay**2).sum((1, 2))) * ((bx**2).sum((1, 2)) + (by**2).sum((1, 2)))
    result: NDArray[np.float64] = product / np.sqrt(scale.clip(min=1))
    return result


def _gradients(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = pixels.astype(np.float64)
    return np.diff(values, axis=2), np.diff(values, axis=1)
