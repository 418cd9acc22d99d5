"""Find the images of a collection that occur more than once.

Images with the same bytes count as one item. Items whose perceptual hashes differ in few bits, in any of the eight
rotations and reflections, are near copies. Small images have few details, so their pixels are compared as well.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection
from dataprep.duplicates.content import digest, map_images, reduced
from dataprep.duplicates.groups import connected, numbered
from dataprep.duplicates.search import BANDS, Pairs, band_order, find_pairs, join_pairs
from dataprep.duplicates.symmetries import SYMMETRIES, Symmetry, transform_hashes, transform_pixels
from dataprep.engines import LocalEngine
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress
from manifests.errors import CallError

#: Images whose shorter side has fewer pixels are compared by their pixels as well.
SMALL = 64

#: Least correlation of the gradients of two small images. Pairs of CIFAR-10 that show the same have 0.6 and more.
_MIN_CORRELATION = 0.6

#: Pairs in one result, at most.
MAX_PAIRS = 20_000_000

#: Fewer comparisons than this are made in this process alone.
_FEW_COMPARISONS = 1e9


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
        CallError: there are more than `MAX_PAIRS` pairs.
        SourceVanishedError: an image is gone, or its size changed after it was read.

    """
    item, first_image = _items(images, workers)
    rows = first_image[images.has_hash[first_image]] if distance >= 0 else first_image[:0]
    found = _search(images, rows, distance, across=across, workers=workers, progress=progress)
    number = np.full(len(images), -1, np.int64)
    number[first_image] = np.arange(len(first_image))
    pairs, symmetry = _closest(number[rows].astype(np.int32), found)
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


# --- near copies ----------------------------------------------------------------------------------


class SearchTask(NamedTuple):
    """A part of a search: one band, one symmetry.

    Attributes:
        folder: has the hashes in `band_order`, in one file for each symmetry and one for each split.

    """

    first: str
    second: str
    distance: int
    band: int
    symmetry: int
    is_same: bool


class Found(NamedTuple):
    """Pairs that a task found, as rows of its hashes."""

    task: SearchTask
    pairs: Pairs


def search_part(task: SearchTask) -> Found:
    """Find the pairs of a task."""
    a, b = (np.load(path, mmap_mode="r") for path in (task.first, task.second))
    return Found(task, find_pairs(a, b, task.distance, task.band, is_same=task.is_same))


class _Numbered(NamedTuple):
    """Pairs of hashed items, by their numbers among these, with the symmetry."""

    pairs: Pairs
    symmetry: NDArray[np.uint8]


def _search(
    images: Collection,
    rows: NDArray[np.int64],
    distance: int,
    *,
    across: bool,
    workers: int | None,
    progress: Progress | None,
) -> _Numbered:
    """Find the near pairs of some images; `first` and `second` count the rows."""
    part = images.part[rows]
    sides = [np.flatnonzero(part == number) for number in np.unique(part)] if across else [np.arange(len(rows))]
    parts: list[Pairs] = []
    symmetries: list[NDArray[np.uint8]] = []
    total = 0
    with tempfile.TemporaryDirectory(prefix="dataprep-") as folder, closing(LocalEngine(workers)) as engine:
        tasks = list(_search_tasks(folder, images.hashes[rows], sides, distance))
        few = len(rows) ** 2 < _FEW_COMPARISONS
        if progress:
            progress.start(len(rows), len(tasks))
        done = 0
        for number, found in enumerate(engine.run(search_part, tasks, 1 if few else len(tasks)), 1):
            first, second = (
                int(os.path.basename(path).split("-")[0]) for path in (found.task.first, found.task.second)
            )
            pairs = found.pairs
            parts.append(Pairs(_int32(sides[first][pairs.first]), _int32(sides[second][pairs.second]), pairs.distance))
            symmetries.append(np.full(len(pairs.first), found.task.symmetry, np.uint8))
            total += len(pairs.first)
            if total > MAX_PAIRS:
                raise CallError(
                    f"more than {MAX_PAIRS:,} pairs of images differ in at most {distance} bits",
                    hint="set a smaller --distance",
                )
            if progress:
                progress.advance(str(number), len(rows) * number // len(tasks) - done)
                done = len(rows) * number // len(tasks)
    return _Numbered(join_pairs(parts), np.concatenate([np.empty(0, np.uint8), *symmetries]))


def _int32(values: NDArray[np.integer]) -> NDArray[np.int32]:
    return values.astype(np.int32)


def _search_tasks(
    folder: str, hashes: NDArray[np.uint64], sides: list[NDArray[np.int64]], distance: int
) -> Iterator[SearchTask]:
    """Write the hashes that the tasks share into files, and yield the tasks."""
    for number, side in enumerate(sides):
        for symmetry, name in enumerate(SYMMETRIES):
            path = os.path.join(folder, f"{number}-{symmetry}.npy")
            np.save(path, band_order(transform_hashes(hashes[side], name)))
    within = [(number, number) for number in range(len(sides))] if len(sides) == 1 else []
    pairs = within or [(a, b) for b in range(len(sides)) for a in range(b)]
    for a, b in pairs:
        for symmetry, name in enumerate(SYMMETRIES):
            if a == b and name == _INVERSE:
                continue
            for band in range(BANDS):
                first, second = (os.path.join(folder, f"{side}-{of}.npy") for side, of in ((a, 0), (b, symmetry)))
                yield SearchTask(first, second, distance, band, symmetry, a == b and symmetry == 0)


#: Among the same images, the pairs that this rotation finds are those of the inverse rotation, in the other order.
_INVERSE: Symmetry = "rotated 270"


def _closest(number: NDArray[np.int32], found: _Numbered) -> tuple[Pairs, NDArray[np.uint8]]:
    """Keep each pair of different items once, with the symmetry in which they are closest; `first` is the smaller."""
    first, second = number[found.pairs.first], number[found.pairs.second]
    symmetry = found.symmetry.copy()
    swapped = first > second
    symmetry[swapped] = _INVERSES[symmetry[swapped]]
    low, high = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((symmetry, found.pairs.distance, high, low))
    order = order[low[order] != high[order]]  # a symmetric image is close to its own reflection
    new = np.ones(len(order), np.bool_)
    new[1:] = (low[order[1:]] != low[order[:-1]]) | (high[order[1:]] != high[order[:-1]])
    kept = order[new]
    return Pairs(low[kept], high[kept], found.pairs.distance[kept]), symmetry[kept]


_INVERSES = np.array(
    [
        SYMMETRIES.index({"rotated 90": "rotated 270", "rotated 270": "rotated 90"}.get(name, name))
        for name in SYMMETRIES
    ],
    np.uint8,
)


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
