"""Boxes: collected from annotations, checked, and moved as their image is resized."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_float
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataprep.images.base import Rejected
from dataprep.labels.base import Feature, LabelKind, PendingSample
from manifests.labels import arrow_type
from manifests.process.text import plural

if TYPE_CHECKING:
    import pyarrow as pa

    from dataprep.arrays import Int64Array
    from dataprep.images.downscale import Placement

#: Columns with the width and height of the upright image that the boxes of a sample refer to.
ANNOTATED = ("annotated_width", "annotated_height")

#: The size of an image that boxes refer to if they are fractions of its sides.
FRACTIONS = (1, 1)

#: Boxes may reach this far beyond their image, in pixels, because of rounding. They are clipped.
TOLERANCE = 1.0


class Boxes(LabelKind):
    """Boxes with a class each, as corners in pixels of the image: x1, y1, x2, y2."""

    stratification = "stratified by the rarest class of each image"
    class_member = "box_classes"

    @property
    def placed_columns(self) -> Mapping[str, str]:
        """Columns of the boxes, and the size of the image that they refer to."""
        return {**self.columns, **dict.fromkeys(ANNOTATED, "integer")}

    def place(self, extra: Mapping[str, Any], placement: Placement) -> dict[str, Any]:
        """Return `placed_columns` of a stored image. Boxes that it does not show are left out.

        Args:
            extra: the columns of the sample, with the boxes in the source image.
            placement: where the stored image shows the source image.

        Raises:
            Rejected: a box is outside of the image, or the boxes refer to an image of another size.

        """
        width, height = _unit(extra, placement)
        boxes, labels = [], []
        for number, (sides, label) in enumerate(
            zip(extra["boxes"], extra["box_labels"], strict=True)
        ):
            box = [side * unit for side, unit in zip(sides, (width, height) * 2, strict=True)]
            _check_box(number, box, placement)
            left, top, right, bottom = (_moved(box[at], at % 2, placement) for at in range(4))
            if left < right and top < bottom:
                boxes.append([left, top, right, bottom])
                labels.append(label)
        size = dict(zip(ANNOTATED, placement.stored, strict=True))
        return {"boxes": boxes, "box_labels": labels, **size}

    def features(self, sample: PendingSample) -> Iterator[Feature]:
        """Yield the sides of the boxes as fractions of the image, their classes and these names."""
        # The size of the upright image: the header has the size before its EXIF orientation is
        # applied.
        width, height = (sample.extra[name] for name in ANNOTATED)
        sides = (("xmin", width), ("ymin", height), ("xmax", width), ("ymax", height))
        for corner, (side, length) in enumerate(sides):
            values = [box[corner] / length for box in sample.extra["boxes"]]
            yield f"image/object/bbox/{side}".encode(), "floats", values
        names = [name.encode() for name in sample.class_names]
        yield b"image/object/class/text", "bytes", names
        yield b"image/object/class/label", "integers", sample.extra["box_labels"]

    def text(self, row: Mapping[str, Any], classes: Sequence[str]) -> str:
        """Return the boxes, which does not depend on their order."""
        boxes = sorted(
            (classes[label], tuple(box))
            for label, box in zip(row["box_labels"], row["boxes"], strict=True)
        )
        return "; ".join(f"{name} {' '.join(f'{side:.9g}' for side in box)}" for name, box in boxes)


def _moved(value: float, axis: int, placement: Placement) -> float:
    moved = value * placement.scale[axis] + placement.offset[axis]
    # As the sample table stores it, so that the record, which has fractions of the side, agrees
    # with the table.
    return c_float(min(max(moved, 0.0), float(placement.stored[axis]))).value


def _unit(extra: Mapping[str, Any], placement: Placement) -> tuple[int, int]:
    """Return the width and height that the boxes of an image are multiples of: one pixel, or the image.

    Raises:
        Rejected: the boxes refer to an image of another size.

    """
    stated = tuple(extra.get(name) or 0 for name in ANNOTATED)
    if stated == FRACTIONS:
        return placement.source
    if not all(stated) or stated == placement.source:
        return 1, 1
    (width, height), (actual_width, actual_height) = stated, placement.source
    turned = (
        ". They count in the image before its EXIF orientation"
        if stated == placement.source[::-1]
        else ""
    )
    raise Rejected(
        "bad-label",
        f"its boxes refer to an image of {width}x{height} pixels, but it has"
        f" {actual_width}x{actual_height}{turned}",
    )


def _check_box(number: int, box: list[float], placement: Placement) -> None:
    width, height = placement.source
    left, top, right, bottom = box
    if min(left, top) < -TOLERANCE or right > width + TOLERANCE or bottom > height + TOLERANCE:
        shown = ", ".join(f"{value:g}" for value in box)
        raise Rejected(
            "bad-label",
            f"boxes[{number}] ({shown}) is outside of the image of {width}x{height} pixels",
        )


# --- boxes from annotations ---------------------------------------------------------------------


@dataclass
class BoxList:
    """Boxes of images, in any order; arrays of 56 bytes a box.

    Attributes:
        image: number of the image of each box.
        label: class of each box.
        corners: left, top, right and bottom of each box, one after the other.
        place: number of each box in its file, for messages.

    """

    image: Any = field(default_factory=lambda: array("q"))
    label: Any = field(default_factory=lambda: array("q"))
    corners: Any = field(default_factory=lambda: array("d"))
    place: Any = field(default_factory=lambda: array("q"))

    def add(self, image: int, label: int, corners: Sequence[float], place: int) -> None:
        """Add a box."""
        self.image.append(image)
        self.label.append(label)
        self.corners.extend(corners)
        self.place.append(place)


def box_columns(
    boxes: BoxList, sizes: Int64Array
) -> tuple[dict[str, pa.Array], dict[int, int], list[str]]:
    """Check boxes against the sizes of their images, and sort them by image.

    Args:
        boxes: the boxes, of images 0 to n - 1.
        sizes: width and height of each image as the annotations state them, int64 [n, 2]; 0 if they
            do not; `FRACTIONS` if the boxes are fractions of the sides.

    Returns:
        The columns ``boxes`` and ``box_labels``, [n]; for each image with a box that is outside of
        it, the number of the first such box in its file; and messages for the user.

    """
    import numpy as np
    import pyarrow as pa

    from dataprep.labels.columns import Lists

    parts = (boxes.image, boxes.label, boxes.place)
    image, label, place = (np.array(part, np.int64) for part in parts)
    corners = np.array(boxes.corners, np.float64).reshape(-1, 4)
    room = np.concatenate([np.where(sizes[image] > 0, sizes[image], np.inf)] * 2, axis=1)
    wrong = ((corners < -TOLERANCE) | (corners > room + TOLERANCE)).any(axis=1)
    wrong |= (corners[:, 2:] < corners[:, :2]).any(axis=1)
    # Of several boxes of an image, the first one is written last.
    outside = dict(zip(image[wrong][::-1].tolist(), place[wrong][::-1].tolist(), strict=True))
    # Annotations round corners, so a box may reach a little beyond its image.
    clipped = np.clip(corners, 0, room)
    beyond = int((~wrong & (clipped != corners).any(axis=1)).sum())
    # In float32, as they are stored, a box may have no area although it has one in float64.
    stored = clipped.astype(np.float32)
    empty = ~wrong & (stored[:, 2:] <= stored[:, :2]).any(axis=1)
    kept = ~wrong & ~empty
    # Boxes of an image keep their order.
    order = np.argsort(image[kept], kind="stable")
    counts = np.bincount(image[kept], minlength=len(sizes))
    sides = pa.array(stored[kept][order].ravel(), pa.float32())
    corners_of = Lists(pa.FixedSizeListArray.from_arrays(sides, 4), counts)
    label_of = Lists(pa.array(label[kept][order]), counts)
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
    columns = {
        "boxes": corners_of.as_array(arrow_type("boxes")),
        "box_labels": label_of.as_array(arrow_type("integers")),
    }
    return columns, outside, notices
