"""COCO's annotations: boxes (``instances_*.json``) or captions (``captions_*.json``) of folders of images."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.boxes import ANNOTATED, BoxList, box_columns, reject_outside
from dataprep.sources.base import Source, SourceOptions, join_sources, take_rows
from dataprep.sources.scan import is_folder, listed_table, scan_folder
from dataprep.sources.tables import check_split_names
from dataprep.sources.text_tables import read_arrays
from manifests.errors import CallError, SourceError
from manifests.json_members import MAX_INTEGER, is_unicode, shorten
from manifests.labels import LabelType
from manifests.process.text import plural, printable
from manifests.remote.url import parent_folder
from manifests.schema import MAX_LABEL, SPLIT_ALIASES, split_order

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


def read_coco(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    """Read a folder with COCO's annotations; `None` if it has none.

    Raises:
        CallError: `label_type` is neither boxes nor captions.
        SourceError: an annotation is not valid, or an image is missing.

    """
    found = _find_files(src, folders)
    if not found:
        return None
    label_type = _label_type(src, found, options)
    files = [each for prefix, each in found if prefix in ("", _PREFIXES[label_type])]
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
    both = {prefix for prefix, _ in found} >= {*_PREFIXES.values()}
    other = "caption" if label_type == "boxes" else "boxes"
    notices = (
        (f"the annotations have captions and boxes; --label-type {other} converts the others",)
        if both
        else ()
    )
    return replace(source, notices=(*source.notices, *notices))


def read_coco_file(file: str, options: SourceOptions) -> Source:
    """Read one annotation file in COCO's format; see `read_coco` and `is_coco`."""
    root = options.image_root or parent_folder(file) or "."
    label_type = options.label_type or (
        "caption" if os.path.basename(file).startswith("captions_") else "boxes"
    )
    if label_type not in _PREFIXES:
        raise _wrong_type(file, label_type)
    name = _NAME.fullmatch(os.path.basename(file))
    stem = name[2] if name else os.path.splitext(os.path.basename(file))[0]
    split = _split_name(stem) or "train"
    return _read_files(
        root, [AnnotationFile(file, split, ("", stem, "images"))], label_type, options
    )


# --- files ----------------------------------------------------------------------------------------


def _find_files(src: str, folders: Sequence[str]) -> list[tuple[str, AnnotationFile]]:
    """Return the annotation files with the kinds that their names state, which may be empty."""
    found = []
    for folder in [name for name in folders if name.lower() == "annotations"]:
        names = [
            name
            for name in _json_files(f"{src}/{folder}")
            if not name.startswith(("panoptic_", "image_info_"))
        ]
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None and not is_coco(f"{src}/{folder}/{name}"):
                continue  # such as a file of another tool for each image
            stem = match[2] if match else os.path.splitext(name)[0]
            places = (stem, f"images/{stem}", *_alias_folders(stem, folders), "images", "")
            split = _split_name(stem) or ("train" if len(names) == 1 else stem)
            found.append(
                (match[1] if match else "", AnnotationFile(f"{src}/{folder}/{name}", split, places))
            )
    for folder in folders:
        if storage.is_file(f"{src}/{folder}/{_ROBOFLOW}"):
            split = SPLIT_ALIASES.get(folder.lower(), folder)
            found.append(("", AnnotationFile(f"{src}/{folder}/{_ROBOFLOW}", split, (folder,))))
    if not found and storage.is_file(f"{src}/{_ROBOFLOW}"):
        found.append(("", AnnotationFile(f"{src}/{_ROBOFLOW}", "train", ("",))))
    return found


def _json_files(folder: str) -> list[str]:
    with scan_folder(folder) as entries:
        return sorted(
            entry.name for entry in entries if entry.name.endswith(".json") and not is_folder(entry)
        )


def _split_name(stem: str) -> str | None:
    """Return the split that the name of a file states, such as ``train2017``."""
    return SPLIT_ALIASES.get(re.sub(r"[-_.]?\d*$", "", stem.lower()))


def _alias_folders(stem: str, folders: Sequence[str]) -> list[str]:
    split = _split_name(stem)
    names = [name for name in folders if split and SPLIT_ALIASES.get(name.lower()) == split]
    return [*names, *(f"images/{name}" for name in (split, stem) if name)]


def _label_type(
    src: str, found: Sequence[tuple[str, AnnotationFile]], options: SourceOptions
) -> LabelType:
    if options.label_type is not None and options.label_type not in _PREFIXES:
        raise _wrong_type(src, options.label_type)
    kinds = {prefix for prefix, _ in found}
    return options.label_type or ("caption" if kinds == {"captions"} else "boxes")


def _wrong_type(src: str, label_type: LabelType) -> CallError:
    return CallError(
        f"--label-type {label_type}: COCO's annotations in {printable(src)} are boxes or captions",
        hint="give --label-type boxes or --label-type caption",
    )


# --- sources --------------------------------------------------------------------------------------


def _read_files(
    root: str, files: Sequence[AnnotationFile], label_type: LabelType, options: SourceOptions
) -> Source:
    names = split_order({each.split for each in files})
    check_split_names(names, os.path.dirname(files[0].path))
    if len(names) < len(files):
        raise SourceError(
            f"several annotation files are of the split {names[0]!r}",
            file=os.path.dirname(files[0].path),
            hint="keep one file for each split, or give one of them as --src with --image-root",
        )
    parts: list[Source] = []
    notices = []
    for each in sorted(files, key=lambda file: names.index(file.split)):
        annotations = AnnotationReader(
            each.path, label_type, chosen=options.label_type is not None
        ).read()
        folder = _folder_of_images(root, each, annotations)
        if folder is None and len(files) > 1:
            notices.append(f"skipped {os.path.basename(each.path)}: its images are not there")
        else:
            source = _source(root, each, annotations, folder or "")
            add = _with_captions if label_type == "caption" else _with_boxes
            parts.append(replace(add(source, each, annotations, options), label_type=label_type))
    if not parts:
        raise SourceError(
            f"no folder has the images of {os.path.basename(files[0].path)}",
            file=root,
            hint=(
                f"put them into {files[0].folders[0]}/, or give the file as --src, with"
                " --image-root"
            ),
        )
    return _joined(root, parts, notices)


def _folder_of_images(root: str, file: AnnotationFile, annotations: Annotations) -> str | None:
    """Return the first folder with one of the first images. A few may be missing."""
    first = [*annotations.names[:_TRIED]]
    return next(
        (
            folder
            for folder in file.folders
            if any(storage.is_file(os.path.join(root, folder, name)) for name in first)
        ),
        None,
    )


def _source(
    root: str,
    file: AnnotationFile,
    annotations: Annotations,
    folder: str,
) -> Source:
    path = pa.array(
        [os.path.normpath(os.path.join(folder, name)) for name in annotations.names],
        pa.large_string(),
    )
    extra = pa.table({"image_id": np.array([*annotations.ids], np.int64)})
    table = listed_table(root, path, lambda row: (f"{file.path}, images[{row}]", None), extra=extra)
    return Source(
        root=root,
        layout="COCO",
        table=table,
        splits=(file.split,),
        label_origin=os.path.basename(file.path),
    )


def _with_captions(
    source: Source, file: AnnotationFile, annotations: Annotations, options: SourceOptions
) -> Source:
    del file, options
    rows = sorted(annotations.captions)
    missing = sorted({*range(len(source))} - {*rows})
    captions = pa.array(["\n".join(annotations.captions[row]) for row in rows], pa.string())
    rejected = tuple(
        {
            "source": source.path[row].as_py(),
            "reason": "bad-label",
            "detail": "no annotation has a caption of it",
        }
        for row in missing
    )
    kept = take_rows(source, np.array(rows, np.int64))
    count = sum(map(len, annotations.captions.values()))
    notices = (
        (
            f"{plural(count, 'caption')} of {plural(len(rows), 'image')}; those of an image are"
            " lines of one text"
        ),
    )
    return replace(
        kept.with_columns(extra=kept.extra.append_column("caption", captions)),
        rejected=rejected,
        notices=notices,
    )


def _with_boxes(
    source: Source, file: AnnotationFile, annotations: Annotations, options: SourceOptions
) -> Source:
    classes, label_of, notices = _classes(file, annotations, options)
    boxes = annotations.boxes
    for at, category in enumerate(boxes.label):
        boxes.label[at] = label_of[category]
    sizes = np.array(annotations.sizes, np.int64).reshape(-1, 2)
    columns = box_columns(boxes, sizes)
    name = os.path.basename(file.path)
    rejected = reject_outside(
        source.path, columns, sizes, lambda _, place: f"annotations[{place}].bbox of {name}"
    )
    extra = source.extra.append_column("boxes", columns.boxes).append_column(
        "box_labels", columns.labels
    )
    for name, values in zip(ANNOTATED, sizes.T, strict=True):
        extra = extra.append_column(name, pa.array(values))
    if annotations.crowds:
        notices.append(f"left out {plural(annotations.crowds, 'box')} around crowds (iscrowd)")
    if annotations.keypoints:
        notices.append(f"left out the key points of {plural(annotations.keypoints, 'object')}")
    kept = np.array([row for row in range(len(source)) if row not in columns.outside], np.int64)
    if without := int((np.asarray(pc.list_value_length(columns.boxes))[kept] == 0).sum()):
        notices.append(f"{plural(without, 'image')} without a box")
    source = replace(
        source.with_columns(extra=extra),
        classes=classes,
        rejected=rejected,
        notices=(*notices, *columns.notices),
    )
    return take_rows(source, kept) if rejected else source


def _classes(
    file: AnnotationFile, annotations: Annotations, options: SourceOptions
) -> tuple[tuple[str, ...], dict[int, int], list[str]]:
    """Return the class names, the label of each category by its id, and notices."""
    ids = sorted(annotations.categories)
    names = [annotations.categories[each] for each in ids]
    if len({*names}) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise SourceError(
            f"two categories have the name {shorten(name)}", file=file.path, hint=EXPORT
        )
    classes = options.classes or tuple(names)
    if unknown := sorted({*names} - {*classes}):
        raise SourceError(
            f"category {shorten(unknown[0])} is not in --classes ({len(unknown)} in total)",
            file=file.path,
            hint="add it to the class names",
        )
    number = {name: label for label, name in enumerate(classes)}
    label_of = {category: number[name] for category, name in annotations.categories.items()}
    notices = []
    if not options.classes and ids and ids != [*range(ids[0], ids[0] + len(ids))]:
        notices.append(
            f"the ids of the categories, {ids[0]} to {ids[-1]}, have holes: labels are 0 to"
            f" {len(ids) - 1}"
        )
    return classes, label_of, notices


def _joined(root: str, parts: Sequence[Source], notices: Sequence[str]) -> Source:
    rejected = tuple(row for part in parts for row in part.rejected)
    parts = [part for part in parts if len(part)] or [*parts[:1]]
    first = parts[0]
    other = next((part for part in parts if part.classes != first.classes), None)
    if other is not None:
        raise SourceError(
            f"{first.label_origin} and {other.label_origin} have different categories",
            file=root,
            hint="give --classes with the names of all categories, or convert the files one by one",
        )
    return replace(
        join_sources(parts),
        notices=(
            *notices,
            *(f"{part.label_origin}: {text}" for part in parts for text in part.notices),
        ),
        rejected=rejected,
        label_origin=", ".join(part.label_origin for part in parts),
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


@dataclass
class Annotations:
    """The content of one file.

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

    ids: dict[int, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)
    boxes: BoxList = field(default_factory=BoxList)
    captions: dict[int, list[str]] = field(default_factory=dict)
    crowds: int = 0
    keypoints: int = 0


class AnnotationReader:
    """Reads one annotation file.

    Images may come after their annotations, so ids are resolved at the end.
    """

    def __init__(self, file: str, label_type: LabelType, *, chosen: bool = False) -> None:
        """Read nothing yet.

        Args:
            file: the file.
            label_type: what to read, ``"boxes"`` or ``"caption"``.
            chosen: whether the user chose it, so that key points may be left out.

        """
        self._file = file
        self._chosen = chosen
        self._label_type = label_type
        self._out = Annotations()

    def read(self) -> Annotations:
        """Read the file.

        Raises:
            SourceError: it is not valid JSON, a member is missing or wrong, or refers to an unknown
                id; or the annotations are of another kind, such as panoptic ones.

        """
        add = {"images": self._image, "annotations": self._annotation, "categories": self._category}
        names = ["images", "annotations", *(["categories"] if self._label_type == "boxes" else [])]
        for name, number, item in read_arrays(self._file, names, names):
            if not isinstance(item, dict):
                self._fail(f"{name}[{number}] must be an object")
            add[name](f"{name}[{number}]", number, item)
        self._resolve()
        return self._out

    def _fail(self, message: str, hint: str = EXPORT) -> NoReturn:
        raise SourceError(message, file=self._file, hint=hint)

    def _integer(self, place: str, item: dict[str, Any], name: str) -> int:
        value = item.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
            self._fail(f"{place}.{name} must be an integer of at least 0, not {shorten(value)}")
        return int(value)

    def _text(self, place: str, item: dict[str, Any], name: str) -> str:
        value = item.get(name)
        if (
            not isinstance(value, str)
            or not value.strip()
            or not is_unicode(value)
            or "\0" in value
        ):
            self._fail(f"{place}.{name} must be text, not {shorten(value)}")
        return str(value)

    def _image(self, place: str, number: int, item: dict[str, Any]) -> None:
        del number
        image_id, name = self._integer(place, item, "id"), self._text(place, item, "file_name")
        if image_id in self._out.ids:
            self._fail(f"{place}.id is {image_id}, the id of another image")
        self._out.ids[image_id] = len(self._out.names)
        self._out.names.append(name)
        self._out.sizes.append(
            (self._side(place, item, "width"), self._side(place, item, "height"))
        )

    def _side(self, place: str, item: dict[str, Any], name: str) -> int:
        return self._integer(place, item, name) if name in item else 0

    def _category(self, place: str, number: int, item: dict[str, Any]) -> None:
        del number
        category, name = self._integer(place, item, "id"), self._text(place, item, "name")
        if category in self._out.categories or category > MAX_LABEL:
            self._fail(
                f"{place}.id is {category}, which is the id of another category or above"
                f" {MAX_LABEL}"
            )
        self._out.categories[category] = name

    def _annotation(self, place: str, number: int, item: dict[str, Any]) -> None:
        image_id = self._integer(place, item, "image_id")
        if self._label_type == "caption":
            self._out.captions.setdefault(image_id, []).append(
                " ".join(self._text(place, item, "caption").split())
            )
            return
        if "segments_info" in item:
            self._fail(
                f"{place} is panoptic: it describes the segments of a PNG, and not an object",
                _PANOPTIC_HINT,
            )
        if item.get("keypoints"):
            self._out.keypoints += 1
            if not self._chosen:
                self._fail(f"{place} has key points, which are not converted", _KEYPOINTS_HINT)
        category = self._integer(place, item, "category_id")
        if item.get("iscrowd"):
            self._out.crowds += 1
            return
        box = item.get("bbox")
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            self._fail(
                f"{place}.bbox must be four numbers (x, y, width, height), not {shorten(box)}"
            )
        x, y, width, height = map(float, box)
        self._out.boxes.add(image_id, category, (x, y, x + width, y + height), number)

    def _resolve(self) -> None:
        """Replace the ids of images by their numbers, and check the ids of categories."""
        out = self._out
        for at, (image_id, category) in enumerate(
            zip(out.boxes.image, out.boxes.label, strict=True)
        ):
            place = f"annotations[{out.boxes.place[at]}]"
            if image_id not in out.ids:
                self._fail(f"{place}.image_id is {image_id}, but no image has that id")
            if category not in out.categories:
                self._fail(f"{place}.category_id is {category}, but no category has that id")
            out.boxes.image[at] = out.ids[image_id]
        unknown = next((image_id for image_id in out.captions if image_id not in out.ids), None)
        if unknown is not None:
            self._fail(
                f"annotations: a caption has the image_id {unknown}, but no image has that id"
            )
        out.captions = {out.ids[image_id]: texts for image_id, texts in out.captions.items()}


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e9
        and math.isfinite(value)
    )
