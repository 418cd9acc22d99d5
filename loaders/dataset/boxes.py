"""The boxes of a batch, moved as the transforms move their images.

NumPy only: imports neither torch nor DALI.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: A box of which less than this remains in a direction, in pixels, is left out.
MIN_SIDE = 1.0

#: Label of the rows of a padded batch that are no boxes.
NO_BOX = -1


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of B samples, one sample after the other.

    Attributes:
        corners: float32 [n, 4], the left, top, right and bottom edges in pixels.
        labels: int64 [n], the class of each box.
        counts: int64 [B], number of boxes of each sample.

    """

    corners: NDArray[np.float32]
    labels: NDArray[np.int64]
    counts: NDArray[np.int64]


def moved(boxes: Boxes, frames: NDArray[np.float32]) -> Boxes:
    """Return the boxes in the transformed images, without those that are not visible there.

    Args:
        boxes: boxes in the stored images.
        frames: how coordinates change, float32 [B, 5, 2]; see `loaders.dali.targets`.

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


def padded(boxes: Boxes) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return corners, float32 [B, n, 4], and labels, int64 [B, n].

    N is the largest number of boxes of a sample.

    The rows after the boxes of a sample contain 0 and the label `NO_BOX`.
    """
    size = len(boxes.counts), int(boxes.counts.max(initial=0))
    corners, labels = np.zeros((*size, 4), np.float32), np.full(size, NO_BOX, np.int64)
    filled = np.arange(size[1]) < boxes.counts[:, None]
    corners[filled], labels[filled] = boxes.corners, boxes.labels
    return corners, labels
