"""Groups of images that a report shows in place of classes, if the labels are not classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from manifests.labels import CLASS_COLUMNS, LabelType
from manifests.schema import Manifest

if TYPE_CHECKING:
    import pyarrow as pa

#: Groups of numbers of about equal size.
_TENTHS = 10


def group_column(label_type: LabelType) -> str | None:
    """Return the column of a sample table that decides on the group.

    `None` if all images are one group.
    """
    return {"class": "label", "regression": "values", **CLASS_COLUMNS}.get(label_type)


def group_values(table: pa.Table, manifest: Manifest) -> NDArray[np.float64]:
    """Return a number for each sample: its class or first class, the first number of a regression, else 0."""
    import pyarrow.compute as pc

    column = group_column(manifest.label_type)
    if column is None:
        return np.zeros(len(table))
    if column == "label":
        return np.asarray(table["label"]).astype(np.float64)
    if column == "values":
        return np.asarray(pc.list_element(table["values"].combine_chunks(), 0)).astype(np.float64)
    lists = table[column].combine_chunks()
    values = np.full(len(table), len(manifest.classes), np.float64)  # after all classes: none
    rows, first = np.unique(np.asarray(pc.list_parent_indices(lists)), return_index=True)
    values[rows] = np.asarray(pc.list_flatten(lists))[first]
    return values


def names_classes(label_type: LabelType) -> bool:
    """Return whether the labels of a sample table are classes, one or several for each image."""
    return group_column(label_type) not in (None, "values")


def used_classes(table: pa.Table, manifest: Manifest) -> NDArray[np.int64]:
    """Return the numbers of the classes that occur in a sample table, int64 [classes].

    Others than the first count.
    """
    import pyarrow.compute as pc

    column = group_column(manifest.label_type)
    if not names_classes(manifest.label_type):
        return np.zeros(0, np.int64)
    labels = table[column] if column == "label" else pc.list_flatten(table[column])
    found = np.unique(np.asarray(labels)).astype(np.int64)
    return found[(found >= 0) & (found < len(manifest.classes))]


def group(
    values: NDArray[np.float64], manifest: Manifest
) -> tuple[NDArray[np.int32], Sequence[str]]:
    """Return the number of the group of each sample, int32 [samples], and the names of the groups."""
    if manifest.label_type == "class":
        return values.astype(np.int32), manifest.classes
    if manifest.label_type in CLASS_COLUMNS:
        none = ("(no class)",) if (values == len(manifest.classes)).any() else ()
        return values.astype(np.int32), (*manifest.classes, *none)
    if manifest.label_type == "regression" and len(values):
        edges = np.unique(
            np.quantile(values, np.linspace(0, 1, _TENTHS + 1)[1:-1], method="nearest")
        )
        groups = np.searchsorted(edges, values, side="right")
        used, groups = np.unique(groups, return_inverse=True)
        parts = [values[groups == number] for number in range(len(used))]
        return groups.astype(np.int32), [f"{part.min():g} to {part.max():g}" for part in parts]
    return np.zeros(len(values), np.int32), ("all images",)
