"""ImageNet as Kaggle packs it: ``ILSVRC/Data/CLS-LOC`` with a flat ``val/``, its labels in a CSV beside."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.sources.columns import Source, SourceOptions, concat
from dataprep.sources.folders import Scan, is_folder, labelled_by_folder
from manifests.errors import SourceError


def has_folders(path: str) -> bool:
    """Tell whether a folder holds folders."""
    return os.path.isdir(path) and any(map(is_folder, os.scandir(path)))


def find_kaggle(src: str) -> str | None:
    """Find the folder CLS-LOC at or below `src`."""
    for folder in (src, os.path.join(src, "Data/CLS-LOC"), os.path.join(src, "ILSVRC/Data/CLS-LOC")):
        if os.path.basename(os.path.abspath(folder)) == "CLS-LOC" and os.path.isdir(f"{folder}/train"):
            return folder
    return None


def read_kaggle(root: str, options: SourceOptions) -> Source:
    """Read class folders of train/, and the flat val/ with the labels that LOC_val_solution.csv gives."""
    train = sorted(entry.name for entry in os.scandir(f"{root}/train") if is_folder(entry))
    classes = _kaggle_classes(root, train)
    source = labelled_by_folder(
        root,
        {"train": [(f"train/{name}", name) for name in train]},
        "ImageNet as Kaggle packs it",
        replace(options, classes=options.classes or classes),
    )
    notices = ["test/ has no labels and is left out"] if os.path.isdir(f"{root}/test") else []
    if not os.path.isdir(f"{root}/val"):
        return replace(source, notices=(*source.notices, *notices))
    scan = Scan(root)
    scan.add("val")
    path = concat(scan.paths)
    labels = _kaggle_val_labels(root, path, {name: label for label, name in enumerate(source.classes)})
    return replace(
        source,
        splits=("train", "val"),
        path=concat([source.path, path]),
        label=np.concatenate([source.label, labels]),
        split=np.concatenate([source.split, np.ones(len(labels), np.int8)]),
        size=np.concatenate([source.size, *scan.sizes]),
        notices=(*source.notices, *scan.notices, *scan.left_out_notice(), *notices),
        rejected=(*source.rejected, *scan.rejected),
    )


def _beside(root: str, name: str) -> str | None:
    """Find a file in a folder or in one of the three above it, where Kaggle's archive has it."""
    folder = os.path.abspath(root)
    for _ in range(4):
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
        folder = os.path.dirname(folder)
    return None


def _lines(file: str) -> Iterator[str]:
    """Read a text line by line, as UTF-8 or not at all."""
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield line.decode()
            except UnicodeDecodeError:
                raise SourceError("is not valid UTF-8", file=file, line=number, hint="save it as UTF-8") from None


def _kaggle_classes(root: str, train: Sequence[str]) -> tuple[str, ...]:
    mapping = _beside(root, "LOC_synset_mapping.txt")
    if mapping is None:
        return tuple(train)
    synsets = sorted({line.split(maxsplit=1)[0] for line in _lines(mapping) if line.strip()})
    if unknown := sorted(set(train) - set(synsets)):
        raise SourceError(f"does not name {unknown[0]!r}, a folder of train/", file=mapping)
    return tuple(synsets)


def _kaggle_val_labels(root: str, path: pa.Array, number: dict[str, int]) -> NDArray[np.int32]:
    solution = _beside(root, "LOC_val_solution.csv")
    if solution is None:
        raise SourceError(
            "is flat, and LOC_val_solution.csv, which has its labels, is not beside it",
            file=f"{root}/val",
            hint="put Kaggle's file beside ILSVRC/, or move val/ away to prepare train/ alone",
        )
    label_of: dict[str, int] = {}
    for line, row in enumerate(csv.reader(_lines(solution)), 1):
        if line == 1 and row[:1] == ["ImageId"]:
            continue
        synset = row[1].split(maxsplit=1)[:1] if len(row) > 1 else []
        if not synset or synset[0] not in number:
            raise SourceError(
                f"{','.join(row)!r} names no known class",
                file=solution,
                line=line,
                hint="a line is `ImageId,synset x y x y`",
            )
        label_of[row[0]] = number[synset[0]]
    stems = [os.path.splitext(os.path.basename(name))[0] for name in path.to_pylist()]
    if missing := next((stem for stem in stems if stem not in label_of), None):
        raise SourceError(f"has no label for val/{missing}", file=solution)
    if len(label_of) > len(stems):
        gone = sorted(set(label_of) - set(stems))
        raise SourceError(
            f"val/{gone[0]}.JPEG is missing ({len(gone):,} such)", file=solution, hint="unpack val/ again"
        )
    return np.array([label_of[stem] for stem in stems], np.int32)
