"""Detect the label type of a column from its values and its name. Pure functions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dataprep.sources.base import SourceOptions
from dataprep.sources.columns import is_text
from manifests.labels import LabelType
from manifests.parquet_lists import is_list

#: Separates the classes of an image in text, unless an option sets another separator.
SEPARATOR = "|"

#: Names of columns with labels that are not classes. They decide only where the values leave a
#: choice.
CAPTION_COLUMNS = ("caption", "captions", "text", "sentence", "description", "prompt")
REGRESSION_COLUMNS = ("values", "value", "age", "score", "rating", "price")
MULTI_LABEL_COLUMNS = ("labels", "tags")

#: The columns that are searched for labels if there is none called ``label``, ``class`` or
#: ``target``.
OTHER_LABEL_COLUMNS = (
    *MULTI_LABEL_COLUMNS,
    "values",
    "caption",
    "captions",
    "age",
    "score",
    "rating",
)

FLOAT = r"^\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
_HAS_POINT = r"[.eE]"


def detect_label_type(
    column: pa.Array, name: str, options: SourceOptions, names: tuple[str, ...] | None = None
) -> LabelType:
    """Return the label type that an option names, or else the one that fits the values and the name of a column.

    Args:
        column: the labels.
        name: name of the column.
        options: `label_type`, `label_separator` and `classes` apply.
        names: class names that the source states.

    """
    if options.label_type is not None:
        return options.label_type
    label_type = _detect(column, name, options)
    # What has names of classes is neither a number nor a caption.
    has_names = bool(options.classes or names) and not is_list(column.type)
    return "class" if has_names and label_type in ("regression", "caption") else label_type


def _detect(column: pa.Array, name: str, options: SourceOptions) -> LabelType:
    if is_list(column.type):
        return "regression" if pa.types.is_floating(column.type.value_type) else "multi-label"
    if options.label_separator is not None:
        return "multi-label"
    if is_text(column.type):
        return _detect_in_text(column, name)
    is_number = pa.types.is_integer(column.type) and name.lower() in REGRESSION_COLUMNS
    return "regression" if is_number or pa.types.is_floating(column.type) else "class"


def _detect_in_text(column: pa.Array, name: str) -> LabelType:
    if name.lower() in CAPTION_COLUMNS:
        return "caption"
    if pc.any(pc.match_substring(column, SEPARATOR), min_count=0).as_py():
        return "multi-label"
    if not len(column) or not pc.all(pc.match_substring_regex(column, FLOAT)).as_py():
        return "class"
    has_point = pc.any(pc.match_substring_regex(column, _HAS_POINT)).as_py()
    return "regression" if has_point or name.lower() in REGRESSION_COLUMNS else "class"
