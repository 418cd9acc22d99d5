"""Check candidates by their pixels, in several processes.

Reduced pixels are in a file, not in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection
from dataprep.duplicates.content import iterate_images, reduced
from dataprep.duplicates.pixels import show_the_same
from dataprep.duplicates.symmetries import SYMMETRIES, transform_pixels
from dataprep.engines import LocalEngine
from dataprep.images.perceptual_hash import SIDE
from dataprep.progress import Progress, divide
from dataprep.storage.temporary import temporary_folder

#: Pairs of one task.
_TASK_PAIRS = 8192


class CheckTask(NamedTuple):
    """Pairs to check.

    Attributes:
        start: number of the first pair.
        path: the file of reduced pixels, uint8 [images, 32, 32].
        first: image of each pair in the file, int64 [N].
        second: the other one.
        symmetry: what turns the second into the first: positions in `SYMMETRIES`, uint8 [N].

    """

    start: int
    path: str
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    symmetry: NDArray[np.uint8]


def pixels_agree(
    images: Collection,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    symmetry: NDArray[np.uint8],
    *,
    workers: int | None,
    progress: Progress | None = None,
) -> NDArray[np.bool_]:
    """Return which pairs of images show the same, bool [N].

    Args:
        images: the collection.
        first: an image of each pair, int64 [N].
        second: the other one.
        symmetry: what turns the second into the first: positions in `SYMMETRIES`.
        workers: number of processes; `None` means one per CPU.
        progress: receives the images that are read, and then as many again, in proportion to the
            compared pairs.

    """
    result = np.zeros(len(first), np.bool_)
    if not len(first):
        return result
    needed = np.unique(np.concatenate([first, second]))
    order = np.lexsort((second, first))
    at_first, at_second = (
        np.searchsorted(needed, first[order]),
        np.searchsorted(needed, second[order]),
    )
    count = -(-len(order) // _TASK_PAIRS)
    with temporary_folder() as folder, divide(progress, [len(needed)] * 2) as (reading, comparing):
        path = os.path.join(folder, "pixels")
        _write_reduced(path, images, needed, workers, reading)

        def tasks() -> Iterator[CheckTask]:
            for start in range(0, len(order), _TASK_PAIRS):
                part = slice(start, start + _TASK_PAIRS)
                yield CheckTask(start, path, at_first[part], at_second[part], symmetry[order[part]])

        comparing.start(len(order), count)
        with closing(LocalEngine(workers)) as engine:
            for number, (start, agree) in enumerate(engine.run(check_pairs, tasks(), count)):
                result[order[start : start + _TASK_PAIRS]] = agree
                comparing.advance(str(number), len(agree))
    return result


def _write_reduced(
    path: str,
    images: Collection,
    needed: NDArray[np.int64],
    workers: int | None,
    progress: Progress,
) -> None:
    """Write the reduced pixels of some images in ascending order.

    Zeros for one that cannot be read any more.
    """
    size, firsts = SIDE * SIDE, np.searchsorted(needed, images.starts).tolist()
    with open(path, "wb") as file, divide(progress, np.diff(firsts).tolist()) as shares:
        file.truncate(size * len(needed))
        for number, (source, share) in enumerate(zip(images.sources, shares, strict=True)):
            first = firsts[number]
            inside = needed[first : firsts[number + 1]] - int(images.starts[number])
            for found in iterate_images(source, inside, reduced, workers=workers, progress=share):
                rows = np.fromiter(found, np.int64, len(found))
                for place, value in zip(
                    np.searchsorted(inside, rows).tolist(), found.values(), strict=True
                ):
                    if isinstance(value, np.ndarray):
                        file.seek(size * (first + place))
                        file.write(value.tobytes())


def check_pairs(task: CheckTask) -> tuple[int, NDArray[np.bool_]]:
    """Return the number of the first pair of a task, and which pairs show the same."""
    ours, at_first = np.unique(task.first, return_inverse=True)
    others, at_second = np.unique(
        task.second * len(SYMMETRIES) + task.symmetry, return_inverse=True
    )
    image, symmetry = np.divmod(others, len(SYMMETRIES))
    turned = _read_reduced(task.path, image)
    for number, name in enumerate(SYMMETRIES):
        turned[symmetry == number] = transform_pixels(turned[symmetry == number], name)
    return task.start, show_the_same(_read_reduced(task.path, ours), turned, at_first, at_second)


def _read_reduced(path: str, images: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return some images of the file, uint8 [N, 32, 32].

    A mapped file would count as memory of each process.
    """
    pixels = np.empty((len(images), SIDE, SIDE), np.uint8)
    with open(path, "rb", buffering=0) as file:
        for place, image in enumerate(images.tolist()):
            file.seek(SIDE * SIDE * image)
            file.readinto(pixels[place].data)
    return pixels
