"""Tables with a box in each row: the corners in columns of their own, and the path of the image.

TensorFlow's object detection, Roboflow (``_annotations.csv``) and Open Images write such tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.labels.boxes import BoxList
from dataprep.labels.columns import (
    Locate,
    blank_rows,
    check_filled,
    first_true,
    is_text,
    row_error,
)
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Source, Texts, one_array
from dataprep.sources.boxed import numbers_in, with_named_boxes
from dataprep.sources.columns import without_negatives
from dataprep.sources.tables import (
    TABLE_SUFFIXES,
    columns_of,
    images_of,
    is_json_table,
    label_columns,
    load_table,
    opened_parquet,
    rows_of,
)
from manifests.files import SOURCE_TABLE, open_file
from manifests.json_members import shorten
from manifests.parquet import is_list
from manifests.process.text import plural
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
    # ChestX-ray14: one name with commas, in a header without quotes.
    ("bbox [x", "y", "w", "h]"),
)
#: Names of the columns of the center, and of width and height.
_CENTERS = (
    ("x_center", "y_center", "width", "height"),
    ("center_x", "center_y", "width", "height"),
    ("xc", "yc", "w", "h"),
    ("cx", "cy", "w", "h"),
)
#: Columns with the four numbers of a box: ``bbox``, ``bbox_xywh``.
_ONE_COLUMN = re.compile(r"(?:bbox(?:es)?|box(?:es)?|bounding_?box)(?:_(xywh|xyxy))?")
_FOUR_NUMBERS = re.compile(rb"\[\s*-?[0-9.]+(?:\s*,\s*|\s+)(?:-?[0-9.]+\W+){3}")

#: Columns that mark boxes as Open Images and COCO do, by what such a box is.
_MARKS = {
    "isgroupof": "around a group of objects",
    "iscrowd": "around a crowd",
    "isdepiction": "of a depiction, such as a drawing",
}

#: Columns with the width and height of the image.
_IMAGE_SIZES = (("width", "height"), ("image_width", "image_height"))


def find_boxes(src: str, _: object, options: SourceOptions) -> Texts:
    """Return the columns with the corners of boxes, in lower case; empty if a table has none."""
    suffix = os.path.splitext(src)[1].lower()
    is_known = suffix in TABLE_SUFFIXES or is_json_table(src)
    if not is_known or options.label_type not in (None, "boxes"):
        return ()
    # A corner may be a value to predict.
    known = {*map(str.lower, columns_of(src))} - {*str(options.label_column).lower().split(",")}
    # One column may have all four numbers, as text or as a list.
    if suffix == ".parquet":
        with opened_parquet(src, "write the file again") as parquet:
            lists = {each.name.lower() for each in parquet.schema if is_list(each.type)}
    else:
        with open_file(src, SOURCE_TABLE) as file:
            lists = known if _FOUR_NUMBERS.search(file.read(1 << 16)) else set()
    one = [(name,) for name in sorted(known & lists) if _ONE_COLUMN.fullmatch(name)]
    return next(filter(known.issuperset, (*_CORNERS, *_SIZES, *_CENTERS, *one)), ())


def read_boxes(src: str, corners: Texts, options: SourceOptions) -> Source:
    """Read a table with the corners of a box in each row; a row without corners has no box.

    Raises:
        CallError, SourceError: as `table_source`; or a corner is missing or is not a number.

    """
    table, lines, notices = without_negatives(*load_table(src))
    columns = {name.lower(): name for name in table.column_names}
    own = [columns[name] for name in corners]
    # The columns of boxes and of their classes are not columns of the images.
    label_name = label_columns(table.column_names, replace(options, label_type=None), src)[0]
    size_names: list[str] = []
    for pair in _IMAGE_SIZES:
        if columns.keys() >= {*pair} and not {*pair} & {*corners}:
            size_names = [columns[name] for name in pair]
    source, image = images_of(
        table.drop_columns([*{label_name, *own, *size_names}]),
        options.image_root or parent_folder(src) or ".",
        replace(options, label_type="none", label_column=None),
        src,
        rows_of(src, lines),
    )
    has_box = ~np.all([blank_rows(table[name]) for name in own], axis=0)
    table, lines, image = table.filter(pa.array(has_box)), lines[has_box], image[has_box]

    locate = rows_of(src, lines)
    notices = (*notices, *_mark_notices(table, columns))
    for name in (*own, label_name):
        check_filled(table[name], name, locate)
    has_size = corners in _SIZES
    if len(own) > 1:
        sides = numbers_in(table, own, options, locate)
    else:
        sides = _four_numbers(table, own[0], options, locate)
        has_size = _is_size(sides, own[0], locate)
        form = "width and height" if has_size else "x2 and y2"
        notices = (*notices, f"column {own[0]} has x and y, and then {form}")
    if corners in _CENTERS:
        sides = np.hstack([sides[:, :2] - sides[:, 2:] / 2, sides[:, :2] + sides[:, 2:] / 2])
    if has_size:
        sides[:, 2:] += sides[:, :2]
    sizes = np.zeros((len(source), 2), np.int64)
    if size_names and not any(blank_rows(table[name]).any() for name in size_names):
        sizes[image] = numbers_in(table, size_names, options, locate)
    names = one_array(table[label_name]).cast(pa.large_string())
    source = replace(source, layout="table of boxes", label_origin=f"columns {', '.join(own)}")
    source = source.with_notices(*notices)
    boxes = BoxList(image, names, sides, lines)
    return with_named_boxes(
        source, boxes, options, locate, where=lambda _, line: f"the box in line {line}", sizes=sizes
    )


def _mark_notices(table: pa.Table, columns: Mapping[str, str]) -> Iterator[str]:
    for name, what in _MARKS.items():
        if name in columns:
            marks = one_array(table[columns[name]]).cast(pa.large_string())
            count = pc.sum(pc.match_substring_regex(marks, "^(?i:1|true)$")).as_py()
            if count:
                kept = f"kept {plural(count, 'box')} {what} ({columns[name]})"
                yield f"{kept}; to leave them out, remove the rows"


def _four_numbers(
    table: pa.Table, name: str, options: SourceOptions, locate: Locate
) -> NDArray[np.float64]:
    """Return the four numbers in each row of a column of text or lists, float64 [n, 4]."""
    column = one_array(table[name])
    if is_text(column.type):
        text = pc.replace_substring_regex(column, r"^[\s\[(]+|[\s\])]+$", "")
        column = pc.split_pattern_regex(text, r"[\s,;]+")
    wrong = first_true(pc.not_equal(pc.list_value_length(column), 4))
    if wrong >= 0:
        value = shorten(str(table[name][wrong].as_py()))
        message = f"column {name!r} has {value}, and not four numbers"
        raise row_error(
            locate, wrong, message, "write each box in a row of its own, as [x, y, width, height]"
        )
    items = pa.table({name: pc.list_flatten(column)})
    numbers = numbers_in(items, [name], options, lambda item: locate(item // 4))
    return numbers.reshape(-1, 4)


def _is_size(sides: NDArray[np.float64], name: str, locate: Locate) -> bool:
    """Return whether the last two numbers of boxes are a size: the name says it, or one is too small for a corner.

    Raises:
        SourceError: they can be both.

    """
    match = _ONE_COLUMN.fullmatch(name.lower())
    if match and match[1]:
        return match[1] == "xywh"
    if not (sides[:, 2:] <= sides[:, :2]).any():
        raise row_error(
            locate,
            0,
            f"the numbers in column {name!r} can be x, y, width and height, or two corners",
            f"rename the column to {name}_xywh or {name}_xyxy",
        )
    return True


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
