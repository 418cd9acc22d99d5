"""Folders of images: class folders, folders without labels, and the layouts that are refused.

Folders of detection, segmentation and captions would become classes such as ``annotations`` and
``train2017``, so these layouts are refused by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Names,
    Source,
    numbered,
    positions,
)
from dataprep.sources.paired import CONTENTS
from dataprep.sources.scan import (
    Scan,
    has_folders,
    hidden_notices,
    list_folders,
    list_images,
    map_splits,
    scan_splits,
    skipped_notices,
    stray_notices,
)
from manifests.errors import ManifestError, SourceError
from manifests.files import IMAGE_SUFFIXES
from manifests.json_members import is_unicode
from manifests.process.text import printable
from manifests.schema import SPLIT_ALIASES, split_order
from manifests.store import MANIFEST_NAME, read_manifest

#: Folders of images, and folders of what belongs to them: neither is a class.
_IMAGES = {"png", "pngs", "leftimg8bit"}
_LABELS = {"ann", "segmentationobject", "gtfine", "gtcoarse"}
for _name, _content in CONTENTS.items():
    if _content == "image":
        _IMAGES.add(_name)
    else:
        _LABELS.add(_name)

_LISTS = (
    "give a list of images with their classes instead (`path label` lines, CSV, JSON Lines or"
    " Parquet), or the folder that contains the class folders"
)

_PANOPTIC = (
    "add instances_*.json to convert boxes; for masks, write the class of each pixel into gray"
    " PNGs, and put them into masks/ beside images/"
)

#: Folders of COCO's images, of the years with images.
_COCO_IMAGES = re.compile(r"(train|val|test|unlabeled)20(07|12|14|15|17)")
_COCO_HINT = (
    "put COCO's annotations into annotations/ beside it, or set --label-type none to convert the"
    " images alone"
)

#: Files of a folder to look at.
_MAX_LISTED = 2000


class Layout(NamedTuple):
    """A layout that is recognized and not converted.

    Attributes:
        name: what it is.
        evidence: the folders or files it was recognized by.
        hint: what to do instead.

    """

    name: str
    evidence: str
    hint: str = _LISTS


def _refuse_other_layouts(src: str, folders: Names) -> None:
    """Check that a folder is not of a layout whose folders are no classes.

    Args:
        src: the folder.
        folders: names of the folders in it.

    Raises:
        SourceError: it is. The message names the layout.

    """
    # The splits of such a dataset have its folders, too.
    places = {src: folders}
    for name in _named(folders, SPLIT_ALIASES):
        places[f"{src}/{name}"] = list_folders(f"{src}/{name}")
    for place, names in places.items():
        for find in (_coco, _voc, _ade20k_and_yolo, _of_tools, _shards, _by_names):
            _refuse(place, find(place, names))


def _refuse(place: str, layouts: Iterable[Layout]) -> None:
    for layout in layouts:
        raise SourceError(
            f"this looks like {layout.name} ({layout.evidence}), which is not converted: its"
            " folders are not classes",
            file=place,
            hint=layout.hint,
        )


def images_and_labels(folders: Names) -> tuple[list[str], list[str]]:
    """Return the folders with names of folders of images, and with names of masks or other annotations."""
    return _named(folders, _IMAGES), _named(folders, _LABELS)


def refuse_other_archives(path: str, folders: Names) -> None:
    """Do the same for the folders in an archive, by their names alone.

    Raises:
        SourceError: such a layout has folders of these names.

    """
    for name in filter(_COCO_IMAGES.fullmatch, folders):
        _refuse(path, [Layout("images of COCO", f"{name}/")])
    if "JPEGImages" in folders:
        _refuse(path, [Layout("Pascal VOC", "JPEGImages/")])
    _refuse(path, _by_names(path, folders))


def _named(folders: Names, names: Container[str]) -> list[str]:
    return [name for name in folders if name.lower() in names]


def _files(*parts: str) -> list[str]:
    """Return the names of some files in a folder; empty if it is not a folder."""
    try:
        with storage.scan_folder(os.path.join(*parts)) as entries:
            return sorted(entry.name for entry in islice(entries, _MAX_LISTED))
    except OSError:
        return []


def _with_suffix(names: Iterable[str], *suffixes: str) -> list[str]:
    return [name for name in names if os.path.splitext(name)[1].lower() in suffixes]


def _coco(src: str, folders: Names) -> Iterator[Layout]:
    for folder in _named(folders, ["annotations"]):
        files = _with_suffix(_files(src, folder), ".json")
        if files and all(name.startswith("panoptic_") for name in files):
            yield Layout("COCO's panoptic annotations", f"{folder}/{files[0]}", _PANOPTIC)
        if files:
            yield Layout("COCO annotations", f"{folder}/{files[0]}")
    if folders and all(map(_COCO_IMAGES.fullmatch, folders)):
        yield Layout("images of COCO", f"{folders[0]}/", _COCO_HINT)


def _voc(src: str, folders: Names) -> Iterator[Layout]:
    if "JPEGImages" in folders and {"Annotations", "ImageSets", "SegmentationClass"} & {*folders}:
        yield Layout("Pascal VOC", "JPEGImages/ and Annotations/")
    for folder in folders:
        if re.fullmatch(r"VOC\d{4}|VOCdevkit", folder):
            inside = list_folders(f"{src}/{folder}")
            if not {"JPEGImages", "VOC2007", "VOC2012"}.isdisjoint(inside):
                yield Layout("Pascal VOC", f"{folder}/")


def _ade20k_and_yolo(src: str, folders: Names) -> Iterator[Layout]:
    for folder in folders:
        if folder.startswith(("ADEChallengeData", "ADE20K")):
            yield Layout("ADE20K", f"{folder}/")
    for images in _named(folders, ["images"]):
        for folder in _named(folders, ["annotations"]):
            if _named(list_folders(f"{src}/{folder}"), ["training", "validation"]):
                yield Layout("ADE20K", "images/ and annotations/training/")
        # YOLO has a text file for each image, perhaps in folders of splits.
        for labels in _named(folders, ["labels"]):
            names = _files(src, labels)
            for folder in names[:10]:
                names = names + _files(src, labels, folder)
            if _with_suffix(names, ".txt"):
                yield Layout("YOLO boxes", f"{images}/ and {labels}/*.txt")


def _of_tools(src: str, folders: Names) -> Iterator[Layout]:
    """Find Tiny ImageNet, and the outputs of img2dataset and of Hugging Face's datasets."""
    # The validation images of Tiny ImageNet are in one folder, with their labels in a file.
    files = _files(src)
    for name in files:
        if name.endswith("_annotations.txt") and [*folders] == ["images"]:
            hint = "give the folder above it, which has train/ and wnids.txt, too"
            yield Layout("the flat val/ of Tiny ImageNet", f"images/ and {name}", hint)
    # img2dataset writes numbered shards, or numbered folders of images with metadata.
    statistics = [name for name in files if re.fullmatch(r"\d{5,}_stats\.json", name)]
    if statistics and (not folders or _with_suffix(files, ".tar", ".tfrecord")):
        hint = "make them a dataset in place with `dataprep index`"
        yield Layout("the shards of img2dataset (LAION)", statistics[0], hint)
    for folder in islice(filter(re.compile(r"\d{5,}").fullmatch, folders), 3):
        names = {*_files(src, folder)}
        for image in _with_suffix(names, *IMAGE_SUFFIXES):
            stem = os.path.splitext(image)[0]
            if f"{stem}.json" in names and (f"{stem}.txt" in names or statistics):
                evidence = f"{folder}/*.json beside the images"
                yield Layout("the files of img2dataset (LAION)", evidence)
    # A dataset as Arrow files, which Hugging Face's `load_from_disk` reads.
    if "dataset_dict.json" in files or {"dataset_info.json", "state.json"} <= {*files}:
        yield Layout(
            "a dataset that Hugging Face `save_to_disk` wrote",
            "state.json or dataset_dict.json",
            "export it: `datasets.load_from_disk(...)[split].to_parquet(f'{split}-00000.parquet')`",
        )


def _shards(src: str, folders: Names) -> Iterator[Layout]:
    files = [] if folders else _files(src)
    for shard in _with_suffix(files, ".tar", ".tfrecord", ".tfrecords"):
        if MANIFEST_NAME in files:
            # The dataset is damaged if it was not recognized as a prepared one.
            try:
                read_manifest(src)
            except ManifestError as error:
                raise SourceError(error.message, file=error.file, hint=error.hint) from None
        hint = (
            "run `dataprep index` on the folder; then it is a prepared dataset, and can be a source"
        )
        yield Layout("shards without a manifest", shard, hint)


def _by_names(src: str, folders: Names) -> Iterator[Layout]:
    """Find the layouts that the names of folders show."""
    targets = ("gtfine", "gtcoarse", "gtfine_trainvaltest")
    found = _named(folders, ("leftimg8bit", "leftimg8bit_trainvaltest", *targets))
    if found:
        yield Layout("Cityscapes", " and ".join(f"{name}/" for name in found))
    images, labels = images_and_labels(folders)
    if images and labels:
        evidence = f"{printable(images[0])}/ and {printable(labels[0])}/"
        hint = f"{_LISTS}. If {images[0]}/ contains class folders, give that folder"
        yield Layout("images with masks, boxes or other annotations", evidence, hint)
    if images and len(folders) == 1:
        hint = f"give {src}/{folders[0]} if it contains class folders. Otherwise, {_LISTS}"
        yield Layout("one folder of images", f"{folders[0]}/", hint)


# --- ImageFolders: CLASS/IMAGE, or SPLIT/CLASS/IMAGE ----------------------------------------------


def read_image_folders(src: str, _: Any, options: SourceOptions) -> Source:
    """Read an ImageFolder, or one for each split if the folders of `src` have the names of splits.

    Raises:
        SourceError: the folder is of another layout, there are no class folders, or the name of a
            class is not valid.

    """
    folders = list_folders(src)
    _refuse_other_layouts(src, folders)
    splits = _split_folders(src, folders)
    if not folders:
        raise SourceError(
            "the folder has no class folders",
            file=src,
            hint=(
                "sort the images into CLASS/IMAGE; or give the labels in a list file (`path"
                " label`), in a CSV, or in the file names with --pattern; or set --label-type none"
            ),
        )
    layout, notices, class_folders = "ImageFolder", [], {}
    # Folders beside the splits are not read. Without splits, all folders are classes.
    for name in folders:
        if splits and name not in splits.values():
            notices.append(f"skipped {name}/: it is not train, val or test")
    if not splits:
        class_folders["train"] = folders
    for split in split_order({*splits}):
        folder = splits[split]
        classes = list_folders(f"{src}/{folder}")
        if classes:
            class_folders[split] = [f"{folder}/{name}" for name in classes]
        elif split == "test":
            notices.append("skipped test/: it has no class folders, so no labels")
        else:
            raise SourceError(
                "the folder of a split has no class folders",
                file=f"{src}/{folder}",
                hint=(
                    f"sort the images into {folder}/CLASS/, or list them in {split}_list.txt as"
                    " `path label`"
                ),
            )
    if splits:
        layout += f" with {' and '.join(class_folders)}"
    source = read_class_folders(src, class_folders, layout, options)
    # Images and hidden folders beside the class folders, and beside the folders of splits.
    above = ["", *filter(None, map(splits.get, class_folders))]
    stray = []
    for folder in above:
        stray += list_images(src, folder)
    notices += stray_notices(stray, "outside of class folders")
    notices += hidden_notices(src, above)
    return replace(source, notices=(*notices, *source.notices))


def _split_folders(src: str, folders: Names) -> dict[str, str]:
    """Return the folder of each split.

    Empty if the folders are classes, as with `train` next to `car` and `bus`.
    """
    named = _named(folders, SPLIT_ALIASES)
    if len(named) < len(folders) and not any(has_folders(f"{src}/{name}") for name in named):
        return {}
    return map_splits(src, named)


def read_class_folders(
    root: str, class_folders: Mapping[str, Names], layout: str, options: SourceOptions
) -> Source:
    """Read the images of class folders.

    Args:
        root: the folder that paths are relative to.
        class_folders: the class folders of each split.
        layout: value of `Source.layout`.
        options: `classes` applies. By default, the classes are the class folders of all splits in
            sorted order.

    Raises:
        SourceError: a class name is not valid UTF-8, or not in `options.classes`.

    """
    scan = Scan(root)
    names, images, of_splits = [], [], []
    for folders in class_folders.values():
        for folder in folders:
            if not is_unicode(folder):
                raise SourceError(
                    "the name of the class folder is not valid UTF-8",
                    file=os.fsencode(folder).decode("utf-8", "backslashreplace"),
                    hint="rename it",
                )
            names.append(os.path.basename(folder))
        # The number of images of each class folder.
        counts = scan.add(*folders)
        images += counts
        of_splits.append(sum(counts))
    classes = options.classes or tuple(sorted({*names}))
    unknown = sorted({*names} - {*classes})
    if unknown:
        raise SourceError(
            f"class folder {unknown[0]!r} is not in --classes ({len(unknown)} in total)",
            file=root,
            hint="add it to the class names",
        )
    labels = np.array([*map(positions(classes).__getitem__, names)], np.int32)
    source = scan.source(
        layout, [*class_folders], label=np.repeat(labels, images), split=numbered(of_splits)
    )
    return replace(source, classes=classes)


# --- images without labels ------------------------------------------------------------------------


def read_unlabelled(src: str, _: Any, __: SourceOptions) -> Source:
    """Read all images in a folder and its subfolders. No image has a label.

    If all folders in it have the names of splits, and no image is next to them, each is a split.
    Folders of masks, depth maps or annotations, beside one of images, are left out; then that one
    may contain the splits.

    Raises:
        SourceError: two folders are the same split.

    """
    folders = list_folders(src)
    above, splits = _find_splits(src, folders)
    source = scan_splits(src, splits, "folder of images", label_folders)
    notices = skipped_notices(label_folders(folders)) if above else []
    notices += hidden_notices(src, {"", above})
    return replace(source, notices=(*notices, *source.notices), label_type="none")


def label_folders(folders: Names) -> dict[str, str]:
    """Return which of these folders have masks, depth maps or annotations of the images in another one, and why."""
    images, labels = images_and_labels(folders)
    if not images:
        return {}
    return dict.fromkeys(labels, f"which belongs to the images in {printable(images[0])}/")


def _find_splits(src: str, folders: Names) -> tuple[str, dict[str, str]]:
    """Return the folder that contains the folders of splits, and the folder of each split, relative to `src`."""
    # A folder of images beside folders of their labels only may contain the splits.
    images, labels = images_and_labels(folders)
    above = ""
    if labels and len(images) == 1 and len(labels) == len(folders) - 1:
        above, folders = images[0], list_folders(f"{src}/{images[0]}")
    is_other = len(_named(folders, SPLIT_ALIASES)) < len(folders)
    if not folders or is_other or any(list_images(src, place) for place in {"", above}):
        return "", {"train": ""}
    splits = map_splits(os.path.join(src, above), folders)
    return above, {split: os.path.join(above, name) for split, name in splits.items()}
