"""Labels of any type as text, to compare and show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from manifests.labels import CLASS_COLUMNS, LABEL_COLUMNS, LabelType


def label_columns(label_type: LabelType) -> tuple[str, ...]:
    """Return the columns of a sample table that `label_texts` needs."""
    return tuple(name for name in LABEL_COLUMNS[label_type] if name != "mask_offset")


def label_texts(table: pa.Table, label_type: LabelType, classes: Sequence[str]) -> pa.Array:
    """Return the labels of samples as text, large_string [n]: equal texts for equal labels.

    Args:
        table: a sample table with the columns of `label_columns`.
        label_type: what the labels are.
        classes: class names in label order.

    """
    if label_type == "class":
        names = pa.array(classes, pa.large_string())
        return names.take(table["label"].combine_chunks())
    if label_type == "caption":
        return table["caption"].combine_chunks().cast(pa.large_string())
    rows = table.select(label_columns(label_type)).to_pylist() if LABEL_COLUMNS[label_type] else []
    texts = [_text(row, label_type, classes) for row in rows] or [""] * len(table)
    return pa.array(texts, pa.large_string())


def _text(row: dict[str, Any], label_type: LabelType, classes: Sequence[str]) -> str:
    if label_type == "regression":
        return ", ".join(f"{value:.9g}" for value in row["values"])
    if label_type in CLASS_COLUMNS:
        if label_type == "multi-label":
            return ", ".join(sorted(classes[label] for label in row["labels"]))
        return placed_text(row, classes)
    return mask_text(label_type, row["mask_size"], row["mask_crc32c"])


def placed_text(row: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return the boxes of a sample as text, which does not depend on their order."""
    boxes = sorted(
        (classes[label], tuple(box))
        for label, box in zip(row["box_labels"], row["boxes"], strict=True)
    )
    return "; ".join(f"{name} {' '.join(f'{side:.9g}' for side in box)}" for name, box in boxes)


def mask_text(label_type: LabelType, size: int, checksum: int) -> str:
    """Return what tells a mask or depth map from others, as text: its length and CRC-32C."""
    return f"{label_type} of {size:,} bytes, crc32c:{checksum:08x}"


def numbered(texts: pa.ChunkedArray) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the position of each text among the different ones, int32 [n], and these."""
    coded = texts.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    return np.asarray(coded.indices).astype(np.int32), tuple(coded.dictionary.to_pylist())
