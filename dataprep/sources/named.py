"""Images whose names say what they show. Scanned with `os.scandir`; no image is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.sources.columns import LABEL_COLUMNS, Source, SourceOptions, concat, number_labels
from dataprep.sources.folders import Scan, name_splits, stray_images
from dataprep.sources.patterns import Pattern, fit, in_order, label_of, numbered, parse_pattern
from manifests.schema import SPLIT_ALIASES, split_order
from manifests.text import printable

#: Folders that are splits where names say the rest: those of ImageFolders, and those of re-identification.
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


def read_pattern(src: str, folders: Sequence[str], text: str, options: SourceOptions) -> Source:
    """Read all images at and below `src` by a pattern of their names.

    Folders named like splits are splits if there are two of them, or no other folders; else all is train.

    Raises:
        CallError: it is no pattern, or has no part for the label.
        SourceError: a name does not fit it.

    """
    pattern = parse_pattern(text)
    named = [name for name in folders if name.lower() in SPLIT_FOLDERS]
    splits = name_splits(src, named, SPLIT_FOLDERS) if len(named) > 1 or len(named) == len(folders) else {}
    source = read_named(src, splits or {"train": ""}, pattern, options, layout=f"names like {printable(text)}")
    stray = stray_images(src) if splits else []
    notices = left_out_folders(folders, splits)
    if stray:
        first = printable(stray[0])
        notices.append(f"left out, for they lie beside the splits: {len(stray):,} images, {first} the first")
    return replace(source, notices=(*notices, *source.notices))


def left_out_folders(folders: Sequence[str], splits: Mapping[str, str]) -> list[str]:
    """Say in a line which folders are none of the splits (split -> folder), where there are splits."""
    others = [f"{printable(name)}/" for name in folders if name not in splits.values()] if splits else []
    return [f"left out, for they are no splits: {', '.join(others)}"] if others else []


def read_named(
    src: str,
    splits: Mapping[str, str],
    pattern: Pattern,
    options: SourceOptions,
    *,
    layout: str,
    junk: str | None = None,
) -> Source:
    """Scan the folder of each split (split -> folder), and take label and further columns from the names.

    Classes are the label's texts in sorted order over all splits. Images whose label is `junk` are left out.
    """
    label_name = label_of(pattern, options.label_column, (*LABEL_COLUMNS, "identity"))
    scan, order = Scan(src), split_order(set(splits))
    counts = [scan.add(splits[split]) for split in order]
    path = concat(scan.paths)
    size = np.concatenate([*scan.sizes, np.empty(0, np.int64)])
    split = np.repeat(np.arange(len(order), dtype=np.int8), counts)
    columns = fit(path, pattern, src)
    notices = [*scan.notices, *scan.left_out_notice()]
    if junk is not None:
        keep = pc.not_equal(columns[label_name], junk)
        rows = np.flatnonzero(keep)
        if left_out := len(path) - len(rows):
            notices.append(f"left out, for {label_name} {junk} is junk: {left_out:,} images")
        path, size, split = path.filter(keep), size[rows], split[rows]
        columns = {name: column.filter(keep) for name, column in columns.items()}
    text = columns[label_name]
    label, classes = number_labels(text, options.classes or in_order(text), lambda row: (f"{src}/{path[row]}", None))
    # As in tables, a label of a telling name, identity say, is carried along under that name too.
    further = [name for name in pattern.names if name != label_name or name not in LABEL_COLUMNS]
    return Source(
        root=src,
        layout=layout,
        classes=classes,
        splits=order,
        path=path,
        label=label,
        split=split,
        size=size,
        extra=pa.table({name: numbered(columns[name]) for name in further}),
        notices=tuple(notices),
        rejected=tuple(scan.rejected),
        scanned=True,
    )
