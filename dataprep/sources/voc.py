"""Pascal VOC: ``JPEGImages/`` with boxes in ``Annotations/``, or masks in ``SegmentationClass/``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Names, Source
from dataprep.sources.boxed import Objects, collect
from dataprep.sources.paired import Pairs, find_text, read_labelled, read_sets
from dataprep.sources.scan import list_folders
from dataprep.sources.segmentation import VOC as VOC_CLASSES
from dataprep.sources.segmentation import mask_column
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_VOC, open_file, read_file
from manifests.json_members import shorten
from manifests.labels import LabelType
from manifests.process.text import plural

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element, TreeBuilder

_IMAGES, _BOXES, _MASKS = "JPEGImages", "Annotations", "SegmentationClass"

#: Value of `Source.layout`.
_LAYOUT = "Pascal VOC"


def read_voc(_: str, root: str, options: SourceOptions) -> Source:
    """Read the folder of Pascal VOC that `find_voc` returned.

    Raises:
        CallError: `label_type` is neither boxes nor masks.
        SourceError: an annotation or a list is not valid.

    """
    inside = {*list_folders(root)}
    label_type = options.label_type or ("boxes" if _BOXES in inside else "mask")
    needed = {"boxes": _BOXES, "mask": _MASKS}.get(label_type)
    if needed not in inside:
        raise CallError(
            f"--label-type {label_type}: {root} has"
            f" {' and '.join(sorted(inside & {_BOXES, _MASKS}))}/",
            hint=(
                "give --label-type boxes for Annotations/, or --label-type mask for"
                " SegmentationClass/"
            ),
        )
    if label_type == "mask":
        sets = read_sets(f"{root}/ImageSets/Segmentation")
        source, files = read_labelled(_pairs(root, _MASKS, ".png"), sets)
        source = source.with_columns(extra=mask_column(files))
        return replace(source, classes=options.classes or VOC_CLASSES)
    sets = read_sets(f"{root}/ImageSets/Main")
    source = _read_boxes(_pairs(root, _BOXES, ".xml"), sets, options)
    if _MASKS in inside:
        source = source.with_notices("the source also has masks; --label-type mask converts them")
    return source


def find_xml(src: str, folders: Names, options: SourceOptions) -> Pairs | None:
    """Return the folders of images with annotations beside them, or in a folder of their own."""
    return find_text(src, folders, options, ".xml", _is_annotation)


def _is_annotation(path: str) -> bool:
    with open_file(path, SOURCE_VOC) as file:
        return b"<annotation" in file.read(512)


def find_voc(src: str, folders: Names, options: SourceOptions) -> str | None:
    """Return the folder of Pascal VOC: `src`, or the only year in it or in its ``VOCdevkit``."""
    if options.label_type == "class":
        return None
    if _IMAGES in folders and {_BOXES, _MASKS} & {*folders}:
        return src
    places = [src]
    if "VOCdevkit" in folders:
        places.append(f"{src}/VOCdevkit")
    # An archive of several years unpacks to one folder for each.
    years = []
    for place in places:
        for name in list_folders(place):
            if name.startswith("VOC20") and _IMAGES in list_folders(f"{place}/{name}"):
                years.append(f"{place}/{name}")
    if len(years) > 1:
        raise SourceError(
            f"there are several years: {', '.join(map(os.path.basename, years))}",
            file=src,
            hint="give one of them as --src, or each as a --src of its own",
        )
    return years[0] if years else None


def _pairs(root: str, labels: str, suffix: str) -> Pairs:
    """Return the folders of the images and labels of a year."""
    label_type: LabelType = "mask" if labels == _MASKS else "boxes"
    folders = {"train": (_IMAGES, labels)}
    return Pairs(root, folders, label_type, _LAYOUT, suffixes={suffix})


def read_xml(_: str, pairs: Pairs, options: SourceOptions) -> Source:
    """Read the folders that `find_xml` returned.

    Raises:
        SourceError: an annotation is not valid.

    """
    return _read_boxes(replace(pairs, layout=_LAYOUT), {}, options)


def _read_boxes(pairs: Pairs, sets: Mapping[str, str], options: SourceOptions) -> Source:
    found = collect(pairs, sets, read_voc_xml, options.classes)
    notices = []
    corners = np.reshape(found.boxes.corners, (-1, 4))
    are_pixels = corners.max(initial=0) > 1
    if are_pixels and _FROM_ZERO in found.notes:
        notices.append("boxes begin at 0, so their coordinates count from 0 and not from 1")
    elif are_pixels:
        # The first pixel has the number 1, and edges are pixels of the object.
        found.boxes.corners = corners - [1, 1, 0, 0]
    difficult = found.notes[_DIFFICULT]
    if difficult:
        notices.append(
            f"kept {plural(difficult, 'box')} marked as difficult, which the evaluation of VOC"
            " leaves out"
        )
    if found.notes[_OTHER_NAME]:
        notices.append(
            f"{plural(found.notes[_OTHER_NAME], 'file')} state the name of another image, and are of"
            " the image of their own name"
        )
    source = found.with_boxes(lambda image, at: f"the box of object {at} in {found.files[image]}")
    return source.with_notices(*notices)


# --- XML ------------------------------------------------------------------------------------------


_SIDES = ("xmin", "ymin", "xmax", "ymax")

_MAX_DEPTH = 16

_HINT = "export the annotations again, or correct the file"


#: What is counted: a coordinate 0, so that some tool counts from 0; and objects that are hard to
#: recognize, which evaluations leave out; and files that state the name of another image.
_FROM_ZERO, _DIFFICULT, _OTHER_NAME = "zero", "difficult", "name"


def read_voc_xml(file: str) -> Objects:
    """Read an annotation file. The corners are as it states them.

    Raises:
        SourceError: it is not XML, defines a document type, or a number or a name is missing or
            wrong.

    """
    root = _parse(file)
    if root.tag != "annotation":
        _fail(file, "the file has no element <annotation>")
    sides = _texts(root.findall("size"))
    size = []
    for side in ("width", "height"):
        text = sides.get(side, "0")
        if not text.isdecimal() or len(text) > 9:
            _fail(file, f"<{side}> of <size> is {shorten(text)}, not an integer")
        size.append(int(text))
    boxes, notes = [], []
    for number, element in enumerate(root.findall("object")):
        texts = _texts([element])
        if not texts.get("name"):
            _fail(file, f"object {number} has no <name>")
        # A part of an object, such as a head, has a box too, which is not read.
        box = _texts(element.findall("bndbox"))
        corners = [_edge(file, number, side, box.get(side, "")) for side in _SIDES]
        boxes.append((texts["name"], corners, number))
        if 0 in corners[:2]:
            notes.append(_FROM_ZERO)
        if texts.get("difficult", "") not in ("", "0"):
            notes.append(_DIFFICULT)
    stated, own = (
        os.path.splitext(os.path.basename(name))[0]
        for name in (_texts([root]).get("filename", "").replace("\\", "/"), file)
    )
    if stated not in ("", own):
        notes.append(_OTHER_NAME)
    return Objects(boxes, size, notes)


def _texts(elements: Iterable[Element]) -> dict[str, str]:
    """Return the texts of the elements in some elements, by their names."""
    texts = {}
    for element in elements:
        for inner in element:
            texts[inner.tag] = (inner.text or "").strip()
    return texts


def _edge(file: str, number: int, side: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) < 1e9:
        _fail(file, f"<{side}> of object {number} is {shorten(text)}, not a number")
    return value


def _parse(file: str) -> Element:
    """Return the root element of a file."""
    from xml.etree import ElementTree  # takes time, and most sources do not need it

    parser = ElementTree.XMLParser(target=_builder()())  # noqa: S314  (without document types)
    try:
        return ElementTree.XML(read_file(file, SOURCE_VOC), parser)
    except ElementTree.ParseError as error:
        reason, _, _ = str(error).rpartition(": line ")
        _fail(file, f"the file is not valid XML ({reason})", error.position[0])
    except (LookupError, ValueError) as error:  # an unknown encoding
        _fail(file, f"the file is not valid XML ({error})"[:300])
    except SourceError as error:
        error.file = file
        raise


@cache
def _builder() -> type[TreeBuilder]:
    from xml.etree import ElementTree

    class Builder(ElementTree.TreeBuilder):
        """Refuses what no annotation needs: entities can make a small file large, and read other files."""

        depth = 0

        def doctype(self, *_: str | None) -> None:
            message = "the file defines a document type, which is not read"
            raise SourceError(message, hint="remove <!DOCTYPE>")

        def start(self, *element: Any) -> Any:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise SourceError("the file is nested too deeply", hint=_HINT)
            return super().start(*element)

        def end(self, tag: str) -> Any:
            self.depth -= 1
            return super().end(tag)

    return Builder


def _fail(file: str, message: str, line: int | None = None) -> NoReturn:
    raise SourceError(message, file=file, line=line, hint=_HINT) from None


KINDS = (
    Kind(
        "a folder of Pascal VOC",
        find_voc,
        read_voc,
        example="""
VOC2012/JPEGImages/2007_000027.jpg
VOC2012/Annotations/2007_000027.xml
VOC2012/ImageSets/Main/train.txt             # optional, with val.txt
""",
    ),
    Kind(
        "a folder of images with a Pascal VOC .xml each",
        find_xml,
        read_xml,
        example="""
export/train/0001.jpg                        # Roboflow, LabelImg: both files in one folder
export/train/0001.xml
masks/images/0001.png                        # or in images/ and annotations/
masks/annotations/0001.xml
""",
    ),
)
