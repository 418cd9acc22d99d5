"""Labels as a preview shows them: names of classes, numbers, a caption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.tables import SampleTables
from manifests.labels import LABELS
from manifests.process.text import cut_middle, printable


def label_texts(
    tables: SampleTables, rows: NDArray[np.int64], shards: NDArray[np.intp], classes: Sequence[str]
) -> list[str]:
    """Return the labels of some rows as text: names of classes, numbers, a caption.

    Empty if there are no labels.

    Args:
        tables: the sample tables.
        rows: the rows, int64 [n].
        shards: number of the shard of each row, [n].
        classes: class names in label order.

    """
    labels = LABELS[tables.label_type]
    if labels.is_class:
        lazy, columns = tables.lazy_columns(("label",))
        lazy.load(shards)
        return [class_name(int(label), classes) for label in columns["label"][rows]]
    column = labels.class_lists or labels.number_column or labels.text_column
    if column is None:
        return [""] * len(rows)
    values = tables.columns([column], requested_by="a preview")[column][rows].tolist()
    if labels.class_lists:
        texts = [
            ", ".join(class_name(label, classes) for label in dict.fromkeys(found))
            for found in values
        ]
    elif labels.number_column:
        texts = [", ".join(f"{number:g}" for number in numbers) for numbers in values]
    else:
        texts = values
    return [short(text) for text in texts]


def class_name(label: int, classes: Sequence[str]) -> str:
    """Return the name of a class, or its number if the dataset does not name it."""
    return short(classes[label]) if label < len(classes) else f"label {label}"


def short(text: object) -> str:
    """Return text of a dataset as it can be shown: printable, and not long."""
    return cut_middle(printable(cut_middle(str(text), 100)), 200)
