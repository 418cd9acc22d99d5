"""Datasets to convert: folders, lists and tables of images, read as columns of samples.

No image is opened: names and sizes come from `os.scandir` and `os.stat`, labels from folders,
lists, tables or file names. The samples are stored as a few arrays, which stay small for millions
of images.

::

    which source       recognize: begin here; layouts and refusals name what is not one
    folders            folders, unlabelled, reid_folders, msmt17, kaggle_imagenet; labels in names: filenames, patterns
    lists and tables   lists, tables, delimited, jsonl, columns
    annotations        coco, coco_json, json_stream, voc, voc_xml; masks and depth maps: segmentation, image_pairs
    containers         archives, archive_folders, imagenet_tars, matlab, hugging_face, parquet_images, recordio,
                       lmdb_images, lmdb_file
    datasets           prepared, hash_column
    labels             label_columns, class_names
    files in folders   scan, walk, entries, remote_stats
    whole sources      base, merge, joined, select
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dataprep.sources.base import Source, SourceOptions
from manifests.schema import UNREADABLE

if TYPE_CHECKING:
    from dataprep.sources.recognize import read_source

__all__ = ["UNREADABLE", "Source", "SourceOptions", "read_source"]


def __getattr__(name: str) -> Any:
    # Most modules need the records only, and importing what reads sources takes longer than all
    # else in a worker.
    if name == "read_source":
        return import_module("dataprep.sources.recognize").read_source
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
