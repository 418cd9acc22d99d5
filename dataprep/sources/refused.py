"""Folders that are recognized and not converted: layouts whose folders are no classes, and files that are not read.

Folders of detection, segmentation and captions would become classes such as ``annotations`` and
``train2017``. Arrays of pixels, and boxes in some formats, are not read. Each is refused by name,
with a way to convert it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, NoReturn

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Names
from dataprep.sources.paired import CONTENTS
from dataprep.sources.scan import has_images_below, list_folders, suffix_of
from manifests.errors import ManifestError, SourceError
from manifests.files import IMAGE_SUFFIXES, SOURCE_TABLE, open_file
from manifests.process.text import printable
from manifests.schema import SPLIT_ALIASES
from manifests.store import MANIFEST_NAME, read_manifest

# --- layouts whose folders are no classes ---------------------------------------------------------


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


def refuse_other_layouts(src: str, folders: Names) -> None:
    """Check that a folder is not of a layout whose folders are no classes.

    Args:
        src: the folder.
        folders: names of the folders in it.

    Raises:
        SourceError: it is. The message names the layout.

    """
    # The splits of such a dataset have its folders, too.
    places = {src: folders}
    for name in named_in(folders, SPLIT_ALIASES):
        places[f"{src}/{name}"] = list_folders(f"{src}/{name}")
    for place, names in places.items():
        for find in (
            *(_coco, _voc, _ade20k_and_yolo, _of_sets, _of_tools, _shards),
            *(labels_by_name, _one_folder),
        ):
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
    return named_in(folders, _IMAGES), named_in(folders, _LABELS)


def named_in(folders: Names, names: Container[str]) -> list[str]:
    """Return the folders with one of these names, in lower case."""
    return [name for name in folders if name.lower() in names]


def files_in(*parts: str) -> list[str]:
    """Return the names of some files in a folder; empty if it is not a folder."""
    try:
        with storage.scan_folder(os.path.join(*parts)) as entries:
            return sorted(entry.name for entry in islice(entries, _MAX_LISTED))
    except OSError:
        return []


def with_suffix(names: Iterable[str], *suffixes: str) -> list[str]:
    """Return the names of files with one of these extensions, in lower case."""
    return [name for name in names if os.path.splitext(name)[1].lower() in suffixes]


def _coco(src: str, folders: Names) -> Iterator[Layout]:
    for folder in named_in(folders, ["annotations"]):
        files = with_suffix(files_in(src, folder), ".json")
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
    for images in named_in(folders, ["images"]):
        for folder in named_in(folders, ["annotations"]):
            if named_in(list_folders(f"{src}/{folder}"), ["training", "validation"]):
                yield Layout("ADE20K", "images/ and annotations/training/")
        # YOLO has a text file for each image, perhaps in folders of splits.
        for labels in named_in(folders, ["labels"]):
            names = files_in(src, labels)
            for folder in names[:10]:
                names = names + files_in(src, labels, folder)
            if with_suffix(names, ".txt"):
                yield Layout("YOLO boxes", f"{images}/ and {labels}/*.txt")


def _of_sets(src: str, folders: Names) -> Iterator[Layout]:
    """Find datasets whose class folders are not the labels that they are known for."""
    if "wider_face_split" in folders:
        hint = "give WIDER_train/images for the classes of events; write boxes into a table"
        yield Layout("WIDER FACE", "wider_face_split/", hint)
    if storage.is_file(os.path.join(src, "Ebay_train.txt")):
        table = os.path.join(src, "train.csv")
        hint = (
            f"make a table of each list: `tr ' ' , < {src}/Ebay_train.txt > {table}`; and set --src"
            f" {table} --label-column class_id"
        )
        yield Layout("Stanford Online Products", "Ebay_train.txt", hint)
    if {"bbox_train", "bbox_test"} <= {*folders}:
        hint = f"set --src {src}/bbox_train --pattern '{{identity}}C{{camera}}T{{clip}}F{{frame}}'"
        yield Layout("MARS", "bbox_train/ and bbox_test/", hint)


def _of_tools(src: str, folders: Names) -> Iterator[Layout]:
    """Find Tiny ImageNet, and the outputs of img2dataset and of Hugging Face's datasets."""
    # The validation images of Tiny ImageNet are in one folder, with their labels in a file.
    files = files_in(src)
    for name in files:
        if name.endswith("_annotations.txt") and [*folders] == ["images"]:
            hint = "give the folder above it, which has train/ and wnids.txt, too"
            yield Layout("the flat val/ of Tiny ImageNet", f"images/ and {name}", hint)
    # img2dataset writes numbered shards, or numbered folders of images with metadata.
    statistics = [name for name in files if re.fullmatch(r"\d{5,}_stats\.json", name)]
    if statistics and (not folders or with_suffix(files, ".tar", ".tfrecord")):
        hint = "make them a dataset in place with `dataprep index`"
        yield Layout("the shards of img2dataset (LAION)", statistics[0], hint)
    for folder in islice(filter(re.compile(r"\d{5,}").fullmatch, folders), 3):
        names = {*files_in(src, folder)}
        for image in with_suffix(names, *IMAGE_SUFFIXES):
            stem = os.path.splitext(image)[0]
            if f"{stem}.txt" in names or (f"{stem}.json" in names and statistics):
                evidence = f"{folder}/*{'.json' if f'{stem}.json' in names else '.txt'}"
                yield Layout("the files of img2dataset (LAION)", f"{evidence} beside the images")
    # A dataset as Arrow files, which Hugging Face's `load_from_disk` reads.
    if "dataset_dict.json" in files or {"dataset_info.json", "state.json"} <= {*files}:
        yield Layout(
            "a dataset that Hugging Face `save_to_disk` wrote",
            "state.json or dataset_dict.json",
            "export it: `datasets.load_from_disk(...)[split].to_parquet(f'{split}-00000.parquet')`",
        )


def _shards(src: str, folders: Names) -> Iterator[Layout]:
    files = [] if folders else files_in(src)
    for shard in with_suffix(files, ".tar", ".tfrecord", ".tfrecords"):
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


def labels_by_name(_: str, folders: Names) -> Iterator[Layout]:
    """Find images with masks or other annotations by the names of their folders."""
    targets = ("gtfine", "gtcoarse", "gtfine_trainvaltest")
    found = named_in(folders, ("leftimg8bit", "leftimg8bit_trainvaltest", *targets))
    if found:
        yield Layout("Cityscapes", " and ".join(f"{name}/" for name in found))
    images, labels = images_and_labels(folders)
    if images and labels:
        evidence = f"{printable(images[0])}/ and {printable(labels[0])}/"
        hint = f"{_LISTS}. If {images[0]}/ contains class folders, give that folder"
        yield Layout("images with masks, boxes or other annotations", evidence, hint)


def _one_folder(src: str, folders: Names) -> Iterator[Layout]:
    images, _ = images_and_labels(folders)
    if images and len(folders) == 1:
        hint = f"give {src}/{folders[0]} if it contains class folders. Otherwise, {_LISTS}"
        yield Layout("one folder of images", f"{folders[0]}/", hint)


#: Members of JSON files with boxes, classes or captions of an image.
_ANNOTATIONS = re.compile(rb'"(shapes|objects|annotations|bbox|boxes|caption|labels?)"\s*:')


def refuse_annotations(src: str, folders: Iterable[str]) -> None:
    """Refuse class folders with a file of boxes, classes or captions beside an image, with its name.

    Raises:
        SourceError: there is one.

    """
    for folder in folders:
        names = files_in(src, folder)
        stems = {os.path.splitext(name)[0] for name in with_suffix(names, *IMAGE_SUFFIXES)}
        for name in with_suffix(names, ".json", ".xml", ".txt"):
            file = os.path.join(src, folder, name)
            if os.path.splitext(name)[0] not in stems:
                continue
            if name.endswith(".json"):
                with open_file(file, SOURCE_TABLE) as opened:
                    if not _ANNOTATIONS.search(opened.read(1 << 12)):
                        break  # metadata
            raise SourceError(
                "the images have files of annotations beside them, which are not read in class"
                " folders",
                file=file,
                hint=(
                    "set --class-folders outer if the folders are the classes, and the other files"
                    " may be left out; or write the labels into a table"
                ),
            )


# --- files that are not read: arrays of pixels, and boxes in other formats ------------------------

#: What these files are, and the files that show it.
ARRAYS = {
    "CIFAR for Python": r"data_batch_\d+|batches\.meta|file\.txt~",
    "CIFAR in binary files": r"data_batch_\d+\.bin|fine_label_names\.txt",
    "MNIST": r".*-idx[13]-ubyte(\.gz)?",
    "SVHN": r"(train|test|extra)_32x32\.mat",
    "STL-10": r"(train|test|unlabeled)_[Xy]\.bin",
    "ImageNet in 64x64 pixels and less": r"train_data_batch_\d+|val_data",
    "NumPy, HDF5 or pickled arrays": r".*\.(np[yz]|h5|hdf5|mat|pkl|pickle|pth?)(\.gz)?",
}

ARRAYS_HINT = (
    "write the images into class folders, and give that folder: docs/sources.md has the lines of"
    " Python under Arrays of pixels"
)

#: Files with boxes beside the images, and with which tools they are made.
_BOXES = {
    "boxes in a table of Roboflow": r"_annotations\.(csv|txt)",
    "boxes in Create ML's format": r"_annotations\.createml\.json",
    "boxes of KITTI": r"label_2",
    "rotated boxes of DOTA": r"labelTxt.*",
    "boxes in VGG Image Annotator's format": r"via_(region_data|export_json|project).*\.(json|csv)",
}

_BOXES_HINT = "export them as COCO JSON, Pascal VOC or YOLO; a CSV can be given as --src itself"

#: Suffixes of files beside all images: what they are, and what to do.
_BESIDE = {
    ".txt": (
        "a text for each image",
        "write metadata.jsonl beside the images, with a line"
        ' {"file_name": "1.jpg", "text": "a dog"} for each of them',
    ),
    ".json": ("a JSON file for each image, as LabelMe writes", _BOXES_HINT),
}

#: Files and folders of a folder to look at.
_LISTED, _FOLDERS = 1000, 8


def find_refused(src: str, folders: Names, _: SourceOptions) -> Layout | None:
    """Return which files of a folder are arrays, without images beside them, or boxes in other formats."""
    # MNIST/raw/ of torchvision is one level deeper.
    places = [src, *(f"{src}/{name}" for name in folders[:_FOLDERS])]
    names: list[str] = []
    for place in (*places, *(f"{place}/raw" for place in places[1:])):
        if place.endswith("/raw") and not storage.is_folder(place):
            continue
        with storage.scan_folder(place) as entries:
            names += [os.path.join(place, each.name) for each in islice(entries, _LISTED)]
    names.sort()
    others = [name for name in names if suffix_of(name) not in IMAGE_SUFFIXES]
    for table, hint in ((_BOXES, _BOXES_HINT), (ARRAYS, ARRAYS_HINT)):
        for what, pattern in table.items():
            for name in others:
                if re.fullmatch(pattern, os.path.basename(name)):
                    # Arrays beside images are something else.
                    is_other = table is ARRAYS and has_images_below(src, [""])
                    return None if is_other else Layout(what, name, hint)
    # Files beside images in class folders may be anything.
    return None if folders else _beside(names, {*others})


def _beside(names: Names, others: set[str]) -> Layout | None:
    """Return which of the other files are beside the images of a folder."""
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in IMAGE_SUFFIXES:
            for other, (what, hint) in _BESIDE.items():
                if f"{stem}{other}" in others:
                    return Layout(what, f"{stem}{other}", hint)
    return None


def refuse(_: str, found: Layout, __: SourceOptions) -> NoReturn:
    """Refuse files that are not converted.

    Raises:
        SourceError: always.

    """
    raise SourceError(
        f"this looks like {found.name}, which is not converted",
        file=found.evidence,
        hint=found.hint,
    )


KINDS = (Kind("a folder of files that are not converted", find_refused, refuse),)
