"""Datasets to convert: folders, lists and tables of images, read as columns of samples.

No image is opened: names and sizes come from `os.scandir` and `os.stat`, labels from folders, lists, tables or file
names. The samples are stored as a few arrays, which stay small for millions of images.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.filenames import add_columns, has_class_folders, read_by_pattern
from dataprep.sources.folders import read_image_folders
from dataprep.sources.kaggle_imagenet import find_kaggle_imagenet, read_kaggle_imagenet
from dataprep.sources.layouts import refuse_other_layouts
from dataprep.sources.lists import read_lists
from dataprep.sources.msmt17 import find_msmt17, read_msmt17
from dataprep.sources.patterns import has_label, parse_pattern
from dataprep.sources.refusals import missing_source, refuse_other_files
from dataprep.sources.reid_folders import find_reid_layout, read_reid_folders
from dataprep.sources.scan import has_folders, list_folders
from dataprep.sources.tables import TABLE_SUFFIXES, read_table
from manifests.errors import CallError, SourceError
from manifests.faults import raise_machine_fault
from manifests.schema import UNREADABLE
from manifests.text import agree, plural, printable

__all__ = ["UNREADABLE", "Source", "SourceOptions", "read_source"]

LIST_NAMES = ("train_list.txt", "val_list.txt", "test_list.txt")


def read_source(src: str, options: SourceOptions | None = None) -> Source:
    """Recognize the layout of `src` and list its samples. No image is opened.

    Args:
        src: a folder, a list file, or a table (CSV, TSV, JSON Lines, Parquet).
        options: how to read a source that does not follow the defaults.

    Raises:
        CallError: `src` does not exist, or an option does not apply to it.
        SourceError: the layout is not known, or a line, a label or an image is not valid.

    """
    options = options or SourceOptions()
    try:
        mode = os.stat(src).st_mode
        source = _read_folder(src, options) if stat.S_ISDIR(mode) else _read_file(src, options)
    except FileNotFoundError as error:
        raise missing_source(src, str(error.filename or src)) from None
    except OSError as error:
        raise_machine_fault(error)
        raise SourceError(
            f"the path cannot be read ({error.strerror})", file=str(error.filename or src), hint="check its permissions"
        ) from None
    if not len(source):
        raise SourceError("the source contains no images", file=src, hint="check --src, or --image-root for a list")
    return replace(source, notices=(*source.notices, *_class_notices(source)))


def _read_folder(src: str, options: SourceOptions) -> Source:
    if options.pattern is not None:
        _refuse(options, ("image_root", "path_column", "split_column"), f"a list or a table, but {src} is a folder")
        return _read_file_names(src, options.pattern, options)
    kaggle = find_kaggle_imagenet(src)
    if kaggle is not None and not has_folders(f"{kaggle}/val"):
        return read_kaggle_imagenet(kaggle, options)
    src = kaggle or src
    lists = [name for name in LIST_NAMES if os.path.isfile(os.path.join(src, name))]
    if lists:
        _refuse(options, ("path_column", "label_column", "split_column"), f"a table, but {src} contains list files")
        return read_lists([os.path.join(src, name) for name in lists], options.image_root or src, options)
    _refuse(options, ("image_root", "path_column", "split_column"), f"a list or a table, but {src} is a folder")
    _refuse(options, ("label_column",), f"a table or --pattern, but {src} is a folder")
    folders = list_folders(src)
    if (train_and_test := find_msmt17(src, folders)) is not None:
        return read_msmt17(src, train_and_test, options)
    if (layout := find_reid_layout(src, folders)) is not None:
        return read_reid_folders(src, folders, layout, options)
    refuse_other_layouts(src, folders)
    return read_image_folders(src, folders, options)


def _read_file_names(src: str, text: str, options: SourceOptions) -> Source:
    """Read a folder with ``--pattern``: labels from the file names, or only extra columns of class folders."""
    folders, pattern = list_folders(src), parse_pattern(text)
    if options.label_column or has_label(pattern) or not has_class_folders(src, folders):
        return read_by_pattern(src, folders, text, options)
    refuse_other_layouts(src, folders)
    return add_columns(read_image_folders(src, folders, options), pattern)


def _read_file(src: str, options: SourceOptions) -> Source:
    _refuse(options, ("pattern",), f"a folder, but {src} is a file")
    if src.lower().endswith(TABLE_SUFFIXES):
        return read_table(src, options)
    refuse_other_files(src)
    _refuse(options, ("path_column", "label_column", "split_column"), f"a table, but {src} is a list file")
    return read_lists([src], options.image_root or os.path.dirname(src) or ".", options)


def _refuse(options: SourceOptions, names: Sequence[str], requirement: str) -> None:
    """Raise an error if one of these options is set. `requirement` is what the options need."""
    for name in names:
        if getattr(options, name) is not None:
            raise CallError(f"--{name.replace('_', '-')} needs {requirement}", hint="remove the option")


def _class_notices(source: Source) -> Iterator[str]:
    """Report classes without samples, and classes that are only in some splits."""
    counts = np.zeros((len(source.splits), len(source.classes)), np.int64)
    np.add.at(counts, (source.split, source.label), 1)
    empty = np.flatnonzero(counts.sum(0) == 0)
    if len(empty):
        have = agree(len(empty), "has", "have")
        of = f"{len(empty):,} of {plural(len(source.classes), 'class')}"
        yield f"{of} {have} no images: {_first_names(source, empty)}"
    if {"query", "gallery"} & {*source.splits}:
        yield _identity_notice(source, counts > 0)
        return
    for number, split in enumerate(source.splits):
        if len(source.splits) > 1:
            only = np.flatnonzero((counts[number] > 0) & (counts.sum(0) == counts[number]))
            if len(only):
                yield f"{plural(len(only), 'class')} only in {split}: {_first_names(source, only)}"


def _identity_notice(source: Source, has_class: NDArray[np.bool_]) -> str:
    """Report the number of classes in each split; for re-identification, train shares no class with the other splits.

    Args:
        source: the samples.
        has_class: bool [splits, classes], whether the split has samples of the class.

    """
    per_split = ", ".join(
        f"{split} {count:,}" for split, count in zip(source.splits, has_class.sum(1).tolist(), strict=True)
    )
    if "train" not in source.splits:
        return f"classes: {per_split}"
    others = [split for split in ("query", "gallery") if split in source.splits]
    in_others = has_class[[source.splits.index(split) for split in others]].any(0)
    shared = np.flatnonzero(has_class[source.splits.index("train")] & in_others)
    number = plural(len(shared), "class") if len(shared) else "no classes"
    names = f": {_first_names(source, shared)}" if len(shared) else ""
    return f"classes: {per_split}; train shares {number} with {' and '.join(others)}{names}"


def _first_names(source: Source, labels: Iterable[int]) -> str:
    shown = [printable(source.classes[label]) for label in list(labels)[:5]]
    return ", ".join(shown) + (", ..." if len(list(labels)) > 5 else "")
