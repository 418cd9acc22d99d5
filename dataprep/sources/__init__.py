"""Datasets before preparation: what lies in a folder, a list or a table, as columns of samples.

No image is opened here: names and sizes come from `os.scandir` and `os.stat`, labels from folders, lists
and tables. A million samples are a few arrays, not a million objects. It must never know what a shard is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataprep.sources.columns import Source, SourceOptions
from dataprep.sources.folders import is_folder, name_splits, read_image_folders
from dataprep.sources.kaggle import find_kaggle, has_folders, read_kaggle
from dataprep.sources.lists import read_lists
from dataprep.sources.msmt17 import find_msmt17, read_msmt17
from dataprep.sources.named import read_pattern
from dataprep.sources.reid import find_layout, read_layout
from dataprep.sources.tables import read_table
from manifests.errors import CallError, SourceError
from manifests.schema import SPLIT_ALIASES, UNREADABLE
from manifests.text import printable

__all__ = ["UNREADABLE", "Source", "SourceOptions", "read_source"]

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
LISTS = ("train_list.txt", "val_list.txt", "test_list.txt")


def read_source(src: str, options: SourceOptions | None = None) -> Source:
    """Find out what `src` is, and list its samples without reading an image.

    Raises:
        CallError: there is no such file or folder, or an option does not fit it.
        SourceError: it is no dataset that is known here, or a line, a label or an image in it is wrong.

    """
    options = options or SourceOptions()
    try:
        mode = os.stat(src).st_mode
        source = _read_folder(src, options) if stat.S_ISDIR(mode) else _read_file(src, options)
    except FileNotFoundError as error:
        raise CallError(f"--src {src}: {error.filename or src} does not exist", hint="check the path") from None
    except OSError as error:
        raise SourceError(f"cannot be read ({error.strerror})", file=str(error.filename or src)) from None
    if not len(source):
        raise SourceError("holds no image", file=src, hint="check --src, or --image-root for a list")
    return replace(source, notices=(*source.notices, *_class_notices(source)))


def _read_folder(src: str, options: SourceOptions) -> Source:
    if options.pattern is not None:
        _refuse(options, ("image_root", "path_column", "split_column"), f"a list or a table, and {src} is a folder")
        return read_pattern(src, _folders(src), options.pattern, options)
    kaggle = find_kaggle(src)
    if kaggle is not None and not has_folders(f"{kaggle}/val"):
        return read_kaggle(kaggle, options)
    src = kaggle or src
    lists = [name for name in LISTS if os.path.isfile(os.path.join(src, name))]
    if lists:
        _refuse(options, ("path_column", "label_column", "split_column"), f"a table, and {src} holds lists")
        return read_lists([os.path.join(src, name) for name in lists], options.image_root or src, options)
    _refuse(options, ("image_root", "path_column", "split_column"), f"a list or a table, and {src} is a folder")
    _refuse(options, ("label_column",), f"a table or --pattern, and {src} is a folder")
    folders = _folders(src)
    if (train_and_test := find_msmt17(src, folders)) is not None:
        return read_msmt17(src, train_and_test, options)
    if (layout := find_layout(src, folders)) is not None:
        return read_layout(src, folders, layout, options)
    return read_image_folders(src, _split_folders(src, folders), folders, options)


def _folders(src: str) -> list[str]:
    return sorted(entry.name for entry in os.scandir(src) if is_folder(entry) and not entry.name.startswith("."))


def _split_folders(src: str, folders: Sequence[str]) -> dict[str, str]:
    """Give the folder of each split; none where the folders called so are classes (a `train` among `car` and `bus`)."""
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    if len(named) < len(folders) and not any(has_folders(os.path.join(src, name)) for name in named):
        return {}
    return name_splits(src, named, SPLIT_ALIASES)


def _read_file(src: str, options: SourceOptions) -> Source:
    _refuse(options, ("pattern",), f"a folder, and {src} is a file")
    if src.lower().endswith(TABLE_SUFFIXES):
        return read_table(src, options)
    _refuse(options, ("path_column", "label_column", "split_column"), f"a table, and {src} is a list")
    return read_lists([src], options.image_root or os.path.dirname(src) or ".", options)


def _refuse(options: SourceOptions, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise CallError(f"--{name.replace('_', '-')} goes with {why}", hint="leave the option out")


def _class_notices(source: Source) -> Iterator[str]:
    """Say which classes have no sample at all, or samples in some splits only."""
    counts = np.zeros((len(source.splits), len(source.classes)), np.int64)
    np.add.at(counts, (source.split, source.label), 1)
    empty = np.flatnonzero(counts.sum(0) == 0)
    if len(empty):
        yield f"{len(empty):,} of {len(source.classes):,} classes have no image: {_some(source, empty)}"
    if {"query", "gallery"} & {*source.splits}:
        yield _identity_notice(source, counts > 0)
        return
    for number, split in enumerate(source.splits):
        if len(source.splits) > 1:
            only = np.flatnonzero((counts[number] > 0) & (counts.sum(0) == counts[number]))
            if len(only):
                yield f"{len(only):,} classes are in {split} only: {_some(source, only)}"


def _identity_notice(source: Source, has: NDArray[np.bool_]) -> str:
    """Say in a line how many classes each split has; for re-identification, train shares none with the others."""
    held = ", ".join(f"{split} {count:,}" for split, count in zip(source.splits, has.sum(1).tolist(), strict=True))
    if "train" not in source.splits:
        return f"classes: {held}"
    others = [split for split in ("query", "gallery") if split in source.splits]
    searched = has[[source.splits.index(split) for split in others]].any(0)
    shared = np.flatnonzero(has[source.splits.index("train")] & searched)
    told = f" {len(shared):,}, {_some(source, shared)}," if len(shared) else " none"
    return f"classes: {held}; train shares{told} with {' and '.join(others)}"


def _some(source: Source, labels: Iterable[int]) -> str:
    shown = [printable(source.classes[label]) for label in list(labels)[:5]]
    return ", ".join(shown) + (", ..." if len(list(labels)) > 5 else "")
