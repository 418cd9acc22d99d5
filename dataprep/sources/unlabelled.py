"""Images without labels: in a folder or an archive, flat, or with subfolders that mean nothing."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dataprep.sources.archive_folders import archive_source, list_images_of, top_folder
from dataprep.sources.base import Source
from dataprep.sources.layouts import images_and_labels
from dataprep.sources.scan import Scan, hidden_notices, list_folders, list_images, map_splits
from dataprep.sources.walk import skipped_notices
from manifests.process.text import printable
from manifests.schema import SPLIT_ALIASES, split_order


def read_unlabelled(src: str, folders: Sequence[str]) -> Source:
    """Read all images in a folder and its subfolders. No image has a label.

    If all folders in it have the names of splits, and no image is next to them, each is a split.
    Folders of masks, depth maps or annotations, beside one of images, are left out; then that one
    may contain the splits.

    Raises:
        SourceError: two folders are the same split.

    """
    above, splits = _find_splits(src, folders)
    scan, order = Scan(src, skip=label_folders), split_order(set(splits))
    counts = [number for split in order for number in scan.add(splits[split])]
    left_out = label_folders(folders) if above else {}
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
        notices=(*skipped_notices(left_out), *hidden_notices(src, {"", above}), *scan.notices),
        rejected=tuple(scan.rejected),
        scanned=True,
        stamp=scan.stamp,
        folders=frozenset(scan.folders),
        label_type="none",
    )


def read_unlabelled_archive(path: str) -> Source:
    """Read all images in an archive, by the rules for a folder.

    Raises:
        SourceError: the archive is damaged, or two folders are the same split.

    """
    listing = list_images_of(path)
    left_out = _label_folders_of(listing.names)
    kept = [
        number
        for number, name in enumerate(listing.names)
        if not any(map(left_out.get, _folders_above(name)))
    ]
    names = [listing.names[number] for number in kept]
    top = top_folder(names)
    first = [
        folder if inside else ""
        for folder, inside, _ in (name[len(top) :].partition("/") for name in names)
    ]
    splits = {}
    if names and all(folder.lower() in SPLIT_ALIASES for folder in first):
        splits = map_splits(path, sorted({*first}), SPLIT_ALIASES)
    order = split_order(set(splits)) if splits else ("train",)
    number_of = {folder: order.index(split) for split, folder in splits.items()}
    split = np.array([number_of.get(folder, 0) for folder in first], np.int8)
    in_order = np.argsort(split, kind="stable")
    source = archive_source(
        listing,
        np.array(kept, np.int64)[in_order],
        layout="archive of images",
        classes=(),
        splits=order,
        label=np.zeros(len(kept), np.int32),
        split=split[in_order],
        notices=(*listing.notices, *skipped_notices(left_out)),
    )
    return replace(source, label_type="none")


def _label_folders_of(names: Sequence[str]) -> dict[str, str]:
    """Return the folders of masks, depth maps or annotations among those of images, and why each is left out."""
    folders = {
        folder
        for place in {os.path.dirname(name) for name in names}
        for folder in _folders_above(f"{place}/")
    }
    inside: defaultdict[str, list[str]] = defaultdict(list)
    for folder in sorted(folders):
        above, _, name = folder.rpartition("/")
        inside[above].append(name)
    return {
        os.path.join(above, name): why
        for above, beside in inside.items()
        for name, why in label_folders(beside).items()
    }


def _folders_above(name: str) -> list[str]:
    """Return the folders that contain a file of an archive: of ``a/b/1.jpg``, ``a`` and ``a/b``."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def label_folders(folders: Sequence[str]) -> dict[str, str]:
    """Return which of these folders have masks, depth maps or annotations of the images in another one, and why."""
    images, labels = images_and_labels(folders)
    return (
        {name: f"which belongs to the images in {printable(images[0])}/" for name in labels}
        if images
        else {}
    )


def _find_splits(src: str, folders: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the folder that contains those of the splits, and the folder of each split, both relative to `src`."""
    images, labels = images_and_labels(folders)
    above = images[0] if labels and len(images) == 1 and len(labels) == len(folders) - 1 else ""
    inside = list_folders(os.path.join(src, above)) if above else folders
    are_splits = bool(inside) and all(name.lower() in SPLIT_ALIASES for name in inside)
    if not are_splits or any(list_images(src, place) for place in {"", above}):
        return "", {"train": ""}
    splits = map_splits(os.path.join(src, above), inside, SPLIT_ALIASES)
    return above, {split: os.path.join(above, name) for split, name in splits.items()}
