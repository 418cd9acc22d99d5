"""What the new splits are stratified by, for each label type. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.sources import Source
from manifests.labels import CLASS_COLUMNS, LabelType

#: How splits of labels that are not classes are made, to show to the user.
STRATA: Mapping[LabelType, str] = {
    "multi-label": "stratified by the rarest class of each image",
    "boxes": "stratified by the rarest class of each image",
    "regression": "stratified by the tenths of the first number",
    "none": "random: images without labels cannot be stratified",
    "caption": "random: captions cannot be stratified",
    "mask": "random: masks cannot be stratified",
    "depth": "random: depth maps cannot be stratified",
}

#: Groups of numbers of about equal size.
_QUANTILES = 10


def strata_of(source: Source) -> NDArray[np.int32]:
    """Return a number for each sample, int32 [n]: every split gets its share of the samples with the same number."""
    if source.label_type == "regression":
        values = np.asarray(pc.list_element(source.extra["values"], 0)).astype(np.float64)
        edges = np.quantile(values, np.linspace(0, 1, _QUANTILES + 1)[1:-1], method="nearest")
        return np.searchsorted(edges, values, side="right").astype(np.int32)
    if source.label_type not in CLASS_COLUMNS:
        return source.label
    rows, labels = _pairs(source)
    sizes = np.bincount(labels, minlength=len(source.classes))
    # Of the classes of a sample, the rarest is written last. A sample without classes is in a
    # stratum of its own.
    order = np.lexsort((labels, -sizes[labels]))
    strata = np.full(len(source), len(source.classes), np.int32)
    strata[rows[order]] = labels[order]
    return strata


def labels_in(source: Source, rows: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Return the classes of some samples, one after the other."""
    if source.label_type not in CLASS_COLUMNS:
        return source.label[rows]
    of_row, labels = _pairs(source)
    chosen = np.zeros(len(source), np.bool_)
    chosen[rows] = True
    return labels[chosen[of_row]]


def _pairs(source: Source) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the class of each label of samples that can have several."""
    column = source.extra[CLASS_COLUMNS[source.label_type]].combine_chunks()
    rows = np.asarray(pc.list_parent_indices(column)).astype(np.int64)
    return rows, np.asarray(pc.list_flatten(column)).astype(np.int64)
