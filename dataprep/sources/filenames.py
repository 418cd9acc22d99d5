"""Folders of images whose file names give the labels, as in ``0002_c1s1_000451_03.jpg``.

No image is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.labels.columns import REGRESSION_COLUMNS, number_labels
from dataprep.sources.base import LABEL_COLUMN_NAMES, Source, SourceOptions
from dataprep.sources.label_columns import with_label_type
from dataprep.sources.patterns import (
    Pattern,
    find_label,
    parse_pattern,
    read_names,
    refuse_reserved,
    sorted_values,
    to_integers,
)
from dataprep.sources.scan import Scan, has_folders, list_images, map_splits, stray_notices
from manifests.process.text import plural, printable
from manifests.schema import SPLIT_ALIASES, split_order

#: Folders that are splits: those of ImageFolders, and those of re-identification datasets.
SPLIT_FOLDERS = {
    **SPLIT_ALIASES,
    "query": "query",
    "gallery": "gallery",
    "bounding_box_train": "train",
    "bounding_box_test": "gallery",
    "image_train": "train",
    "image_query": "query",
    "image_test": "gallery",
}


def read_by_pattern(src: str, folders: Sequence[str], text: str, options: SourceOptions) -> Source:
    """Read all images in `src` and its subfolders by a pattern of their file names.

    Folders with the name of a split are splits if there are at least two of them, or no other
    folders. Otherwise, all images are in ``train``.

    Raises:
        CallError: the pattern is not valid, or has no part for the label.
        SourceError: a file name does not match the pattern.

    """
    pattern = parse_pattern(text)
    named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
    splits = (
        map_splits(src, named, SPLIT_FOLDERS)
        if len(named) > 1 or len(named) == len(folders)
        else {}
    )
    layout = f"file names like {printable(text)}"
    source = read_filenames(src, splits or {"train": ""}, pattern, options, layout=layout)
    stray = stray_notices(list_images(src), "outside of the splits") if splits else []
    return replace(source, notices=(*skipped_folders(folders, splits), *stray, *source.notices))


def has_class_folders(src: str, folders: Sequence[str]) -> bool:
    """Return whether folders are classes, or splits that contain classes."""
    others = [name for name in folders if name.lower() not in SPLIT_FOLDERS]
    splits = [name for name in folders if name.lower() in SPLIT_ALIASES]
    return bool(others) or any(has_folders(f"{src}/{name}") for name in splits)


def add_columns(source: Source, pattern: Pattern) -> Source:
    """Add a column for each part of a pattern of the file names to a source with labels from its class folders.

    Raises:
        CallError: a part has a name that sample tables already use.
        SourceError: a file name does not match the pattern.

    """
    refuse_reserved(pattern)
    columns = read_names(source.path, pattern, source.root)
    return replace(
        source, extra=pa.table({name: to_integers(column) for name, column in columns.items()})
    )


def skipped_folders(folders: Sequence[str], splits: Mapping[str, str]) -> list[str]:
    """Return a message about folders that are not in `splits` (split -> folder).

    Empty if there are no splits.
    """
    others = (
        [f"{printable(name)}/" for name in folders if name not in splits.values()] if splits else []
    )
    return [f"skipped folders that are not splits: {', '.join(others)}"] if others else []


def read_filenames(
    src: str,
    splits: Mapping[str, str],
    pattern: Pattern,
    options: SourceOptions,
    *,
    layout: str,
    junk: str | None = None,
) -> Source:
    """Scan the folder of each split, and read the labels and extra columns from the file names.

    Args:
        src: the folder that paths are relative to.
        splits: the folder of each split (split -> folder).
        pattern: pattern of the file names.
        options: `label_column` and `classes` apply. By default, the classes are the labels of all
            splits in sorted order.
        layout: value of `Source.layout`.
        junk: label of the images to skip.

    Raises:
        CallError: the pattern has no part for the label.
        SourceError: a file name does not match the pattern, or a label is not in `options.classes`.

    """
    label_name = find_label(pattern, options.label_column, (*LABEL_COLUMN_NAMES, "identity"))
    scan, order = Scan(src), split_order(set(splits))
    counts = [number for split in order for number in scan.add(splits[split])]
    path, size, stamp = scan.path, scan.size, scan.stamp
    split = np.repeat(np.arange(len(order), dtype=np.int8), counts)
    columns = read_names(path, pattern, src)
    notices = scan.notices
    if junk is not None:
        keep = pc.not_equal(columns[label_name], junk)
        rows = np.flatnonzero(keep)
        if skipped := len(path) - len(rows):
            notices = [*notices, f"skipped {plural(skipped, 'junk image')} ({label_name} {junk})"]
        path, size, stamp, split = path.filter(keep), size[rows], stamp[rows], split[rows]
        columns = {name: column.filter(keep) for name, column in columns.items()}
    text = columns[label_name]
    label, classes = number_labels(
        text, options.classes or sorted_values(text), lambda row: (f"{src}/{path[row]}", None)
    )
    # As in tables, a label column with a specific name, such as `identity`, is also kept as an
    # extra column.
    extra_names = [
        name for name in pattern.names if name != label_name or name not in LABEL_COLUMN_NAMES
    ]
    source = Source(
        root=src,
        layout=layout,
        classes=classes,
        splits=order,
        path=path,
        label=label,
        split=split,
        size=size,
        extra=pa.table({name: to_integers(columns[name]) for name in extra_names}),
        notices=tuple(notices),
        rejected=tuple(scan.rejected),
        scanned=True,
        stamp=stamp,
        folders=frozenset(scan.folders),
    )
    if options.label_type is None and label_name.lower() in REGRESSION_COLUMNS:
        return with_label_type(source, replace(options, label_type="regression"))
    return source
