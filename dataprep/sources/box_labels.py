"""Collect the boxes of images from annotations, and make them columns of a source."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.shards.placed_labels import TOLERANCE
from dataprep.sources.base import Source
from manifests.labels import arrow_type
from manifests.text import plural


@dataclass
class BoxList:
    """Boxes of images, in any order. They take 26 bytes each.

    Attributes:
        image: number of the image of each box.
        label: class of each box.
        corners: left, top, right and bottom of each box, one after the other.
        place: number of each box in its file, for messages.

    """

    image: array[int] = field(default_factory=lambda: array("q"))
    label: array[int] = field(default_factory=lambda: array("q"))
    corners: array[float] = field(default_factory=lambda: array("d"))
    place: array[int] = field(default_factory=lambda: array("q"))

    def add(self, image: int, label: int, corners: Sequence[float], place: int) -> None:
        """Add a box."""
        self.image.append(image)
        self.label.append(label)
        self.corners.extend(corners)
        self.place.append(place)


@dataclass(frozen=True)
class BoxColumns:
    """The boxes of n images.

    Attributes:
        boxes: column ``boxes``, [n].
        labels: column ``box_labels``, [n].
        outside: for each image with a box that is outside of it, the number of the box in its file.
        notices: messages for the user.

    """

    boxes: pa.Array
    labels: pa.Array
    outside: dict[int, int]
    notices: tuple[str, ...]


def box_columns(boxes: BoxList, sizes: NDArray[np.int64]) -> BoxColumns:
    """Check boxes against the sizes of their images, and sort them by image.

    Args:
        boxes: the boxes, of images 0 to n - 1.
        sizes: width and height of each image as the annotations state them, int64 [n, 2]; 0 if they
            do not.

    """
    image, label, place = (
        np.array(part, np.int64) for part in (boxes.image, boxes.label, boxes.place)
    )
    corners = np.array(boxes.corners, np.float64).reshape(-1, 4)
    room = np.concatenate([np.where(sizes[image] > 0, sizes[image], np.inf)] * 2, axis=1)
    wrong = ((corners < -TOLERANCE) | (corners > room + TOLERANCE)).any(axis=1)
    wrong |= (corners[:, 2:] < corners[:, :2]).any(axis=1)
    outside = {
        int(at): int(number)
        for at, number in zip(image[wrong][::-1], place[wrong][::-1], strict=True)
    }
    clipped = np.clip(corners, 0, room)
    beyond = int((~wrong & (clipped != corners).any(axis=1)).sum())
    # In float32, as they are stored, a box may have no area although it has one in float64.
    stored = clipped.astype(np.float32)
    empty = ~wrong & (stored[:, 2:] <= stored[:, :2]).any(axis=1)
    kept = ~wrong & ~empty
    order = np.argsort(image[kept], kind="stable")
    counts = np.bincount(image[kept], minlength=len(sizes))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    flat = pa.array(stored[kept][order].ravel(), pa.float32())
    notices = []
    if empty.any():
        notices.append(
            f"left out {plural(int(empty.sum()), 'box')} without an area; the first is number"
            f" {place[empty][0]}"
        )
    if beyond:
        notices.append(
            f"clipped {plural(beyond, 'box')} that reach up to {TOLERANCE:g} pixel beyond their"
            " image"
        )
    return BoxColumns(
        pa.ListArray.from_arrays(offsets, pa.FixedSizeListArray.from_arrays(flat, 4)).cast(
            arrow_type("boxes")
        ),
        pa.ListArray.from_arrays(offsets, pa.array(label[kept][order], pa.int64())).cast(
            arrow_type("integers")
        ),
        outside,
        tuple(notices),
    )


def reject_outside(
    source: Source, columns: BoxColumns, sizes: NDArray[np.int64], name: Callable[[int, int], str]
) -> tuple[dict[str, str], ...]:
    """Return the rows of ``rejected.jsonl`` for images with a box outside of them.

    Args:
        source: the images.
        columns: what `box_columns` returned.
        sizes: width and height of each image, int64 [n, 2].
        name: returns what to call a box in a message, from the number of its image and its place in
            the annotations.

    """
    return tuple(
        {
            "source": source.path[image].as_py(),
            "reason": "bad-label",
            "detail": (
                f"{name(image, place)} is outside of the image of"
                f" {sizes[image, 0]}x{sizes[image, 1]} pixels"
            ),
        }
        for image, place in sorted(columns.outside.items())
    )
