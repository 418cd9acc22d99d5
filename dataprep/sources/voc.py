"""Pascal VOC: ``JPEGImages/`` with boxes in ``Annotations/``, or masks in ``SegmentationClass/``."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.labels.boxes import BoxList
from dataprep.options import SourceOptions
from dataprep.sources.base import Source, positions, take_rows
from dataprep.sources.coco import add_boxes
from dataprep.sources.scan import Scan, entry_stats, list_folders
from dataprep.sources.segmentation import VOC as VOC_CLASSES
from dataprep.sources.segmentation import with_label_images
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_LIST, SOURCE_VOC, read_file, read_lines
from manifests.json_members import shorten
from manifests.labels import MASK_SOURCE
from manifests.process.text import plural, printable
from manifests.schema import SPLIT_ALIASES, split_order

_IMAGES, _BOXES, _MASKS, _SETS = "JPEGImages", "Annotations", "SegmentationClass", "ImageSets"


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
            f"--label-type {label_type}: {printable(root)} has"
            f" {' and '.join(sorted(inside & {_BOXES, _MASKS}))}/",
            hint=(
                "give --label-type boxes for Annotations/, or --label-type mask for"
                " SegmentationClass/"
            ),
        )
    if label_type == "mask":
        return _read_masks(root, options)
    return _read_boxes(root, options, both=_MASKS in inside)


def find_voc(src: str, folders: Sequence[str], options: SourceOptions) -> str | None:
    """Return the folder of Pascal VOC: `src`, or the only year in it or in its ``VOCdevkit``."""
    if options.label_type == "class":
        return None
    if _IMAGES in folders and {_BOXES, _MASKS} & {*folders}:
        return src
    places = [src]
    if "VOCdevkit" in folders:
        places.append(f"{src}/VOCdevkit")
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


def _read_sets(folder: str) -> dict[str, str]:
    """Return the split of each image by its name without suffix; empty if there are no lists."""
    found: dict[str, str] = {}
    if not storage.is_folder(folder):
        return found
    lists = {}
    for name in (*SPLIT_ALIASES, "trainval"):
        if storage.is_file(f"{folder}/{name}.txt"):
            lists[name] = SPLIT_ALIASES.get(name, "train")
    if {"train", "val"} & {*lists}:
        lists.pop("trainval", None)  # it repeats both
    for name, split in lists.items():
        file = f"{folder}/{name}.txt"
        for number, line in enumerate(read_lines(file, SOURCE_LIST), 1):
            for stem in line.decode("utf-8", "replace").split(maxsplit=1)[:1]:
                if found.setdefault(stem, split) != split:
                    raise SourceError(
                        f"image {shorten(stem)} is also in the split {found[stem]!r}",
                        file=file,
                        line=number,
                        hint="remove one of the lines",
                    )
    return found


def _read_images(root: str, purpose: str, labels: str, suffix: str) -> tuple[Source, list[str]]:
    """Return the images that are in a list and have a label, and their names without suffix.

    Args:
        root: the folder of the year.
        purpose: folder of the lists in ``ImageSets``. Without lists, all images are read.
        labels: folder of the labels.
        suffix: suffix of the labels. An image without a label is rejected.

    """
    sets = _read_sets(f"{root}/{_SETS}/{purpose}")
    scan = Scan(root)
    scan.add(_IMAGES)
    paths = scan.path.to_pylist()
    stems = [os.path.splitext(os.path.relpath(path, _IMAGES))[0] for path in paths]
    missing = sorted({*sets} - {*stems})
    if missing:
        raise SourceError(
            f"image {shorten(missing[0])} of a list in {_SETS}/ is not in {_IMAGES}/"
            f" ({len(missing):,} in total)",
            file=root,
            hint=f"unpack {_IMAGES}/ again, or remove the line",
        )
    names = split_order({*sets.values()} or {"train"})
    stats = _stats_in(f"{root}/{labels}", suffix)
    kept, split, kept_stats, rejected = [], [], [], []
    listed = 0
    for row, stem in enumerate(stems):
        if sets and stem not in sets:
            continue
        listed += 1
        if stem in stats:
            kept.append(row)
            split.append(names.index(sets.get(stem, names[0])))
            kept_stats.append(stats[stem])
        else:
            detail = f"{labels}/{stem}{suffix} does not exist"
            rejected.append({"source": paths[row], "reason": "bad-label", "detail": detail})
    if not kept:
        raise SourceError(
            f"no image has a label in {labels}/", file=root, hint=f"unpack {labels}/ again"
        )
    source = scan.source("Pascal VOC", names)
    notices = [*source.notices]
    if listed < len(stems):
        notices.append(f"skipped {plural(len(stems) - listed, 'image')} that no list names")
    source = replace(
        source,
        table=source.table.take(pa.array(kept)),
        notices=tuple(notices),
        rejected=(*source.rejected, *rejected),
        label_origin=f"{labels}/",
    )
    stamp = with_label_images(source.stamp, np.array(kept_stats, np.int64))
    source = source.with_columns(split=np.array(split, np.int8), stamp=stamp)
    # Splits whose images have no labels are removed.
    return take_rows(source, np.arange(len(source))), [stems[row] for row in kept]


def _stats_in(folder: str, suffix: str) -> dict[str, tuple[int, int, int]]:
    """Return size, modification time and inode of each file with a suffix, by its name without."""
    stats = {}
    with storage.scan_folder(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffix):
                stats[entry.name.removesuffix(suffix)] = entry_stats(entry)
    return stats


def _read_masks(root: str, options: SourceOptions) -> Source:
    source, stems = _read_images(root, "Segmentation", _MASKS, ".png")
    paths = pa.array([f"{_MASKS}/{stem}.png" for stem in stems], pa.string())
    source = source.with_columns(extra=pa.table({MASK_SOURCE: paths}))
    return replace(source, classes=options.classes or VOC_CLASSES, label_type="mask")


def _read_boxes(root: str, options: SourceOptions, *, both: bool) -> Source:
    source, stems = _read_images(root, "Main", _BOXES, ".xml")
    paths = [f"{root}/{_BOXES}/{stem}.xml" for stem in stems]
    files = [*storage.map_files(root, read_voc_xml, paths)]
    objects = [each for file in files for each in file.objects]
    classes = options.classes or tuple(sorted({each.name for each in objects}))
    number = positions(classes)
    # The first pixel has the number 1, and edges are pixels of the object. Some tools count from 0
    # instead.
    from_zero = any(0 in each.edges[:2] for each in objects)
    start = 0 if from_zero else 1
    boxes = BoxList()
    for image, (path, file) in enumerate(zip(paths, files, strict=True)):
        for place, each in enumerate(file.objects):
            if each.name not in number:
                raise SourceError(
                    f"the class {shorten(each.name)} of object {place} is not in --classes",
                    file=path,
                    hint="add it to the class names",
                )
            left, top, right, bottom = each.edges
            boxes.add(image, number[each.name], (left - start, top - start, right, bottom), place)
    sizes = np.array([(file.width, file.height) for file in files], np.int64).reshape(-1, 2)
    source = add_boxes(
        source,
        boxes,
        sizes,
        lambda image, place: f"the box of object {place} in {_BOXES}/{stems[image]}.xml",
    )
    notices = [*source.notices]
    if from_zero:
        notices.append("boxes begin at 0, so their coordinates count from 0 and not from 1")
    difficult = sum(each.difficult for each in objects)
    if difficult:
        notices.append(
            f"kept {plural(difficult, 'box')} marked as difficult, which the evaluation of VOC"
            " leaves out"
        )
    if both:
        notices.append("the source also has masks; --label-type mask converts them")
    return replace(source, classes=classes, notices=tuple(notices), label_type="boxes")


# --- XML ------------------------------------------------------------------------------------------


#: Paths of the elements whose text is read. A part of an object, such as a head, has a box too,
#: which is not read.
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_OBJECT = "annotation/object"
_TEXTS = {
    *(f"annotation/{name}" for name in ("size/width", "size/height", "filename")),
    *(
        f"{_OBJECT}/{name}"
        for name in ("name", "difficult", *(f"bndbox/{side}" for side in _SIDES))
    ),
}

_MAX_DEPTH = 16
_MAX_TEXT = 4096
_MAX_OBJECTS = 100_000

_HINT = "export the annotations again, or correct the file"


@dataclass(frozen=True, slots=True)
class VocObject:
    """An object.

    Attributes:
        name: name of its class.
        edges: its edges as the file states them (xmin, ymin, xmax, ymax).
        difficult: whether it is marked as hard to recognize. Evaluations leave it out.

    """

    name: str
    edges: tuple[float, float, float, float]
    difficult: bool = False


@dataclass(slots=True)
class VocFile:
    """The content of a file.

    Attributes:
        width: width of the image, 0 if it is not stated.
        height: height of the image, 0 if it is not stated.
        objects: the objects in the order of the file.

    """

    width: int = 0
    height: int = 0
    objects: list[VocObject] = field(default_factory=list)


def read_voc_xml(file: str) -> VocFile:
    """Read an annotation file.

    Raises:
        SourceError: it is not XML, defines a document type, or a number or a name is missing or
            wrong.

    """
    content = read_file(file, SOURCE_VOC)
    from xml.parsers import expat  # takes time, and most sources do not need it

    handler = _Handler(file)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.text
    # Entities can make a small file large, and read other files. No annotation needs a document
    # type.
    parser.StartDoctypeDeclHandler = handler.doctype
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        message = f"the file is not valid XML ({expat.ErrorString(error.code)})"
        raise SourceError(message, file=file, line=error.lineno, hint=_HINT) from None
    except (LookupError, ValueError) as error:  # an unknown encoding
        raise SourceError(
            f"the file is not valid XML ({error})"[:300], file=file, hint=_HINT
        ) from None
    if not handler.complete:
        raise SourceError("the file has no element <annotation>", file=file, hint=_HINT)
    return handler.out


class _Handler:
    """Collects the content of a file while it is parsed."""

    def __init__(self, file: str) -> None:
        self.out = VocFile()
        self.complete = False
        self._file = file
        self._path: list[str] = []
        self._parts: list[str] = []
        self._object: dict[str, str] = {}

    def doctype(self, *_: Any) -> None:
        message = "the file defines a document type, which is not read"
        raise SourceError(message, file=self._file, hint="remove <!DOCTYPE>")

    def start(self, name: str, _: dict[str, str]) -> None:
        self._path.append(name)
        self._parts.clear()
        if len(self._path) > _MAX_DEPTH:
            self._fail("the file is nested too deeply")
        if "/".join(self._path) == _OBJECT:
            self._object = {}

    def text(self, text: str) -> None:
        if sum(map(len, self._parts)) < _MAX_TEXT:
            self._parts.append(text)

    def end(self, _: str) -> None:
        path = "/".join(self._path)
        self._path.pop()
        text = "".join(self._parts).strip()
        self._parts.clear()
        self.complete |= path == "annotation"
        name = path.rpartition("/")[2]
        if path in ("annotation/size/width", "annotation/size/height"):
            if not text.isdecimal() or len(text) > 9:
                self._fail(f"<{name}> of <size> is {shorten(text)}, not an integer")
            setattr(self.out, name, int(text))
        elif path == _OBJECT:
            self._end_object()
        elif path in _TEXTS:
            self._object[name] = text

    def _fail(self, message: str) -> NoReturn:
        raise SourceError(message, file=self._file, hint=_HINT)

    def _end_object(self) -> None:
        number = len(self.out.objects)
        if number >= _MAX_OBJECTS:
            self._fail(f"the file has more than {_MAX_OBJECTS:,} objects")
        name = self._object.get("name", "")
        if not name:
            self._fail(f"object {number} has no <name>")
        left, top, right, bottom = (self._edge(number, side) for side in _SIDES)
        difficult = self._object.get("difficult", "0") not in ("", "0")
        self.out.objects.append(VocObject(name, (left, top, right, bottom), difficult))

    def _edge(self, number: int, side: str) -> float:
        text = self._object.get(side, "")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not abs(value) < 1e9:
            self._fail(f"<{side}> of object {number} is {shorten(text)}, not a number")
        return value
