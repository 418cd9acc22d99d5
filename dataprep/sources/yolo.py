"""YOLO: a text file for each image, with a line ``class x y width height`` for each object.

The numbers of a box are its center and its size, as fractions of the sides of the image. Lines with
more numbers are polygons, or have key points behind the box. The names of the classes are in a YAML
file (Ultralytics, Roboflow), or in a text file with a name a line (darknet, CVAT, LabelImg).
"""

from __future__ import annotations

import math
import os
from codecs import BOM_UTF8
from dataclasses import replace
from functools import partial
from typing import Any

from dataprep import storage
from dataprep.labels.boxes import FRACTIONS
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Names, Source, Texts
from dataprep.sources.boxed import Objects, collect
from dataprep.sources.paired import NAME_FILES, Pairs, find_text, read_sets
from dataprep.sources.text_tables import text_lines
from manifests.errors import SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.json_members import is_unicode, shorten
from manifests.process.text import plural

#: The numbers of a box behind the class: x, y, width and height.
_BOX = 4


#: Corners of a line with a number that is not from 0 to 1, or of a box that reaches farther beyond
#: the image than rounding explains, as of two corners that are taken as a center and a size.
_OUTSIDE = (-9.0, -9.0, -9.0, -9.0)
_BEYOND = 0.05


def find_yolo(src: str, folders: Names, options: SourceOptions) -> Pairs | None:
    """Return the folders of images with text files of boxes."""
    return find_text(src, folders, options, ".txt", _is_yolo)


def _is_yolo(path: str) -> bool | None:
    """Return whether the first line of a file has the numbers of a box; `None` if it is empty."""
    for line in read_lines(path, SOURCE_LIST):
        if line.strip():
            try:
                label, *numbers = map(float, line.removeprefix(BOM_UTF8).split())
            except ValueError:
                return False
            return label.is_integer() and len(numbers) >= _BOX
    return None


def read_yolo(src: str, pairs: Pairs, options: SourceOptions) -> Source:
    """Read the folders that `find_yolo` returned.

    Raises:
        CallError: a YAML file is not valid.
        SourceError: a line is not valid, or the class names are not known.

    """
    names, points = _read_names(pairs)
    classes = options.classes or names
    if not classes:
        raise SourceError(
            "no file has the names of the classes",
            file=src,
            hint=(
                "give --classes FILE with a name a line, in the order of the numbers in the labels,"
                " or put it beside the folders as classes.txt"
            ),
        )
    # Without folders of splits, there may be lists of the images of each split.
    sets = read_sets(src, _stem_in_list) if len(pairs.folders) == 1 else {}
    found = collect(
        replace(pairs, layout="YOLO", background=True),
        sets,
        partial(_read_file, names or classes, points),
        classes,
    )
    source = found.with_boxes(
        lambda row, at: (
            f"a number in line {at} of {found.files[row]} is not from 0 to 1, or its box"
        )
    )
    if found.notes:
        source = source.with_notices(
            f"read the boxes around {plural(found.notes.total(), 'polygon')}"
        )
    if points:
        source = source.with_notices("left out the key points of all objects")
    return source


def _stem_in_list(line: str) -> str:
    return os.path.splitext(os.path.basename(line))[0]


def _read_file(names: Texts, points: int, path: str) -> Objects:
    """Return the objects of a file; `points` are the numbers of the key points behind a box."""
    boxes, polygons = [], []
    for number, line in enumerate(text_lines(path, SOURCE_LIST), 1):
        if not line.strip():
            continue
        try:
            label, *values = map(float, line.split())
        except ValueError:
            label, values = -1.0, []
        is_box = len(values) in (_BOX, _BOX + points)
        is_polygon = not is_box and len(values) > _BOX and len(values) % 2 == 0
        if not label.is_integer() or label < 0 or not (is_box or is_polygon):
            raise SourceError(
                f"the line {shorten(line.strip())} is neither `class x y width height` nor a class"
                " with the corners of a polygon",
                file=path,
                line=number,
                hint="export the labels again; key points need kpt_shape in data.yaml",
            )
        if label >= len(names):
            raise SourceError(
                f"no class name is known for the class {label:.0f}; there are {len(names)} names",
                file=path,
                line=number,
                hint="add it to the class names",
            )
        if is_box:
            x, y, width, height = values = values[:_BOX]
            corners = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        else:
            polygons.append("polygon")
            corners = min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])
        # Corners may be a little outside, because of rounding.
        clipped = [min(max(side, 0.0), 1.0) for side in corners]
        is_inside = all(0 <= value <= 1 for value in values)
        is_inside &= min(corners) >= -_BEYOND and max(corners) <= 1 + _BEYOND
        boxes.append((names[int(label)], clipped if is_inside else _OUTSIDE, number))
    return Objects(boxes, FRACTIONS, polygons)


# --- names of classes -----------------------------------------------------------------------------


def _read_names(pairs: Pairs) -> tuple[Texts, int]:
    """Return the class names in label order, and how many numbers the key points of an object take.

    Raises:
        CallError: a YAML file is not valid.
        SourceError: the names are not valid, or two files have different names.

    """
    places = [""]
    for folders in pairs.folders.values():
        for place in folders:
            places += [place, os.path.dirname(place)]
    found: dict[str, Any] = {}
    points = 0
    for place in dict.fromkeys(places):
        folder = os.path.join(pairs.root, place)
        for name in sorted(storage.names_in(folder)):
            path = os.path.join(folder, name)
            if name in NAME_FILES or name.endswith(".names"):
                found[path] = "".join(text_lines(path, SOURCE_LIST)).rstrip().splitlines()
            elif name.endswith((".yaml", ".yml")):
                found[path], points = _read_yaml(path, points)
    known = {path: _checked(path, names) for path, names in found.items() if names is not None}
    for path, names in known.items():
        if names != next(iter(known.values())):
            raise SourceError(
                f"the class names are not those in {next(iter(known))}",
                file=path,
                hint="remove the file that is wrong",
            )
    return next(iter(known.values()), ()), points


def _read_yaml(path: str, points: int) -> tuple[Any, int]:
    """Return the names in a file, `None` without, and the numbers of key points, by default `points`."""
    from manifests.yaml_file import load_yaml  # takes time, and most sources do not need it

    content = load_yaml(path)
    if not isinstance(content, dict) or "names" not in content:
        return None, points
    shape = content.get("kpt_shape")
    if isinstance(shape, list) and all(type(each) is int for each in shape):
        points = math.prod(shape)
    return content["names"], points


def _checked(path: str, names: Any) -> Texts:
    """Return class names without blanks around them.

    Raises:
        SourceError: they are no list and no mapping from 0, one is not text, or occurs twice.

    """
    if isinstance(names, dict):
        names = [names.get(number) for number in range(len(names))]
    texts = []
    for number, name in enumerate(names if isinstance(names, list) else [names]):
        text = str(name).strip() if type(name) in (str, int) else ""
        if not text or not is_unicode(text) or text in texts:
            raise SourceError(
                f"class name {number} is {shorten(name)}, which is not text, or the name of another"
                " class",
                file=path,
                hint="write each name once, in a list or a mapping from 0; in YAML, put yes, no, on"
                " and off in quotes",
            )
        texts.append(text)
    return tuple(texts)


KINDS = (
    Kind(
        "a folder of YOLO",
        find_yolo,
        read_yolo,
        example="""
coco8/data.yaml                              # names: [person, bicycle], or a mapping
coco8/images/train/0001.jpg                  # or train/images/ and train/labels/
coco8/labels/train/0001.txt                  # 0 0.5 0.5 0.25 0.4: class, center, size
""",
    ),
)
