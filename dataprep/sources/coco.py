"""COCO's annotations: boxes (``instances_*.json``) or captions (``captions_*.json``) of folders of images."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.boxes import ANNOTATED, BoxList, box_columns
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Classes,
    Integers,
    Kind,
    Names,
    Source,
    join_sources,
    positions,
    take_rows,
    text_array,
)
from dataprep.sources.listed import listed_table
from dataprep.sources.scan import is_folder
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


class AnnotationFile(NamedTuple):
    """An annotation file, and where its images are.

    Attributes:
        path: path of the file.
        split: name of the split.
        folders: folders in which its images may be, relative to the root of the source.
        kind: what the name says about the annotations, such as ``instances``; may be empty.

    """

    path: str
    split: str
    folders: Names
    kind: str = ""


def read_coco(src: str, found: Sequence[AnnotationFile], options: SourceOptions) -> Source:
    """Read a folder with the annotations that `find_coco` returned.

    Raises:
        CallError: `label_type` is neither boxes nor captions.
        SourceError: an annotation is not valid, or an image is missing.

    """
    kinds = {each.kind for each in found}
    label_type = _label_type(src, options, kinds == {"captions"})
    prefix = _PREFIXES[label_type]
    files = [each for each in found if each.kind in ("", prefix)]
    if not files:
        names = ", ".join(sorted(os.path.basename(each.path) for each in found))
        raise CallError(
            f"{printable(src)} has no {prefix}_*.json for --label-type {label_type}, only {names}",
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
    return source.with_notices(notice)


def read_coco_file(file: str, _: Any, options: SourceOptions) -> Source:
    """Read one annotation file in COCO's format; see `read_coco` and `is_coco`."""
    name = os.path.basename(file)
    label_type = _label_type(file, options, name.startswith("captions_"))
    _, stem = _parts_of(name)
    annotations = AnnotationFile(file, _split_name(stem) or "train", ("", stem, "images"))
    root = options.image_root or parent_folder(file) or "."
    return _read_files(root, [annotations], label_type, options)


# --- files ----------------------------------------------------------------------------------------


def find_coco(src: str, folders: Names, options: SourceOptions) -> list[AnnotationFile]:
    """Return the annotation files in ``annotations/``, or the files that Roboflow writes beside the images."""
    found: list[AnnotationFile] = []
    if options.label_type == "class":
        return found
    for folder in folders:
        if folder.lower() == "annotations":
            found += _in_annotations(src, folder, folders)
    # Roboflow writes a file beside the images of each split, or of all images.
    for folder in (*folders, ""):
        path = os.path.join(src, folder, _ROBOFLOW)
        if (folder or not found) and storage.is_file(path):
            split = SPLIT_ALIASES.get(folder.lower(), folder or "train")
            found.append(AnnotationFile(path, split, (folder,)))
    return found


def _in_annotations(src: str, folder: str, folders: Names) -> Iterator[AnnotationFile]:
    names = []
    for entry in storage.list_folder(f"{src}/{folder}"):
        is_other = entry.name.startswith(("panoptic_", "image_info_")) or is_folder(entry)
        if entry.name.endswith(".json") and not is_other:
            names.append(entry.name)
    for name in sorted(names):
        path = f"{src}/{folder}/{name}"
        kind, stem = _parts_of(name)
        # Other tools may have a file for each image.
        if kind or is_coco(path):
            # The images of train2017.json are in train2017/, images/train2017/, train/ and so on.
            split = _split_name(stem)
            places = [stem, f"images/{stem}"]
            if split:
                places += [each for each in folders if SPLIT_ALIASES.get(each.lower()) == split]
                places.append(f"images/{split}")
            split = split or ("train" if len(names) == 1 else stem)
            yield AnnotationFile(path, split, [*places, "images", ""], kind)


def _parts_of(name: str) -> tuple[str, str]:
    """Return the kind of annotations that a file name states, which may be empty, and the rest."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else ("", os.path.splitext(name)[0])


def _split_name(stem: str) -> str | None:
    """Return the split that the name of a file states, such as ``train2017``."""
    return SPLIT_ALIASES.get(re.sub(r"[-_.]?\d*$", "", stem.lower()))


def _label_type(src: str, options: SourceOptions, are_captions: bool) -> LabelType:
    label_type = options.label_type or ("caption" if are_captions else "boxes")
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
    folder = os.path.dirname(first.path)
    names = split_order({each.split for each in files})
    check_split_names(names, folder)
    if len(names) < len(files):
        raise SourceError(
            f"several annotation files are of the split {names[0]!r}",
            file=folder,
            hint="keep one file for each split, or give one of them as --src with --image-root",
        )
    add = {"caption": _with_captions, "boxes": _with_boxes}[label_type]
    parts, notices = [], []
    # Each file is read as a source of one split.
    for each in sorted(files, key=lambda file: names.index(file.split)):
        annotations = Annotations(each.path, label_type, chosen=options.label_type is not None)
        name = os.path.basename(each.path)
        place = _folder_of_images(root, each.folders, annotations.names)
        if place is None and len(files) > 1:
            notices.append(f"skipped {name}: its images are not there")
            continue
        source = replace(
            annotations.images(root, place or ""),
            splits=(each.split,),
            label_type=label_type,
            label_origin=name,
        )
        parts.append(add(source, annotations, options))
    if not parts:
        raise SourceError(
            f"no folder has the images of {os.path.basename(first.path)}",
            file=root,
            hint=f"put them into {first.folders[0]}/, or give the file as --src, with --image-root",
        )
    # A split all of whose images were rejected has no classes to compare.
    filled = [*filter(len, parts)] or parts[:1]
    for part in filled:
        if part.classes != filled[0].classes:
            raise SourceError(
                f"{filled[0].label_origin} and {part.label_origin} have different categories",
                file=root,
                hint=(
                    "give --classes with the names of all categories, or convert the files one by"
                    " one"
                ),
            )
        notices += [f"{part.label_origin}: {text}" for text in part.notices]
    return replace(
        join_sources(filled),
        notices=tuple(notices),
        rejected=tuple(row for part in parts for row in part.rejected),
        label_origin=", ".join(part.label_origin for part in filled),
    )


def _folder_of_images(root: str, folders: Names, names: Names) -> str | None:
    """Return the first folder with one of the first images. A few may be missing."""
    for folder in folders:
        for name in names[:_TRIED]:
            if storage.is_file(os.path.join(root, folder, name)):
                return folder
    return None


def _with_captions(source: Source, annotations: Annotations, _: SourceOptions) -> Source:
    captions = [annotations.captions.pop(image_id, []) for image_id in annotations.ids]
    # What is left belongs to no image.
    for image_id in annotations.captions:
        annotations.fail(
            f"annotations: a caption has the image_id {image_id}, but no image has that id"
        )
    # An image has all of its captions as lines of one text. Without any, it is rejected.
    texts, rows, rejected = [], [], []
    for row, own in enumerate(captions):
        if own:
            rows.append(row)
            texts.append("\n".join(own))
        else:
            path = source.path[row].as_py()
            detail = "no annotation has a caption of it"
            rejected.append({"source": path, "reason": "bad-label", "detail": detail})
    count = plural(sum(map(len, captions)), "caption")
    notice = f"{count} of {plural(len(rows), 'image')}; those of an image are lines of one text"
    kept = take_rows(source, np.array(rows, np.int64))
    return replace(
        kept.with_columns(**{"extra:caption": pa.array(texts, pa.string())}),
        rejected=tuple(rejected),
        notices=(notice,),
    )


def _with_boxes(source: Source, annotations: Annotations, options: SourceOptions) -> Source:
    classes, label_of, notices = _classes(annotations, options)
    boxes = annotations.boxes
    # Images and categories may come after the boxes, so their ids are looked up at the end.
    for at, (image_id, category) in enumerate(zip(boxes.image, boxes.label, strict=True)):
        if image_id not in annotations.ids:
            annotations.fail(
                f"annotations[{boxes.place[at]}].image_id is {image_id}, but no image has that id"
            )
        if category not in label_of:
            annotations.fail(
                f"annotations[{boxes.place[at]}].category_id is {category}, but no category has"
                " that id"
            )
        boxes.image[at], boxes.label[at] = annotations.ids[image_id], label_of[category]
    file = os.path.basename(annotations.file)
    sizes = np.array(annotations.sizes, np.int64).reshape(-1, 2)
    source = add_boxes(source, boxes, sizes, lambda _, at: f"annotations[{at}].bbox of {file}")
    if annotations.crowds:
        notices.append(f"left out {plural(annotations.crowds, 'box')} around crowds (iscrowd)")
    if annotations.keypoints:
        notices.append(f"left out the key points of {plural(annotations.keypoints, 'object')}")
    # Images without objects stay: they teach a detector what is background.
    without = pc.sum(pc.equal(pc.list_value_length(source.extra["boxes"]), 0)).as_py()
    if without:
        notices.append(f"{plural(without, 'image')} without a box")
    return replace(source, classes=classes, notices=(*notices, *source.notices))


def add_boxes(
    source: Source, boxes: BoxList, sizes: Integers, where: Callable[[int, int], str]
) -> Source:
    """Return a source with the columns of boxes, without images that have one outside.

    Args:
        source: the images.
        boxes: their boxes.
        sizes: widths and heights that the annotations state, int64 [n, 2], 0 if they do not.
        where: returns where the box of an image is, by both numbers, for messages.

    """
    columns, outside, notices = box_columns(boxes, sizes)
    columns |= dict(zip(ANNOTATED, sizes.T, strict=True))
    rejected = []
    for image, place in sorted(outside.items()):
        width, height = sizes[image]
        detail = f"{where(image, place)} is outside of the image of {width}x{height} pixels"
        row = {"source": source.path[image].as_py(), "reason": "bad-label", "detail": detail}
        rejected.append(row)
    source = source.with_columns(**{f"extra:{name}": each for name, each in columns.items()})
    if rejected:
        source = take_rows(source, np.delete(np.arange(len(source)), [*outside]))
    return replace(
        source,
        rejected=(*source.rejected, *rejected),
        notices=(*source.notices, *notices),
    )


def _classes(
    annotations: Annotations, options: SourceOptions
) -> tuple[Classes, dict[int, int], list[str]]:
    """Return the class names, the label of each category by its id, and notices."""
    ids = sorted(annotations.categories)
    # Labels follow the order of the ids, which may have holes.
    names = [*map(annotations.categories.__getitem__, ids)]
    for name, count in Counter(names).items():
        if count > 1:
            annotations.fail(f"two categories have the name {shorten(name)}")
    classes = options.classes or tuple(names)
    unknown = sorted({*names} - {*classes})
    if unknown:
        annotations.fail(
            f"category {shorten(unknown[0])} is not in --classes ({len(unknown)} in total)",
            "add it to the class names",
        )
    number = positions(classes)
    label_of = {category: number[name] for category, name in annotations.categories.items()}
    notices = []
    if not options.classes and ids and ids[-1] - ids[0] >= len(ids):
        notices.append(
            f"the ids of the categories, {ids[0]} to {ids[-1]}, have holes: labels are 0 to"
            f" {len(ids) - 1}"
        )
    return classes, label_of, notices


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
    """The content of one file. Images may come after their annotations.

    Attributes:
        file: the file.
        ids: number of each image by its id.
        names: file names of the images.
        sizes: widths and heights of the images, 0 if they are not stated.
        categories: names of the categories by their ids.
        boxes: the boxes; their images and labels are ids of images and categories.
        captions: for each id of an image that has some, its captions.
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
            SourceError: it is not valid JSON, a member is missing or wrong, or the annotations are
                of another kind, such as panoptic ones.

        """
        self.file, self._chosen = file, chosen
        self.ids: dict[int, int] = {}
        self.names: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.categories: dict[int, str] = {}
        self.boxes = BoxList()
        self.captions: defaultdict[int, list[str]] = defaultdict(list)
        self.crowds = self.keypoints = 0
        add = {"images": self._image, "annotations": self._box, "categories": self._category}
        if label_type == "caption":
            add = {"images": self._image, "annotations": self._caption}
        for name, number, value in read_arrays(file, add, add):
            item = _Item(self, f"{name}[{number}]", value)
            if not isinstance(value, dict):
                item.fail(" must be an object")
            add[name](item, number)

    def fail(self, message: str, hint: str = EXPORT) -> NoReturn:
        """Raise an error about the file."""
        raise SourceError(message, file=self.file, hint=hint)

    def images(self, root: str, folder: str) -> Source:
        """Return the images, which are in a folder below `root`, without their labels."""
        table = listed_table(
            root,
            text_array(os.path.normpath(os.path.join(folder, name)) for name in self.names),
            lambda row: (f"{self.file}, images[{row}]", None),
            extra=pa.table({"image_id": np.array([*self.ids], np.int64)}),
        )
        return Source(root=root, layout="COCO", table=table)

    def _image(self, item: _Item, number: int) -> None:
        image_id = item.integer("id")
        self.names.append(item.text("file_name"))
        if image_id in self.ids:
            item.fail(f".id is {image_id}, the id of another image")
        self.ids[image_id] = number
        self.sizes.append((item.integer("width", 0), item.integer("height", 0)))

    def _category(self, item: _Item, _: int) -> None:
        category, name = item.integer("id"), item.text("name")
        if category in self.categories or category > MAX_LABEL:
            item.fail(
                f".id is {category}, which is the id of another category or above {MAX_LABEL}"
            )
        self.categories[category] = name

    def _caption(self, item: _Item, _: int) -> None:
        captions = self.captions[item.integer("image_id")]
        captions.append(" ".join(item.text("caption").split()))

    def _box(self, item: _Item, number: int) -> None:
        image_id, value = item.integer("image_id"), item.value
        if "segments_info" in value:
            item.fail(
                " is panoptic: it describes the segments of a PNG, and not an object",
                _PANOPTIC_HINT,
            )
        if value.get("keypoints"):
            self.keypoints += 1
            if not self._chosen:
                item.fail(" has key points, which are not converted", _KEYPOINTS_HINT)
        # A box around a crowd is not the box of an object.
        category, box = item.integer("category_id"), value.get("bbox")
        if value.get("iscrowd"):
            self.crowds += 1
            return
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            item.fail(f".bbox must be four numbers (x, y, width, height), not {shorten(box)}")
        x, y, width, height = map(float, box)
        self.boxes.add(image_id, category, (x, y, x + width, y + height), number)


class _Item(NamedTuple):
    """An item of an array, and where it is."""

    annotations: Annotations
    place: str
    value: dict[str, Any]

    def fail(self, problem: str, hint: str = EXPORT) -> NoReturn:
        self.annotations.fail(f"{self.place}{problem}", hint)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.value.get(name, default)
        if type(value) is not int or not 0 <= value <= MAX_INTEGER:
            self.fail(f".{name} must be an integer of at least 0, not {shorten(value)}")
        return value

    def text(self, name: str) -> str:
        value = self.value.get(name)
        text = value if isinstance(value, str) else ""
        if not text.strip() or not is_unicode(text) or "\0" in text:
            self.fail(f".{name} must be text, not {shorten(value)}")
        return text


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e9


# With --label-type class, folders of annotations are not detected here, and the last kind of folders
# refuses them.
KINDS = (Kind("a folder with annotations of COCO", find_coco, read_coco),)
