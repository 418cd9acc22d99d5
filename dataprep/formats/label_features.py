"""Labels of a sample in its record: features of a ``tf.train.Example``, and members of a ``.json``."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from dataprep.formats.base import PendingSample
from dataprep.formats.example_proto import (
    bytes_feature,
    bytes_list_feature,
    float_list_feature,
    int_list_feature,
)
from manifests.labels import LABEL_COLUMNS

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

#: Members of a ``.json`` with the names of the classes, for each label type that has several.
CLASS_MEMBERS = {"multi-label": "classes", "boxes": "box_classes"}


def plain_columns(sample: PendingSample) -> Iterator[tuple[str, Any]]:
    """Yield the extra columns of a sample that are not its label, by name."""
    if sample.label_type == "class":
        return iter(sample.extra.items())
    labels = LABEL_COLUMNS[sample.label_type]
    return ((name, value) for name, value in sample.extra.items() if name not in labels)


def label_features(sample: PendingSample) -> Iterator[bytes]:
    """Yield the features that store the label of a sample, unless it is a class or a label image."""
    extra, names = sample.extra, [name.encode() for name in sample.class_names]
    if sample.label_type == "multi-label":
        yield bytes_list_feature(b"image/class/text", names)
        yield int_list_feature(b"image/class/label", extra["labels"])
    elif sample.label_type == "regression":
        yield float_list_feature(b"image/values", extra["values"])
    elif sample.label_type == "caption":
        yield bytes_feature(b"image/caption", extra["caption"].encode())
    elif sample.label_type == "boxes":
        # The size of the upright image: that of the header is the one before its EXIF orientation
        # is applied.
        width, height = extra["annotated_width"], extra["annotated_height"]
        sides = {
            b"xmin": (0, width),
            b"ymin": (1, height),
            b"xmax": (2, width),
            b"ymax": (3, height),
        }
        for side, (corner, length) in sides.items():
            yield float_list_feature(
                b"image/object/bbox/" + side, [box[corner] / length for box in extra["boxes"]]
            )
        yield bytes_list_feature(b"image/object/class/text", names)
        yield int_list_feature(b"image/object/class/label", extra["box_labels"])


def label_members(sample: PendingSample) -> Iterator[str]:
    """Yield the members of a ``.json`` that store the label of a sample: ``"name":value``."""
    extra = sample.extra
    for name, kind in LABEL_COLUMNS[sample.label_type].items():
        if kind in ("integers", "text"):
            yield f"{_json(name)}:{_json(extra[name])}"
        elif kind in ("floats", "boxes"):
            yield f"{_json(name)}:{_json(_shortest(extra[name]))}"
    if sample.label_type in CLASS_MEMBERS:
        yield f"{_json(CLASS_MEMBERS[sample.label_type])}:{_json(list(sample.class_names))}"


def _shortest(values: Sequence[Any]) -> list[Any]:
    """Return float32 values as the numbers with the fewest digits that stand for them: 0.1, not 0.10000000149."""
    return [
        _shortest(value) if isinstance(value, (list, tuple)) else _shortest_number(value)
        for value in values
    ]


def _shortest_number(value: float) -> float:
    exact = struct.pack("<f", value)
    candidates = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((number for number in candidates if _packed(number) == exact), value)


def _packed(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # rounded up, it no longer fits into a float32
        return b""
