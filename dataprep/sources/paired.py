"""Images with a file of labels each, of the same name: ``1.jpg`` and ``1.xml``, or a mask ``1.png``.

::

    images/1.jpg          labels/1.txt            one split
    images/train/1.jpg    labels/train/1.txt      the folders of splits are inside
    train/images/1.jpg    train/labels/1.txt      or around them
    train/1.jpg           train/1.txt             both files are in one folder
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Names, Source, Texts
from dataprep.sources.scan import (
    Scan,
    is_folder,
    list_folders,
    list_images,
    map_splits,
    plain_split_of,
    stray_notices,
    suffix_of,
)
from manifests.errors import CallError, SourceError
from manifests.files import IMAGE_SUFFIXES, SOURCE_LIST, read_lines
from manifests.json_members import shorten
from manifests.labels import LabelType
from manifests.process.text import agree, plural
from manifests.records import record
from manifests.schema import SPLIT_WORDS, split_order

#: What is in a folder, by its name in lower case, in plain layouts.
CONTENTS = {
    **dict.fromkeys(
        ("images", "image", "imgs", "img", "rgb", "jpegimages", "jpg", "jpgs", "jpeg"), "image"
    ),
    **dict.fromkeys(
        (
            "masks",
            "mask",
            "labels",
            "annotations",
            "annotation",
            "gt",
            "ground_truth",
            "groundtruth",
            "segmentations",
            "segmentation",
            "segmentationclass",
            "trimaps",
        ),
        "mask",
    ),
    **dict.fromkeys(("depth", "depths", "disparity"), "depth"),
}

#: The folder of the images and the folder of their labels, by split. They may be the same.
Folders = Mapping[str, tuple[str, str]]

#: Images of a folder whose label files are looked at, and folders in it.
_TRIED, _TRIED_FOLDERS = 100, 8

#: Files with a class name a line: of darknet and CVAT, LabelImg and Label Studio, and Roboflow.
NAME_FILES = ("obj.names", "classes.txt", "classes.names", "_darknet.labels")

#: Text files that are no labels.
_OTHER_FILES = (*NAME_FILES, "labels.txt", "notes.txt", "README.txt")


@record
class Pairs:
    """Where the images of a source and their label files are.

    Attributes:
        root: the folder that paths are relative to.
        folders: the folder of the images and the folder of the label files, by split.
        label_type: type of the labels.
        layout: value of `Source.layout`.
        classes: names of the values of masks; empty if they are not known.
        suffixes: suffixes of the label files.
        ending: what follows the name in the name of an image.
        endings: what may follow the name of an image in the name of its label file.
        background: whether an image without a label file has no object. Otherwise, it is rejected.
        notices: messages about folders that are skipped.

    """

    root: str
    folders: Folders
    label_type: LabelType
    layout: str
    classes: Texts = ()
    suffixes: Collection[str] = IMAGE_SUFFIXES
    ending: str = ""
    endings: Names = ("",)
    background: bool = False
    notices: Names = ()

    @property
    def noun(self) -> str:
        """What messages call a label file."""
        return self.label_type if self.suffixes is IMAGE_SUFFIXES else f"{min(self.suffixes)} file"

    @property
    def origin(self) -> str:
        """Value of `Source.label_origin`."""
        folders = (f"{labels or '.'}/" for _, labels in self.folders.values())
        return " and ".join(dict.fromkeys(folders))


#: Returns the folders of images and of label files among some folders of a folder, and the type of
#: the labels.
Find = Callable[[str, Names], tuple[str, str, LabelType] | None]


def find_pairs(src: str, folders: Names, find: Find, layout: str = "") -> Pairs | None:
    """Find folders of images with label files. There may be folders of splits in both, or around them.

    Raises:
        SourceError: the folders of splits have labels of different types, or not all have some.

    """
    notices: list[str] = []
    pairs: dict[str, tuple[str, str]] = {}
    label_types = set()
    found, outer = find(src, folders), _named(src, folders)
    if found is not None:
        images, labels, label_type = found
        label_types.add(label_type)
        pairs = _inner_splits(src, images, labels, notices)
    without = dict(outer)
    for split, name in outer.items() if found is None else ():
        inside = find(f"{src}/{name}", list_folders(f"{src}/{name}"))
        if inside is not None:
            *both, label_type = inside
            images, labels = (os.path.join(name, each).rstrip("/") for each in both)
            pairs[split] = images, labels
            label_types.add(label_type)
            without.pop(split)
    if not pairs:
        return None
    if len(label_types) > 1:
        raise SourceError(
            "some splits have masks, and others depth maps",
            file=src,
            hint="set --label-type to mask or depth",
        )
    for split, name in without.items():
        if split != _WITHOUT_LABELS:
            raise SourceError(
                f"{name}/ has no labels, as other folders have",
                file=src,
                hint="add the files with labels, or move the folder away",
            )
        notices.append(f"skipped {name}/: its images have no labels")
    return Pairs(src, pairs, label_types.pop(), layout, notices=notices)


#: The split that is often published without labels.
_WITHOUT_LABELS = "test"


def _named(src: str, folders: Names) -> dict[str, str]:
    """Return the folder of each split (split -> folder), in the order of splits."""
    splits = map_splits(src, folders, plain_split_of)
    return {split: splits[split] for split in split_order({*splits})}


def _inner_splits(
    src: str, images: str, labels: str, notices: list[str]
) -> dict[str, tuple[str, str]]:
    """Return ``images/train/`` and ``masks/train/`` for each split, or ``images/`` and ``masks/`` without splits."""
    folders = list_folders(os.path.join(src, images)) if images else []
    splits = _named(f"{src}/{images}", folders)
    if not splits:
        return {"train": (images, labels)}
    for name in folders:
        if name not in splits.values():
            notices.append(f"skipped {images}/{name}/, which is not the name of a split")
    notices += stray_notices(list_images(src, images), "outside of the splits")
    pairs = {}
    for split, name in splits.items():
        if split == _WITHOUT_LABELS and not storage.is_folder(f"{src}/{labels}/{name}"):
            notices.append(f"skipped {split}: there is no {labels}/{name}/")
        else:
            pairs[split] = f"{images}/{name}", f"{labels}/{name}"
    return pairs


def content_of(folder: str) -> str:
    """Return what is in a folder of this name; empty if it is not known."""
    return CONTENTS.get(folder.lower(), "")


# --- text files beside the images -----------------------------------------------------------------


def find_text(
    src: str,
    folders: Names,
    options: SourceOptions,
    suffix: str,
    is_label: Callable[[str], bool | None],
) -> Pairs | None:
    """Find images with boxes in a text file each.

    Args:
        src: the folder.
        folders: names of the folders in it.
        options: boxes may not be asked for.
        suffix: suffix of the files.
        is_label: returns whether a file has labels of the kind; `None` if it may be any kind.

    """

    def find(place: str, inside: Names) -> tuple[str, str, LabelType] | None:
        of_images = [name for name in inside if content_of(name) == "image"]
        of_labels = [name for name in inside if content_of(name) == "mask"]
        # Both files may also be in one folder, if there are no others.
        for images, labels in product(of_images, of_labels) if inside else [("", "")]:
            for image in _first_images(os.path.join(place, images)):
                path = os.path.join(place, labels, f"{os.path.splitext(image)[0]}{suffix}")
                if not storage.is_file(path):  # 1.TXT beside 1.JPG, as cameras and Windows write it
                    path = path.removesuffix(suffix) + suffix.upper()
                answer = is_label(path) if storage.is_file(path) else None
                if answer:
                    return images, labels, "boxes"
                if answer is not None:
                    break
        return None

    if options.label_type == "class":
        return None
    found = find_pairs(src, folders, find)
    if found is not None:
        check_boxes(options, f"the {suffix} files of {src} are boxes")
    return replace(found, suffixes={suffix}) if found else None


def check_boxes(options: SourceOptions, what: str) -> None:
    """Check that no other labels than boxes are asked for.

    Raises:
        CallError: they are.

    """
    if options.label_type not in (None, "boxes"):
        raise CallError(f"--label-type {options.label_type}: {what}", hint="leave out --label-type")


def _first_images(folder: str) -> Iterator[str]:
    """Yield the first images in a folder, and in its folders, relative to it."""
    inner = []
    with storage.scan_folder(folder) as entries:
        for entry in islice(entries, _TRIED):
            if suffix_of(entry.name) in IMAGE_SUFFIXES and not is_folder(entry):
                yield entry.name
            elif is_folder(entry):
                inner.append(entry.name)
    for name in inner[:_TRIED_FOLDERS]:
        for image in _first_images(f"{folder}/{name}"):
            yield f"{name}/{image}"


def read_sets(
    folder: str, stem_of: Callable[[str], str] = lambda line: line.split(maxsplit=1)[0]
) -> dict[str, str]:
    """Return the split of each image by its name without suffix; empty if there are no lists."""
    found: dict[str, str] = {}
    lists = {}
    for name, split in SPLIT_WORDS.items():
        if storage.is_file(f"{folder}/{name}.txt"):
            lists[name] = split
    if {"train", "val"} & {*lists}:
        lists.pop("trainval", None)  # it repeats both
    for name, split in lists.items():
        file = f"{folder}/{name}.txt"
        for number, line in enumerate(read_lines(file, SOURCE_LIST), 1):
            if text := line.decode("utf-8", "replace").strip():
                stem = stem_of(text)
                if found.setdefault(stem, split) != split:
                    raise SourceError(
                        f"image {shorten(stem)} is also in the split {found[stem]!r}",
                        file=file,
                        line=number,
                        hint="remove one of the lines",
                    )
    return found


# --- pairs of an image and its label file ---------------------------------------------------------


#: Odd, so that numbers that differ still differ when they are multiplied by it, modulo 2**64.
_FACTOR = 0x2545F4914F6CDD1D


def read_labelled(pairs: Pairs, sets: Mapping[str, str] | None = None) -> tuple[Source, list[str]]:
    """Return the images with label files, and the path of the label file of each; empty without one.

    An image belongs to the file at the same path in the other folder, whatever the suffixes are.

    Args:
        pairs: the folders.
        sets: the split of each image, by its path in its folder without suffix. Others are skipped.
            By default, the split is the split of its folder.

    Raises:
        SourceError: two label files belong to one image, no image has a label file, or an image of
            a set does not exist.

    """
    beside = any(images == labels for images, labels in pairs.folders.values())
    scan = Scan(pairs.root, labels=pairs.suffixes if beside else ())
    notices, rejected, stems = [*pairs.notices], [], set()
    # The images to keep: their rows in the scan, splits, label files and the stats of these.
    rows, splits, files, stats = [], [], [], []
    unlisted = 0
    for row, image in enumerate(_matched(pairs, scan, notices, beside=beside)):
        path, stem, split, file, own_stats = image
        stems.add(stem)
        if sets and stem not in sets:
            unlisted += 1
        elif file or pairs.background:
            rows.append(row)
            splits.append(sets[stem] if sets else split)
            files.append(file)
            stats.append(own_stats)
        else:
            labels = pairs.folders[split][1]
            detail = f"it has no {pairs.noun}: {labels}/ has no file of the name {stem}"
            if len(pairs.suffixes) == 1:
                detail = f"{labels}/{stem}{min(pairs.suffixes)} does not exist"
            rejected.append({"source": path, "reason": "bad-label", "detail": detail})
    images, labels = next(iter(pairs.folders.values()))
    missing = sorted({*(sets or ())} - stems)
    if missing:
        raise SourceError(
            f"image {shorten(missing[0])} of a list is not in {images}/"
            f" ({len(missing):,} in total)",
            file=pairs.root,
            hint="unpack the images again, or remove the line",
        )
    if not rows:
        raise _no_labels(pairs, images, labels)
    if unlisted:
        notices.append(f"skipped {plural(unlisted, 'image')} that no list names")
    if files.count(""):
        notices.append(f"{plural(files.count(''), 'image')} without a {pairs.noun}: no objects")
    # Splits whose images have no labels are left out.
    order = split_order({*splits})
    source = scan.source(pairs.layout, order)
    source = replace(
        source,
        table=source.table.take(pa.array(rows)),
        rejected=(*source.rejected, *rejected),
        label_type=pairs.label_type,
        label_origin=pairs.origin,
    ).with_notices(*notices)
    # A stamp changes with either file of a sample.
    of_files = np.array(stats, np.int64)
    stamp = np.asarray(source.stamp) + _FACTOR * (of_files[:, 1:] + _FACTOR * of_files[:, :1])
    number = np.array([*map(order.index, splits)], np.int8)
    return source.with_columns(split=number, stamp=stamp), files


def _matched(
    pairs: Pairs, scan: Scan, notices: list[str], *, beside: bool
) -> Iterator[tuple[str, str, str, str, Sequence[int]]]:
    """Yield path, name without suffix and split of each image, its label file and the file's stats."""
    at = 0
    for split, (images, labels) in pairs.folders.items():
        scan.add(images)
        label_files = _find_label_files(pairs, labels, scan if beside else None)
        unused = {path for path, _ in label_files.values() if not path.endswith(_OTHER_FILES)}
        has_labels = pairs.background
        paths = scan.path.slice(at).to_pylist()
        at += len(paths)
        for path in paths:
            stem = stem_of(path, images).removesuffix(pairs.ending)
            file, stats = label_files.get(stem, ("", (0, 0, 0)))
            unused.discard(file)
            has_labels = has_labels or bool(file)
            yield path, stem, split, file, stats
        if unused:
            belong = agree(len(unused), "belongs", "belong")
            notices.append(
                f"skipped {plural(len(unused), 'file')} in {labels}/ that {belong} to no"
                f" image: {min(unused)}"
            )
        if not has_labels:
            raise _no_labels(pairs, images, labels)


def _no_labels(pairs: Pairs, images: str, labels: str) -> SourceError:
    suffix = ".png" if pairs.suffixes is IMAGE_SUFFIXES else min(pairs.suffixes)
    return SourceError(
        f"no image has a {pairs.noun} of the same name",
        file=pairs.root,
        hint=(
            f"name each {pairs.noun} like its image: {os.path.join(images, '1.jpg')} and"
            f" {os.path.join(labels, f'1{suffix}')}"
        ),
    )


def stem_of(path: str, folder: str) -> str:
    """Return the path of a file in a folder, relative to it and without suffix."""
    return os.path.splitext(path.removeprefix(f"{folder}/"))[0]


def _find_label_files(
    pairs: Pairs, folder: str, scan: Scan | None
) -> dict[str, tuple[str, Sequence[int]]]:
    """Return the label file of each image and its stats, by the path of the image without suffix.

    A scan has the label files of a folder that contains images, too.
    """
    if scan is None:
        scan = Scan(pairs.root, labels=pairs.suffixes)
        scan.add(folder)
    found: dict[str, tuple[str, Sequence[int]]] = {}
    for path, stats in scan.label_files.items():
        if folder and not path.startswith(f"{folder}/"):
            continue
        name = stem_of(path, folder)
        # The file may be called like the image, or like the image with one of the endings.
        for ending in pairs.endings:
            stem = name.removesuffix(ending)
            if not name.endswith(ending) or not os.path.basename(stem):
                continue
            other, _ = found.setdefault(stem, (path, stats))
            if other != path:
                raise SourceError(
                    f"{other} and {path} belong to the same image",
                    file=pairs.root,
                    hint="keep one of them",
                )
    return found
