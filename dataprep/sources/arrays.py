"""Files that are recognized by their names and refused: arrays of pixels, and boxes in other formats."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import NamedTuple, NoReturn

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Names
from dataprep.sources.scan import Scan
from manifests.errors import SourceError
from manifests.files import IMAGE_SUFFIXES

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


class Found(NamedTuple):
    """Files that are not converted: what they are, the first one, and what to do."""

    what: str
    file: str
    hint: str


def find_refused(src: str, folders: Names, _: SourceOptions) -> Found | None:
    """Return which files of a folder are arrays, without images beside them, or boxes in other formats."""
    # MNIST/raw/ of torchvision is one level deeper.
    places = [src, *(f"{src}/{name}" for name in folders[:_FOLDERS])]
    names: list[str] = []
    for place in (*places, *(f"{place}/raw" for place in places[1:])):
        if place.endswith("/raw") and not storage.is_folder(place):
            continue
        with storage.scan_folder(place) as entries:
            names += [os.path.join(place, each.name) for each in islice(entries, _LISTED)]
    for table, hint in ((_BOXES, _BOXES_HINT), (ARRAYS, ARRAYS_HINT)):
        for what, pattern in table.items():
            for name in sorted(names):
                if re.fullmatch(pattern, os.path.basename(name)):
                    scan = Scan(src)
                    # Arrays beside images are something else.
                    is_other = table is ARRAYS and any(scan.add(""))
                    return None if is_other else Found(what, name, hint)
    # Files beside images in class folders may be anything.
    return None if folders else _beside(sorted(names))


def _beside(names: Names) -> Found | None:
    """Return which files are beside the images of a folder."""
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in IMAGE_SUFFIXES:
            for other, (what, hint) in _BESIDE.items():
                if f"{stem}{other}" in names:
                    return Found(what, f"{stem}{other}", hint)
    return None


def refuse(_: str, found: Found, __: SourceOptions) -> NoReturn:
    """Refuse files that are not converted.

    Raises:
        SourceError: always.

    """
    raise SourceError(
        f"this looks like {found.what}, which is not converted", file=found.file, hint=found.hint
    )


KINDS = (Kind("a folder of files that are not converted", find_refused, refuse),)
