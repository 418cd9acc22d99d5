"""Labels: what a dataset stores as the label of an image, its columns, and their checks.

One `LabelSchema` for each label type says what writers and readers share. How labels come from a
source into records is in `dataprep.labels`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from manifests.process.text import plural
from manifests.records import record

if TYPE_CHECKING:
    import pyarrow as pa

#: The kind of label that every sample of a dataset has: nothing, a class, several classes, numbers,
#: a text, several texts, boxes with their classes, or a label image with a class or a depth for each
#: pixel.
LabelType = Literal[
    "class", "none", "multi-label", "regression", "caption", "captions", "boxes", "mask", "depth"
]

#: Column with several texts for each sample, and the field that is one of them, or all.
CAPTIONS, CAPTION_FIELD = "captions", "caption"

#: Name of the label image among the images of a record.
LABEL_IMAGE = "mask"

#: What follows the name of an image in the column of a source, and of the sample tables, with its
#: path in the source.
IMAGE_SUFFIX = "_source"
MASK_SOURCE = f"{LABEL_IMAGE}{IMAGE_SUFFIX}"

#: Largest label of any dataset.
MAX_LABEL = 10_000_000


@record
class LabelSchema:
    """How a dataset holds the labels of one type.

    Attributes:
        name: the label type.
        columns: columns of the sample tables that hold the labels, with the kind of their values;
            see `arrow_type`.
        fields: fields of `loaders.build` that return the labels. The first one is the label itself.
        class_column: column with the class or the classes of each sample. `None` if there is none.
        class_lists: this column, if a sample can have several classes; else `None`.
        number_column: column with the same number of numbers in each sample. `None` if there is
            none.
        text_column: column with a text or several for each sample. `None` if there is none.
        is_class: whether the label is one class, in the column ``label`` and in the records.
        names_classes: whether the manifest names classes: of samples, boxes or pixels.
        is_placed: whether labels refer to places in the image.
        pixels: type of the pixels of a label image. `None` if records contain no label image.
        fill: value of pixels of a label image that are outside of the image.
        noun: what the label is called in messages.
        images: names of the images of each sample, the first image first. Empty if there is one.

    """

    name: LabelType
    columns: Mapping[str, str]
    fields: tuple[str, ...] = ()
    class_column: str | None = None
    class_lists: str | None = None
    number_column: str | None = None
    text_column: str | None = None
    is_class: bool = False
    names_classes: bool = False
    is_placed: bool = False
    pixels: Literal["uint8", "uint16"] | None = None
    fill: int = 0
    noun: str = "label"
    images: tuple[str, ...] = ()

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Names of the images that a record has beside the first one, in stored order."""
        return (*((LABEL_IMAGE,) if self.has_image else ()), *self.images[1:])

    @cached_property
    def image_columns(self) -> Mapping[str, str]:
        """Columns of sample tables about all images but the first, with the kinds of their values."""
        columns: dict[str, str] = {}
        for name in self.images[1:]:
            columns |= zip(place_columns(name), _PLACES, strict=True)
            columns |= dict.fromkeys((f"{name}_width", f"{name}_height"), "side")
        return columns

    @cached_property
    def stored_columns(self) -> Mapping[str, str]:
        """`columns` and `image_columns`."""
        return {**self.columns, **self.image_columns}

    @property
    def has_image(self) -> bool:
        """Whether records contain a label image."""
        return self.pixels is not None

    @property
    def is_separable(self) -> bool:
        """Whether the label is a list of values, which a text can contain with separators."""
        return not self.is_placed and bool(self.class_lists or self.number_column)

    @property
    def field(self) -> str | None:
        """Field of `loaders.build` that returns the label; `None` if there is none."""
        return next(iter(self.fields), None)


#: What an image of a sample can be called: DALI compares extensions without their case. Other names
#: are extensions of labels, or begin columns of resized images.
_IMAGE_NAME = re.compile(
    r"(?!(?:mask|depth|original|cls|txt|json|index|valid)$)[a-z][a-z0-9_]{0,30}"
)


def find_wrong_name(images: Sequence[str]) -> str:
    """Return what is wrong with the names of the images of a sample; empty if nothing is."""
    for name in images:
        if not _IMAGE_NAME.fullmatch(name):
            return f"{name!r} is not a name of an image: small letters, digits and _"
    if len(images) == 1 or len({*images}) < len(images):
        return "an image is named twice, or alone"
    return ""


#: Kinds of the values in the columns of `place_columns`.
_PLACES = ("integer", "integer", "checksum")


def place_columns(name: str = "") -> tuple[str, str, str]:
    """Return the columns that place an image in its shard: first byte, length, checksum.

    Without a name, they are the columns of the first image of a sample.
    """
    prefix = f"{name}_" if name else ""
    return f"{prefix}offset", f"{prefix}size", f"{prefix}crc32c"


_LABEL_IMAGE = dict(zip(place_columns(LABEL_IMAGE), _PLACES, strict=True))

_SCHEMAS = (
    LabelSchema(
        "class",
        {"label": "integer"},
        ("label",),
        class_column="label",
        is_class=True,
        names_classes=True,
    ),
    LabelSchema("none", {}),
    LabelSchema(
        "multi-label",
        {"labels": "integers"},
        ("labels",),
        class_column="labels",
        class_lists="labels",
        names_classes=True,
    ),
    LabelSchema("regression", {"values": "floats"}, ("values",), number_column="values"),
    LabelSchema("caption", {"caption": "text"}, ("caption",), text_column="caption"),
    LabelSchema("captions", {CAPTIONS: "texts"}, (CAPTION_FIELD,), text_column=CAPTIONS),
    LabelSchema(
        "boxes",
        {"boxes": "boxes", "box_labels": "integers"},
        ("boxes", "box_labels", "box_counts"),
        class_column="box_labels",
        class_lists="box_labels",
        names_classes=True,
        is_placed=True,
    ),
    # Pixels from outside of the image have the class that losses and metrics ignore.
    LabelSchema(
        "mask",
        _LABEL_IMAGE,
        ("mask",),
        names_classes=True,
        is_placed=True,
        pixels="uint8",
        fill=255,
        noun="mask",
    ),
    LabelSchema(
        "depth", _LABEL_IMAGE, ("depth",), is_placed=True, pixels="uint16", noun="depth map"
    ),
)

#: The schema of each label type.
LABELS: Mapping[LabelType, LabelSchema] = {schema.name: schema for schema in _SCHEMAS}


@lru_cache
def schema_of(label_type: LabelType, images: tuple[str, ...]) -> LabelSchema:
    """Return the schema of a dataset: the images of its samples, and their labels."""
    return replace(LABELS[label_type], images=images)


# --- columns ------------------------------------------------------------------------------------

#: Kinds of values that are lists.
LIST_KINDS = ("integers", "floats", "boxes")


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a kind of values in `LabelSchema.columns`."""
    import pyarrow as pa

    def list_of(item: pa.DataType, length: int = -1) -> pa.DataType:
        # The name that Parquet gives to the items: a table that is read and written again keeps its
        # bytes.
        return pa.list_(pa.field("element", item), length)

    types = {
        "integer": pa.int64(),
        "side": pa.int32(),
        "checksum": pa.uint32(),
        "integers": list_of(pa.int64()),
        "floats": list_of(pa.float32()),
        "text": pa.string(),
        "texts": list_of(pa.string()),
        "boxes": list_of(list_of(pa.float32(), 4)),
    }
    return types[kind]


class WrongValue(NamedTuple):
    """A value that cannot be a label: what is wrong, as the end of a sentence, and the row."""

    message: str
    row: int


def find_wrong_value(
    column: pa.Array | pa.ChunkedArray, kind: str, *, classes: int = MAX_LABEL + 1
) -> WrongValue | None:
    """Return the first value of a column that cannot be a label; `None` if all can.

    Args:
        column: the column, of the type `arrow_type` of the kind.
        kind: kind of its values, from `LabelSchema.columns`.
        classes: labels must be less than this.

    """
    import pyarrow.compute as pc

    if column.null_count:
        return WrongValue("has a row without a value", pc.index(pc.is_null(column), True).as_py())
    if kind not in (*LIST_KINDS, "texts") or not len(column):
        return None
    rows, values = pc.list_parent_indices(column), pc.list_flatten(column)
    if kind in ("texts", "boxes"):
        return _wrong_texts(column, rows, values) if kind == "texts" else _wrong_box(rows, values)
    if kind == "integers":
        problem = f"out of the range 0 to {classes - 1}"
        valid = pc.and_(pc.greater_equal(values, 0), pc.less(values, classes))
    else:
        problem, valid = "not a finite number", pc.is_finite(values)
    at = pc.index(pc.fill_null(valid, False), False).as_py()
    if at >= 0:
        return WrongValue(f"contains {values[at]}, which is {problem}", rows[at].as_py())
    if kind == "floats":
        return _wrong_length(column)
    return None


def _wrong_texts(column: Any, rows: Any, texts: Any) -> WrongValue | None:
    import pyarrow.compute as pc

    at = pc.index(pc.equal(pc.list_value_length(column), 0), True).as_py()
    if at >= 0:
        return WrongValue("has a list without a text", at)
    blank = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(texts, "")), "")
    at = pc.index(blank, True).as_py()
    if at >= 0:
        return WrongValue("has an empty text in a list", rows[at].as_py())
    return None


def _wrong_length(column: Any) -> WrongValue | None:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column)
    first = lengths[0].as_py()
    at = pc.index(pc.not_equal(lengths, first), True).as_py()
    if at >= 0:
        count = plural(lengths[at].as_py(), "value")
        return WrongValue(f"has {count} in a row, but {first} in the first one", at)
    if first == 0:
        return WrongValue("has a row without a value", 0)
    return None


def _wrong_box(rows: Any, boxes: Any) -> WrongValue | None:
    import numpy as np
    import pyarrow.compute as pc

    if boxes.null_count:
        at = pc.index(pc.is_null(boxes), True).as_py()
        return WrongValue("has a box without a value", rows[at].as_py())
    corners = np.asarray(pc.fill_null(pc.list_flatten(boxes), float("nan"))).reshape(-1, 4)
    low, high = corners[:, :2], corners[:, 2:]
    valid = np.isfinite(corners).all(1) & (low >= 0).all(1) & (low <= high).all(1)
    if valid.all():
        return None
    at = int(valid.argmin())
    shown = ", ".join(f"{value:g}" for value in corners[at].tolist())
    return WrongValue(f"has the box {shown}, which is not x1, y1, x2, y2", rows[at].as_py())
