"""Datasets whose images are arrays of pixels in files of many: recognized by their names, and refused."""

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

#: Files and folders of a folder to look at.
_LISTED, _FOLDERS = 1000, 8


class Found(NamedTuple):
    """Files with arrays: what they are, and the first one."""

    what: str
    file: str


def find_arrays(src: str, folders: Names, _: SourceOptions) -> Found | None:
    """Return what a folder is that contains files with arrays and no images."""
    # MNIST/raw/ of torchvision is one level deeper.
    places = [src, *(f"{src}/{name}" for name in folders[:_FOLDERS])]
    names: list[str] = []
    for place in (*places, *(f"{place}/raw" for place in places[1:])):
        if place.endswith("/raw") and not storage.is_folder(place):
            continue
        with storage.scan_folder(place) as entries:
            names += [os.path.join(place, each.name) for each in islice(entries, _LISTED)]
    for what, pattern in ARRAYS.items():
        for name in sorted(names):
            if re.fullmatch(pattern, os.path.basename(name)):
                scan = Scan(src)
                return None if any(scan.add("")) else Found(what, name)
    return None


def refuse_arrays(_: str, found: Found, __: SourceOptions) -> NoReturn:
    """Refuse files with arrays.

    Raises:
        SourceError: always.

    """
    raise SourceError(
        f"this looks like {found.what}: arrays of pixels, which are not converted",
        file=found.file,
        hint=ARRAYS_HINT,
    )


KINDS = (Kind("a folder of arrays of pixels", find_arrays, refuse_arrays),)
