"""Boxes of an image, checked against its size, and moved as it is resized."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_float
from typing import TYPE_CHECKING, Any

from dataprep.images.base import Rejected
from manifests.labels import LABEL_COLUMNS

if TYPE_CHECKING:
    from dataprep.images.placement import Placement

#: Columns with the width and height of the upright image that the boxes of a sample refer to.
ANNOTATED = ("annotated_width", "annotated_height")

#: Columns of `place_boxes`.
BOX_COLUMNS = (*LABEL_COLUMNS["boxes"], *ANNOTATED)

#: Boxes may reach this far beyond their image, in pixels, because of rounding. They are clipped.
TOLERANCE = 1.0


def place_boxes(extra: Mapping[str, Any], placement: Placement) -> dict[str, Any]:
    """Return the columns of the boxes of a stored image: ``boxes``, ``box_labels`` and `ANNOTATED`.

    Boxes that the stored image does not show are left out.

    Args:
        extra: the columns of the sample, with the boxes in the source image.
        placement: where the stored image shows the source image.

    Raises:
        Rejected: a box is outside of the image, or the boxes refer to an image of another size.

    """
    _check_size(extra, placement)
    boxes, labels = [], []
    for number, (box, label) in enumerate(zip(extra["boxes"], extra["box_labels"], strict=True)):
        _check_box(number, box, placement)
        left, top, right, bottom = (_moved(box[at], at % 2, placement) for at in range(4))
        if left < right and top < bottom:
            boxes.append([left, top, right, bottom])
            labels.append(label)
    return {
        "boxes": boxes,
        "box_labels": labels,
        **dict(zip(ANNOTATED, placement.stored, strict=True)),
    }


def _moved(value: float, axis: int, placement: Placement) -> float:
    moved = value * placement.scale[axis] + placement.offset[axis]
    # As the sample table stores it, so that the record, which has fractions of the side, agrees
    # with the table.
    return c_float(min(max(moved, 0.0), float(placement.stored[axis]))).value


def _check_size(extra: Mapping[str, Any], placement: Placement) -> None:
    stated = tuple(extra.get(name) or 0 for name in ANNOTATED)
    if not all(stated) or stated == placement.source:
        return
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
