"""ImageNet as it is distributed: the original archives with the development kit, or Kaggle's layout.

The ground truth of the validation images is a number from 1 to 1,000, ``ILSVRC2012_ID``. It is not
the position of the class among the sorted WordNet IDs: ``meta.mat`` of the development kit says
which class it is. Kaggle's ``ILSVRC/Data/CLS-LOC`` has a flat ``val/`` with its labels in a CSV
file.
"""

from __future__ import annotations

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
    Kind,
    Names,
    Source,
    Texts,
    first_names,
    join_sources,
    one_array,
    positions,
    text_array,
    with_classes,
)
from dataprep.sources.folders import (
    read_class_folders,
    read_image_folders,
    read_unlabelled,
)
from dataprep.sources.joined import (
    check_once,
    found,
    load,
    load_text,
    substitute,
    with_columns,
)
from dataprep.sources.mat_file import MAX_BYTES, read_mat
from dataprep.sources.scan import (
    has_folders,
    hidden_notices,
    list_folders,
    look_into,
    option,
    scan_splits,
    split_of,
    suffix_of,
)
from manifests.errors import SourceError
from manifests.files import SOURCE_ARCHIVE, mounted_at, open_file
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
    numbers = [int(match[1]) for match in map(_VAL_NAME.fullmatch, names) if match]
    others = {*range(1, count + 1)} ^ {*numbers}
    if others or len(numbers) < len(names):
        shown = f"; an image of one of them alone is ILSVRC2012_val_{min(others):08d}.JPEG" * bool(
            others
        )
        raise SourceError(
            f"the archive and the ground truth of {count:,} images do not have the same images{shown}",
            file=path,
            hint="download the archive again",
        )
    return numbers


# --- development kit ------------------------------------------------------------------------------


def _read_devkit(folder: str) -> tuple[Names, list[str]]:
    """Return the WordNet IDs of the classes with images, and the WordNet ID of each validation image."""
    place = os.path.join(folder, DEVKIT)
    is_packed = not storage.is_folder(place)
    if is_packed:
        place += ".tar.gz"
        if not storage.is_file(place):
            raise SourceError(
                "the labels of the validation images are in the development kit, which does not"
                " exist",
                file=place,
                hint=_DEVKIT_HINT,
            )
    import tarfile  # takes time, and most sources do not need it

    try:
        content = _unpacked(place) if is_packed else _in_folder(place)
        wnids = _read_meta(content[_META])
        # A line for each image: the number of its class, as meta.mat counts.
        truth = [wnids[int(line[:9])] for line in content[_TRUTH].splitlines()]
    except KeyError as error:
        reason = f"there is no file or no class {error}"
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        reason = str(error)
    else:
        return [*wnids.values()], truth
    raise SourceError(
        f"the development kit cannot be read ({reason})", file=place, hint="download it again"
    )


def _in_folder(place: str) -> dict[str, bytes]:
    """Read the two files of an unpacked development kit."""
    files = {}
    for name in (_META, _TRUTH):
        with open_file(os.path.join(place, "data", name), SOURCE_ARCHIVE) as file:
            files[name] = file.read(MAX_BYTES)
    return files


def _unpacked(path: str) -> dict[str, bytes]:
    """Read the two files from the compressed archive, as a stream of bounded length."""
    import tarfile

    files = {}
    total = 0
    with (
        open_file(path, SOURCE_ARCHIVE) as file,
        tarfile.open(fileobj=file, mode="r|gz") as archive,
    ):
        # Sizes that the headers claim count too: nothing is unpacked before it is known to fit.
        for member in archive:
            total += member.size
            if total > _MAX_DEVKIT_BYTES:
                raise ValueError(f"it has more than {_MAX_DEVKIT_BYTES:,} bytes")
            name = os.path.basename(member.name)
            if name in (_META, _TRUTH) and member.isreg() and member.size <= MAX_BYTES:
                content = archive.extractfile(member)
                files[name] = content.read() if content else b""
    return files


def _read_meta(content: bytes) -> dict[int, str]:
    """Return the WordNet ID of each of the classes with images, by ``ILSVRC2012_ID``."""
    wnids = {}
    structs = read_mat(content).get("synsets")
    if not isinstance(structs, list) or not all(isinstance(each, dict) for each in structs):
        raise ValueError(f"{_META} contains no structs called synsets")
    for fields in structs:
        # Synsets above the leaves of the hierarchy have larger numbers, and children.
        if fields.get("num_children"):
            continue
        number, wnid = fields.get("ILSVRC2012_ID"), str(fields.get("WNID"))
        if not isinstance(number, int | float) or not re.fullmatch(r"n\d{8}", wnid):
            raise ValueError(f"a class in {_META} has no ILSVRC2012_ID or no WNID")
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
    classes = options.classes or _read_classes(root, train)
    source = read_class_folders(
        root,
        {"train": [f"train/{name}" for name in train]},
        "ImageNet in Kaggle's layout",
        replace(options, classes=classes),
    )
    # The flat val/ follows train/; test/ has no labels at all.
    notices = hidden_notices(root, ["train"])
    if storage.is_folder(f"{root}/val"):
        val = scan_splits(root, {"val": "val"}, "")
        label = _val_labels(root, val.path, classes)
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


def _read_classes(root: str, train: Names) -> Texts:
    mapping = _find_upward(root, "LOC_synset_mapping.txt")
    if mapping is None:
        return tuple(train)
    synsets = load_text(mapping, ["synset", "words"])["synset"].to_pylist()
    unknown = sorted({*train} - {*synsets})
    if unknown:
        raise SourceError(
            f"the file does not name {unknown[0]!r}, a folder of train/",
            file=mapping,
            hint="unpack Kaggle's file again",
        )
    return tuple(sorted(synsets))


def _val_labels(root: str, path: pa.Array, classes: Names) -> NDArray[np.int32]:
    """Return the labels of the images in val/, int32 [n]."""
    solution = _find_upward(root, "LOC_val_solution.csv")
    if solution is None:
        raise SourceError(
            "the folder has no class folders, and the file with its labels, LOC_val_solution.csv,"
            " does not exist",
            file=f"{root}/val",
            hint="put Kaggle's file next to ILSVRC/, or move val/ away to convert only train/",
        )
    rows = load(parent_folder(solution), os.path.basename(solution), _SOLUTION)
    rows = with_columns(rows, image=substitute(rows["image"], "(.*)", r"val/\1.JPEG"))
    check_once(rows, "image")
    hint = "unpack val/ again"
    at = found(rows, "image", path, "does not exist", hint)
    # Each line has the boxes of the image behind its class.
    rows = with_columns(rows, class_name=substitute(rows["boxes"], "^([^ ]*).*", r"\1"))
    label = found(rows, "class_name", text_array(classes), "is no known class", hint)
    images = pa.table(
        {"path": path, "file": pa.repeat(solution, len(path)), "line": pa.nulls(len(path))}
    )
    found(images, "path", one_array(rows["image"]), "has no label in the file", hint)
    labels = np.zeros(len(path), np.int32)
    labels[at] = label
    return labels


#: The columns of LOC_val_solution.csv: the name of an image, and its class with boxes.
_SOLUTION = "image=ImageId boxes=PredictionString"


# --- an archive for each class --------------------------------------------------------------------

_ARCHIVES = (".tar", ".zip")

#: Archives that are parts of a dataset, and not classes; WordNet IDs are classes.
_PARTS = re.compile(r"(?!n\d{8}$).*?[-_]?\d+")


def find_class_archives(src: str, folders: Names, options: SourceOptions) -> list[str]:
    """Return the archives in a folder that are classes by their names, as in ImageNet-21k."""
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
                hint=(
                    "unpack it, and give the folder"
                    if mounted_at(src)
                    else f"give an archive as --src: {option('src', src, name)}"
                ),
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
