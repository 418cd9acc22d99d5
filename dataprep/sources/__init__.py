"""Datasets to convert: folders, lists and tables of images, read as one table of samples.

No image is opened: names and sizes come from `os.scandir` and `os.stat`, labels from folders,
lists, tables or file names.

::

    which source       recognize: begin here
    folders            folders, imagenet, patterns (labels in file names, re-identification)
    lists and tables   tables, text_tables, columns, listed (the files that they name),
                       box_tables; several (images in a sample)
    annotations        coco; exports (tables beside images); boxes of all of them: boxed
    a file an image    paired: begin here; voc, yolo; masks and depth maps: segmentation
    not converted      refused
    containers         archives, imagenet, parquet, databases (LMDB, RecordIO)
    datasets           prepared, published (CUB, Food-101, CelebA and others), whose files
                       joined reads
    files in folders   scan
    MATLAB's files     mat_file
    arrays             arrays: columns of lists, .npy files beside the images
    videos             videos: the frames of what was found
    whole sources      base, merge
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dataprep.options import SourceOptions
from dataprep.sources.base import Source
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
