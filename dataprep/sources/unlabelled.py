"""Folders of images without labels: flat, or with subfolders that mean nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataprep.sources.base import Source
from dataprep.sources.scan import Scan, hidden_notices, list_images, map_splits, stray_notices
from manifests.schema import SPLIT_ALIASES, split_order


def read_unlabelled(src: str, folders: Sequence[str]) -> Source:
    """Read all images in a folder and its subfolders. No image has a label.

    If all folders in it have the names of splits, and no image is next to them, each is a split.

    Raises:
        SourceError: two folders are the same split.

    """
    images = list_images(src)
    is_split = bool(folders) and not images and all(name.lower() in SPLIT_ALIASES for name in folders)
    splits = map_splits(src, folders, SPLIT_ALIASES) if is_split else {"train": ""}
    scan, order = Scan(src), split_order(set(splits))
    counts = [number for split in order for number in scan.add(splits[split])]
    notices = [*(stray_notices(images, "outside of the splits") if is_split else []), *hidden_notices(src)]
    return Source(
        root=src,
        layout="folder of images",
        classes=(),
        splits=order,
        path=scan.path,
        label=np.zeros(len(scan.path), np.int32),
        split=np.repeat(np.arange(len(order), dtype=np.int8), counts),
        size=scan.size,
        extra=pa.table({}),
        notices=(*notices, *scan.notices),
        rejected=tuple(scan.rejected),
        scanned=True,
        stamp=scan.stamp,
        folders=frozenset(scan.folders),
        label_type="none",
    )
