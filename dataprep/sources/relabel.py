"""Replace the labels of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.label_columns import Labels, origin_of, read_labels
from manifests.errors import CallError
from manifests.labels import LABEL_COLUMNS
from manifests.schema import COLUMN_PREFIX


def without_labels(source: Source) -> Source:
    """Return a source without its labels."""
    used = [name for name in LABEL_COLUMNS[source.label_type] if name in source.extra.column_names]
    return replace(
        source,
        label=np.zeros(len(source), np.int32),
        classes=(),
        extra=source.extra.drop_columns(used),
        label_type="none",
        label_origin="",
    )


def with_label_type(source: Source, options: SourceOptions) -> Source:
    """Return a source with the label type that the options name: the names of its classes are the values.

    Raises:
        CallError: the source has labels of another type.
        SourceError: the name of a class is not such a value.

    """
    if options.label_type == "none":
        return without_labels(source)
    if options.label_type is None or options.label_type == source.label_type:
        return source
    if source.label_type != "class" or source.prepared:
        raise CallError(
            f"--label-type {options.label_type}: the labels of the source are of the type"
            f" {source.label_type}",
            hint="leave out --label-type",
        )
    text = pa.array(source.classes, pa.large_string()).take(pa.array(source.label))
    labels = read_labels(
        text, "label", options, lambda row: (f"{source.root}/{source.path[row]}", None)
    )
    return with_labels(
        source, replace(labels, origin=labels.origin.replace(origin_of("label"), "the class names"))
    )


def with_labels(source: Source, labels: Labels) -> Source:
    """Return a source with other labels."""
    extra = pa.table(
        {**{name: source.extra[name] for name in source.extra.column_names}, **labels.columns}
    )
    return replace(
        source,
        label=labels.label,
        classes=labels.classes,
        extra=extra,
        label_type=labels.label_type,
        label_origin=labels.origin,
        notices=(*source.notices, *labels.notices),
    )


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name under which sample tables keep a column of the source: ``column:NAME`` if they use its name."""
    return f"{COLUMN_PREFIX}{name}" if name in taken else name
