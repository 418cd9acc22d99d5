"""Annotations in COCO's format: boxes, captions, or the categories of whole images.

Besides COCO (``instances_*.json``, ``captions_*.json``): Roboflow, LVIS, Objects365, iNaturalist,
Visual Wake Words, camera traps, and the exports of CVAT, FiftyOne and Label Studio.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.labels.boxes import BoxList
from dataprep.labels.columns import Lists
from dataprep.labels.kinds import KINDS as LABEL_KINDS
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Integers,
    Kind,
    Names,
    Source,
    Texts,
    join_sources,
    positions,
    reject_labels,
    text_array,
)
from dataprep.sources.boxed import empty_notices, with_boxes, without_empty
from dataprep.sources.listed import check_paths, listed_source
from dataprep.sources.paired import content_of
from dataprep.sources.scan import (
    is_folder,
    list_folders,
    look_into,
    option,
    split_of,
)
from dataprep.sources.tables import check_split_names
from dataprep.sources.text_tables import read_arrays
from manifests.errors import CallError, SourceError
from manifests.json_members import MAX_INTEGER, is_unicode, shorten
from manifests.labels import LabelType, arrow_type
from manifests.process.text import plural
from manifests.remote.url import parent_folder
from manifests.schema import SPLIT_WORDS, split_order

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

#: What file names may begin with although the images on the disk are called otherwise: the names of
#: 2014 in LVIS 0.5, and folders, as of Objects365 (``images/v1/patch8/``) or of another machine.
_BEGINNINGS = ("", "COCO_[a-z]+2014_", *(rf"[\\/]*([^\\/]+[\\/]){{{n}}}" for n in range(1, 10)))


class AnnotationFile(NamedTuple):
    """An annotation file, and where its images are.

    Attributes:
        path: path of the file.
        split: name of the split.
        folders: folders in which its images may be, relative to the root of the source.
        name: what messages call it.
        kind: what the name says about the annotations, such as ``instances``; may be empty.

    """

    path: str
    split: str
    folders: Names
    name: str
    kind: str = ""


def read_coco(src: str, found: Sequence[AnnotationFile], options: SourceOptions) -> Source:
    """Read a folder with the annotations that `find_coco` returned.

    Raises:
        CallError: `label_type` is one that annotations do not have.
        SourceError: an annotation is not valid, or an image is missing.

    """
    kinds = {each.kind for each in found}
    label_type = _label_type(src, options, kinds)
    prefix = _PREFIXES[label_type or "boxes"]
    files = [each for each in found if each.kind in ("", prefix)]
    if not files:
        names = ", ".join(sorted(os.path.basename(each.path) for each in found))
        raise CallError(
            f"{src} has no {prefix}_*.json for --label-type {label_type or 'boxes'}, only {names}",
            hint=(
                "give another label type, add the file, or give one of these files as --src with"
                " --image-root"
            ),
        )
    source = _read_files(src, files, label_type, options)
    if not kinds.issuperset(_PREFIXES.values()):
        return source
    other = "boxes" if source.label_type in _TEXTS else "captions"
    notice = f"the annotations have captions and boxes; --label-type {other} converts the others"
    return source.with_notices(notice)


def read_coco_file(file: str, _: Any, options: SourceOptions) -> Source:
    """Read one annotation file in COCO's format; see `read_coco` and `is_coco`."""
    root = options.image_root or parent_folder(file) or "."
    found = _annotation_file(file, list_folders(root))
    # The images may be directly in the folder.
    found = found._replace(split=found.split or "train", folders=["", *found.folders])
    return _read_files(root, [found], _label_type(file, options, {found.kind}), options)


# --- files ----------------------------------------------------------------------------------------


def find_coco(src: str, folders: Names, _: SourceOptions) -> list[AnnotationFile]:
    """Return the annotation files in ``annotations/``, or in `src`, or beside the images of each split."""
    found = []
    for folder in folders:
        if folder.lower() == "annotations":
            found += _files_in(src, folder, folders)
    for folder, name in product(folders, _BESIDE):
        # Roboflow writes a file beside the images of each split.
        path = f"{src}/{folder}/{name}"
        if storage.is_file(path) and (name == _BESIDE[0] or is_coco(path)):
            split = SPLIT_WORDS.get(folder.lower(), folder)
            places = folder, f"{folder}/images"
            found.append(AnnotationFile(path, split, places, f"{folder}/{name}"))
    if len(found) == 1 and not split_of(found[0].split):
        # The folder of all images has any name.
        found = [found[0]._replace(split="train")]
    if found:
        return found
    files = _files_in(src, "", folders)
    return [file for file in files if not _are_others(src, folders, file)]


def _files_in(src: str, folder: str, folders: Names) -> list[AnnotationFile]:
    """Return the annotation files in a folder of `src`."""
    names = []
    for entry in storage.list_folder(os.path.join(src, folder)):
        is_other = entry.name.startswith(("panoptic_", "image_info_")) or is_folder(entry)
        if entry.name.endswith(".json") and not is_other:
            names.append(entry.name)
    files = []
    for name in sorted(names):
        file = _annotation_file(os.path.join(src, folder, name), folders)
        # Other tools have a file for each image.
        if file.kind or (len(names) <= _MAX_FILES and is_coco(file.path)):
            other = "train" if len(names) == 1 else file.folders[0]
            files.append(file._replace(split=file.split or other))
    return files


def _annotation_file(path: str, folders: Names) -> AnnotationFile:
    """Return what the name of a file says: the split, which may be empty, the kind, and where its images are.

    The images of train2017.json are in train2017/, images/train2017/, train/ and so on.
    """
    name = os.path.basename(path)
    match = _NAME.fullmatch(name)
    kind, stem = match.groups() if match else ("", os.path.splitext(name)[0])
    split = split_of(stem) or ""
    places = [stem, f"images/{stem}"]
    if split:
        places += [each for each in folders if SPLIT_WORDS.get(each.lower()) == split]
        places.append(f"images/{split}")
    # The images of several files may also be in one folder of any other name.
    others = [each for each in folders[:_TRIED] if not split_of(each)]
    return AnnotationFile(path, split, (*places, *_SHARED, *others), name, kind)


def _label_type(src: str, options: SourceOptions, kinds: set[str]) -> LabelType | None:
    """Return the label type to read; `None` if the first annotation decides it."""
    label_type = options.label_type
    if label_type is None and "" not in kinds:
        label_type = "captions" if kinds == {"captions"} else "boxes"
    if label_type is not None and label_type not in _PREFIXES:
        raise CallError(
            f"--label-type {label_type}: COCO's annotations in {src} are boxes, captions"
            " or categories",
            hint=f"give one of --label-type {', '.join(_PREFIXES)}",
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
    if len(names) < len(files):
        (split, _), *_ = Counter(each.split for each in files).most_common(1)
        raise SourceError(
            f"several annotation files are of the split {split!r}",
            file=folder,
            hint="keep one file for each split, or give one of them as --src with --image-root",
        )
    parts, notices = [], []
    # Each file is read as a source of one split.
    for each in sorted(files, key=lambda file: names.index(file.split)):
        annotations = Annotations(each.path, label_type, options, alone=len(files) == 1)
        images = _find_images(root, each, annotations, alone=len(files) == 1)
        missing = ""
        if images is None:
            missing = "its images are not there"
        elif len(files) > 1 and annotations.is_empty:
            missing = "it has no annotations"
        if images is None or missing:
            notices.append(f"skipped {each.name}: {missing}")
            continue
        # All files have labels of one type.
        label_type = annotations.label_type or "boxes"
        parts.append(_labelled(replace(images, label_type=label_type), annotations, options))
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
        part_of = np.repeat(np.arange(len(filled)), [*map(len, filled)])
        check_paths(
            root, joined.path, joined.size, lambda row: (filled[part_of[row]].label_origin, None)
        )
    return replace(
        joined,
        notices=tuple(notices),
        rejected=tuple(row for part in parts for row in part.rejected),
        label_origin=", ".join(part.label_origin for part in filled),
    )


def _find_images(
    root: str, file: AnnotationFile, annotations: Annotations, *, alone: bool
) -> Source | None:
    """Return the images of a file, which are in the first folder with one of the first of them.

    If file names begin with what the names on the disk do not have, it is removed from all of them.
    `None` if no folder has them; of a file that is alone, they are looked for one by one.
    """
    names = [*annotations.names.values()]
    place = _place_of(root, file, names)
    if place is None and not alone:
        return None
    beginning, folder = place or ("", "")
    first = names[0] if names else ""
    if beginning:
        names = [_without(beginning, name) for name in names]
        annotations.notices.append(
            "the images have shorter names than the annotations:"
            f" {shorten(first)} is read as {shorten(names[0])}"
        )
    source = listed_source(
        root,
        "COCO",
        text_array(os.path.normpath(os.path.join(folder, name)) for name in names),
        lambda row: (f"{file.path}, images[{row}]", None),
        (file.split,),
        extra=pa.table({"image_id": np.array([*annotations.names], np.int64)}),
    )
    return replace(source, label_origin=file.name)


def _place_of(root: str, file: AnnotationFile, names: Names) -> tuple[str, str] | None:
    """Return what to remove from the names of images, and the folder that has one of the first; `None` without one."""
    for name in names[:_TRIED]:
        # What `listed_source` reads in another way needs no other name.
        plain = name.replace("\\", "/").lstrip("/")
        if plain != name and storage.is_file(os.path.join(root, plain)):
            return "", ""
    for beginning, folder, name in product(_BEGINNINGS, file.folders, names[:_TRIED]):
        with suppress(CallError):  # no URL has a backslash
            if storage.is_file(os.path.join(root, folder, _without(beginning, name))):
                return beginning, folder
    return None


def _are_others(root: str, folders: Names, file: AnnotationFile) -> bool:
    """Return whether there are class folders, and the images of an annotation file are not there."""
    if len(class_like(root, folders)) < 2:
        return False
    names = []
    with suppress(SourceError):
        for _, _, image in islice(read_arrays(file.path, ["images"]), _TRIED):
            names.append(str(image.get("file_name", image.get("coco_url"))))
    return _place_of(root, file, names) is None


def class_like(root: str, folders: Names) -> list[str]:
    """Return the folders that may be classes, or splits of class folders; none if one is known to be other."""
    found = []
    for name in folders:
        content = look_into(f"{root}/{name}")
        if content_of(name) or (split_of(name) and content.has_images):
            return []
        if content.has_images or content.folders:
            found.append(name)
    return found


def other_notices(src: str, folders: Names) -> list[str]:
    """Report annotation files beside class folders, of other images."""
    notices = []
    for file in _files_in(src, "", folders):
        notices.append(
            f"{file.name} has annotations of other images than the class folders, and is not read; to"
            f" read it, set {option('src', file.path)} and --image-root"
        )
    return notices


def _without(beginning: str, name: str) -> str:
    """Return a name without what it begins with, and then with slashes."""
    return re.sub(f"^{beginning}", "", name).replace("\\", "/") if beginning else name


def _labelled(source: Source, annotations: Annotations, options: SourceOptions) -> Source:
    """Return the images of a file with their labels."""
    rows = annotations.rows
    annotations.resolve(rows.image, positions(annotations.names), "image_id", "image")
    if source.label_type in _TEXTS:
        return _with_captions(source, annotations)
    if source.label_type == "boxes" and options.classes is None:
        annotations.rows, left = without_empty(rows)
        rows = annotations.rows
        names = [annotations.categories.pop(each, (str(each), ""))[0] for each in left]
        annotations.notices += empty_notices(names)
    classes, label_of = _classes(annotations, options)
    annotations.resolve(rows.label, label_of, "category_id", "category")
    for member, (noun, text) in _NOTICES.items():
        if count := annotations.counts[member]:
            annotations.notices.append(text.format(plural(count, noun)))
    source = source.with_notices(*annotations.notices)
    if source.label_type != "boxes":
        return _with_categories(replace(source, classes=classes), annotations)
    sizes = np.array(annotations.sizes, np.int64).reshape(-1, 2)
    file = os.path.basename(annotations.file)
    return with_boxes(
        source, rows, classes, sizes, lambda _, at: f"annotations[{at}].bbox of {file}"
    )


def _annotated(source: Source, counts: Integers, noun: str) -> Source:
    """Return the images that have an annotation. The others are rejected."""
    missing = np.flatnonzero(counts == 0).tolist()
    return reject_labels(source, dict.fromkeys(missing, f"no annotation has a {noun} of it"))


def _with_captions(source: Source, annotations: Annotations) -> Source:
    captions: list[list[str]] = [[] for _ in range(len(source))]
    for image, caption in zip(annotations.rows.image, annotations.captions, strict=True):
        captions[image].append(caption)
    # An image without a caption is rejected.
    counts = np.array([*map(len, captions)], np.int64)
    notice = f"{plural(int(counts.sum()), 'caption')} of {plural(int((counts > 0).sum()), 'image')}"
    column = pa.array(captions, arrow_type("texts"))
    if source.label_type == "caption":
        notice += "; those of an image are lines of one text"
        column = pa.array(map("\n".join, captions), pa.string())
    source = source.with_columns(**{f"extra:{source.label_type}": column})
    return _annotated(source, counts, "caption").with_notices(notice)


def _with_categories(source: Source, annotations: Annotations) -> Source:
    """Return a source with the category of each image as its class, or with all of its categories."""
    image = np.array(annotations.rows.image, np.int64)
    label = np.array(annotations.rows.label, np.int32)[np.argsort(image, kind="stable")]
    counts = np.bincount(image, minlength=len(source))
    # An image may have several annotations of a category.
    lists = Lists(pa.array(label), counts).sorted_unique(label)
    if source.labels.class_lists:
        return source.with_columns(**{"extra:labels": lists.as_array(arrow_type("integers"))})
    counts = lists.counts
    if (counts > 1).any():
        name = [*annotations.names.values()][int(counts.argmax())]
        annotations.fail(
            f"{name} has {counts.max()} categories ({(counts > 1).sum():,} images with several in"
            " total)",
            "set --label-type multi-label",
        )
    # Visual Wake Words: an image without a box is of the category of the background.
    background = [name for name, above in annotations.categories.values() if above == "background"]
    labels = np.zeros(len(source), np.int32)
    if background:
        labels[:] = source.classes.index(background[-1])
        counts = np.ones_like(counts)
    labels[lists.rows()] = np.asarray(lists.values)
    return _annotated(source.with_columns(label=labels), counts, "category")


def _classes(annotations: Annotations, options: SourceOptions) -> tuple[Texts, dict[int, int]]:
    """Return the class names, and the label of each category by its id."""
    names, used = {}, {*annotations.rows.label}
    for each, (name, above) in annotations.categories.items():
        names[each] = name
        # Roboflow writes a category above all others, which no annotation has.
        if each not in used and above == "none":
            others = {of for other, (_, of) in annotations.categories.items() if other != each}
            if others == {name}:
                del names[each]
                annotations.notices.append(
                    f"left out the category {each}, {name!r}, above all others"
                )
    # Labels follow the order of the ids, which may have holes.
    ids = sorted(names)
    known = [*map(names.__getitem__, ids)]
    for name, count in Counter(known).items():
        if count > 1:
            annotations.fail(
                f"two categories have the name {shorten(name)}", "give them different names"
            )
    classes = options.classes or tuple(known)
    unknown = sorted({*known} - {*classes})
    if unknown:
        annotations.fail(
            f"category {shorten(unknown[0])} is not in --classes ({len(unknown)} in total)",
            "add it to the class names",
        )
    if not options.classes and ids and ids[-1] - ids[0] >= len(ids):
        annotations.notices.append(
            f"the ids of the categories, {ids[0]} to {ids[-1]}, have holes: labels are 0 to"
            f" {len(ids) - 1}"
        )
    number = positions(classes)
    return classes, {category: number[name] for category, name in names.items()}


# --- annotation files -----------------------------------------------------------------------------


EXPORT = "export the annotations again, or correct the file"

_PANOPTIC_HINT = (
    "use instances_*.json for boxes; for masks, write the class of each pixel into gray PNGs:"
    " images/, masks/"
)
_KEYPOINTS_HINT = "--label-type boxes converts the boxes, and leaves the key points out"

#: Messages about what is not converted: what is counted, its noun, and the text.
_NOTICES = {
    "bbox": ("annotation", "{} also have a box; --label-type boxes reads boxes"),
    "neg_category_ids": (
        "image",
        "neg_category_ids of {} are not converted: of a category that is in neither list, an image"
        " may have objects without a box",
    ),
    "iscrowd": ("box", "left out {} around crowds (iscrowd)"),
    "keypoints": ("object", "left out the key points of {}"),
    "score": ("annotation", "{} with a score are converted, which may be predictions"),
}


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
        label_type: what is read; `None` if it was not given and there is no annotation.
        names: file names of the images by their ids, in the order of the file.
        sizes: widths and heights of the images, 0 if they are not stated.
        categories: the name of each category by its id, and of the category above it
            (``supercategory``), empty if there is none.
        rows: the image id and the category id of each annotation, or the number of its caption;
            with corners if boxes are read.
        captions: the captions.
        counts: how many annotations or images have a member that `_NOTICES` names.
        notices: messages for the user.

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
        self._is_chosen = options.label_type is not None
        self.names: dict[int, str] = {}
        self.sizes: list[tuple[int, int]] = []
        self.categories: dict[int, tuple[str, str]] = {}
        self.rows = BoxList()
        self.captions: list[str] = []
        self.counts: Counter[str] = Counter()
        self.notices: list[str] = []
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
        return not (self.categories or self.rows.image)

    def fail(self, message: str, hint: str = EXPORT) -> NoReturn:
        """Raise an error about the file."""
        raise SourceError(message, file=self.file, hint=hint)

    def resolve(self, ids: Any, known: Mapping[int, int], member: str, noun: str) -> None:
        """Replace ids in a column of `rows` by numbers: what they name may come after the annotations."""
        for at, value in enumerate(ids):
            if value not in known:
                place = f"annotations[{self.rows.place[at]}].{member}"
                self.fail(f"{place} is {value}, but no {noun} has that id")
            ids[at] = known[value]

    def _image(self, item: _Item, _: int) -> None:
        image_id = item.integer("id")
        if image_id in self.names:
            item.fail(f".id is {image_id}, the id of another image")
        if "coco_url" in item.value and "file_name" not in item.value:
            # LVIS: the last parts of the URL are the folder and the file.
            self.names[image_id] = "/".join(item.text("coco_url").split("/")[-2:])
        else:
            self.names[image_id] = item.text("file_name")
        self.counts["neg_category_ids"] += "neg_category_ids" in item.value
        self.sizes.append((item.integer("width", 0), item.integer("height", 0)))

    def _category(self, item: _Item, _: int) -> None:
        category, name = item.integer("id"), item.text("name")
        if category in self.categories:
            item.fail(f".id is {category}, the id of another category")
        above = item.value.get("supercategory")
        self.categories[category] = name, above if isinstance(above, str) else ""

    def _annotation(self, item: _Item, number: int) -> None:
        value = item.value
        if self.label_type is None:
            # iNaturalist has the category of an image, and no place in it.
            self.label_type = "class"
            for label_type, members in _EVIDENCE.items():
                if not members.isdisjoint(value):
                    self.label_type = label_type
        self.counts["score"] += "score" in value
        image_id, label = item.integer("image_id"), 0
        corners: tuple[float, ...] = ()
        if self.label_type in _TEXTS:
            self.captions.append(" ".join(item.text("caption").split()))
        else:
            is_boxes = self.label_type == "boxes"
            if is_boxes:
                corners = self._corners(item)
            label = item.integer("category_id")
            # A box around a crowd is not the box of an object.
            if is_boxes and not corners:
                return
            self.counts["bbox"] += "bbox" in value and not (is_boxes or self._is_chosen)
        self.rows.add(image_id, label, corners, number)

    def _corners(self, item: _Item) -> tuple[float, ...]:
        """Return the corners of the box of an object; none of a crowd."""
        value = item.value
        if "segments_info" in value:
            item.fail(
                " is panoptic: it describes the segments of a PNG, and not an object",
                _PANOPTIC_HINT,
            )
        if value.get("keypoints"):
            self.counts["keypoints"] += 1
            if not self._is_chosen:
                item.fail(" has key points, which are not converted", _KEYPOINTS_HINT)
        if value.get("iscrowd"):
            self.counts["iscrowd"] += 1
            return ()
        box = value.get("bbox")
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            item.fail(
                f".bbox must be four numbers (x, y, width, height), not {shorten(box)}",
                f"{EXPORT}; --label-type class or multi-label reads the categories alone",
            )
        x, y, width, height = map(float, box)
        return x, y, x + width, y + height


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
        if (
            not isinstance(value, str)
            or not value.strip()
            or not is_unicode(value)
            or "\0" in value
        ):
            self.fail(f".{name} must be text, not {shorten(value)}")
        return value


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e9


#: What the names of COCO's files of each label type begin with.
_PREFIXES: dict[LabelType, str] = {
    "boxes": "instances",
    "class": "instances",
    "multi-label": "instances",
    "caption": "captions",
    "captions": "captions",
}

#: Label types of captions: the lines of one text, or a list.
_TEXTS = ("caption", "captions")

#: Members of annotations that only these labels have.
_EVIDENCE: dict[LabelType, set[str]] = {
    "boxes": {"bbox", "segmentation", "segments_info"},
    "captions": {"caption"},
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
