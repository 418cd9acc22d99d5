"""Annotations in COCO's format: boxes, captions, or the categories of whole images.

Besides COCO (``instances_*.json``, ``captions_*.json``): Roboflow, LVIS, Objects365, iNaturalist,
Visual Wake Words, camera traps, and the exports of CVAT, FiftyOne and Label Studio.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.labels.boxes import ANNOTATED, FRACTIONS, BoxList, box_columns
from dataprep.labels.columns import Lists, Locate
from dataprep.labels.kinds import KINDS as LABEL_KINDS
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
from dataprep.sources.listed import check_paths, listed_source
from dataprep.sources.scan import is_folder, list_folders, split_of
from dataprep.sources.tables import check_split_names
from dataprep.sources.text_tables import read_arrays
from manifests.errors import CallError, SourceError
from manifests.json_members import MAX_INTEGER, is_unicode, shorten
from manifests.labels import MAX_LABEL, LabelType, arrow_type
from manifests.process.text import plural, printable
from manifests.remote.url import parent_folder
from manifests.schema import SPLIT_ALIASES, split_order

#: Names of annotation files, as far as they say what is in them.
_NAME = re.compile(
    r"(instances|captions|person_keypoints|panoptic|stuff|image_info|pixelmaps)_(.+)\.json"
)
#: Names of annotation files in the folder of the images of a split, as Roboflow and others write them.
_BESIDE = ("_annotations.coco.json", "annotations.coco.json", "annotations.json", "coco.json")

#: Folders of images of several files.
_SHARED = ("images", "data", "")

#: A folder with more files of names that are not known has a file for each image.
_MAX_FILES = 50

#: Images that are looked for to find the folder of a file's images.
_TRIED = 10

#: What file names may begin with although the images on the disk are called otherwise: the folders
#: of Objects365 (``images/v1/patch8/``), and the names of 2014 in LVIS 0.5.
_BEGINNINGS = ("", "COCO_[a-z]+2014_", "[^/]+/", "([^/]+/){2}", "([^/]+/){3}")


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
        CallError: `label_type` is one that annotations do not have.
        SourceError: an annotation is not valid, or an image is missing.

    """
    kinds = {each.kind for each in found}
    label_type = _label_type(src, options, kinds)
    prefix = _READERS[label_type or "boxes"].prefix
    files = [each for each in found if each.kind in ("", prefix)]
    if not files:
        names = ", ".join(sorted(os.path.basename(each.path) for each in found))
        raise CallError(
            f"{printable(src)} has no {prefix}_*.json for --label-type {label_type or 'boxes'},"
            f" only {names}",
            hint=(
                "give another label type, add the file, or give one of these files as --src with"
                " --image-root"
            ),
        )
    source = _read_files(src, files, label_type, options)
    if not kinds >= {reader.prefix for reader in _READERS.values()}:
        return source
    other = "caption" if label_type == "boxes" else "boxes"
    notice = f"the annotations have captions and boxes; --label-type {other} converts the others"
    return source.with_notices(notice)


def read_coco_file(file: str, _: Any, options: SourceOptions) -> Source:
    """Read one annotation file in COCO's format; see `read_coco` and `is_coco`."""
    name = os.path.basename(file)
    kind, stem = _parts_of(name)
    root = options.image_root or parent_folder(file) or "."
    split = split_of(stem)
    places = ["", *_places(stem, split, list_folders(root))]
    annotations = AnnotationFile(file, split or "train", places, kind)
    return _read_files(root, [annotations], _label_type(file, options, {kind}), options)


# --- files ----------------------------------------------------------------------------------------


def find_coco(src: str, folders: Names, _: SourceOptions) -> list[AnnotationFile]:
    """Return the annotation files in ``annotations/``, or in `src`, or beside the images of each split."""
    found = []
    for folder in folders:
        if folder.lower() == "annotations":
            found += _files_in(src, folder, folders)
    for folder in folders:
        # Roboflow writes a file beside the images of each split.
        for name in _BESIDE:
            path = f"{src}/{folder}/{name}"
            if storage.is_file(path) and (name == _BESIDE[0] or is_coco(path)):
                split = SPLIT_ALIASES.get(folder.lower(), folder)
                found.append(AnnotationFile(path, split, (folder, f"{folder}/images")))
    return found or _files_in(src, "", folders)


def _files_in(src: str, folder: str, folders: Names) -> list[AnnotationFile]:
    """Return the annotation files in a folder of `src`."""
    names = []
    for entry in storage.list_folder(os.path.join(src, folder)):
        is_other = entry.name.startswith(("panoptic_", "image_info_")) or is_folder(entry)
        if entry.name.endswith(".json") and not is_other:
            names.append(entry.name)
    # Other tools have a file for each image.
    is_few = len(names) <= _MAX_FILES
    files = []
    for name in sorted(names):
        path = os.path.join(src, folder, name)
        kind, stem = _parts_of(name)
        if kind or (is_few and is_coco(path)):
            split = split_of(stem)
            other = "train" if len(names) == 1 else stem
            files.append(AnnotationFile(path, split or other, _places(stem, split, folders), kind))
    return files


def _places(stem: str, split: str | None, folders: Names) -> Names:
    """Return the folders in which the images of a file may be.

    The images of train2017.json are in train2017/, images/train2017/, train/ and so on.
    """
    places = [stem, f"images/{stem}"]
    if split:
        places += [each for each in folders if SPLIT_ALIASES.get(each.lower()) == split]
        places.append(f"images/{split}")
    # The images of several files may also be in one folder of any other name.
    others = [each for each in folders[:_TRIED] if not split_of(each)]
    return [*places, *_SHARED, *others]


def _parts_of(name: str) -> tuple[str, str]:
    """Return the kind of annotations that a file name states, which may be empty, and the rest."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else ("", os.path.splitext(name)[0])


def _label_type(src: str, options: SourceOptions, kinds: set[str]) -> LabelType | None:
    """Return the label type to read; `None` if the first annotation decides it."""
    label_type = options.label_type
    if label_type is None and "" not in kinds:
        label_type = "caption" if kinds == {"captions"} else "boxes"
    if label_type is not None and label_type not in _READERS:
        raise CallError(
            f"--label-type {label_type}: COCO's annotations in {printable(src)} are boxes, captions"
            " or categories",
            hint=f"give one of --label-type {', '.join(_READERS)}",
        )
    return label_type


# --- sources --------------------------------------------------------------------------------------


def _read_files(
    root: str, files: Sequence[AnnotationFile], label_type: LabelType | None, options: SourceOptions
) -> Source:
    first = files[0]
    folder = os.path.dirname(first.path)
    names = split_order({each.split for each in files})
    check_split_names(names, folder)
    (split, count), *_ = Counter(each.split for each in files).most_common()
    if count > 1:
        raise SourceError(
            f"several annotation files are of the split {split!r}",
            file=folder,
            hint="keep one file for each split, or give one of them as --src with --image-root",
        )
    parts, notices = [], []
    # Each file is read as a source of one split.
    for each in sorted(files, key=lambda file: names.index(file.split)):
        annotations = Annotations(each.path, label_type, options, alone=len(files) == 1)
        name = os.path.basename(each.path)
        if name in _BESIDE and each.folders[0]:
            name = f"{each.folders[0]}/{name}"
        place = _folder_of_images(root, each.folders, annotations)
        if len(files) > 1 and (place is None or annotations.is_empty):
            missing = "its images are not there" if place is None else "it has no annotations"
            notices.append(f"skipped {name}: {missing}")
            continue
        # All files have labels of one type.
        label_type = annotations.label_type or "boxes"
        source = replace(
            annotations.images(root, place or ""),
            splits=(each.split,),
            label_type=label_type,
            label_origin=name,
        )
        parts.append(_READERS[label_type].add(source, annotations, options))
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
    joined = join_sources(filled)
    if len(filled) > 1:
        # An image must not be in two splits.
        check_paths(root, joined.path, joined.size, _locate_in(filled))
    return replace(
        joined,
        notices=tuple(notices),
        rejected=tuple(row for part in parts for row in part.rejected),
        label_origin=", ".join(part.label_origin for part in filled),
    )


def _locate_in(parts: Sequence[Source]) -> Locate:
    """Return a function that locates a row of joined sources in their annotation files."""
    ends = np.cumsum([*map(len, parts)])
    return lambda row: (parts[int(np.searchsorted(ends, row, "right"))].label_origin, None)


def _folder_of_images(root: str, folders: Names, annotations: Annotations) -> str | None:
    """Return the first folder with one of the first images. A few may be missing.

    If file names begin with what the names on the disk do not have, it is removed from all of them.
    """
    for beginning in _BEGINNINGS:
        names = [re.sub(f"^{beginning}", "", name) for name in annotations.names[:_TRIED]]
        for folder in folders:
            for name in names:
                if storage.is_file(os.path.join(root, folder, name)):
                    annotations.remove(beginning)
                    return folder
    return None


def _annotated(source: Source, annotated: NDArray[np.bool_], noun: str) -> Source:
    """Return the images that have an annotation. The others are rejected."""
    rejected = []
    for row in np.flatnonzero(~annotated).tolist():
        detail = f"no annotation has a {noun} of it"
        path = source.path[row].as_py()
        rejected.append({"source": path, "reason": "bad-label", "detail": detail})
    return replace(take_rows(source, np.flatnonzero(annotated)), rejected=tuple(rejected))


def _with_captions(source: Source, annotations: Annotations, _: SourceOptions) -> Source:
    captions = [annotations.captions.pop(image_id, []) for image_id in annotations.ids]
    # What is left belongs to no image.
    for image_id in annotations.captions:
        annotations.fail(
            f"annotations: a caption has the image_id {image_id}, but no image has that id"
        )
    # An image has all of its captions as lines of one text. Without any, it is rejected.
    texts = ["\n".join(own) for own in captions if own]
    count = plural(sum(map(len, captions)), "caption")
    notice = f"{count} of {plural(len(texts), 'image')}; those of an image are lines of one text"
    source = _annotated(source, np.array([*map(bool, captions)], np.bool_), "caption")
    return source.with_columns(**{"extra:caption": pa.array(texts, pa.string())}).with_notices(
        notice
    )


def _with_categories(source: Source, annotations: Annotations, options: SourceOptions) -> Source:
    """Return a source with the category of each image as its class, or with all of its categories."""
    classes, notices = _resolve(annotations, options)
    found = annotations.boxes
    image, label = np.array(found.image, np.int64), np.array(found.label, np.int64)
    # An image may have several annotations of a category.
    width = max(1, len(classes))
    image, label = np.divmod(np.unique(image * width + label), width)
    counts = np.bincount(image, minlength=len(source))
    if source.labels.class_lists:
        lists = Lists(pa.array(label), counts).as_array(arrow_type("integers"))
        return replace(
            source.with_columns(**{"extra:labels": lists}), classes=classes, notices=tuple(notices)
        )
    if (counts > 1).any():
        name = annotations.names[int(counts.argmax())]
        annotations.fail(
            f"{name} has {counts.max()} categories ({(counts > 1).sum():,} images with several in"
            " total)",
            "set --label-type multi-label",
        )
    labels = np.zeros(len(source), np.int32)
    labels[image] = label
    # Visual Wake Words: an image without a box is of the category of the background.
    for category, above in annotations.above.items():
        if above == "background":
            labels[counts == 0] = classes.index(annotations.categories[category])
            counts[:] = 1
    source = _annotated(source.with_columns(label=labels), counts > 0, "category")
    return replace(source, classes=classes, notices=tuple(notices))


def _with_boxes(source: Source, annotations: Annotations, options: SourceOptions) -> Source:
    classes, notices = _resolve(annotations, options)
    file = os.path.basename(annotations.file)
    sizes = np.array(annotations.sizes, np.int64).reshape(-1, 2)
    source = add_boxes(
        source, annotations.boxes, sizes, lambda _, at: f"annotations[{at}].bbox of {file}"
    )
    if annotations.crowds:
        notices.append(f"left out {plural(annotations.crowds, 'box')} around crowds (iscrowd)")
    if annotations.keypoints:
        notices.append(f"left out the key points of {plural(annotations.keypoints, 'object')}")
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
        detail = f"{where(image, place)} is outside of the image"
        if (width, height) != FRACTIONS:
            detail += f" of {width}x{height} pixels"
        row = {"source": source.path[image].as_py(), "reason": "bad-label", "detail": detail}
        rejected.append(row)
    source = source.with_columns(**{f"extra:{name}": each for name, each in columns.items()})
    if rejected:
        source = take_rows(source, np.delete(np.arange(len(source)), [*outside]))
    # Images without objects stay: they teach a detector what is background.
    without = pc.sum(pc.equal(pc.list_value_length(source.extra["boxes"]), 0)).as_py()
    if without:
        notices = [f"{plural(without, 'image')} without a box", *notices]
    return replace(
        source,
        rejected=(*source.rejected, *rejected),
        notices=(*source.notices, *notices),
    )


def _resolve(annotations: Annotations, options: SourceOptions) -> tuple[Classes, list[str]]:
    """Replace the ids of images and categories in the annotations by numbers.

    Images and categories may come after the annotations, so their ids are looked up at the end.
    Return the class names, and notices.
    """
    classes, label_of, notices = _classes(annotations, options)
    boxes = annotations.boxes
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
    if annotations.renamed:
        notices.append(f"the images have shorter names than the annotations: {annotations.renamed}")
    if annotations.placed and options.label_type is None:
        notices.append(
            f"{plural(annotations.placed, 'annotation')} also have a box; --label-type boxes reads"
            " boxes"
        )
    if annotations.federated:
        notices.append(
            f"neg_category_ids of {plural(annotations.federated, 'image')} are not converted: of a"
            " category that is in neither list, an image may have objects without a box"
        )
    return classes, notices


def _classes(
    annotations: Annotations, options: SourceOptions
) -> tuple[Classes, dict[int, int], list[str]]:
    """Return the class names, the label of each category by its id, and notices."""
    categories, notices = {**annotations.categories}, []
    # Roboflow writes a category above all others, which no annotation has.
    for each in categories.keys() - {*annotations.boxes.label}:
        others = {above for other, above in annotations.above.items() if other != each}
        if annotations.above[each] == "none" and others == {categories[each]}:
            notices.append(f"left out the category {each}, {categories[each]!r}, above all others")
            del categories[each]
            break
    ids = sorted(categories)
    # Labels follow the order of the ids, which may have holes.
    names = [*map(categories.__getitem__, ids)]
    for name, count in Counter(names).items():
        if count > 1:
            annotations.fail(
                f"two categories have the name {shorten(name)}", "give them different names"
            )
    classes = options.classes or tuple(names)
    unknown = sorted({*names} - {*classes})
    if unknown:
        annotations.fail(
            f"category {shorten(unknown[0])} is not in --classes ({len(unknown)} in total)",
            "add it to the class names",
        )
    number = positions(classes)
    label_of = {category: number[name] for category, name in categories.items()}
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
    return isinstance(image, dict) and "id" in image and bool({"file_name", "coco_url"} & {*image})


class Annotations:
    """The content of one file. Images may come after their annotations.

    Attributes:
        file: the file.
        ids: number of each image by its id.
        label_type: what is read; `None` if it was not given and there is no annotation.
        names: file names of the images.
        sizes: widths and heights of the images, 0 if they are not stated.
        categories: names of the categories by their ids.
        above: names of the categories above them (``supercategory``); empty if there is none.
        boxes: the boxes; their images and labels are ids of images and categories. Without corners
            if only the categories are read.
        captions: for each id of an image that has some, its captions.
        crowds: number of boxes around crowds, which are left out.
        keypoints: number of objects with key points, which are left out.
        federated: number of images with a list of the categories that they do not have, as in LVIS.
        placed: number of annotations of whole images that have a box.
        renamed: what was removed from the file names, as a message; empty if nothing was.

    """

    def __init__(
        self, file: str, label_type: LabelType | None, options: SourceOptions, *, alone: bool
    ) -> None:
        """Read a file.

        Args:
            file: the file.
            label_type: what to read. By default, the first annotation shows it.
            options: key points may be left out if a label type is chosen.
            alone: whether this is the only file, so that it must have annotations.

        Raises:
            SourceError: it is not valid JSON, a member is missing or wrong, or the annotations are
                of another kind, such as panoptic ones.

        """
        self.file, self.label_type = file, label_type
        self._chosen = options.label_type is not None
        self.ids: dict[int, int] = {}
        self.names: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.categories: dict[int, str] = {}
        self.above: dict[int, str] = {}
        self.boxes = BoxList()
        self.captions: defaultdict[int, list[str]] = defaultdict(list)
        self.crowds = self.keypoints = self.federated = self.placed = 0
        self.renamed = ""
        add = {
            "images": self._image,
            "annotations": self._annotation,
            "categories": self._category,
        }
        if label_type and not LABEL_KINDS[label_type].names_classes:
            del add["categories"]
        required = add if label_type and alone else ("images",)
        for name, number, value in read_arrays(file, add, required):
            item = _Item(self, f"{name}[{number}]", value)
            if not isinstance(value, dict):
                item.fail(" must be an object")
            add[name](item, number)

    @property
    def is_empty(self) -> bool:
        """Whether there are images alone, as of a test split."""
        return not (self.categories or self.captions or self.boxes.image)

    def fail(self, message: str, hint: str = EXPORT) -> NoReturn:
        """Raise an error about the file."""
        raise SourceError(message, file=self.file, hint=hint)

    def remove(self, beginning: str) -> None:
        """Remove a pattern from the beginning of the file names."""
        if beginning:
            first = self.names[0]
            self.names = [re.sub(f"^{beginning}", "", name) for name in self.names]
            self.renamed = f"{shorten(first)} is read as {shorten(self.names[0])}"

    def images(self, root: str, folder: str) -> Source:
        """Return the images, which are in a folder below `root`, without their labels."""
        return listed_source(
            root,
            "COCO",
            text_array(os.path.normpath(os.path.join(folder, name)) for name in self.names),
            lambda row: (f"{self.file}, images[{row}]", None),
            extra=pa.table({"image_id": np.array([*self.ids], np.int64)}),
        )

    def _image(self, item: _Item, number: int) -> None:
        image_id = item.integer("id")
        if "coco_url" in item.value and "file_name" not in item.value:
            # LVIS: the last parts of the URL are the folder and the file.
            self.names.append("/".join(item.text("coco_url").split("/")[-2:]))
        else:
            self.names.append(item.text("file_name"))
        self.federated += "neg_category_ids" in item.value
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
        above = item.value.get("supercategory")
        self.above[category] = above if isinstance(above, str) else ""

    def _annotation(self, item: _Item, number: int) -> None:
        if self.label_type is None:
            # iNaturalist has the category of an image, and no place in it.
            self.label_type = "class"
            for label_type, reader in _READERS.items():
                if not reader.evidence.isdisjoint(item.value):
                    self.label_type = label_type
        _READERS[self.label_type].read(self, item, number)

    def read_whole(self, item: _Item, number: int) -> None:
        """Read an annotation of a whole image."""
        self.placed += "bbox" in item.value
        self.boxes.add(item.integer("image_id"), item.integer("category_id"), (), number)

    def read_caption(self, item: _Item, _: int) -> None:
        """Read a caption."""
        captions = self.captions[item.integer("image_id")]
        captions.append(" ".join(item.text("caption").split()))

    def read_box(self, item: _Item, number: int) -> None:
        """Read a box."""
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
            item.fail(
                f".bbox must be four numbers (x, y, width, height), not {shorten(box)}",
                f"{EXPORT}; --label-type class or multi-label reads the categories alone",
            )
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


class _Reader(NamedTuple):
    """How labels of a type are read.

    Attributes:
        prefix: what the names of COCO's files begin with.
        evidence: members of annotations that only these labels have.
        read: reads an annotation.
        add: adds the labels to the images.

    """

    prefix: str
    evidence: frozenset[str]
    read: Callable[[Annotations, _Item, int], None]
    add: Callable[[Source, Annotations, SourceOptions], Source]


_NONE: frozenset[str] = frozenset()
_PLACES = frozenset(["bbox", "segmentation", "segments_info"])

_READERS: dict[LabelType, _Reader] = {
    "boxes": _Reader("instances", _PLACES, Annotations.read_box, _with_boxes),
    "class": _Reader("instances", _NONE, Annotations.read_whole, _with_categories),
    "multi-label": _Reader("instances", _NONE, Annotations.read_whole, _with_categories),
    "caption": _Reader(
        "captions", frozenset(["caption"]), Annotations.read_caption, _with_captions
    ),
}

KINDS = (
    Kind(
        "a folder with annotations of COCO",
        find_coco,
        read_coco,
        example="""
coco/annotations/instances_train2017.json    # boxes; or captions_train2017.json
coco/train2017/000000000009.jpg
export/train/_annotations.coco.json          # Roboflow: a file beside the images of each split
export/train/0001.jpg
inat/train2019.json                          # iNaturalist, LVIS, Objects365: beside the folders
inat/train_val2019/Birds/0/0001.jpg
""",
    ),
)
