"""ImageNet in Kaggle's layout: ``ILSVRC/Data/CLS-LOC`` with a flat ``val/`` folder, whose labels are in a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.columns import concat
from dataprep.sources.entries import is_folder, scan_folder
from dataprep.sources.folders import read_class_folders
from dataprep.sources.scan import Scan
from manifests.errors import SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.json_members import shorten
from manifests.remote import absolute, parent_folder


def find_kaggle_imagenet(src: str) -> str | None:
    """Return the folder CLS-LOC: `src`, or a folder in it."""
    for folder in (
        src,
        os.path.join(src, "Data/CLS-LOC"),
        os.path.join(src, "ILSVRC/Data/CLS-LOC"),
    ):
        if os.path.basename(absolute(folder)) == "CLS-LOC" and storage.is_folder(f"{folder}/train"):
            return folder
    return None


def read_kaggle_imagenet(root: str, options: SourceOptions) -> Source:
    """Read the class folders of train/, and the flat val/ with the labels from LOC_val_solution.csv.

    Raises:
        SourceError: a label file is missing or damaged, or does not match the images.

    """
    with scan_folder(f"{root}/train") as entries:
        train = sorted(entry.name for entry in entries if is_folder(entry))
    classes = _read_classes(root, train)
    source = read_class_folders(
        root,
        {"train": [(f"train/{name}", name) for name in train]},
        "ImageNet in Kaggle's layout",
        replace(options, classes=options.classes or classes),
    )
    notices = ["skipped test/: it has no labels"] if storage.is_folder(f"{root}/test") else []
    if not storage.is_folder(f"{root}/val"):
        return replace(source, notices=(*source.notices, *notices))
    scan = Scan(root)
    scan.add("val")
    labels = _read_val_labels(
        root, scan.path, {name: label for label, name in enumerate(source.classes)}
    )
    return replace(
        source,
        splits=("train", "val"),
        path=concat([source.path, scan.path]),
        label=np.concatenate([source.label, labels]),
        split=np.concatenate([source.split, np.ones(len(labels), np.int8)]),
        size=np.concatenate([source.size, scan.size]),
        stamp=None if source.stamp is None else np.concatenate([source.stamp, scan.stamp]),
        folders=source.folders | scan.folders,
        notices=(*source.notices, *scan.notices, *notices),
        rejected=(*source.rejected, *scan.rejected),
    )


def _find_upward(root: str, name: str) -> str | None:
    """Find a file in a folder or in one of the three folders above it, where Kaggle's archive puts it."""
    folder = absolute(root)
    for _ in range(4):
        if storage.is_file(os.path.join(folder, name)):
            return os.path.join(folder, name)
        folder = parent_folder(folder)
    return None


def _lines(file: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(file, SOURCE_LIST), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise SourceError(
                "the line is not valid UTF-8", file=file, line=number, hint="save the file as UTF-8"
            ) from None


def _read_classes(root: str, train: Sequence[str]) -> tuple[str, ...]:
    mapping = _find_upward(root, "LOC_synset_mapping.txt")
    if mapping is None:
        return tuple(train)
    synsets = sorted({line.split(maxsplit=1)[0] for line in _lines(mapping) if line.strip()})
    if unknown := sorted(set(train) - set(synsets)):
        raise SourceError(
            f"the file does not name {unknown[0]!r}, a folder of train/",
            file=mapping,
            hint="unpack Kaggle's file again",
        )
    return tuple(synsets)


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
    labels = _read_solution(solution, label_of)
    stems = [os.path.splitext(os.path.basename(name))[0] for name in path.to_pylist()]
    if missing := next((stem for stem in stems if stem not in labels), None):
        raise SourceError(
            f"the file has no label for val/{missing}",
            file=solution,
            hint="add a line for the image",
        )
    if len(labels) > len(stems):
        missing_images = sorted(set(labels) - set(stems))
        raise SourceError(
            f"image val/{missing_images[0]}.JPEG is missing ({len(missing_images):,} in total)",
            file=solution,
            hint="unpack val/ again",
        )
    return np.array([labels[stem] for stem in stems], np.int32)


def _read_solution(solution: str, label_of: dict[str, int]) -> dict[str, int]:
    """Return the label of each image in LOC_val_solution.csv, by its name without extension."""
    labels: dict[str, int] = {}
    rows = csv.reader(_lines(solution), strict=True)
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and row[0] == "ImageId"):
                continue
            synset = row[1].split(maxsplit=1)[:1] if len(row) > 1 else []
            if not synset or synset[0] not in label_of:
                raise SourceError(
                    f"the line {shorten(','.join(row))} has no known class",
                    file=solution,
                    line=rows.line_num,
                    hint="write each line as `ImageId,synset x y x y`",
                )
            if row[0] in labels:
                message = f"image {shorten(row[0])} is listed twice"
                raise SourceError(
                    message, file=solution, line=rows.line_num, hint="remove one of the lines"
                )
            labels[row[0]] = label_of[synset[0]]
    except csv.Error as error:
        raise SourceError(
            f"the line is not valid CSV: {error}",
            file=solution,
            line=rows.line_num,
            hint="unpack Kaggle's file again",
        ) from None
    return labels
