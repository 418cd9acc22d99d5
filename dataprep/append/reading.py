"""Read images of a source as a dataset stores them, with the labels that depend on them, to compare both."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep.containers import Location, locations_of
from dataprep.datasets.label_texts import mask_text, placed_text
from dataprep.images.base import Rejected
from dataprep.images.validate import inspect
from dataprep.options import Options
from dataprep.shards.placed_labels import ANNOTATED, place_boxes
from dataprep.shards.second_image import load_second_image
from dataprep.shards.source_image import load_image
from dataprep.sources import Source
from dataprep.sources.base import MASK_SOURCE
from manifests.labels import LABEL_COLUMNS, MASK_TYPES, PLACED_TYPES, LabelType
from manifests.remote import absolute

#: Begins the text of labels that would be rejected.
REJECTED = "one that is rejected"

#: Images that one task reads.
_BATCH = 256


class ReadTask(NamedTuple):
    """Source images to read. The lists have one element for each.

    Attributes:
        root: folder that relative `paths` start from.
        options: how they are stored.
        rows: their rows in the source.
        paths: their paths.
        sizes: their sizes in bytes, when the source was scanned.
        locations: where they are inside containers.
        label_type: what the labels are.
        classes: class names in label order.
        labels: the columns of the labels, if these refer to places in the image.

    """

    root: str
    options: Options
    rows: list[int]
    paths: list[str]
    sizes: list[int]
    locations: list[Location | None]
    label_type: LabelType
    classes: tuple[str, ...]
    labels: list[dict[str, Any]] | None


class Contents(NamedTuple):
    """What was read. The lists have one element for each image.

    Attributes:
        rows: rows in the source.
        checksums: CRC-32C of each image as it is stored; -1 for one that would be rejected.
        labels: labels as text, as they are stored, if they refer to places in the image; else empty texts. A text that
            begins with `REJECTED` says why they would be rejected.

    """

    rows: list[int]
    checksums: list[int]
    labels: list[str]


def read_tasks(source: Source, options: Options, rows: NDArray[np.int64]) -> Iterator[ReadTask]:
    """Yield the tasks that read some rows of a source."""
    label_type = source.label_type
    names = [*LABEL_COLUMNS[label_type], *ANNOTATED, MASK_SOURCE] if label_type in PLACED_TYPES else []
    extra = source.extra.select([name for name in names if name in source.extra.column_names])
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        yield ReadTask(
            source.root,
            options,
            some.tolist(),
            source.path.take(some).to_pylist(),
            source.size[some].tolist(),
            locations_of(source.location, some) or [None] * len(some),
            label_type,
            source.classes if label_type == "boxes" else (),
            extra.take(some).to_pylist() if names else None,
        )


def read_contents(task: ReadTask) -> Contents:
    """Read the images of a task."""
    checksums, texts = [], []
    nothing: list[dict[str, Any] | None] = [None] * len(task.rows)
    extras: Sequence[dict[str, Any] | None] = task.labels or nothing
    for path, size, location, extra in zip(task.paths, task.sizes, task.locations, extras, strict=True):
        try:
            image = load_image(task.root, path, size, task.options, location, placed=extra is not None)
        except Rejected:
            checksums.append(-1)
            texts.append("")
            continue
        checksums.append(crc32c(image.data))
        if extra is None or image.placement is None:
            texts.append("")
            continue
        try:
            if task.label_type in MASK_TYPES:
                mask = load_second_image(
                    task.root, extra, image.placement, task.options, location, label_type=task.label_type
                )
                texts.append(mask_text(task.label_type, len(mask), crc32c(mask)))
            else:
                texts.append(placed_text(place_boxes(extra, image.placement), task.classes))
        except Rejected as error:
            texts.append(f"{REJECTED} ({error.detail})")
    return Contents(task.rows, checksums, texts)


class StoredMask(NamedTuple):
    """A mask or depth map in a shard.

    Attributes:
        shard: path of the shard.
        offset: its first byte.
        size: its length in bytes.
        crc32c: its checksum.

    """

    shard: str
    offset: int
    size: int
    crc32c: int


class MaskTask(NamedTuple):
    """Masks or depth maps of a source to compare with those of a dataset. The lists have one element for each.

    Attributes:
        images: the images that they belong to.
        stored: what they are compared with.
        numbers: numbers of the comparisons.

    """

    images: ReadTask
    stored: list[StoredMask]
    numbers: list[int]


def mask_tasks(
    source: Source, options: Options, rows: NDArray[np.int64], numbers: NDArray[np.int64], stored: list[StoredMask]
) -> Iterator[MaskTask]:
    """Yield the tasks that compare masks of some rows of a source. The last three arguments have the same length."""
    for number, images in enumerate(read_tasks(source, options, rows)):
        some = slice(number * _BATCH, (number + 1) * _BATCH)
        yield MaskTask(images, stored[some], numbers[some].tolist())


def compare_masks(task: MaskTask) -> tuple[list[int], list[bool]]:
    """Return the numbers of the comparisons, and for each whether both masks have the same pixels."""
    return task.numbers, [_has_same_pixels(task.images, at, stored) for at, stored in enumerate(task.stored)]


def _has_same_pixels(task: ReadTask, at: int, stored: StoredMask) -> bool:
    """Return whether a mask of the source has the pixels of one in a dataset, if it has other bytes.

    Masks that are not stored as they are were encoded again, and libraries of another version give other bytes.
    """
    from dataprep.images.label_image import label_values  # imports imaging libraries

    options, location, extra = task.options, task.locations[at], (task.labels or [])[at]
    shard = absolute(stored.shard)
    place = Location(shard, "range", stored.offset, stored.size, crc32c=stored.crc32c)
    unchanged = Options(validate="none", max_pixels=options.max_pixels)
    try:
        image = load_image(task.root, task.paths[at], task.sizes[at], options, location, placed=True)
        if image.placement is None:
            return False
        own = load_second_image(task.root, extra, image.placement, options, location, label_type=task.label_type)
        there = load_image(os.path.dirname(shard), shard, stored.size, unchanged, place).data
        a, b = (label_values(data, inspect(data, "none", options.max_pixels)) for data in (own, there))
    except Rejected:
        return False
    return a.dtype == b.dtype and np.array_equal(a, b)
