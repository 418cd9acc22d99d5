"""Images with a file of labels each, beside them or in a folder of their own: ``1.jpg`` and ``1.xml``.

::

    images/1.jpg          labels/1.txt            one split
    images/train/1.jpg    labels/train/1.txt      the folders of splits are inside
    train/images/1.jpg    train/labels/1.txt      or around them
    train/1.jpg           train/1.txt             both files are in one folder
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Names, Source, take_rows
from dataprep.sources.scan import Scan, is_folder, list_folders, suffix_of
from dataprep.sources.segmentation import CONTENTS, labelled_source
from manifests.errors import CallError, SourceError
from manifests.files import IMAGE_SUFFIXES, SOURCE_LIST, read_lines
from manifests.json_members import shorten
from manifests.process.text import agree, plural, printable
from manifests.schema import SPLIT_ALIASES, split_order

#: Names of folders of label files, in lower case.
_LABELS = {name for name, content in CONTENTS.items() if content == "mask"} | {"xml", "xmls"}

#: Text files that are no labels.
_OTHER_FILES = ("classes.txt", "labels.txt", "notes.txt", "README.txt")

#: Images whose label files are looked at.
_TRIED = 200

#: Folders of splits: train, train2017, obj_train_data (of CVAT).
_SPLIT = re.compile(r"(?:obj_)?([a-z]+?)(?:_data)?[-_]?\d*")


class Paired(NamedTuple):
    """A folder of images and the folder of their label files, which may be the same.

    Attributes:
        images: the folder of the images, relative to the root of the source.
        labels: the folder of the label files.
        split: name of the split.

    """

    images: str
    labels: str
    split: str = ""


def split_of(folder: str) -> str | None:
    """Return the split that the name of a folder states."""
    match = _SPLIT.fullmatch(folder.lower())
    return SPLIT_ALIASES.get(match[1]) if match else None


def find_paired(
    src: str, folders: Names, suffix: str, is_label: Callable[[str], bool | None]
) -> list[Paired]:
    """Return the folders of images with label files, of which `split` is the name of a folder or empty.

    Args:
        src: the folder.
        folders: names of the folders in it.
        suffix: suffix of the label files.
        is_label: returns whether a file has labels of the kind; `None` if it may be any kind.

    """
    # The folders of one layout: by the names of the folders of images and labels.
    layouts: defaultdict[tuple[str, str], list[Paired]] = defaultdict(list)
    for place in ("", *filter(split_of, folders)):
        inside = list_folders(os.path.join(src, place)) if place else folders
        images = [name for name in inside if CONTENTS.get(name.lower()) == "image"]
        labels = [name for name in inside if name.lower() in _LABELS]
        names = [(one, other) for one in images for other in labels] or [("", "")] * (not inside)
        for one, other in names:
            first, second = (os.path.join(place, name).rstrip("/") for name in (one, other))
            pairs = [Paired(first, second, place)]
            # The folders of splits may also be in the folder of images.
            inner = list_folders(os.path.join(src, first)) if one else []
            if any(map(split_of, inner)):
                pairs = [Paired(f"{first}/{name}", f"{second}/{name}", name) for name in inner]
            layouts[one.lower(), other.lower()] += pairs
    found = []
    for pairs in layouts.values():
        if any(_has_labels(src, pair, suffix, is_label) for pair in pairs):
            found += pairs
    return found


def with_splits(src: str, pairs: Sequence[Paired]) -> tuple[list[Paired], list[str]]:
    """Return the folders with the names of their splits, and notices.

    Raises:
        SourceError: a folder has not the name of a split, two have the same, or one has no labels.

    """
    named: dict[str, Paired] = {}
    notices = []
    for pair in pairs:
        split = split_of(pair.split) if pair.split else "train"
        if split is None:
            raise SourceError(
                f"{pair.images}/ has not the name of a split",
                file=src,
                hint="call the folders train, val and test, or move the folder away",
            )
        other = named.setdefault(split, pair)
        if other != pair:
            raise SourceError(
                f"{other.images}/ and {pair.images}/ are of the same split",
                file=src,
                hint="rename or merge the folders",
            )
    for name in filter(split_of, list_folders(src)):
        if not any(f"{pair.images}/".startswith(f"{name}/") for pair in pairs):
            if split_of(name) != "test":
                raise SourceError(
                    f"{name}/ has no labels, as other folders of splits have",
                    file=src,
                    hint="add the files with labels, or move the folder away",
                )
            notices.append(f"skipped {name}/: it has no labels")
    return [pair._replace(split=split) for split, pair in named.items()], notices


def check_label_type(src: str, options: SourceOptions, what: str) -> None:
    """Check that boxes are asked for.

    Raises:
        CallError: they are not.

    """
    if options.label_type not in (None, "boxes"):
        raise CallError(
            f"--label-type {options.label_type}: {what} of {printable(src)} are boxes",
            hint="leave out --label-type",
        )


def read_sets(
    folder: str, stem_of: Callable[[str], str] = lambda line: line.split(maxsplit=1)[0]
) -> dict[str, str]:
    """Return the split of each image by its name without suffix; empty if there are no lists."""
    found: dict[str, str] = {}
    lists = {}
    for name in (*SPLIT_ALIASES, "trainval"):
        if storage.is_file(f"{folder}/{name}.txt"):
            lists[name] = SPLIT_ALIASES.get(name, "train")
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


def _has_labels(
    src: str, pair: Paired, suffix: str, is_label: Callable[[str], bool | None]
) -> bool:
    """Return whether label files of the first images are of the kind that is looked for."""
    folder = os.path.join(src, pair.images)
    for image in islice(_first_images(folder), _TRIED):
        stem = os.path.splitext(image)[0]
        path = os.path.join(src, pair.labels, f"{stem}{suffix}")
        if storage.is_file(path):
            answer = is_label(path)
            if answer is not None:
                return answer
    return False


def _first_images(folder: str) -> Iterator[str]:
    """Yield the images in a folder, or else in its first folder, relative to it."""
    inner = None
    with storage.scan_folder(folder) as entries:
        for entry in entries:
            if suffix_of(entry.name) in IMAGE_SUFFIXES and not is_folder(entry):
                yield entry.name
            elif inner is None and is_folder(entry):
                inner = entry.name
    if inner is not None:
        for name in _first_images(f"{folder}/{inner}"):
            yield f"{inner}/{name}"


def read_paired(
    root: str,
    layout: str,
    pairs: Sequence[Paired],
    suffix: str,
    sets: Mapping[str, str] | None = None,
    *,
    background: bool = False,
) -> tuple[Source, list[str]]:
    """Return the images of some folders, and the path of the label file of each, which may be empty.

    Args:
        root: the folder that paths are relative to.
        layout: as in `Source`.
        pairs: the folders of each split.
        suffix: suffix of the label files.
        sets: the split of each image, by its path in its folder without suffix. Others are skipped.
            By default, the split is the split of its folder.
        background: whether an image without a label file has no object. Otherwise, it is rejected.

    Raises:
        SourceError: an image of a set does not exist, or no image of a split has labels.

    """
    beside = any(pair.images == pair.labels for pair in pairs)
    scan, others = Scan(root, labels=suffix * beside), Scan(root, labels=suffix)
    counts = [sum(scan.add(pair.images)) for pair in pairs]
    for pair in pairs if not beside else ():
        others.add(pair.labels)
    label_files = (scan if beside else others).label_files
    path_of = {os.path.splitext(path)[0]: path for path in label_files}
    # The path, the folders, the name without suffix and the label file of each image.
    images, paths = [], iter(scan.path.to_pylist())
    for pair, count in zip(pairs, counts, strict=True):
        for path in islice(paths, count):
            stem = os.path.splitext(os.path.relpath(path, pair.images or "."))[0]
            images.append((path, pair, stem, path_of.get(os.path.join(pair.labels, stem), "")))
    _check(root, pairs, images, sets)
    names = split_order({*sets.values()} if sets else {pair.split for pair in pairs})
    kept: dict[int, tuple[int, Sequence[int]]] = {}
    rejected, files = {}, []
    for row, (path, pair, stem, label) in enumerate(images):
        split = sets.get(stem) if sets else pair.split
        if split is not None and (label or background):
            kept[row] = names.index(split), label_files.get(label, (0, 0, 0))
            files.append(label)
        elif split is not None:
            rejected[path] = f"{os.path.join(pair.labels, stem)}{suffix} does not exist"
    notices = []
    if unlisted := len(images) - len(kept) - len(rejected):
        notices.append(f"skipped {plural(unlisted, 'image')} that no list names")
    if unlabelled := files.count(""):
        notices.append(f"{plural(unlabelled, 'image')} without a {suffix} file: without objects")
    used = {label for *_, label in images}
    unused = sorted(path for path in label_files.keys() - used if not path.endswith(_OTHER_FILES))
    if unused:
        belong = agree(len(unused), "belongs", "belong")
        notices.append(
            f"skipped {plural(len(unused), f'{suffix} file')} that {belong} to no image:"
            f" {printable(unused[0])}"
        )
    source = labelled_source(scan, layout, names, kept, rejected).with_notices(*notices)
    # Splits whose images have no labels are removed.
    return take_rows(source, np.arange(len(source))), files


#: The path of an image, its folders, its path in its folder without suffix, and its label file.
_Image = tuple[str, Paired, str, str]


def _check(
    root: str, pairs: Sequence[Paired], images: Sequence[_Image], sets: Mapping[str, str] | None
) -> None:
    """Check that images of every folder have labels, and that the images of the sets exist."""
    labelled = {pair: False for _, pair, _, _ in images}
    for _, pair, stem, label in images:
        labelled[pair] |= bool(label) and (not sets or stem in sets)
    for pair, has_labels in labelled.items():
        if not has_labels:
            raise SourceError(
                f"no image has a label in {pair.labels or '.'}/",
                file=root,
                hint=f"unpack {pair.labels or 'the files'} again, or move {pair.images}/ away",
            )
    missing = sorted({*(sets or ())} - {stem for _, _, stem, _ in images})
    if missing:
        raise SourceError(
            f"image {shorten(missing[0])} of a list is not in {pairs[0].images or '.'}/"
            f" ({len(missing):,} in total)",
            file=root,
            hint="unpack the images again, or remove the line",
        )
