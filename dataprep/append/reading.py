"""Read images of a source as a dataset stores them, with the labels that depend on them, to compare both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep.containers import Location, locations_of
from dataprep.datasets.label_texts import mask_text, placed_text
from dataprep.images.base import Rejected
from dataprep.images.validate import inspect
from dataprep.labels.boxes import ANNOTATED, place_boxes
from dataprep.options import Options
from dataprep.shards.source_image import load_image, load_label_image
from dataprep.sources import Source
from manifests.labels import LABEL_COLUMNS, MASK_SOURCE, MASK_TYPES, PLACED_TYPES, LabelType
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
        stored: for each image, the masks or depth maps in the dataset that its own is compared
            with.

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
    stored: list[list[StoredMask]]


class StoredMask(NamedTuple):
    """A mask or depth map in a shard.

    Attributes:
        number: number of the comparison.
        image_crc32c: checksum of the image that it belongs to.
        shard: path of the shard.
        offset: its first byte.
        size: its length in bytes.
        crc32c: its checksum.

    """

    number: int
    image_crc32c: int | None
    shard: str
    offset: int
    size: int
    crc32c: int


class Contents(NamedTuple):
    """What was read. The lists have one element for each image.

    Attributes:
        rows: rows in the source.
        checksums: CRC-32C of each image as it is stored; -1 for one that would be rejected.
        labels: labels as text, as they are stored, if they refer to places in the image; else empty
            texts. A text that begins with `REJECTED` says why they would be rejected.
        equal: numbers of the comparisons in which both images are the same, and both masks have the
            same pixels.

    """

    rows: list[int]
    checksums: list[int]
    labels: list[str]
    equal: list[int]


def count_tasks(rows: NDArray[np.int64]) -> int:
    """Return how many tasks `read_tasks` yields."""
    return -(-len(rows) // _BATCH)


def read_tasks(
    source: Source, options: Options, pairs: pa.Table, rows: NDArray[np.int64]
) -> Iterator[ReadTask]:
    """Yield the tasks that read some rows of a source.

    Args:
        source: the samples.
        options: how the dataset stores them.
        pairs: a row of the source and a sample each, in ascending order of the rows: the columns
            ``row``, ``crc32c``, and, if there are masks or depth maps, where those of the samples
            are.
        rows: the different rows in `pairs`, int64, ascending.

    """
    label_type = source.label_type
    names = (
        [*LABEL_COLUMNS[label_type], *ANNOTATED, MASK_SOURCE] if label_type in PLACED_TYPES else []
    )
    extra = source.extra.select([name for name in names if name in source.extra.column_names])
    pair_rows = np.asarray(pairs["row"])
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        first, stop = np.searchsorted(pair_rows, [some[0], some[-1] + 1]).tolist()
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
            (
                _stored_masks(some, pairs, first, stop)
                if label_type in MASK_TYPES
                else [[] for _ in some]
            ),
        )


_MASK_COLUMNS = ("crc32c", "shard", "mask_offset", "mask_size", "mask_crc32c")


def _stored_masks(
    rows: NDArray[np.int64], pairs: pa.Table, first: int, stop: int
) -> list[list[StoredMask]]:
    """Return the masks of the samples in some pairs, for each of the rows."""
    part = pairs.slice(first, stop - first)
    result: list[list[StoredMask]] = [[] for _ in rows]
    places = np.searchsorted(rows, np.asarray(part["row"])).tolist()
    for number, (place, pair) in enumerate(
        zip(places, part.select(_MASK_COLUMNS).to_pylist(), strict=True), first
    ):
        result[place].append(StoredMask(number, *(pair[name] for name in _MASK_COLUMNS)))
    return result


def read_contents(task: ReadTask) -> Contents:
    """Read the images of a task."""
    found = Contents(task.rows, [], [], [])
    for at in range(len(task.rows)):
        checksum, text, equal = _read(task, at)
        found.checksums.append(checksum)
        found.labels.append(text)
        found.equal.extend(equal)
    return found


def _read(task: ReadTask, at: int) -> tuple[int, str, list[int]]:
    """Read one image: return its part of `Contents`."""
    location, options, extra = (
        task.locations[at],
        task.options,
        task.labels[at] if task.labels else None,
    )
    try:
        image = load_image(
            task.root, task.paths[at], task.sizes[at], options, location, placed=extra is not None
        )
    except Rejected:
        return -1, "", []
    checksum = crc32c(image.data)
    if extra is None or image.placement is None:
        return checksum, "", []
    try:
        if task.label_type not in MASK_TYPES:
            return checksum, placed_text(place_boxes(extra, image.placement), task.classes), []
        same = [each for each in task.stored[at] if each.image_crc32c == checksum]
        if not same:  # the masks of other images do not matter
            return checksum, "", []
        mask = load_label_image(
            task.root, extra, image.placement, options, location, label_type=task.label_type
        )
    except Rejected as error:
        return checksum, f"{REJECTED} ({error.detail})", []
    equal = [each.number for each in same if _is_same_mask(mask, each, options.max_pixels)]
    return checksum, mask_text(task.label_type, len(mask), crc32c(mask)), equal


def _is_same_mask(mask: bytes, stored: StoredMask, max_pixels: int) -> bool:
    """Return whether a mask is one in a dataset: the same bytes, or at least the same pixels."""
    return (len(mask), crc32c(mask)) == (stored.size, stored.crc32c) or _has_same_pixels(
        mask, stored, max_pixels
    )


def _has_same_pixels(mask: bytes, stored: StoredMask, max_pixels: int) -> bool:
    """Return whether a mask has the pixels of one in a dataset.

    Masks that are not stored as they are were encoded again, and libraries of another version give
    other bytes.
    """
    from dataprep.labels.images import label_values  # imports imaging libraries

    shard = absolute(stored.shard)
    place = Location(shard, "range", stored.offset, stored.size, crc32c=stored.crc32c)
    unchanged = Options(validate="none", max_pixels=max_pixels)
    try:
        there = load_image(os.path.dirname(shard), shard, stored.size, unchanged, place).data
        a, b = (label_values(data, inspect(data, "none", max_pixels)) for data in (mask, there))
    except Rejected:
        return False
    return a.dtype == b.dtype and np.array_equal(a, b)
