"""YOLO: a text file for each image, with a line ``class x y width height`` for each object.

The numbers of a box are its center and its size, as fractions of the sides of the image. Lines with
more numbers are polygons, or have key points behind the box. The names of the classes are in a YAML
file (Ultralytics, Roboflow), or in a text file with a name a line (darknet, CVAT, LabelImg).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dataprep import storage
from dataprep.labels.boxes import FRACTIONS, BoxList
from dataprep.options import SourceOptions
from dataprep.sources.base import Classes, Kind, Names, Source, positions, take_rows
from dataprep.sources.coco import add_boxes
from dataprep.sources.paired import Pairs, find_text, read_labelled, read_sets
from dataprep.sources.text_tables import text_lines
from manifests.errors import SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.json_members import is_unicode, shorten
from manifests.process.text import plural

#: Files with a class name a line: of darknet and CVAT, LabelImg and Label Studio, and Roboflow.
_NAME_FILES = ("obj.names", "classes.txt", "classes.names", "_darknet.labels")

#: The numbers of a box behind the class: x, y, width and height.
_BOX = 4

_HINT = "export the labels again, or correct the line"


class Config(NamedTuple):
    """What a YAML file or a list of names states about the labels.

    Attributes:
        file: the file; empty if there is none.
        names: class names in label order.
        points: how many numbers the key points of an object take, 0 without.

    """

    file: str = ""
    names: Classes = ()
    points: int = 0


class YoloFile(NamedTuple):
    """The content of a label file.

    Attributes:
        objects: class and corners of each object, as fractions, with the number of its line.
        polygons: how many of them are polygons.
        repeated: lines that repeat another.
        outside: number of the first line with a number that is not from 0 to 1; 0 without.

    """

    objects: dict[tuple[float, ...], int]
    polygons: int
    repeated: int
    outside: int


def find_yolo(src: str, folders: Names, options: SourceOptions) -> Pairs | None:
    """Return the folders of images with text files of boxes."""
    return find_text(src, folders, options, ".txt", _is_yolo)


def _is_yolo(path: str) -> bool | None:
    """Return whether the first line of a file has the numbers of a box; `None` if it is empty."""
    for line in read_lines(path, SOURCE_LIST):
        if line.strip():
            try:
                label, *numbers = map(float, line.split())
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
    config = _read_config(pairs, options)
    # Without folders of splits, there may be lists of the images of each split.
    sets = read_sets(src, _stem_in_list) if len(pairs.folders) == 1 else {}
    source, names = read_labelled(replace(pairs, layout="YOLO", background=True), sets)
    labelled = [*filter(None, names)]
    paths = [f"{src}/{name}" for name in labelled]
    files = storage.map_files(src, partial(_read_file, config.points), paths)
    found = dict(zip(labelled, files, strict=True))
    source = _add_boxes(source, names, found, config, options)
    notices = []
    polygons = sum(file.polygons for file in found.values())
    repeated = sum(file.repeated for file in found.values())
    if polygons:
        notices.append(f"read the boxes around {plural(polygons, 'polygon')}")
    if repeated:
        notices.append(f"left out {plural(repeated, 'line')} that repeat another")
    if config.points:
        notices.append("left out the key points of all objects")
    return source.with_notices(*notices)


def _stem_in_list(line: str) -> str:
    return os.path.splitext(os.path.basename(line.strip()))[0]


def _add_boxes(
    source: Source,
    names: Sequence[str],
    files: Mapping[str, YoloFile],
    config: Config,
    options: SourceOptions,
) -> Source:
    """Return a source with the boxes of its images, without images that have one outside."""
    # Labels follow the order of --classes, if it is given.
    classes = options.classes or config.names
    number_of = positions(classes)
    label_of = {}
    for index, name in enumerate(config.names or classes):
        if name in number_of:
            label_of[index] = number_of[name]
    boxes, rejected = BoxList(), []
    kept: list[int] = []
    for row, name in enumerate(names):
        file = files.get(name)
        if file is not None and file.outside:
            detail = f"line {file.outside} of {name} has numbers that are not from 0 to 1"
            path = source.path[row].as_py()
            rejected.append({"source": path, "reason": "bad-label", "detail": detail})
            continue
        for (label, *corners), line in file.objects.items() if file else ():
            number = label_of.get(int(label))
            if number is None:
                raise SourceError(
                    f"no class name is known for the class {label:g}; there are {len(classes)}"
                    " names",
                    file=f"{source.root}/{name}",
                    line=line,
                    hint="add it to the class names",
                )
            boxes.add(len(kept), number, corners, line)
        kept.append(row)
    if rejected and not len(boxes.image):
        raise SourceError(
            f"no box is a part of its image: {rejected[0]['detail']}",
            file=source.root,
            hint="divide x and width by the width of the image, and y and height by its height",
        )
    source = take_rows(source, np.array(kept, np.int64))
    source = add_boxes(source, boxes, np.full((len(source), 2), FRACTIONS), lambda *_: "a box")
    return replace(source, classes=classes, rejected=(*source.rejected, *rejected))


def _read_file(points: int, path: str) -> YoloFile:
    objects: dict[tuple[float, ...], int] = {}
    polygons = repeated = outside = 0
    for number, line in enumerate(text_lines(path, SOURCE_LIST), 1):
        if not line.strip():
            continue
        try:
            label, *values = map(float, line.split())
        except ValueError:
            label, values = -1.0, []
        count = len(values)
        is_polygon = count >= 6 and count % 2 == 0 and count != _BOX + points
        if not label.is_integer() or label < 0 or not (is_polygon or count in (4, _BOX + points)):
            raise SourceError(
                f"the line {shorten(line.strip())} is neither `class x y width height` nor a class"
                " with the corners of a polygon",
                file=path,
                line=number,
                hint=f"{_HINT}; key points need kpt_shape in data.yaml",
            )
        if not is_polygon:
            values = values[:_BOX]
        if not all(0 <= value <= 1 for value in values):
            outside = outside or number
            continue
        corners = min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])
        if not is_polygon:
            x, y, width, height = values
            corners = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        clipped = tuple(min(max(side, 0.0), 1.0) for side in corners)
        repeated += (label, *clipped) in objects
        objects.setdefault((label, *clipped), number)
        polygons += is_polygon
    return YoloFile(objects, polygons, repeated, outside)


# --- names of classes -----------------------------------------------------------------------------


def _read_config(pairs: Pairs, options: SourceOptions) -> Config:
    """Return what the files beside the images state.

    Raises:
        CallError: a YAML file is not valid.
        SourceError: two files have different names, or there are none.

    """
    src, places = pairs.root, [""]
    for folders in pairs.folders.values():
        for place in folders:
            places += [place, os.path.dirname(place)]
    found: list[Config] = []
    for place in dict.fromkeys(places):
        found += _configs_in(os.path.join(src, place))
    for config in found:
        if config.names != found[0].names:
            raise SourceError(
                f"the class names are not those in {found[0].file}",
                file=config.file,
                hint="remove the file that is wrong",
            )
    if not found and not options.classes:
        raise SourceError(
            "no file has the names of the classes",
            file=src,
            hint=(
                "give --classes FILE with a name a line, in the order of the numbers in the labels,"
                " or put it beside the folders as classes.txt"
            ),
        )
    return found[0] if found else Config()


def _configs_in(folder: str) -> Iterator[Config]:
    from manifests.yaml_file import load_yaml  # takes time, and most sources do not need it

    for name in sorted(storage.names_in(folder)):
        path = os.path.join(folder, name)
        if name in _NAME_FILES:
            lines = "".join(text_lines(path, SOURCE_LIST)).rstrip()
            yield Config(path, _checked(path, lines.splitlines()))
        elif name.endswith((".yaml", ".yml")):
            content = load_yaml(path)
            if isinstance(content, dict) and "names" in content:
                yield _of_yaml(path, content)


def _of_yaml(path: str, content: Mapping[str, Any]) -> Config:
    names = content["names"]
    if isinstance(names, dict):
        names = [names.get(number) for number in range(len(names))]
    if not isinstance(names, list) or len(names) != content.get("nc", len(names)):
        raise SourceError(
            f"names must be {shorten(content.get('nc', 'the'))} names, a list or a mapping from 0",
            file=path,
            hint="correct names, or nc",
        )
    shape = content.get("kpt_shape")
    is_shape = isinstance(shape, list) and all(type(each) is int for each in shape)
    points = math.prod(shape) if is_shape and shape else 0
    return Config(path, _checked(path, names), points)


def _checked(path: str, names: Sequence[Any]) -> Classes:
    """Return class names without blanks around them.

    Raises:
        SourceError: one is not text, or occurs twice.

    """
    texts = [str(name).strip() if type(name) in (str, int) else "" for name in names]
    for number, text in enumerate(texts):
        if not text or not is_unicode(text) or texts.index(text) != number:
            raise SourceError(
                f"class name {number} is {shorten(names[number])}, which is not text, or the name"
                " of another class",
                file=path,
                hint="write each name once; in YAML, put yes, no, on and off in quotes",
            )
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
