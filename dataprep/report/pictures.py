"""Decode images of a shard in a worker process: their brightness, their format, and thumbnails of some of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep import storage
from dataprep.images.base import MAX_BYTES, Rejected, failed
from dataprep.report.columns import Columns
from dataprep.report.thumbnails import (
    Thumbnail,
    encode_thumbnail,
    make_raw_thumbnail,
    make_thumbnail,
)
from manifests.errors import DatasetError

#: Images of one task.
_TASK_IMAGES = 128

#: Images of each kind of extreme that a report shows.
EXTREMES = 8

#: Format of an image that cannot be decoded.
UNREADABLE = ""


class PictureTask(NamedTuple):
    """Images of one shard to decode.

    Attributes:
        path: the shard.
        rows: their rows in `Columns`, ascending.
        offsets: first byte of each image.
        sizes: bytes of each image.
        keep: rows whose thumbnails are needed.
        pixels: height, width and channels if the shard stores raw pixels, else `None`.

    """

    path: str
    rows: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    keep: frozenset[int]
    pixels: tuple[int, int, int] | None


class Pictures(NamedTuple):
    """Decoded images. The arrays have one element per image.

    Attributes:
        rows: rows in `Columns`, int64.
        brightness: mean luma, 0 to 255, float32.
        contrast: standard deviation of the luma, float32.
        formats: format of each image; `UNREADABLE` if it cannot be decoded.
        failed: reasons by row.
        thumbnails: JPEGs by row, for the rows to keep and for the extremes among these images.

    """

    rows: NDArray[np.int64]
    brightness: NDArray[np.float32]
    contrast: NDArray[np.float32]
    formats: tuple[str, ...]
    failed: dict[int, str]
    thumbnails: dict[int, bytes]


def picture_tasks(
    folder: str,
    columns: Columns,
    rows: NDArray[np.int64],
    keep: frozenset[int],
    pixels: tuple[int, int, int] | None,
) -> Iterator[PictureTask]:
    """Divide rows into tasks, none of which has rows of several shards."""
    for each in columns.shards:
        low, high = np.searchsorted(rows, (each.first, each.first + each.rows))
        for at in range(low, high, _TASK_IMAGES):
            part = rows[at : min(high, at + _TASK_IMAGES)]
            numbers = part.tolist()
            yield PictureTask(
                path=os.path.join(folder, each.shard.name),
                rows=tuple(numbers),
                offsets=tuple(columns.offset[part].tolist()),
                sizes=tuple(columns.size[part].tolist()),
                keep=keep.intersection(numbers),
                pixels=pixels,
            )


def decode_pictures(task: PictureTask) -> Pictures:
    """Decode the images of a task. What cannot be decoded is counted, and never ends the report."""
    lumas = np.zeros((2, len(task.rows)), np.float32)
    formats, thumbnails = [UNREADABLE] * len(task.rows), dict[int, NDArray[np.uint8]]()
    failures: dict[int, str] = {}
    for number, row, found in _thumbnails(task):
        if isinstance(found, str):
            failures[row] = found
            continue
        luma = found.pixels @ np.array([0.299, 0.587, 0.114], np.float32)
        lumas[:, number] = luma.mean(), luma.std()
        formats[number] = found.format
        thumbnails[row] = found.pixels
    rows = np.array(task.rows, np.int64)
    shown = (
        task.keep.union(extremes(rows, lumas[0], lumas[1], np.array(formats) != UNREADABLE))
        & thumbnails.keys()
    )
    encoded = {row: encode_thumbnail(thumbnails[row]) for row in sorted(shown)}
    return Pictures(rows, lumas[0], lumas[1], tuple(formats), failures, encoded)


def _thumbnails(task: PictureTask) -> Iterator[tuple[int, int, Thumbnail | str]]:
    """Yield each image's number in the task, its row, and its thumbnail or why it cannot be decoded."""
    done = 0
    try:
        with storage.open_view(task.path, span=1 << 16) as (view, length):
            for number, (row, offset, size) in enumerate(
                zip(task.rows, task.offsets, task.sizes, strict=True)
            ):
                try:
                    yield number, row, _decode(view, length, offset, size, task.pixels)
                except Rejected as error:
                    yield number, row, f"{error.reason}: {error.detail}"
                done = number + 1
    except DatasetError as error:
        reason = f"{os.path.basename(task.path)}: {error.message}"
        yield from ((number, row, reason) for number, row in list(enumerate(task.rows))[done:])


def join_pictures(parts: list[Pictures]) -> Pictures:
    """Join the results of all tasks, in the order of the rows."""
    parts = sorted(parts, key=lambda part: int(part.rows[0]))
    return Pictures(
        np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.brightness for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.contrast for part in parts)]),
        tuple(name for part in parts for name in part.formats),
        {row: reason for part in parts for row, reason in part.failed.items()},
        {row: data for part in parts for row, data in part.thumbnails.items()},
    )


def extremes(
    rows: NDArray[np.int64],
    brightness: NDArray[np.float32],
    contrast: NDArray[np.float32],
    readable: NDArray[np.bool_],
) -> list[int]:
    """Return the rows of the darkest, the brightest and the flattest images."""
    return [
        int(row)
        for values in (brightness, -brightness, contrast)
        for row in rows[readable][np.argsort(values[readable], kind="stable")[:EXTREMES]]
    ]


def _decode(
    view: storage.View, length: int, offset: int, size: int, pixels: tuple[int, int, int] | None
) -> Thumbnail:
    if offset + size > length:
        raise Rejected("truncated", f"the shard ends at byte {length}, before the end of the image")
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    buffer, at = view(offset, size)
    data = memoryview(buffer)[at : at + size]
    try:
        return make_raw_thumbnail(data, pixels) if pixels else make_thumbnail(data)
    except (Rejected, MemoryError):
        raise
    except Exception as error:
        raise failed(error) from error
