"""Labels of a mixed batch, with one share per class. Imports only NumPy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from manifests.errors import CallError

Shares: TypeAlias = NDArray[np.float32]


def mixed_labels(
    labels: NDArray[np.int64],
    partner: NDArray[np.int32],
    share: Shares,
    classes: int,
    smoothing: float = 0.0,
) -> Shares:
    """Return the labels of B mixed samples as shares of the classes, float32 [B, classes].

    Each row adds up to 1.

    Args:
        labels: class of each sample, int64 [B].
        partner: index in the batch of each sample's partner, int32 [B].
        share: share of the sample's own label, float32 [B]; the rest goes to the partner's label.
        classes: number of classes.
        smoothing: fraction of each label that is spread equally over all classes.

    Raises:
        CallError: a label is negative or not below `classes`.

    """
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        raise CallError(
            f"labels are mixed for {classes} classes, but a sample has the label {outside[0]}",
            hint="remove class_num or num_classes to use the dataset's number of classes",
        )
    rows = np.arange(len(labels))
    mixed = np.full((len(labels), classes), smoothing / classes, np.float32)
    # Both lines add: if both labels are the same class, it gets the sum of the shares.
    mixed[rows, labels] += (1 - smoothing) * share
    mixed[rows, labels[partner]] += (1 - smoothing) * (1 - share)
    return mixed


def mixed_values(
    values: Shares, partner: NDArray[np.int32], share: Shares, smoothing: float = 0.0
) -> Shares:
    """Return the values of B mixed samples, such as multi-hot labels or numbers: float32 [B, N].

    Args:
        values: values of each sample, float32 [B, N].
        partner: index in the batch of each sample's partner, int32 [B].
        share: share of the sample's own values, float32 [B]; the rest are the partner's.
        smoothing: fraction of each row that is replaced by ``1 / N`` in every column.

    """
    own = share[:, None]
    mixed = own * values + (1 - own) * values[partner]
    smooth: Shares = ((1 - smoothing) * mixed + smoothing / values.shape[1]).astype(np.float32)
    return smooth
