"""Read images in worker processes: their checksums, perceptual hashes, reduced pixels, and digests of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep.containers import Location, locations_of
from dataprep.engines import LocalEngine
from dataprep.images.base import Rejected
from dataprep.images.perceptual_hash import hash_pixels, reduce_image
from dataprep.options import Options, Raw
from dataprep.progress import Progress
from dataprep.shards.source_image import LoadedImage, load_image, start_reading
from dataprep.sources import Source

#: Images of one task.
_TASK_IMAGES = 128

Value = TypeVar("Value")


class Content(NamedTuple):
    """What an image contains.

    Attributes:
        size: its bytes.
        crc32c: their checksum.
        shorter: the shorter side in pixels.
        hash: the perceptual hash; `None` if the image is too flat to have one, or cannot be
            decoded.
        problem: why it cannot be decoded; empty if it can.

    """

    size: int
    crc32c: int
    shorter: int
    hash: str | None
    problem: str = ""


class ReadTask(NamedTuple):
    """Images of one source to read. The lists have one element per image; see `ShardTask`.

    Attributes:
        rows: rows of the source.
        root: folder that relative paths start from.
        paths: paths of the images.
        sizes: their sizes in bytes when the source was scanned.
        locations: where they are inside containers.
        options: how the images are stored.
        function: what to compute from an image.

    """

    rows: list[int]
    root: str
    paths: list[str]
    sizes: list[int]
    locations: list[Location | None]
    options: Options
    function: Callable[[LoadedImage], Any]


def map_images(
    source: Source,
    rows: NDArray[np.int64],
    function: Callable[[LoadedImage], Value],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[int, Value | str]:
    """Read images and apply a function to each of them.

    Return what `iterate_images` yields, in one dictionary.
    """
    results: dict[int, Value | str] = {}
    for found in iterate_images(source, rows, function, workers=workers, progress=progress):
        results |= found
    return results


def iterate_images(
    source: Source,
    rows: NDArray[np.int64],
    function: Callable[[LoadedImage], Value],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[int, Value | str]]:
    """Read images and apply a function to each of them in worker processes.

    Args:
        source: the images.
        rows: rows of the source, int64 [N].
        function: a function at the top level of a module. It may raise `Rejected`.
        workers: number of processes; `None` means one per CPU.
        progress: receives the images that are read.

    Yields:
        The results of some images by row; a text that says why, for each image that cannot be read.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """
    count = -(-len(rows) // _TASK_IMAGES)
    if progress:
        progress.start(len(rows), count)
    with closing(LocalEngine(workers)) as engine:
        for number, found in enumerate(
            engine.run(read_images, _tasks(source, rows, function), count)
        ):
            yield found
            if progress:
                progress.advance(str(number), len(found))


def _tasks(
    source: Source, rows: NDArray[np.int64], function: Callable[[LoadedImage], Any]
) -> Iterator[ReadTask]:
    options = Options(validate="none", raw=Raw(source.pixels[0]) if source.pixels else None)
    for start in range(0, len(rows), _TASK_IMAGES):
        part = rows[start : start + _TASK_IMAGES]
        yield ReadTask(
            rows=part.tolist(),
            root=source.root,
            paths=source.path.take(part).to_pylist(),
            sizes=source.size[part].tolist(),
            locations=locations_of(source.location, part) or [None] * len(part),
            options=options,
            function=function,
        )


def read_images(task: ReadTask) -> dict[int, Any]:
    """Return the result for each image of a task, by row."""
    pending = start_reading(task.root, task.paths, task.sizes, task.locations)
    results: list[Any] = []
    for path, size, location, reading in zip(
        task.paths, task.sizes, task.locations, pending, strict=True
    ):
        try:
            image = load_image(task.root, path, size, task.options, location, pending=reading)
            results.append(task.function(image))
        except Rejected as error:
            results.append(f"{error.reason}: {error.detail}")
    return dict(zip(task.rows, results, strict=True))


# --- functions for `map_images` -------------------------------------------------------------------


def describe(image: LoadedImage) -> Content:
    """Return the checksum and the perceptual hash of an image.

    One that does not decode has no hash.
    """
    info, checksum = image.info, crc32c(image.data)
    shorter = min(info.width, info.height)
    try:
        return Content(
            len(image.data), checksum, shorter, hash_pixels(reduce_image(image.data, info))
        )
    except Rejected as error:
        return Content(len(image.data), checksum, shorter, None, f"{error.reason}: {error.detail}")


def digest(image: LoadedImage) -> bytes:
    """Return 16 bytes that are equal for equal images, and differ for others."""
    return hashlib.blake2b(image.data, digest_size=16).digest()


def reduced(image: LoadedImage) -> NDArray[np.uint8]:
    """Return the reduced pixels of an image, uint8 [32, 32]."""
    return reduce_image(image.data, image.info)
