"""Label types: what a dataset stores as the label of an image, and the columns that hold it.

No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import pyarrow as pa

#: The kind of label that every sample of a dataset has: nothing, a class, several classes, numbers,
#: a text, boxes with their classes, or a label image with a class or a depth for each pixel.
LabelType = Literal[
    "class", "none", "multi-label", "regression", "caption", "boxes", "mask", "depth"
]
LABEL_TYPES: tuple[LabelType, ...] = get_args(LabelType)

#: Label types whose records contain a label image.
MASK_TYPES: tuple[LabelType, ...] = ("mask", "depth")

#: Column of a source and of the sample tables with the path of each label image in the source.
MASK_SOURCE = "mask_source"

#: Label types whose labels refer to places in the image.
PLACED_TYPES: tuple[LabelType, ...] = ("boxes", *MASK_TYPES)

_SECOND_IMAGE = {"mask_offset": "integer", "mask_size": "integer", "mask_crc32c": "checksum"}

#: Columns of the sample tables that hold the labels, with the kind of their values; see
#: `arrow_type`.
LABEL_COLUMNS: Mapping[LabelType, Mapping[str, str]] = {
    "class": {"label": "integer"},
    "none": {},
    "multi-label": {"labels": "integers"},
    "regression": {"values": "floats"},
    "caption": {"caption": "text"},
    "boxes": {"boxes": "boxes", "box_labels": "integers"},
    "mask": _SECOND_IMAGE,
    "depth": _SECOND_IMAGE,
}

#: Column with the classes of a sample, for each label type that can have several.
CLASS_COLUMNS: Mapping[LabelType, str] = {"multi-label": "labels", "boxes": "box_labels"}

#: Field of `loaders.build` that returns the labels of each type; `None` if there is none.
LABEL_FIELDS: Mapping[LabelType, str | None] = {
    "class": "label",
    "none": None,
    "multi-label": "labels",
    "regression": "values",
    "caption": "caption",
    "boxes": "boxes",
    "mask": "mask",
    "depth": "depth",
}


def has_classes(label_type: LabelType) -> bool:
    """Return whether labels of this type name classes of the dataset."""
    return label_type in ("class", "multi-label", "boxes", "mask")


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a kind of values in `LABEL_COLUMNS`."""
    import pyarrow as pa

    def list_of(item: pa.DataType) -> pa.DataType:
        # The name that Parquet gives to the items: a table that is read and written again keeps its
        # bytes.
        return pa.list_(pa.field("element", item))

    types = {
        "integer": pa.int64(),
        "checksum": pa.uint32(),
        "integers": list_of(pa.int64()),
        "floats": list_of(pa.float32()),
        "text": pa.string(),
        "boxes": list_of(pa.list_(pa.field("element", pa.float32()), 4)),
    }
    return types[kind]
