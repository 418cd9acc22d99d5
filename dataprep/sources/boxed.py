"""Boxes of images, whatever annotations they come from: one way to number, check and store them.

A reader of annotations finds the images and their boxes. `collect` does so for formats with a file
for each image; `with_boxes` makes the columns of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.labels.boxes import ANNOTATED, FRACTIONS, BoxList, box_columns
from dataprep.labels.columns import (
    LabelColumn,
    Lists,
    Locate,
    first_true,
    is_text,
    number_labels,
    row_error,
)
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Classes,
    Integers,
    Names,
    Source,
    one_array,
    positions,
    reject_labels,
)
from dataprep.sources.columns import value_type
from dataprep.sources.paired import Pairs, read_labelled
from manifests.errors import SourceError
from manifests.json_members import shorten
from manifests.process.text import plural
from manifests.records import record

#: Returns where the box of an image is, by the number of the image and of the box, for messages.
Where = Callable[[int, int], str]


def with_boxes(
    source: Source, boxes: BoxList, classes: Classes, sizes: Integers, where: Where
) -> Source:
    """Return a source with the columns of boxes, without images that have one outside.

    Args:
        source: the images.
        boxes: their boxes.
        classes: the class names.
        sizes: widths and heights that the annotations state, int64 [n, 2], 0 if they do not. If
            all boxes are between 0 and 1, they are fractions of the sides.
        where: names a box.

    """
    corners, fractions = np.array(boxes.corners), []
    is_stated = len(sizes) and (sizes != FRACTIONS).any()
    if len(corners) and is_stated and corners.min() >= 0 and 0 < corners.max() <= 1:
        sizes = np.full_like(sizes, FRACTIONS)
        fractions = ["all boxes are from 0 to 1, so they are fractions of the sides of the images"]
    columns, outside, notices = box_columns(boxes, sizes)
    columns |= dict(zip(ANNOTATED, sizes.T, strict=True))
    reasons = {}
    for image, place in outside.items():
        width, height = sizes[image]
        of = f" of {width}x{height} pixels" if max(width, height) > 1 else ""
        reasons[image] = f"{where(image, place)} is outside of the image{of}"
    source = source.with_columns(**{f"extra:{name}": each for name, each in columns.items()})
    source = reject_labels(replace(source, classes=classes, label_type="boxes"), reasons)
    # Images without objects stay: they teach a detector what is background.
    without = pc.sum(pc.equal(pc.list_value_length(source.extra["boxes"]), 0)).as_py()
    if without:
        notices = [f"{plural(without, 'image')} without a box", *notices]
    return source.with_notices(*notices, *fractions)


def with_named_boxes(
    source: Source,
    boxes: BoxList,
    options: SourceOptions,
    locate: Locate,
    *,
    where: Where,
    sizes: Integers | None = None,
) -> Source:
    """Return a source with boxes whose labels are text, as in tables; see `with_boxes`.

    Args:
        source: the images.
        boxes: their boxes; the labels are large_string.
        options: the classes apply.
        locate: returns the file and line of a box, for errors.
        where: as in `with_boxes`.
        sizes: as in `with_boxes`.

    """
    label, classes = number_labels(
        boxes.label, options.classes, locate, max_classes=options.max_classes
    )
    if sizes is None:
        sizes = np.zeros((len(source), 2), np.int64)
    return with_boxes(source, replace(boxes, label=label), classes, sizes, where)


def numbers_in(
    table: pa.Table, names: Names, options: SourceOptions, locate: Locate
) -> NDArray[np.float64]:
    """Return the numbers in some columns, float64 [n, columns].

    Raises:
        SourceError: a value is not a number.

    """
    numbers = []
    for name in names:
        column = one_array(table[name])
        column = column.cast(value_type(column.type))
        if is_text(column.type):
            row = first_true(pc.match_substring_regex(column, r"^\s*-?[0-9]+,[0-9]+\s*$"))
            if row >= 0:
                message = (
                    f"column {name!r} has a number with a comma, {shorten(column[row].as_py())}"
                )
                raise row_error(locate, row, message, "write numbers with a point: 3.5")
        given = Lists(column, np.ones(len(column), np.int64))
        numbers.append(LabelColumn(column, name, options, locate).numbers(given).values)
    return np.stack(numbers, axis=1)


# --- a file for each image ------------------------------------------------------------------------


class Objects(NamedTuple):
    """The content of the annotation file of an image.

    Attributes:
        boxes: class, corners, and number in the file of each object.
        size: width and height of the image, 0 if they are not stated; `FRACTIONS`.
        notes: what to count about the objects.

    """

    boxes: Sequence[tuple[str, Sequence[float], int]] = ()
    size: Sequence[int] = FRACTIONS
    notes: Sequence[str] = ()


@record
class Collected:
    """Images with their boxes as `with_boxes` takes them, the file of each image, and the counts of the notes."""

    source: Source
    boxes: BoxList
    classes: Classes
    sizes: Integers
    files: Sequence[str]
    notes: Counter[str]

    def with_boxes(self, where: Where) -> Source:
        """Return the source; see `with_boxes`."""
        return with_boxes(self.source, self.boxes, self.classes, self.sizes, where)


def collect(
    pairs: Pairs,
    sets: Mapping[str, str],
    parse: Callable[[str], Objects],
    classes: Classes | None,
) -> Collected:
    """Read the annotation file of each image.

    Args:
        pairs: the folders of images and files.
        sets: as in `read_labelled`.
        parse: reads a file.
        classes: the class names; by default, the sorted names of the objects.

    Raises:
        SourceError: a file is not valid, or has another class.

    """
    source, files = read_labelled(pairs, sets)
    paths = [f"{pairs.root}/{file}" for file in files if file]
    found = iter(storage.map_files(pairs.root, parse, paths))
    boxes, names, notes = BoxList(), dict[str, int](), Counter[str]()
    sizes = np.zeros((len(files), 2), np.int64)
    for row, file in enumerate(files):
        # An image without a file has no objects.
        content = next(found) if file else Objects()
        sizes[row] = content.size
        notes.update(content.notes)
        for name, corners, place in content.boxes:
            boxes.add(row, names.setdefault(name, len(names)), corners, place)
    classes = classes or tuple(sorted(names))
    label_of = positions(classes)
    for name, number in names.items():
        if name not in label_of:
            at = boxes.label.index(number)
            raise SourceError(
                f"the class {shorten(name)} of object {boxes.place[at]} is not in --classes",
                file=f"{pairs.root}/{files[boxes.image[at]]}",
                hint="add it to the class names",
            )
    numbers = np.array([*map(label_of.__getitem__, names)], np.int64)
    boxes.label = numbers[np.array(boxes.label)]
    return Collected(source, boxes, classes, sizes, files, notes)
