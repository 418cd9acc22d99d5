"""Class folders in a tar or zip archive, read in place: CLASS/IMAGE or SPLIT/CLASS/IMAGE, perhaps in other folders."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataprep.containers import location_table
from dataprep.labels.columns import number_labels
from dataprep.sources.archives import Listing, list_archive
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.layouts import refuse_other_archives
from dataprep.sources.scan import map_splits, stray_notices
from manifests.errors import SourceError
from manifests.process.text import printable
from manifests.schema import SPLIT_ALIASES, split_order

#: Files beside an image that make it a sample of a WebDataset shard.
_SHARD_SUFFIXES = (".cls", ".json", ".txt")


def read_archive(path: str, options: SourceOptions) -> Source:
    """Read an archive of class folders. Nothing is unpacked; of each file, only the header is read.

    Raises:
        SourceError: the archive is damaged, or does not contain class folders.

    """
    listing = list_images_of(path)
    top = top_folder(listing.names)
    parts = [name[len(top) :].split("/") for name in listing.names]
    refuse_other_archives(path, sorted({each[0] for each in parts if len(each) > 1}))
    depth = np.array([len(each) for each in parts], np.int64)
    splits = _split_folders(path, parts)
    notices = list(listing.notices)
    if splits:
        skipped = sorted({each[0] for each in parts if len(each) > 1} - {*splits.values()})
        notices += [f"skipped {printable(name)}/: it is not train, val or test" for name in skipped]
        keep = (depth > 2) & np.array([each[0] not in skipped for each in parts], bool)
        layout = f"archive of class folders with {' and '.join(split_order(set(splits)))}"
    else:
        keep, layout = depth > 1, "archive of class folders"
    rows = np.flatnonzero(keep)
    stray = [
        listing.names[row]
        for row in np.flatnonzero(~keep & (depth <= (2 if splits else 1))).tolist()
    ]
    notices += stray_notices(stray, "outside of class folders")
    if not len(rows):
        raise SourceError(
            "the archive has no class folders",
            file=path,
            hint=(
                "pack the images as CLASS/IMAGE, or set --unlabelled; to use the shards of another"
                " tool as they are, run `dataprep index`"
            ),
        )
    order = split_order(set(splits)) if splits else ("train",)
    split_of = {folder: order.index(split) for split, folder in splits.items()}
    names = pa.array([parts[row][1 if splits else 0] for row in rows.tolist()], pa.large_string())
    classes = options.classes or tuple(sorted(set(names.to_pylist())))
    label, _ = number_labels(
        names, classes, lambda row: (f"{path}/{listing.names[int(rows[row])]}", None)
    )
    split = np.array([split_of[parts[row][0]] if splits else 0 for row in rows.tolist()], np.int8)
    in_order = np.lexsort((np.arange(len(rows)), label, split))
    return archive_source(
        listing, rows[in_order], layout=layout, classes=classes, splits=order, label=label[in_order],
        split=split[in_order], notices=notices,
    )  # fmt: skip


def list_images_of(path: str) -> Listing:
    """List the images in an archive.

    Raises:
        SourceError: it is damaged, is a shard of a WebDataset, or no image of it can be read.

    """
    listing = list_archive(path)
    _refuse_shard(listing)
    if listing.rejected and not listing.names:
        first = listing.rejected[0]
        message = (
            f"no image of the archive can be read; the first is {printable(first['source'])}:"
            f" {first['detail']}"
        )
        raise SourceError(message, file=path, hint="copy the archive again, or make it again")
    return listing


def archive_source(
    listing: Listing,
    rows: np.ndarray,
    *,
    layout: str,
    classes: tuple[str, ...],
    splits: tuple[str, ...],
    label: np.ndarray,
    split: np.ndarray,
    notices: Sequence[str],
) -> Source:
    """Return a source of some images of an archive.

    Args:
        listing: the archive.
        rows: the images, int64 [n].
        layout: as in `Source`.
        classes: as in `Source`.
        splits: as in `Source`.
        label: int32 [n].
        split: int8 [n].
        notices: as in `Source`.

    """
    root, name = os.path.split(listing.path)
    stamp = np.tile(np.array(listing.stamp, np.int64), (len(rows), 1))
    take = pa.array(rows)
    names = pa.array([f"{name}/{member}" for member in listing.names], pa.large_string())
    return Source(
        root=root or ".",
        layout=layout,
        classes=classes,
        splits=splits,
        path=names.take(take),
        label=label,
        split=split,
        size=np.array(listing.size, np.int64)[rows],
        extra=pa.table({}),
        notices=tuple(notices),
        rejected=tuple(listing.rejected),
        stamp=stamp,
        location=location_table(
            pa.repeat(pa.scalar(name, pa.large_string()), len(rows)),
            listing.reader,
            position=np.array(listing.position, np.int64)[rows],
            length=np.array(listing.length, np.int64)[rows],
            key=pa.array(listing.crc, pa.binary()).take(take),
        ),
    )


def top_folder(names: Sequence[str]) -> str:
    """Return the folders that contain everything and are neither a class nor a split, with a slash at the end."""
    top = ""
    while True:
        parts = [name[len(top) :].split("/", 2) for name in names]
        first = {each[0] for each in parts}
        if len(first) != 1 or min(map(len, parts)) < 3 or parts[0][0].lower() in SPLIT_ALIASES:
            return top
        top += f"{parts[0][0]}/"


def _split_folders(path: str, parts: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return the folder of each split, by the rules for folders on disk."""
    folders = sorted({each[0] for each in parts if len(each) > 1})
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    deep = {each[0] for each in parts if len(each) > 2}
    if not any(name in deep for name in named):
        return {}
    return map_splits(path, [name for name in named if name in deep], SPLIT_ALIASES)


def _refuse_shard(listing: Listing) -> None:
    stems = {
        os.path.splitext(name)[0]
        for name in listing.others
        if name.lower().endswith(_SHARD_SUFFIXES)
    }
    if listing.names and any(os.path.splitext(name)[0] in stems for name in listing.names[:1000]):
        raise SourceError(
            "the archive is a shard of a WebDataset: files with labels or captions are beside the"
            " images",
            file=listing.path,
            hint="run `dataprep index` on the folder of the shards, and give that folder",
        )
