"""Boxes of images, whatever annotations they come from: one way to number, check and store them.

A reader of annotations finds the images and their boxes. `collect` does so for formats with a file
for each image; `with_boxes` makes the columns of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.images.base import IncompleteHeader, Rejected
from dataprep.images.validate import parse_header
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
    Integers,
    Names,
    Source,
    Texts,
    first_names,
    one_array,
    positions,
    reject_labels,
)
from dataprep.sources.columns import value_type
from dataprep.sources.paired import Pairs, read_labelled
from manifests.errors import SourceError
from manifests.files import SOURCE_ARCHIVE, open_file
from manifests.json_members import shorten
from manifests.process.text import plural
from manifests.records import record
from manifests.remote.url import join_path

#: Returns where the box of an image is, by the number of the image and of the box, for messages.
Where = Callable[[int, int], str]


#: Images whose headers are read to learn their sizes; and the chance below which boxes are not taken
#: as pixels, in formats that define pixels.
_MEASURED, _CHANCE = 8, 1e-24

#: The chance from which boxes from 0 to 100 are pixels without a message, as in small images.
_LIKELY = 0.5


def with_boxes(
    source: Source,
    boxes: BoxList,
    classes: Texts,
    sizes: Integers,
    where: Where,
    *,
    chance: float = _CHANCE,
) -> Source:
    """Return a source with the columns of boxes, without images that have one outside.

    Args:
        source: the images.
        boxes: their boxes.
        classes: the class names.
        sizes: widths and heights that the annotations state, int64 [n, 2], 0 if they do not. If
            all boxes are between 0 and 1, they are fractions of the sides.
        where: names a box.
        chance: as in `_percent_notices`.

    """
    corners, units = np.array(boxes.corners), []
    if 1 < corners.max(initial=0) <= _PERCENT and corners.min() >= 0:
        images = np.asarray(boxes.image)
        units = _percent_notices(source, images, corners.reshape(-1, 4), sizes, chance)
    is_stated = len(sizes) and (sizes != FRACTIONS).any()
    if len(corners) and is_stated and corners.min() >= 0 and 0 < corners.max() <= 1:
        sizes = np.full_like(sizes, FRACTIONS)
        units = ["all boxes are from 0 to 1, so they are fractions of the sides of the images"]
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
    return source.with_notices(*notices, *units)


#: The largest side in percent, which rounding may exceed, and what large sides reach.
_PERCENT, _LARGE = 101, 90


def _percent_notices(
    source: Source, image: Integers, corners: NDArray[np.float64], sizes: Integers, chance: float
) -> list[str]:
    """Refuse boxes from 0 to 100 if it is not likely that boxes in pixels are all in that corner.

    Return a message if they can be both.

    Args:
        source: the images.
        image: the image of each box, int64 [boxes].
        corners: the boxes, [boxes, 4].
        sizes: as in `with_boxes`; if they are not stated, some headers are read.
        chance: the chance of pixels below which boxes are refused.

    Raises:
        SourceError: the boxes are percent.

    """
    if not sizes.any():
        sizes = sizes.copy()
        for row in np.unique(image)[:_MEASURED].tolist():
            path = join_path(source.root, source.path[row].as_py())
            with (
                suppress(Rejected, IncompleteHeader, OSError),
                open_file(path, SOURCE_ARCHIVE) as file,
            ):
                sizes[row] = parse_header(file.read(1 << 16))[1:3]
    known = sizes[image]
    shares = np.minimum(1, _PERCENT / known[known.all(axis=1)])
    is_percent = corners.max() >= _LARGE or (corners != corners.round()).any()
    if is_percent and shares.prod() < chance:
        width, height = known[known.all(axis=1)][0]
        raise SourceError(
            f"all boxes are from 0 to 100 in images such as one of {width}x{height} pixels, so they"
            " look like percent",
            file=source.root,
            hint=(
                "divide the numbers by 100 if they are percent, or by the width and height of the"
                " image if they are pixels: numbers from 0 to 1 are fractions of the sides"
            ),
        )
    if shares.prod() >= _LIKELY or chance == _CHANCE:
        return []
    return [
        "all boxes are from 0 to 100 and are read as pixels; if they are percent, divide by 100"
    ]


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
    if sizes is None:
        sizes = np.zeros((len(source), 2), np.int64)
    if options.classes is None:
        boxes, left = without_empty(boxes)
        source = source.with_notices(*empty_notices(left))
    label, classes = number_labels(
        boxes.label, options.classes, locate, max_classes=options.max_classes
    )
    # Tables do not define the unit of their numbers.
    return with_boxes(source, replace(boxes, label=label), classes, sizes, where, chance=0.01)


def without_empty(boxes: BoxList) -> tuple[BoxList, list[Any]]:
    """Return boxes without the classes of which no box has an area, as `background`, and these classes."""
    corners = np.reshape(boxes.corners, (-1, 4)).astype(np.float32)
    names = pa.array(boxes.label)
    has_area = pa.array((corners[:, 2:] > corners[:, :2]).all(axis=1))
    kept = pc.is_in(names, names.filter(has_area).unique())
    if not pc.any(has_area).as_py() or pc.all(kept).as_py():
        return boxes, []
    left = names.filter(pc.invert(kept)).unique().to_pylist()
    rows = np.flatnonzero(np.asarray(kept))
    image, place = (np.asarray(each)[rows] for each in (boxes.image, boxes.place))
    label = names.take(rows) if is_text(names.type) else np.asarray(names)[rows]
    return BoxList(image, label, np.reshape(boxes.corners, (-1, 4))[rows], place), left


def empty_notices(names: Names) -> list[str]:
    """Return a message about classes that `without_empty` left out."""
    text = "left out {}: without a box that has an area, it is no class of objects"
    return [text.format(first_names(names))] if names else []


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
    notes: Names = ()


@record
class Collected:
    """Images with their boxes as `with_boxes` takes them, the file of each image, and the counts of the notes."""

    source: Source
    boxes: BoxList
    classes: Texts
    sizes: Integers
    files: Names
    notes: Counter[str]

    def with_boxes(self, where: Where) -> Source:
        """Return the source; see `with_boxes`."""
        return with_boxes(self.source, self.boxes, self.classes, self.sizes, where)


def collect(
    pairs: Pairs,
    sets: Mapping[str, str],
    parse: Callable[[str], Objects],
    classes: Texts | None,
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
    left: list[str] = []
    if not classes:
        boxes, numbers_left = without_empty(boxes)
        left = [name for name, number in names.items() if number in numbers_left]
        source = source.with_notices(*empty_notices(left))
        classes = tuple(sorted({*names} - {*left}))
    label_of = positions(classes)
    for name, number in names.items():
        if name not in label_of and name not in left:
            at = boxes.label.index(number)
            raise SourceError(
                f"the class {shorten(name)} of object {boxes.place[at]} is not in --classes",
                file=f"{pairs.root}/{files[boxes.image[at]]}",
                hint="add it to the class names",
            )
    numbers = np.array([label_of.get(name, -1) for name in names], np.int64)
    boxes.label = numbers[np.array(boxes.label)]
    return Collected(source, boxes, classes, sizes, files, notes)
