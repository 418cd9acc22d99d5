"""Datasets to convert: folders, lists and tables of images, read as columns of samples.

No image is opened: names and sizes come from `os.scandir` and `os.stat`, labels from folders, lists, tables or file
names. The samples are stored as a few arrays, which stay small for millions of images.

::

    which source       recognize; layouts and refusals name what is not one
    folders            folders, unlabelled, reid_folders, msmt17, kaggle_imagenet; labels in names: filenames, patterns
    lists and tables   lists, tables, delimited, jsonl, columns
    annotations        coco, coco_json, json_stream, voc, voc_xml, box_labels; masks and depth maps: segmentation,
                       segmentation_classes, image_pairs
    containers         archives, archive_folders, imagenet_tars, matlab, hugging_face, parquet_images, recordio,
                       lmdb_images, lmdb_file
    datasets           prepared, hash_column
    labels             table_labels, label_columns, label_lists, class_names, relabel
    files in folders   scan, walk, entries, remote_stats
    whole sources      base, merge, joined, select
"""

from __future__ import annotations

import logging
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataprep import storage
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.recognize import read_file, read_folder
from dataprep.sources.refusals import missing_source
from dataprep.sources.relabel import with_label_type
from manifests.errors import SourceError
from manifests.faults import raise_machine_fault
from manifests.schema import UNREADABLE
from manifests.text import agree, plural, printable

__all__ = ["UNREADABLE", "Source", "SourceOptions", "read_source"]

_log = logging.getLogger(__name__)


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
    started = time.monotonic()
    try:
        with storage.remember(src):
            mode = storage.stat(src).st_mode
            source = read_folder(src, options) if stat.S_ISDIR(mode) else read_file(src, options)
            source = with_label_type(source, options)
    except FileNotFoundError as error:
        raise missing_source(src, str(error.filename or src)) from None
    except OSError as error:
        raise_machine_fault(error)
        raise SourceError(
            f"the path cannot be read ({error.strerror})", file=str(error.filename or src), hint="check its permissions"
        ) from None
    if not len(source):
        raise SourceError("the source contains no images", file=src, hint="check --src, or --image-root for a list")
    _log.info(
        "%s: %d images, %d bytes, in %d splits, found in %.1f s",
        src,
        len(source),
        source.bytes,
        len(source.splits),
        time.monotonic() - started,
    )
    return replace(source, notices=(*source.notices, *_class_notices(source)))


#: A source of so many images, each with a class of its own, most likely has no classes.
_MANY_CLASSES = 10


def _class_notices(source: Source) -> Iterator[str]:
    """Report classes without samples, and classes that are only in some splits."""
    if source.label_type != "class":
        return
    used = len(np.unique(source.label))
    if used == len(source) >= _MANY_CLASSES:
        yield (
            f"each of the {plural(used, 'image')} has a class of its own; if the labels are not classes, set "
            "--label-type regression or caption, or --unlabelled"
        )
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
