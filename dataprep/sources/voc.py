"""Pascal VOC: ``JPEGImages/`` with boxes in ``Annotations/``, or masks in ``SegmentationClass/``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.labels.boxes import ANNOTATED, BoxList, box_columns, reject_outside
from dataprep.sources.base import Source, SourceOptions, take_rows
from dataprep.sources.scan import NO_STATS, Scan, list_folders, scan_folder, stats_of
from dataprep.sources.segmentation import VOC as VOC_CLASSES
from dataprep.sources.segmentation import with_label_images
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_LIST, SOURCE_VOC, read_file, read_lines
from manifests.json_members import shorten
from manifests.labels import MASK_SOURCE
from manifests.process.text import plural, printable
from manifests.schema import SPLIT_ALIASES, split_order

_IMAGES, _BOXES, _MASKS, _SETS = "JPEGImages", "Annotations", "SegmentationClass", "ImageSets"


def read_voc(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    """Read a folder of Pascal VOC, or the only year of a ``VOCdevkit``; `None` if it is neither.

    Raises:
        CallError: `label_type` is neither boxes nor masks.
        SourceError: an annotation or a list is not valid, or there are several years.

    """
    root = _find_root(src, folders)
    if root is None:
        return None
    inside = {*list_folders(root)}
    label_type = options.label_type or ("boxes" if _BOXES in inside else "mask")
    needed = {"boxes": _BOXES, "mask": _MASKS}.get(label_type)
    if needed is None or needed not in inside:
        raise CallError(
            f"--label-type {label_type}: {printable(root)} has"
            f" {' and '.join(sorted(inside & {_BOXES, _MASKS}))}/",
            hint=(
                "give --label-type boxes for Annotations/, or --label-type mask for"
                " SegmentationClass/"
            ),
        )
    sets = _read_sets(root, "Main" if label_type == "boxes" else "Segmentation")
    source = _list_images(root, sets, needed)
    if label_type == "mask":
        return _with_masks(source, options)
    return _with_boxes(source, options, both=_MASKS in inside)


def _find_root(src: str, folders: Sequence[str]) -> str | None:
    if _IMAGES in folders and {_BOXES, _MASKS} & {*folders}:
        return src
    places = [src, *([f"{src}/VOCdevkit"] if "VOCdevkit" in folders else [])]
    years = [
        f"{place}/{name}"
        for place in places
        for name in list_folders(place)
        if name.startswith("VOC20") and _IMAGES in list_folders(f"{place}/{name}")
    ]
    if len(years) > 1:
        raise SourceError(
            f"there are several years: {', '.join(os.path.basename(year) for year in years)}",
            file=src,
            hint="give one of them as --src, or each as a --src of its own",
        )
    return years[0] if years else None


def _read_sets(root: str, name: str) -> dict[str, str]:
    """Return the split of each image by its name without suffix; empty if there are no lists."""
    folder = f"{root}/{_SETS}/{name}"
    if not storage.is_folder(folder):
        return {}
    found: dict[str, str] = {}
    lists = [split for split in SPLIT_ALIASES if storage.is_file(f"{folder}/{split}.txt")]
    both = storage.is_file(f"{folder}/trainval.txt") and not {"train", "val"} & {*lists}
    for each in [*lists, *(["trainval"] if both else [])]:
        split = SPLIT_ALIASES.get(each, "train")
        for number, line in enumerate(read_lines(f"{folder}/{each}.txt", SOURCE_LIST), 1):
            stem = line.decode("utf-8", "replace").split(maxsplit=1)[:1]
            if stem and found.setdefault(stem[0], split) != split:
                raise SourceError(
                    f"image {shorten(stem[0])} is also in the split {found[stem[0]]!r}",
                    file=f"{folder}/{each}.txt",
                    line=number,
                    hint="remove one of the lines",
                )
    return found


def _list_images(root: str, sets: dict[str, str], labels: str) -> Source:
    """Return the images that are in a list, or that have a label if there are no lists."""
    scan = Scan(root)
    scan.add(_IMAGES)
    stems = [os.path.splitext(os.path.relpath(path, _IMAGES))[0] for path in scan.path.to_pylist()]
    missing = sorted({*sets} - {*stems})
    if missing:
        raise SourceError(
            f"image {shorten(missing[0])} of a list in {_SETS}/ is not in {_IMAGES}/"
            f" ({len(missing):,} in total)",
            file=root,
            hint=f"unpack {_IMAGES}/ again, or remove the line",
        )
    names = split_order({*sets.values()} or {"train"})
    splits = [sets.get(stem) if sets else names[0] for stem in stems]
    kept = np.array([row for row, split in enumerate(splits) if split is not None], np.int64)
    notices = (
        [f"skipped {plural(len(stems) - len(kept), 'image')} that no list names"]
        if len(kept) < len(stems)
        else []
    )
    source = scan.source(
        "Pascal VOC",
        names,
        split=np.array([0 if split is None else names.index(split) for split in splits], np.int8),
        extra=pa.table({"image": pa.array(stems, pa.string())}),
    )
    source = replace(source, notices=(*source.notices, *notices), label_origin=f"{labels}/")
    return take_rows(source, kept)


def _without_label(source: Source, folder: str, suffix: str) -> tuple[Source, list[str]]:
    """Return the samples that have a label, and their names. The others are rejected."""
    found = _stats_in(f"{source.root}/{folder}", suffix)
    stems = source.extra["image"].to_pylist()
    has = np.array([stem in found for stem in stems], bool)
    rejected = tuple(
        {"source": path, "reason": "bad-label", "detail": f"{folder}/{stem}{suffix} does not exist"}
        for path, stem, ok in zip(source.path.to_pylist(), stems, has.tolist(), strict=True)
        if not ok
    )
    if not has.any():
        raise SourceError(
            f"no image has a label in {folder}/", file=source.root, hint=f"unpack {folder}/ again"
        )
    source = replace(take_rows(source, np.flatnonzero(has)), rejected=(*source.rejected, *rejected))
    stems = source.extra["image"].to_pylist()
    stats = np.array([found[stem] for stem in stems], np.int64)
    return source.with_columns(stamp=with_label_images(source.stamp, stats)), stems


def _stats_in(folder: str, suffix: str) -> dict[str, tuple[int, int, int]]:
    """Return size, modification time and inode of each file with a suffix, by its name without."""
    with scan_folder(folder) as entries:
        return {
            entry.name.removesuffix(suffix): _stats_of(entry)
            for entry in entries
            if entry.name.endswith(suffix)
        }


def _stats_of(entry: storage.Entry) -> tuple[int, int, int]:
    try:
        return stats_of(entry.stat())
    except OSError:  # such as a broken link: reading the file says why
        return NO_STATS


def _with_masks(source: Source, options: SourceOptions) -> Source:
    source, stems = _without_label(source, _MASKS, ".png")
    paths = pa.array([f"{_MASKS}/{stem}.png" for stem in stems], pa.string())
    return replace(
        source.with_columns(extra=pa.table({MASK_SOURCE: paths})),
        classes=options.classes or VOC_CLASSES,
        label_type="mask",
    )


def _with_boxes(source: Source, options: SourceOptions, *, both: bool) -> Source:
    source, stems = _without_label(source, _BOXES, ".xml")
    paths = (f"{source.root}/{_BOXES}/{stem}.xml" for stem in stems)
    files = list(storage.map_files(source.root, read_voc_xml, paths))
    classes = options.classes or tuple(
        sorted({each.name for file in files for each in file.objects})
    )
    number = {name: label for label, name in enumerate(classes)}
    # The first pixel has the number 1, and edges are pixels of the object. Some tools count from 0
    # instead.
    from_zero = any(0 in each.edges[:2] for file in files for each in file.objects)
    boxes = BoxList()
    for image, (stem, file) in enumerate(zip(stems, files, strict=True)):
        for place, each in enumerate(file.objects):
            if each.name not in number:
                raise SourceError(
                    f"the class {shorten(each.name)} of object {place} is not in --classes",
                    file=f"{source.root}/{_BOXES}/{stem}.xml",
                    hint="add it to the class names",
                )
            left, top, right, bottom = each.edges
            start = 0 if from_zero else 1
            boxes.add(image, number[each.name], (left - start, top - start, right, bottom), place)
    sizes = np.array([(file.width, file.height) for file in files], np.int64).reshape(-1, 2)
    columns = box_columns(boxes, sizes)
    rejected = reject_outside(
        source.path,
        columns,
        sizes,
        lambda image, place: f"the box of object {place} in {_BOXES}/{stems[image]}.xml",
    )
    extra = {"boxes": columns.boxes, "box_labels": columns.labels}
    extra |= {name: pa.array(values) for name, values in zip(ANNOTATED, sizes.T, strict=True)}
    notices = [*source.notices, *columns.notices]
    if from_zero:
        notices.append("boxes begin at 0, so their coordinates count from 0 and not from 1")
    if difficult := sum(each.difficult for file in files for each in file.objects):
        notices.append(
            f"kept {plural(difficult, 'box')} marked as difficult, which the evaluation of VOC"
            " leaves out"
        )
    if both:
        notices.append("the source also has masks; --label-type mask converts them")
    source = replace(
        source.with_columns(extra=pa.table(extra)),
        classes=classes,
        rejected=(*source.rejected, *rejected),
        notices=tuple(notices),
        label_type="boxes",
    )
    kept = np.array([row for row in range(len(source)) if row not in columns.outside], np.int64)
    return take_rows(source, kept) if rejected else source


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
            raise SourceError("the file is nested too deeply", file=self._file, hint=_HINT)
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
        if path in ("annotation/size/width", "annotation/size/height"):
            setattr(self.out, path.rpartition("/")[2], self._side(path, text))
        elif path == _OBJECT:
            self._end_object()
        elif path in _TEXTS:
            self._object[path.rpartition("/")[2]] = text

    def _side(self, path: str, text: str) -> int:
        if not text.isdecimal() or len(text) > 9:
            message = f"<{path.rpartition('/')[2]}> of <size> is {shorten(text)}, not an integer"
            raise SourceError(message, file=self._file, hint=_HINT)
        return int(text)

    def _end_object(self) -> None:
        number = len(self.out.objects)
        if number >= _MAX_OBJECTS:
            raise SourceError(
                f"the file has more than {_MAX_OBJECTS:,} objects", file=self._file, hint=_HINT
            )
        name = self._object.get("name", "")
        if not name:
            raise SourceError(f"object {number} has no <name>", file=self._file, hint=_HINT)
        edges = [self._edge(number, side) for side in _SIDES]
        difficult = self._object.get("difficult", "0") not in ("", "0")
        self.out.objects.append(
            VocObject(name, (edges[0], edges[1], edges[2], edges[3]), difficult)
        )

    def _edge(self, number: int, side: str) -> float:
        text = self._object.get(side, "")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not abs(value) < 1e9:
            message = f"<{side}> of object {number} is {shorten(text)}, not a number"
            raise SourceError(message, file=self._file, hint=_HINT)
        return value
