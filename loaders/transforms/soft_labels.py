"""Labels of a mixed batch -> shares of classes. NumPy only; it must never know torch or DALI."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from manifests.errors import CallError

Shares: TypeAlias = NDArray[np.float32]


def mixed_labels(
    labels: NDArray[np.int64], partner: NDArray[np.int32], share: Shares, classes: int, smoothing: float = 0.0
) -> Shares:
    """Return what each of B samples holds of each class, float32 [B, classes]; a row adds up to 1.

    Args:
        labels: int64 [B].
        partner: number in the batch of each sample's partner, int32 [B].
        share: what stays of the own label, float32 [B]; the rest goes to the partner's.
        classes: how many there are.
        smoothing: how much of every label is spread over all classes, the same to each.

    Raises:
        CallError: a label is not below `classes`.

    """
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise CallError(
            f"mixing is told of {classes} classes, and a sample has the label {wrong[0]}",
            hint="leave the number of classes out (class_num, num_classes), and it is the dataset's",
        )
    rows = np.arange(len(labels))
    mixed = np.full((len(labels), classes), smoothing / classes, np.float32)
    # Both lines add, so that equal labels come to their sum.
    mixed[rows, labels] += (1 - smoothing) * share
    mixed[rows, labels[partner]] += (1 - smoothing) * (1 - share)
    return mixed
