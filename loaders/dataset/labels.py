"""The labels of a batch that are lists in the sample tables: several classes, numbers, boxes.

NumPy only: imports neither torch nor DALI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from loaders.arrays import Array, Float32s, Ints
from loaders.dataset.tables import ListColumn

#: A box of which less than this remains in a direction, in pixels, is left out.
MIN_SIDE = 1.0

#: Label of the rows of a padded batch that are no boxes.
NO_BOX = -1

#: Returns the labels of rows as a field, [B, ...]: takes a column, int64 rows [B], and the keyword
#: `classes`, the number of classes of the dataset.
Reader: TypeAlias = Callable[..., Float32s]


def multi_hot(column: ListColumn, rows: Ints, *, classes: int) -> Float32s:
    """Return the classes of rows, float32 [B, classes]: 1 for a class that a sample has, else 0."""
    labels, counts = column.take(rows)
    hot = np.zeros((len(rows), classes), np.float32)
    hot[np.repeat(np.arange(len(rows)), counts), labels] = 1
    return hot


def _numbers(column: ListColumn, rows: Ints, *, classes: int) -> Float32s:
    """Return the numbers of rows as float32 [B, numbers]: all rows have as many."""
    del classes
    values, _ = column.take(rows)
    return values.reshape(len(rows), -1).astype(np.float32, copy=False)


#: How a column of labels becomes a field, by the kind of its values in `LabelSchema.columns`. Any
#: other column is returned as it is.
READERS: Mapping[str, Reader] = {"integers": multi_hot, "floats": _numbers}


# --- boxes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of B samples, one sample after the other.

    Attributes:
        corners: float32 [n, 4], the left, top, right and bottom edges in pixels.
        labels: int64 [n], the class of each box.
        counts: int64 [B], number of boxes of each sample.

    """

    corners: Float32s
    labels: Ints
    counts: Ints


def box_fields(columns: Mapping[str, ListColumn], rows: Ints, frames: Float32s) -> dict[str, Array]:
    """Return the fields of the boxes of rows: ``boxes``, ``box_labels`` and ``box_counts``.

    Args:
        columns: the columns ``boxes`` and ``box_labels``.
        rows: int64 [B].
        frames: how coordinates change, float32 [B, 5, 2]; see `loaders.dali.boxes`.

    """
    corners, counts = columns["boxes"].take(rows)
    labels, _ = columns["box_labels"].take(rows)
    visible = moved(Boxes(corners, labels, counts), frames)
    padded_corners, padded_labels = padded(visible)
    return {"boxes": padded_corners, "box_labels": padded_labels, "box_counts": visible.counts}


def moved(boxes: Boxes, frames: Float32s) -> Boxes:
    """Return the visible boxes in the transformed images.

    Args:
        boxes: boxes in the stored images.
        frames: how coordinates change, float32 [B, 5, 2]; see `loaders.dali.boxes`.

    """
    sample = np.repeat(np.arange(len(boxes.counts)), boxes.counts)
    # Width before height, as in the boxes.
    frame = frames[sample][..., ::-1].astype(np.float64)
    points = boxes.corners.reshape(-1, 2, 2) * frame[:, 1:2] + frame[:, 2:3]
    visible = np.sort(frame[:, 3:5], axis=1)
    corners = np.clip(np.sort(points, axis=1), visible[:, :1], visible[:, 1:]).astype(np.float32)
    kept = (corners[:, 1] - corners[:, 0] >= MIN_SIDE).all(axis=1)
    counts = np.bincount(sample[kept], minlength=len(boxes.counts))
    return Boxes(corners[kept].reshape(-1, 4), boxes.labels[kept], counts.astype(np.int64))


def padded(boxes: Boxes) -> tuple[Float32s, Ints]:
    """Return corners, float32 [B, n, 4], and labels, int64 [B, n].

    N is the largest number of boxes of a sample.

    The rows after the boxes of a sample contain 0 and the label `NO_BOX`.
    """
    size = len(boxes.counts), int(boxes.counts.max(initial=0))
    corners = np.zeros((*size, 4), np.float32)
    labels = np.full(size, NO_BOX, np.int64)
    filled = np.arange(size[1]) < boxes.counts[:, None]
    corners[filled], labels[filled] = boxes.corners, boxes.labels
    return corners, labels


#: The fields of labels that refer to places in the image, by label type. They take the columns of
#: the labels, the rows of a batch, and the frames, which tell how the transforms move coordinates.
PLACED: Mapping[str, Callable[..., dict[str, Array]]] = {"boxes": box_fields}
