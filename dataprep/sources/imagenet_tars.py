"""ImageNet as it is distributed: a tar of 1,000 tars, a tar of validation images, and the development kit.

The ground truth of the validation images is a number from 1 to 1,000, ``ILSVRC2012_ID``. It is not
the position of the class among the sorted WordNet IDs: ``meta.mat`` of the development kit says
which class it is.
"""

from __future__ import annotations

import os
import re
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataprep import storage
from dataprep.sources.archive_folders import archive_source, read_archive
from dataprep.sources.archives import Listing, list_archive
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.joined import join_sources
from dataprep.sources.matlab import MAX_BYTES, Value, read_structs
from manifests.errors import SourceError
from manifests.files import SOURCE_ARCHIVE, open_file
from manifests.process.text import plural
from manifests.remote import parent_folder

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12"
_META, _TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
_VAL_NAME = re.compile(r"(?:.*/)?ILSVRC2012_val_(\d{8})\.JPEG")

#: Bytes of the development kit that are read. It has 2.5 MB.
_MAX_DEVKIT_BYTES = 256 << 20

_DEVKIT_HINT = (
    f"put {DEVKIT}.tar.gz next to the archive, or move the archive of val away to convert only"
    " train"
)


def find_imagenet_tars(src: str) -> bool:
    """Return whether a folder contains ImageNet's archives, and they are not unpacked beside them."""
    if storage.is_folder(os.path.join(src, "train")) or storage.is_folder(os.path.join(src, "val")):
        return False
    return any(storage.is_file(os.path.join(src, name)) for name in (TRAIN, VAL))


def read_imagenet_tars(src: str, options: SourceOptions) -> Source:
    """Read the archives of a folder in place: train, val, or both.

    Raises:
        SourceError: an archive or the development kit is missing or damaged, or they do not fit
            together.

    """
    layout = "ImageNet in its original archives"
    train, val = (os.path.join(src, name) for name in (TRAIN, VAL))
    parts = []
    if storage.is_file(train):
        parts.append(read_archive(train, options))
    if storage.is_file(val):
        classes = options.classes or (parts[0].classes if parts else None)
        parts.append(read_val(val, classes))
        parts = [replace(part, classes=parts[-1].classes) for part in parts]
    names = sorted(entry.name for entry in storage.list_folder(src))
    skipped = [name for name in names if re.fullmatch(r"ILSVRC2012_img_test.*\.tar", name)]
    notices = [f"skipped {name}: it has no labels" for name in skipped]
    source = join_sources(parts)
    return replace(source, layout=layout, notices=(*source.notices, *notices))


def read_val(path: str, classes: tuple[str, ...] | None) -> Source:
    """Read the archive of validation images, with the labels from the development kit next to it.

    Args:
        path: the archive.
        classes: class names in label order; `None` takes those of the development kit, sorted.

    Raises:
        SourceError: the archive or the development kit is damaged, or the development kit is
            missing.

    """
    listing = list_archive(path)
    meta, truth, place = _read_devkit(parent_folder(path) or ".")
    wnids = _read_meta(meta, place)
    ids = _read_truth(truth, place, wnids)
    classes = classes or tuple(sorted(wnids.values()))
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    labels = np.empty(len(listing.names), np.int32)
    for row, number in enumerate(_image_numbers(listing, len(ids)).tolist()):
        wnid = wnids[ids[number - 1]]
        if wnid not in label_of:
            message = (
                f"the class {wnid} of {listing.names[row]} is not a class of train, or not in"
                " --classes"
            )
            raise SourceError(
                message, file=path, hint="give the archive of train of the same release"
            )
        labels[row] = label_of[wnid]
    rows = np.arange(len(labels), dtype=np.int64)
    return archive_source(
        listing, rows, layout="ImageNet's validation images", classes=classes, splits=("val",), label=labels,
        split=np.zeros(len(rows), np.int8), notices=listing.notices,
    )  # fmt: skip


def _image_numbers(listing: Listing, count: int) -> NDArray[np.int64]:
    """Return the number of each image, from 1."""
    numbers = []
    for name in listing.names:
        match = _VAL_NAME.fullmatch(name)
        if match is None or not 1 <= int(match[1]) <= count:
            message = f"{name} is not one of the {count:,} images of the ground truth"
            raise SourceError(message, file=listing.path, hint="download the archive again")
        numbers.append(int(match[1]))
    if len({*numbers}) < count:
        missing = min({*range(1, count + 1)} - {*numbers})
        message = (
            f"{plural(count - len({*numbers}), 'image')} missing, the first is"
            f" ILSVRC2012_val_{missing:08d}.JPEG"
        )
        raise SourceError(message, file=listing.path, hint="download the archive again")
    return np.array(numbers, np.int64)


# --- development kit ----------------------------------------------------------------------------


def _read_devkit(folder: str) -> tuple[bytes, bytes, str]:
    """Return the content of ``meta.mat`` and of the ground truth, and the name of the development kit."""
    unpacked = os.path.join(folder, DEVKIT)
    if storage.is_folder(unpacked):
        found = {
            name: _read_small(os.path.join(unpacked, "data", name)) for name in (_META, _TRUTH)
        }
        place = unpacked
    else:
        place = f"{unpacked}.tar.gz"
        if not storage.is_file(place):
            message = (
                "the labels of the validation images are in the development kit, which does not"
                " exist"
            )
            raise SourceError(message, file=place, hint=_DEVKIT_HINT)
        found = _read_members(place)
    for name in (_META, _TRUTH):
        if name not in found:
            raise SourceError(
                f"the development kit has no file {name}", file=place, hint="download it again"
            )
    return found[_META], found[_TRUTH], place


def _read_small(path: str) -> bytes:
    with open_file(path, SOURCE_ARCHIVE) as file:
        return file.read(MAX_BYTES)


def _read_members(path: str) -> dict[str, bytes]:
    """Read the two files from the compressed archive, as a stream of bounded length."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with (
            open_file(path, SOURCE_ARCHIVE) as file,
            tarfile.open(fileobj=file, mode="r|gz") as archive,
        ):
            for member in archive:
                total += member.size
                if total > _MAX_DEVKIT_BYTES:
                    raise SourceError(
                        f"the development kit has more than {_MAX_DEVKIT_BYTES:,} bytes",
                        file=path,
                        hint="download it again",
                    )
                name = os.path.basename(member.name)
                if name in (_META, _TRUTH) and member.isreg() and member.size <= MAX_BYTES:
                    content = archive.extractfile(member)
                    found[name] = content.read(MAX_BYTES) if content else b""
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        message = f"the development kit cannot be read ({error})"
        raise SourceError(message, file=path, hint="download it again") from None
    return found


def _read_meta(content: bytes, place: str) -> dict[int, str]:
    """Return the WordNet ID of each of the classes with images, by ``ILSVRC2012_ID``."""
    try:
        # Synsets above the leaves of the hierarchy have larger numbers, and children.
        return dict(
            _class_of(fields) for fields in read_structs(content) if not fields.get("num_children")
        )
    except ValueError as error:
        raise SourceError(
            f"{_META} is damaged: {error}", file=place, hint="download it again"
        ) from None


def _class_of(fields: Mapping[str, Value]) -> tuple[int, str]:
    number, wnid = fields.get("ILSVRC2012_ID"), fields.get("WNID")
    if (
        not isinstance(number, (int, float))
        or not isinstance(wnid, str)
        or not re.fullmatch(r"n\d{8}", wnid)
    ):
        raise ValueError("a class has no ILSVRC2012_ID or no WNID")
    return int(number), wnid


def _read_truth(content: bytes, place: str, wnids: dict[int, str]) -> list[int]:
    """Return the ``ILSVRC2012_ID`` of each validation image."""
    ids = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip().isdigit() or len(line) > 9 or int(line) not in wnids:
            message = f"{_TRUTH} has no known class in line {number}"
            raise SourceError(message, file=place, hint="download the development kit again")
        ids.append(int(line))
    return ids
