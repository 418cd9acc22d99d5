"""Tables with a box in each row: the corners in columns of their own, and the path of the image.

TensorFlow's object detection, Roboflow (``_annotations.csv``) and Open Images write such tables.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.labels.boxes import FRACTIONS, BoxList
from dataprep.labels.columns import (
    LabelColumn,
    Lists,
    Locate,
    blank_rows,
    check_filled,
    number_labels,
)
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Source, one_array
from dataprep.sources.coco import add_boxes
from dataprep.sources.columns import value_type
from dataprep.sources.tables import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    images_of,
    label_columns,
    load_table,
    opened_parquet,
)
from manifests.files import SOURCE_TABLE, open_file
from manifests.remote.url import parent_folder

#: Names of the columns of left, top, right and bottom.
_CORNERS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)
#: Names of the columns of left, top, width and height.
_SIZES = (
    ("x", "y", "width", "height"),
    ("x", "y", "w", "h"),
    ("left", "top", "width", "height"),
    ("bbox_x", "bbox_y", "bbox_width", "bbox_height"),
)
#: Columns with the width and height of the image.
_IMAGE_SIZES = (("width", "height"), ("image_width", "image_height"))


def find_boxes(src: str, _: object, options: SourceOptions) -> tuple[str, ...]:
    """Return the columns with the corners of boxes, in lower case; empty if a table has none."""
    suffix = os.path.splitext(src)[1].lower()
    if suffix not in TABLE_SUFFIXES or options.label_type not in (None, "boxes"):
        return ()
    if suffix == ".parquet":
        with opened_parquet(src, "write the file again") as parquet:
            names = [*parquet.names]
    else:
        # The header, or the names of the members in the first line.
        with open_file(src, SOURCE_TABLE) as file:
            line = file.read(1 << 16).decode("utf-8", "replace").partition("\n")[0]
        names = re.findall(r'"(\w+)":' if suffix in JSON_SUFFIXES else r"\w+", line)
    known = {name.lower() for name in names}
    # A corner may be a value to predict.
    known -= {*str(options.label_column).lower().split(",")}
    return next((corners for corners in (*_CORNERS, *_SIZES) if known.issuperset(corners)), ())


def read_boxes(src: str, corners: tuple[str, ...], options: SourceOptions) -> Source:
    """Read a table with the corners of a box in each row; a row without corners has no box.

    Raises:
        CallError, SourceError: as `table_source`; or a corner is missing or is not a number.

    """
    table, lines = load_table(src)
    columns = {name.lower(): name for name in table.column_names}

    def locate(row: int) -> tuple[str, int]:
        return src, int(lines[row])

    # The columns of boxes and of their classes are not columns of the images.
    label_names = label_columns(table.column_names, replace(options, label_type=None), src)[:1]
    size_names: Sequence[str] = ()
    for pair in _IMAGE_SIZES:
        if columns.keys() >= {*pair} and not {*pair} & {*corners}:
            size_names = pair
    used = {*label_names, *(columns[name] for name in (*corners, *size_names))}
    unlabelled = replace(options, label_type="none", label_column=None)
    root = options.image_root or parent_folder(src) or "."
    source, image = images_of(table.drop_columns([*used]), root, unlabelled, src, locate)
    numbers = np.stack(
        [_numbers(table, columns[name], options, locate) for name in corners], axis=1
    )
    rows = np.flatnonzero(~np.isnan(numbers).all(axis=1))
    for name in corners:
        check_filled(
            table[columns[name]].take(pa.array(rows)),
            columns[name],
            lambda row: locate(int(rows[row])),
        )
    numbers = numbers[rows]
    if corners in _SIZES:
        numbers[:, 2:] += numbers[:, :2]
    label = table[label_names[0]].take(pa.array(rows))
    check_filled(label, label_names[0], lambda row: locate(int(rows[row])))
    text = one_array(label).cast(pa.large_string())
    labels, classes = number_labels(
        text, options.classes, lambda row: locate(int(rows[row])), max_classes=options.max_classes
    )
    boxes = BoxList(
        image=array("q", image[rows].tolist()),
        label=array("q", labels.tolist()),
        corners=array("d", numbers.ravel().tolist()),
        place=array("q", lines[rows].tolist()),
    )
    sizes = np.zeros((len(source), 2), np.int64)
    for axis, name in enumerate(size_names):
        stated = np.nan_to_num(_numbers(table, columns[name], options, locate))
        sizes[image, axis] = stated
    if len(numbers) and numbers.min() >= 0 and numbers.max() <= 1:
        sizes[:] = FRACTIONS
    source = replace(
        source,
        layout="table of boxes",
        classes=classes,
        label_type="boxes",
        label_origin=f"columns {', '.join(columns[name] for name in corners)}",
    )
    return add_boxes(source, boxes, sizes, lambda _, line: f"the box in line {line}")


def _numbers(
    table: pa.Table, name: str, options: SourceOptions, locate: Locate
) -> NDArray[np.float64]:
    """Return the numbers in a column, float64 [n]; NaN where it has none."""
    column = one_array(table[name])
    column = column.cast(value_type(column.type))
    filled = ~blank_rows(column)
    given = Lists(column.filter(pa.array(filled)), filled.astype(np.int64))
    numbers = np.full(len(column), np.nan)
    numbers[filled] = np.asarray(LabelColumn(column, name, options, locate).numbers(given).values)
    return numbers


KINDS = (
    Kind(
        "a table of boxes",
        find_boxes,
        read_boxes,
        ("image_root", "path_column", "label_column", "split_column"),
        """
boxes/_annotations.csv     # filename,width,height,class,xmin,ymin,xmax,ymax
boxes/0001.jpg
""",
        in_archives=False,
    ),
)
