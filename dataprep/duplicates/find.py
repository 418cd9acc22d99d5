"""Find the images of a collection that occur more than once.

Images with the same bytes count as one item. Items whose perceptual hashes differ in few bits, in
any of the eight rotations and reflections, are near copies. Small images have few details: see
`search_small` in `near`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from dataprep.arrays import BoolArray, Int64Array, IntegerArray, UInt8Array
from dataprep.duplicates.collection import Collection, digest, read_some, reduced
from dataprep.duplicates.near import SMALL, doubt, keep_closest, search_hashes, search_small
from dataprep.duplicates.pixels import SYMMETRIES, show_the_same, transform_pixels
from dataprep.duplicates.search import Pairs, join_pairs, make_pairs, starts_run
from dataprep.engines import LocalEngine
from dataprep.images.perceptual_hash import SIDE
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress, divide
from dataprep.storage.local import temporary_folder
from manifests.process.interrupts import cleanup_on_interrupt
from manifests.records import record


def connected(count: int, first: IntegerArray, second: IntegerArray) -> Int64Array:
    """Return the smallest member of each element's component, int64 [count].

    Args:
        count: number of elements.
        first: an element of each pair, [N].
        second: the other element.

    """
    root = np.arange(count)
    a, b = first.astype(np.int64), second.astype(np.int64)
    while len(a):
        low, high = np.minimum(root[a], root[b]), np.maximum(root[a], root[b])
        np.minimum.at(root, high, low)  # a root of a pair points to a smaller one
        while (root[root] != root).any():
            root = root[root]
        is_open = root[a] != root[b]
        a, b = a[is_open], b[is_open]
    return root


def number_rows(*columns: IntegerArray) -> tuple[Int64Array, Int64Array]:
    """Give rows of equal values a number, in the order of their first rows.

    Args:
        columns: the values, [N] each.

    Returns:
        The number of each row, int64 [N], and the first row of each number.

    """
    # Stable, so the first row of equal ones is the first in its run.
    order = np.lexsort(columns[::-1])
    starts = starts_run(*[column[order] for column in columns])
    firsts = order[starts]
    by_first = np.argsort(firsts)
    number = np.argsort(by_first)
    result = np.empty(len(order), np.int64)
    result[order] = number[np.cumsum(starts) - 1]
    return result, firsts[by_first]


# --- candidates, checked by their pixels in several processes -------------------------------------


#: Pairs of one task.
_TASK_PAIRS = 8192


class CheckTask(NamedTuple):
    """Pairs to check.

    Attributes:
        start: number of the first pair.
        path: the file of reduced pixels, uint8 [images, 32, 32].
        pairs: the pairs, as images of the file.

    """

    start: int
    path: str
    pairs: Pairs


def pixels_agree(
    images: Collection, pairs: Pairs, *, workers: int | None, progress: Progress
) -> BoolArray:
    """Return which pairs of images show the same, bool [N].

    Args:
        images: the collection.
        pairs: numbers of the images.
        workers: number of processes; `None` means one per CPU.
        progress: receives the images that are read, and then as many again, in proportion to the
            compared pairs.

    """
    result = np.zeros(len(pairs.first), np.bool_)
    if not len(result):
        return result
    needed = np.unique(np.concatenate([pairs.first, pairs.second])).astype(np.int64)
    order = np.lexsort((pairs.second, pairs.first))
    ordered = pairs.take(order)
    first, second = np.searchsorted(needed, ordered.first), np.searchsorted(needed, ordered.second)
    ordered = make_pairs(first, second, ordered.distance, ordered.symmetry)
    with (
        temporary_folder() as folder,
        divide(progress, [len(needed)] * 2) as (reading, comparing),
        closing(LocalEngine(workers)) as engine,
    ):
        path = os.path.join(folder, "pixels")
        with open(path, "wb") as file:
            # Zeros for an image that cannot be read any more.
            file.truncate(SIDE * SIDE * len(needed))
            for image, value in read_some(images, needed, reduced, workers, reading):
                if not isinstance(value, str):
                    file.seek(SIDE * SIDE * int(np.searchsorted(needed, image)))
                    file.write(value.tobytes())
        starts = range(0, len(order), _TASK_PAIRS)
        tasks = (
            CheckTask(start, path, ordered.take(slice(start, start + _TASK_PAIRS)))
            for start in starts
        )
        comparing.start(len(order), len(starts))
        for start, agree in engine.run(check_pairs, tasks, len(starts)):
            result[order[start : start + _TASK_PAIRS]] = agree
            comparing.advance("pairs", len(agree))
    return result


def check_pairs(task: CheckTask) -> tuple[int, BoolArray]:
    """Return the number of the first pair of a task, and which pairs show the same."""
    first, second, _, symmetry = task.pairs
    ours, at_first = np.unique(first, return_inverse=True)
    code = second.astype(np.int64) * len(SYMMETRIES) + symmetry
    others, at_second = np.unique(code, return_inverse=True)
    turned = _read_reduced(task.path, others // len(SYMMETRIES))
    for number, name in enumerate(SYMMETRIES):
        some = others % len(SYMMETRIES) == number
        turned[some] = transform_pixels(turned[some], name)
    return task.start, show_the_same(_read_reduced(task.path, ours), turned, at_first, at_second)


def _read_reduced(path: str, images: IntegerArray) -> UInt8Array:
    """Return some images of the file, uint8 [N, 32, 32].

    A mapped file would count as memory of each process.
    """
    pixels = np.empty((len(images), SIDE, SIDE), np.uint8)
    with open(path, "rb", buffering=0) as file:
        for place, image in enumerate(images.tolist()):
            file.seek(SIDE * SIDE * image)
            file.readinto(pixels[place].data)
    return pixels


# --- the whole search -----------------------------------------------------------------------------


@record
class Duplicates:
    """What occurs more than once in a collection.

    Attributes:
        item: for each image, the number of its item, int64 [images]; equal for images with the same
            bytes.
        first_image: the first image of each item, int64 [items].
        pairs: items whose images are near copies, as positions in `first_image`.
        distance: the largest distance of a near copy.
        notes: what a user should know about the search.

    """

    item: Int64Array
    first_image: Int64Array
    pairs: Pairs
    distance: int
    notes: tuple[str, ...] = ()

    @property
    def group(self) -> Int64Array:
        """The first image of each image's group, whose images are linked by copies."""
        root = connected(len(self.first_image), self.pairs.first, self.pairs.second)
        first: Int64Array = self.first_image[root[self.item]]
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
        hashed = np.flatnonzero(images.has_hash[first_image] & (distance >= 0))
        near, notes = _near(
            images, first_image[hashed], distance, across=across, workers=workers, parts=parts
        )
    return Duplicates(
        item=item,
        first_image=first_image,
        pairs=near.among(hashed),
        distance=distance,
        notes=notes,
    )


def _shares(images: Collection, repeated: int, distance: int) -> tuple[int, int, int, int]:
    """Divide the images by the work of each part of the search, about.

    The parts are the comparison of bytes, the search among hashes, the search among small images,
    and the check of pixels.
    """
    count = len(images)
    same = count if distance < 0 else repeated // 2
    small = round((count - same) * float((images.shorter < SMALL).mean())) if count else 0
    return same, count - same - small, small // 3, small - small // 3


def _near(
    images: Collection,
    rows: Int64Array,
    distance: int,
    *,
    across: bool,
    workers: int | None,
    parts: Sequence[Progress],
) -> tuple[Pairs, tuple[str, ...]]:
    """Find the near copies among some images, as positions in `rows`, and notes for the user.

    `parts` receive the progress of the search among hashes, of the search among small images, and
    of the check of pixels.
    """
    in_hashes, in_small, in_pixels = parts
    is_small = images.shorter[rows] < SMALL
    side = images.part[rows] if across else None
    found, note = [], ""
    if not is_small.all():
        # `search_small` alone finds pairs of two small images, of which there can be too many.
        pairs = search_hashes(
            images.hashes[rows], distance, side, skip=is_small, workers=workers, progress=in_hashes
        )
        found.append(pairs)
    if is_small.any():
        small = np.flatnonzero(is_small)
        sides = None if side is None else side[small]
        pairs, note = search_small(
            images.hashes[rows[small]], distance, sides, workers=workers, progress=in_small
        )
        found.append(pairs.among(small))
    pairs = keep_closest(join_pairs(found))
    keep = np.ones(len(pairs.first), np.bool_)
    check = np.flatnonzero(is_small[pairs.first] | is_small[pairs.second])
    checked = pairs.take(check).among(rows)
    keep[check] = pixels_agree(images, checked, workers=workers, progress=in_pixels)
    near = pairs.take(keep)
    return near, tuple(filter(None, (note, doubt(near, is_small))))


# --- the same bytes -------------------------------------------------------------------------------


def _same_checksums(images: Collection) -> tuple[Int64Array, Int64Array]:
    """Return a number for each different checksum and length, and the images that share theirs."""
    # An image that cannot be read is an item of its own.
    alone = np.where(images.readable, -1, np.arange(len(images)))
    candidate, first = number_rows(images.crc32c, images.size, alone)
    return candidate, np.flatnonzero(np.bincount(candidate, minlength=len(first))[candidate] > 1)


def _items(
    images: Collection,
    candidate: Int64Array,
    repeated: Int64Array,
    workers: int | None,
    progress: Progress,
) -> tuple[Int64Array, Int64Array]:
    """Return the item of each image, and the first image of each item.

    Equal checksums are not proof enough.
    """
    digests = np.zeros((2, len(images)), np.uint64)
    for image, value in read_some(images, repeated, digest, workers, progress):
        if isinstance(value, bytes):
            digests[:, image] = np.frombuffer(value, np.uint64)
        else:  # it was readable before; it is not a copy of anything now
            digests[0, image] = image + 1
    return number_rows(candidate, *digests)
