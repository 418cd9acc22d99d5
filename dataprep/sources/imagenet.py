"""ImageNet as it is distributed: the original archives with the development kit, or Kaggle's layout.

The ground truth of the validation images is a number from 1 to 1,000, ``ILSVRC2012_ID``. It is not
the position of the class among the sorted WordNet IDs: ``meta.mat`` of the development kit says
which class it is. Kaggle's ``ILSVRC/Data/CLS-LOC`` has a flat ``val/`` with its labels in a CSV
file.
"""

from __future__ import annotations

import csv
import os
import re
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.archives import opened_archive
from dataprep.sources.base import (
    Classes,
    Kind,
    Names,
    Source,
    first_names,
    join_sources,
    positions,
    text_array,
    with_classes,
)
from dataprep.sources.folders import (
    read_class_folders,
    read_image_folders,
    read_unlabelled,
)
from dataprep.sources.mat_file import MAX_BYTES, read_mat
from dataprep.sources.scan import (
    has_folders,
    hidden_notices,
    list_folders,
    look_into,
    scan_splits,
    split_of,
    suffix_of,
)
from dataprep.sources.text_tables import text_lines
from manifests.errors import SourceError
from manifests.files import SOURCE_ARCHIVE, SOURCE_LIST, open_file
from manifests.json_members import shorten
from manifests.process.text import plural
from manifests.remote.url import absolute, parent_folder

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


def find_imagenet_tars(src: str, folders: Names, _: SourceOptions) -> bool:
    """Return whether a folder contains ImageNet's archives, and they are not unpacked beside them."""
    return {"train", "val"}.isdisjoint(folders) and any(
        storage.is_file(os.path.join(src, name)) for name in (TRAIN, VAL)
    )


def read_imagenet_tars(src: str, _: Any, options: SourceOptions) -> Source:
    """Read the archives of a folder in place: train, val, or both.

    Raises:
        SourceError: an archive or the development kit is missing or damaged, or they do not fit
            together.

    """
    parts = []
    for name, read in ((TRAIN, _read_train), (VAL, read_val)):
        path = os.path.join(src, name)
        if storage.is_file(path):
            parts.append(read(path, None, options))
            # The classes of train, if it is there, number the labels of val, too.
            options = replace(options, classes=parts[0].classes)
    notices = []
    for name in sorted(storage.names_in(src)):
        if re.fullmatch(r"ILSVRC2012_img_test.*\.tar", name):
            notices.append(f"skipped {name}: it has no labels")
    source = join_sources(parts).with_notices(*notices)
    return replace(source, layout="ImageNet in its original archives")


def _read_train(path: str, _: Any, options: SourceOptions) -> Source:
    with opened_archive(path, options) as archive:
        return archive.locate(read_image_folders(path, None, options))


def read_val(path: str, _: Any, options: SourceOptions) -> Source:
    """Read the archive of validation images, with the labels from the development kit next to it.

    Args:
        path: the archive.
        options: `classes` applies; by default, the classes are the sorted WordNet IDs of the
            development kit.

    Raises:
        SourceError: the archive or the development kit is damaged, or the development kit is
            missing.

    """
    with opened_archive(path, options) as archive:
        source = archive.locate(read_unlabelled(path, None, options))
    source = replace(source, label_type="class")
    names = [name.partition("/")[2] for name in source.path.to_pylist()]
    wnids, truth = _read_devkit(parent_folder(path) or ".")
    classes = options.classes or tuple(sorted(wnids))
    # The number in the name of an image leads to its class.
    label_of = positions(classes)
    labels = []
    for name, number in zip(names, _image_numbers(path, names, len(truth)), strict=True):
        wnid = truth[number - 1]
        if wnid not in label_of:
            raise SourceError(
                f"the class {wnid} of {name} is not a class of train, or not in --classes",
                file=path,
                hint="give the archive of train of the same release",
            )
        labels.append(label_of[wnid])
    source = source.with_columns(label=np.array(labels, np.int32))
    return replace(source, layout="ImageNet's validation images", classes=classes, splits=("val",))


def _image_numbers(path: str, names: Names, count: int) -> list[int]:
    """Return the number of each image, from 1."""
    numbers = []
    for name in names:
        match = _VAL_NAME.fullmatch(name)
        if match is None or not 1 <= int(match[1]) <= count:
            raise SourceError(
                f"{name} is not one of the {count:,} images of the ground truth",
                file=path,
                hint="download the archive again",
            )
        numbers.append(int(match[1]))
    missing = sorted({*range(1, count + 1)} - {*numbers})
    if missing:
        raise SourceError(
            f"{plural(len(missing), 'image')} missing, the first is"
            f" ILSVRC2012_val_{missing[0]:08d}.JPEG",
            file=path,
            hint="download the archive again",
        )
    return numbers


# --- development kit ------------------------------------------------------------------------------


def _read_devkit(folder: str) -> tuple[Names, list[str]]:
    """Return the WordNet IDs of the classes with images, and the WordNet ID of each validation image."""
    place = os.path.join(folder, DEVKIT)
    found = {}
    if storage.is_folder(place):
        for name in (_META, _TRUTH):
            with open_file(os.path.join(place, "data", name), SOURCE_ARCHIVE) as file:
                found[name] = file.read(MAX_BYTES)
    else:
        place += ".tar.gz"
        if not storage.is_file(place):
            raise SourceError(
                "the labels of the validation images are in the development kit, which does not"
                " exist",
                file=place,
                hint=_DEVKIT_HINT,
            )
        found = _read_members(place)
    for name in (_META, _TRUTH):
        if name not in found:
            raise SourceError(
                f"the development kit has no file {name}", file=place, hint="download it again"
            )
    try:
        wnids = _read_meta(found[_META])
    except ValueError as error:
        raise SourceError(
            f"{_META} is damaged: {error}", file=place, hint="download it again"
        ) from None
    # A line for each image: the number of its class, as meta.mat counts.
    truth = []
    for number, line in enumerate(found[_TRUTH].splitlines(), 1):
        if not line.strip().isdigit() or len(line) > 9 or int(line) not in wnids:
            raise SourceError(
                f"{_TRUTH} has no known class in line {number}",
                file=place,
                hint="download the development kit again",
            )
        truth.append(wnids[int(line)])
    return [*wnids.values()], truth


def _read_members(path: str) -> dict[str, bytes]:
    """Read the two files from the compressed archive, as a stream of bounded length."""
    import tarfile  # takes time, and most sources do not need it

    found = {}
    total = 0
    try:
        with (
            open_file(path, SOURCE_ARCHIVE) as file,
            tarfile.open(fileobj=file, mode="r|gz") as archive,
        ):
            # Sizes that the headers claim count too: nothing is unpacked before it is known to fit.
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
                    found[name] = content.read() if content else b""
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        raise SourceError(
            f"the development kit cannot be read ({error})", file=path, hint="download it again"
        ) from None
    return found


def _read_meta(content: bytes) -> dict[int, str]:
    """Return the WordNet ID of each of the classes with images, by ``ILSVRC2012_ID``."""
    wnids = {}
    structs = read_mat(content).get("synsets")
    if not isinstance(structs, list) or not all(isinstance(each, dict) for each in structs):
        raise ValueError("it contains no structs called synsets")
    for fields in structs:
        # Synsets above the leaves of the hierarchy have larger numbers, and children.
        if fields.get("num_children"):
            continue
        number, wnid = fields.get("ILSVRC2012_ID"), str(fields.get("WNID"))
        if not isinstance(number, int | float) or not re.fullmatch(r"n\d{8}", wnid):
            raise ValueError("a class has no ILSVRC2012_ID or no WNID")
        wnids[int(number)] = wnid
    return wnids


# --- Kaggle ---------------------------------------------------------------------------------------


def find_kaggle_imagenet(src: str, _: Names, __: SourceOptions) -> str | None:
    """Return the folder CLS-LOC, `src` or a folder in it, if its ``val/`` has no class folders."""
    folder = _find_cls_loc(src)
    if folder is None or has_folders(f"{folder}/val"):
        return None
    return folder


def find_sorted_kaggle(src: str, _: Names, __: SourceOptions) -> str | None:
    """Return the folder CLS-LOC in `src`, of which ``val/`` has class folders, too."""
    folder = _find_cls_loc(src)
    # A folder that is CLS-LOC itself is read as any other.
    return None if folder == src else folder


def _find_cls_loc(src: str) -> str | None:
    inside = (os.path.join(src, name) for name in ("Data/CLS-LOC", "ILSVRC/Data/CLS-LOC"))
    for folder in (src, *inside):
        if os.path.basename(absolute(folder)) == "CLS-LOC" and storage.is_folder(f"{folder}/train"):
            return folder
    return None


def read_kaggle_imagenet(_: str, root: str, options: SourceOptions) -> Source:
    """Read the class folders of train/, and the flat val/ with the labels from LOC_val_solution.csv.

    Raises:
        SourceError: a label file is missing or damaged, or does not match the images.

    """
    train = list_folders(f"{root}/train")
    source = read_class_folders(
        root,
        {"train": [f"train/{name}" for name in train]},
        "ImageNet in Kaggle's layout",
        replace(options, classes=options.classes or _read_classes(root, train)),
    )
    # The flat val/ follows train/; test/ has no labels at all.
    notices = hidden_notices(root, ["train"])
    if storage.is_folder(f"{root}/val"):
        val = scan_splits(root, {"val": "val"}, "")
        label = _read_val_labels(root, val.path, positions(source.classes))
        source = join_sources([source, val.with_columns(label=label)])
    if storage.is_folder(f"{root}/test"):
        notices.append("skipped test/: it has no labels")
    return source.with_notices(*notices)


def _find_upward(root: str, name: str) -> str | None:
    """Find a file in a folder or in one of the three folders above it, where Kaggle's archive puts it."""
    folder = absolute(root)
    for _ in range(4):
        if storage.is_file(os.path.join(folder, name)):
            return os.path.join(folder, name)
        folder = parent_folder(folder)
    return None


def _read_classes(root: str, train: Names) -> Classes:
    mapping = _find_upward(root, "LOC_synset_mapping.txt")
    if mapping is None:
        return tuple(train)
    synsets = set()
    for line in text_lines(mapping, SOURCE_LIST):
        if line.strip():
            synsets.add(line.split(maxsplit=1)[0])
    unknown = sorted({*train} - synsets)
    if unknown:
        raise SourceError(
            f"the file does not name {unknown[0]!r}, a folder of train/",
            file=mapping,
            hint="unpack Kaggle's file again",
        )
    return tuple(sorted(synsets))


def _read_val_labels(root: str, path: pa.Array, label_of: dict[str, int]) -> NDArray[np.int32]:
    """Return the labels of the images in val/, int32 [n]."""
    solution = _find_upward(root, "LOC_val_solution.csv")
    if solution is None:
        raise SourceError(
            "the folder has no class folders, and the file with its labels, LOC_val_solution.csv,"
            " does not exist",
            file=f"{root}/val",
            hint="put Kaggle's file next to ILSVRC/, or move val/ away to convert only train/",
        )
    # Each image takes its label, so what is left has no image.
    left = _read_solution(solution, label_of)
    labels = []
    for name in path.to_pylist():
        stem = os.path.splitext(os.path.basename(name))[0]
        if stem not in left:
            raise SourceError(
                f"the file has no label for val/{stem}",
                file=solution,
                hint="add a line for the image",
            )
        labels.append(left.pop(stem))
    if left:
        raise SourceError(
            f"image val/{min(left)}.JPEG is missing ({len(left):,} in total)",
            file=solution,
            hint="unpack val/ again",
        )
    return np.array(labels, np.int32)


def _read_solution(solution: str, label_of: dict[str, int]) -> dict[str, int]:
    """Return the label of each image in LOC_val_solution.csv, by its name without extension."""
    labels = {}
    rows = csv.reader(text_lines(solution, SOURCE_LIST), strict=True)
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and row[0] == "ImageId"):
                continue
            synsets = ",".join(row[1:2]).split(maxsplit=1)
            problem, hint = "", "write each line as `ImageId,synset x y x y`"
            if not synsets or synsets[0] not in label_of:
                problem = f"the line {shorten(','.join(row))} has no known class"
            elif row[0] in labels:
                problem, hint = (
                    f"image {shorten(row[0])} is listed twice",
                    "remove one of the lines",
                )
            if problem:
                raise SourceError(problem, file=solution, line=rows.line_num, hint=hint)
            labels[row[0]] = label_of[synsets[0]]
    except csv.Error as error:
        raise SourceError(
            f"the line is not valid CSV: {error}",
            file=solution,
            line=rows.line_num,
            hint="unpack Kaggle's file again",
        ) from None
    return labels


# --- an archive for each class --------------------------------------------------------------------

_ARCHIVES = (".tar", ".zip")

#: Archives that are parts of a dataset, and not classes; WordNet IDs are classes.
_PARTS = re.compile(r"(?!n\d{8}$).*?[-_]?\d+")


def find_class_archives(src: str, folders: Names, options: SourceOptions) -> list[str]:
    """Return the archives in a folder that are classes by their names, as those of ImageNet-21k."""
    if folders or options.unlabelled or look_into(src).has_images:
        return []
    names = sorted(name for name in storage.names_in(src) if suffix_of(name) in _ARCHIVES)
    stems = [os.path.splitext(name)[0] for name in names]
    are_parts = any(split_of(stem) for stem in stems) or all(map(_PARTS.fullmatch, stems))
    if len(names) > 1 and not are_parts:
        return names
    # Numbered tars are shards, which are refused elsewhere.
    for name in names:
        if suffix_of(name) == ".zip":
            raise SourceError(
                f"the folder contains archives ({first_names(names, 3)}), and no images",
                file=src,
                hint=f"give an archive as --src: --src {os.path.join(src, name)}",
            )
    return []


def read_class_archives(src: str, names: Names, options: SourceOptions) -> Source:
    """Read an archive for each class in place. The folders in it mean nothing.

    Raises:
        SourceError: an archive is damaged, or contains several folders of images.

    """
    parts, text = [], []
    for name in names:
        path = os.path.join(src, name)
        with opened_archive(path, options) as archive:
            part = scan_splits(path, {"train": ""}, "archives of classes")
            if len({*map(os.path.dirname, part.path.to_pylist())}) > 1:
                raise SourceError(
                    "the archive has several folders of images, so its name is no class",
                    file=path,
                    hint="give it as --src, or move it away",
                )
            parts.append(archive.locate(part))
        text += [os.path.splitext(name)[0]] * len(part)
    return with_classes(join_sources(parts), text_array(text), options)


KINDS = (
    Kind(
        "a folder with an archive for each class",
        find_class_archives,
        read_class_archives,
        example="""
imagenet21k/n01440764.tar                    # or .zip; the name of an archive is the class
imagenet21k/n01443537.tar
""",
        in_archives=False,
    ),
    Kind(
        "ImageNet in its original archives",
        find_imagenet_tars,
        read_imagenet_tars,
        in_archives=False,
        example="imagenet/ILSVRC2012_img_train.tar",
    ),
    # Kaggle's flat val/ has its labels in a CSV file. If it has class folders, the folder inside is
    # read as any other.
    Kind(
        "ImageNet in Kaggle's layout",
        find_kaggle_imagenet,
        read_kaggle_imagenet,
        example="kaggle/ILSVRC/Data/CLS-LOC/train/n01440764/n01440764_10026.JPEG",
    ),
)
