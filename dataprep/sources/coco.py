"""COCO's annotations: boxes (``instances_*.json``) or captions (``captions_*.json``) of folders of images."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.labels.boxes import ANNOTATED, BoxList, box_columns, reject_outside
from dataprep.options import SourceOptions
from dataprep.sources.base import Source, join_sources, positions, take_rows, text_array
from dataprep.sources.scan import is_folder, listed_table
from dataprep.sources.tables import check_split_names
from dataprep.sources.text_tables import read_arrays
from manifests.errors import CallError, SourceError
from manifests.json_members import MAX_INTEGER, is_unicode, shorten
from manifests.labels import MAX_LABEL, LabelType
from manifests.process.text import plural, printable
from manifests.remote.url import parent_folder
from manifests.schema import SPLIT_ALIASES, split_order

#: Names of annotation files, as far as they say what is in them.
_NAME = re.compile(
    r"(instances|captions|person_keypoints|panoptic|stuff|image_info|pixelmaps)_(.+)\.json"
)
_ROBOFLOW = "_annotations.coco.json"

#: Images that are looked for to find the folder of a file's images.
_TRIED = 10

#: The kind of annotations by the label type.
_PREFIXES: dict[LabelType, str] = {"boxes": "instances", "caption": "captions"}


@dataclass(frozen=True, slots=True)
class AnnotationFile:
    """An annotation file, and where its images are.

    Attributes:
        path: path of the file.
        split: name of the split.
        folders: folders in which its images may be, relative to the root of the source.

    """

    path: str
    split: str
    folders: tuple[str, ...]


def read_coco(
    src: str, found: Sequence[tuple[str, AnnotationFile]], options: SourceOptions
) -> Source:
    """Read a folder with the annotations that `find_coco` returned.

    Raises:
        CallError: `label_type` is neither boxes nor captions.
        SourceError: an annotation is not valid, or an image is missing.

    """
    kinds = {kind for kind, _ in found}
    label_type = _label_type(src, options, "caption" if kinds == {"captions"} else "boxes")
    files = [each for kind, each in found if kind in ("", _PREFIXES[label_type])]
    if not files:
        names = ", ".join(sorted(os.path.basename(each.path) for _, each in found))
        raise CallError(
            f"{printable(src)} has no {_PREFIXES[label_type]}_*.json for --label-type {label_type},"
            f" only {names}",
            hint=(
                "give another label type, add the file, or give one of these files as --src with"
                " --image-root"
            ),
        )
    source = _read_files(src, files, label_type, options)
    if not kinds >= {*_PREFIXES.values()}:
        return source
    other = "caption" if label_type == "boxes" else "boxes"
    notice = f"the annotations have captions and boxes; --label-type {other} converts the others"
    return replace(source, notices=(*source.notices, notice))


def read_coco_file(file: str, _: Any, options: SourceOptions) -> Source:
    """Read one annotation file in COCO's format; see `read_coco` and `is_coco`."""
    name = os.path.basename(file)
    label_type = _label_type(file, options, "caption" if name.startswith("captions_") else "boxes")
    match = _NAME.fullmatch(name)
    stem = match[2] if match else os.path.splitext(name)[0]
    annotations = AnnotationFile(file, _split_name(stem) or "train", ("", stem, "images"))
    root = options.image_root or parent_folder(file) or "."
    return _read_files(root, [annotations], label_type, options)


# --- files ----------------------------------------------------------------------------------------


def find_coco(
    src: str, folders: Sequence[str], options: SourceOptions
) -> list[tuple[str, AnnotationFile]]:
    """Return the annotation files with the kinds that their names state, which may be empty."""
    found: list[tuple[str, AnnotationFile]] = []
    if options.label_type == "class":
        return found
    for folder in folders:
        if folder.lower() != "annotations":
            continue
        with storage.scan_folder(f"{src}/{folder}") as entries:
            names = sorted(entry.name for entry in entries if _may_be_annotations(entry))
        for name in names:
            path = f"{src}/{folder}/{name}"
            match = _NAME.fullmatch(name)
            if match is None and not is_coco(path):
                continue  # such as a file of another tool for each image
            kind, stem = match.groups() if match else ("", os.path.splitext(name)[0])
            split = _split_name(stem)
            places = [stem, f"images/{stem}"]
            if split:
                places += [each for each in folders if SPLIT_ALIASES.get(each.lower()) == split]
                places.append(f"images/{split}")
            places += [f"images/{stem}", "images", ""]
            split = split or ("train" if len(names) == 1 else stem)
            found.append((kind, AnnotationFile(path, split, tuple(places))))
    # Roboflow writes a file beside the images of each split, or of all images.
    for folder in folders:
        path = f"{src}/{folder}/{_ROBOFLOW}"
        if storage.is_file(path):
            split = SPLIT_ALIASES.get(folder.lower(), folder)
            found.append(("", AnnotationFile(path, split, (folder,))))
    path = f"{src}/{_ROBOFLOW}"
    if not found and storage.is_file(path):
        found.append(("", AnnotationFile(path, "train", ("",))))
    return found


def _may_be_annotations(entry: storage.Entry) -> bool:
    name = entry.name
    skipped = name.startswith(("panoptic_", "image_info_"))
    return name.endswith(".json") and not skipped and not is_folder(entry)


def _split_name(stem: str) -> str | None:
    """Return the split that the name of a file states, such as ``train2017``."""
    return SPLIT_ALIASES.get(re.sub(r"[-_.]?\d*$", "", stem.lower()))


def _label_type(src: str, options: SourceOptions, default: LabelType) -> LabelType:
    label_type = options.label_type or default
    if label_type not in _PREFIXES:
        raise CallError(
            f"--label-type {label_type}: COCO's annotations in {printable(src)} are boxes or"
            " captions",
            hint="give --label-type boxes or --label-type caption",
        )
    return label_type


# --- sources --------------------------------------------------------------------------------------


def _read_files(
    root: str, files: Sequence[AnnotationFile], label_type: LabelType, options: SourceOptions
) -> Source:
    first = files[0]
    names = split_order({each.split for each in files})
    check_split_names(names, os.path.dirname(first.path))
    if len(names) < len(files):
        raise SourceError(
            f"several annotation files are of the split {names[0]!r}",
            file=os.path.dirname(first.path),
            hint="keep one file for each split, or give one of them as --src with --image-root",
        )
    add = _with_captions if label_type == "caption" else _with_boxes
    parts: list[Source] = []
    notices = []
    for each in sorted(files, key=lambda file: names.index(file.split)):
        chosen = options.label_type is not None
        annotations = Annotations(each.path, label_type, chosen=chosen)
        folder = _folder_of_images(root, each, annotations)
        name = os.path.basename(each.path)
        if folder is None and len(files) > 1:
            notices.append(f"skipped {name}: its images are not there")
            continue
        source = _images(root, each.path, folder or "", annotations)
        source = replace(source, splits=(each.split,), label_type=label_type, label_origin=name)
        parts.append(add(source, each.path, annotations, options))
    if not parts:
        raise SourceError(
            f"no folder has the images of {os.path.basename(first.path)}",
            file=root,
            hint=f"put them into {first.folders[0]}/, or give the file as --src, with --image-root",
        )
    return _joined(root, parts, notices)


def _folder_of_images(root: str, file: AnnotationFile, annotations: Annotations) -> str | None:
    """Return the first folder with one of the first images. A few may be missing."""
    for folder in file.folders:
        for name in annotations.names[:_TRIED]:
            if storage.is_file(os.path.join(root, folder, name)):
                return folder
    return None


def _images(root: str, file: str, folder: str, annotations: Annotations) -> Source:
    """Return the images of an annotation file, without their labels."""
    table = listed_table(
        root,
        text_array(os.path.normpath(os.path.join(folder, name)) for name in annotations.names),
        lambda row: (f"{file}, images[{row}]", None),
        extra=pa.table({"image_id": np.array([*annotations.ids], np.int64)}),
    )
    return Source(root=root, layout="COCO", table=table)


def _with_captions(source: Source, _: str, annotations: Annotations, __: SourceOptions) -> Source:
    captions = annotations.captions
    rows = sorted(captions)
    rejected = []
    for row in sorted({*range(len(source))} - {*rows}):
        path = source.path[row].as_py()
        detail = "no annotation has a caption of it"
        rejected.append({"source": path, "reason": "bad-label", "detail": detail})
    kept = take_rows(source, np.array(rows, np.int64))
    column = pa.array(["\n".join(captions[row]) for row in rows], pa.string())
    count = plural(sum(map(len, captions.values())), "caption")
    notice = f"{count} of {plural(len(rows), 'image')}; those of an image are lines of one text"
    return replace(
        kept.with_columns(extra=kept.extra.append_column("caption", column)),
        rejected=tuple(rejected),
        notices=(notice,),
    )


def _with_boxes(
    source: Source, file: str, annotations: Annotations, options: SourceOptions
) -> Source:
    classes, label_of, notices = _classes(file, annotations, options)
    boxes = annotations.boxes
    for at, category in enumerate(boxes.label):
        boxes.label[at] = label_of[category]
    sizes = np.array(annotations.sizes, np.int64).reshape(-1, 2)
    name = os.path.basename(file)
    source, box_notices = add_boxes(
        source, boxes, sizes, lambda _, place: f"annotations[{place}].bbox of {name}"
    )
    if annotations.crowds:
        notices.append(f"left out {plural(annotations.crowds, 'box')} around crowds (iscrowd)")
    if annotations.keypoints:
        notices.append(f"left out the key points of {plural(annotations.keypoints, 'object')}")
    without = pc.sum(pc.equal(pc.list_value_length(source.extra["boxes"]), 0)).as_py()
    if without:
        notices.append(f"{plural(without, 'image')} without a box")
    return replace(source, classes=classes, notices=(*notices, *box_notices))


def add_boxes(
    source: Source, boxes: BoxList, sizes: NDArray[np.int64], where: Callable[[int, int], str]
) -> tuple[Source, Sequence[str]]:
    """Return a source with the columns of boxes, without images that have one outside; and notices.

    Args:
        source: the images.
        boxes: their boxes.
        sizes: widths and heights that the annotations state, int64 [n, 2], 0 if they do not.
        where: returns where the box of an image is, by both numbers, for messages.

    """
    columns = box_columns(boxes, sizes)
    rejected = reject_outside(source.path, columns, sizes, where)
    extra = {name: source.extra[name] for name in source.extra.column_names}
    extra |= {"boxes": columns.boxes, "box_labels": columns.labels}
    for name, values in zip(ANNOTATED, sizes.T, strict=True):
        extra[name] = pa.array(values)
    source = source.with_columns(extra=pa.table(extra))
    if rejected:
        outside = np.isin(np.arange(len(source)), [*columns.outside])
        source = take_rows(source, np.flatnonzero(~outside))
    return replace(source, rejected=(*source.rejected, *rejected)), columns.notices


def _classes(
    file: str, annotations: Annotations, options: SourceOptions
) -> tuple[tuple[str, ...], dict[int, int], list[str]]:
    """Return the class names, the label of each category by its id, and notices."""
    ids = sorted(annotations.categories)
    names = [*map(annotations.categories.__getitem__, ids)]
    for name, count in Counter(names).items():
        if count > 1:
            message = f"two categories have the name {shorten(name)}"
            raise SourceError(message, file=file, hint=EXPORT)
    classes = options.classes or tuple(names)
    unknown = sorted({*names} - {*classes})
    if unknown:
        raise SourceError(
            f"category {shorten(unknown[0])} is not in --classes ({len(unknown)} in total)",
            file=file,
            hint="add it to the class names",
        )
    number = positions(classes)
    label_of = {category: number[name] for category, name in annotations.categories.items()}
    notices = []
    if not options.classes and ids and ids != [*range(ids[0], ids[0] + len(ids))]:
        notices.append(
            f"the ids of the categories, {ids[0]} to {ids[-1]}, have holes: labels are 0 to"
            f" {len(ids) - 1}"
        )
    return classes, label_of, notices


def _joined(root: str, parts: Sequence[Source], notices: list[str]) -> Source:
    rejected: list[dict[str, str]] = []
    filled = [part for part in parts if len(part)] or [parts[0]]
    first = filled[0]
    for part in filled:
        if part.classes != first.classes:
            raise SourceError(
                f"{first.label_origin} and {part.label_origin} have different categories",
                file=root,
                hint=(
                    "give --classes with the names of all categories, or convert the files one by"
                    " one"
                ),
            )
        notices += [f"{part.label_origin}: {text}" for text in part.notices]
    for part in parts:
        rejected += part.rejected
    return replace(
        join_sources(filled),
        notices=tuple(notices),
        rejected=tuple(rejected),
        label_origin=", ".join(part.label_origin for part in filled),
    )


# --- annotation files -----------------------------------------------------------------------------


EXPORT = "export the annotations again, or correct the file"

_PANOPTIC_HINT = (
    "use instances_*.json for boxes; for masks, write the class of each pixel into gray PNGs:"
    " images/, masks/"
)
_KEYPOINTS_HINT = "--label-type boxes converts the boxes, and leaves the key points out"


def is_coco(file: str) -> bool:
    """Return whether a file begins with an object that has an array of images with file names."""
    try:
        _, _, image = next(iter(read_arrays(file, ["images"])))
    except (StopIteration, SourceError):
        return False
    return isinstance(image, dict) and "file_name" in image and "id" in image


class Annotations:
    """The content of one file. Images may come after their annotations, so ids are resolved at the end.

    Attributes:
        ids: number of each image by its id.
        names: file names of the images.
        sizes: widths and heights of the images, 0 if they are not stated.
        categories: names of the categories by their ids.
        boxes: the boxes; their labels are still ids of categories.
        captions: for each image that has some, its captions.
        crowds: number of boxes around crowds, which are left out.
        keypoints: number of objects with key points, which are left out.

    """

    def __init__(self, file: str, label_type: LabelType, *, chosen: bool) -> None:
        """Read a file.

        Args:
            file: the file.
            label_type: what to read, ``"boxes"`` or ``"caption"``.
            chosen: whether the user chose it, so that key points may be left out.

        Raises:
            SourceError: it is not valid JSON, a member is missing or wrong, or refers to an unknown
                id; or the annotations are of another kind, such as panoptic ones.

        """
        self._file, self._label_type, self._chosen = file, label_type, chosen
        self.ids: dict[int, int] = {}
        self.names: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.categories: dict[int, str] = {}
        self.boxes = BoxList()
        self.captions: dict[int, list[str]] = {}
        self.crowds = self.keypoints = 0
        add = {"images": self._image, "annotations": self._annotation, "categories": self._category}
        if label_type == "caption":
            del add["categories"]
        for name, number, item in read_arrays(file, [*add], [*add]):
            if not isinstance(item, dict):
                self._fail(f"{name}[{number}] must be an object")
            add[name](f"{name}[{number}]", number, item)
        self._resolve()

    def _fail(self, message: str, hint: str = EXPORT) -> NoReturn:
        raise SourceError(message, file=self._file, hint=hint)

    def _integer(self, place: str, item: dict[str, Any], name: str) -> int:
        value = item.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
            self._fail(f"{place}.{name} must be an integer of at least 0, not {shorten(value)}")
        return int(value)

    def _text(self, place: str, item: dict[str, Any], name: str) -> str:
        value = item.get(name)
        text = value if isinstance(value, str) else ""
        if not text.strip() or not is_unicode(text) or "\0" in text:
            self._fail(f"{place}.{name} must be text, not {shorten(value)}")
        return text

    def _image(self, place: str, number: int, item: dict[str, Any]) -> None:
        del number
        image_id, name = self._integer(place, item, "id"), self._text(place, item, "file_name")
        if image_id in self.ids:
            self._fail(f"{place}.id is {image_id}, the id of another image")
        self.ids[image_id] = len(self.names)
        self.names.append(name)
        width, height = (
            self._integer(place, {"width": 0, "height": 0, **item}, side)
            for side in ("width", "height")
        )
        self.sizes.append((width, height))

    def _category(self, place: str, number: int, item: dict[str, Any]) -> None:
        del number
        category, name = self._integer(place, item, "id"), self._text(place, item, "name")
        if category in self.categories or category > MAX_LABEL:
            self._fail(
                f"{place}.id is {category}, which is the id of another category or above"
                f" {MAX_LABEL}"
            )
        self.categories[category] = name

    def _annotation(self, place: str, number: int, item: dict[str, Any]) -> None:
        image_id = self._integer(place, item, "image_id")
        if self._label_type == "caption":
            self.captions.setdefault(image_id, []).append(
                " ".join(self._text(place, item, "caption").split())
            )
            return
        if "segments_info" in item:
            self._fail(
                f"{place} is panoptic: it describes the segments of a PNG, and not an object",
                _PANOPTIC_HINT,
            )
        if item.get("keypoints"):
            self.keypoints += 1
            if not self._chosen:
                self._fail(f"{place} has key points, which are not converted", _KEYPOINTS_HINT)
        category = self._integer(place, item, "category_id")
        if item.get("iscrowd"):
            self.crowds += 1
            return
        box = item.get("bbox")
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            self._fail(
                f"{place}.bbox must be four numbers (x, y, width, height), not {shorten(box)}"
            )
        x, y, width, height = map(float, box)
        self.boxes.add(image_id, category, (x, y, x + width, y + height), number)

    def _resolve(self) -> None:
        """Replace the ids of images by their numbers, and check the ids of categories."""
        boxes = self.boxes
        for at, image_id in enumerate(boxes.image):
            place, category = f"annotations[{boxes.place[at]}]", boxes.label[at]
            if image_id not in self.ids:
                self._fail(f"{place}.image_id is {image_id}, but no image has that id")
            if category not in self.categories:
                self._fail(f"{place}.category_id is {category}, but no category has that id")
            boxes.image[at] = self.ids[image_id]
        captions = {}
        for image_id, texts in self.captions.items():
            if image_id not in self.ids:
                self._fail(
                    f"annotations: a caption has the image_id {image_id}, but no image has that id"
                )
            captions[self.ids[image_id]] = texts
        self.captions = captions


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e9
        and math.isfinite(value)
    )
