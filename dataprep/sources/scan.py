"""Find images in folders, of a file system or an object store. No image is opened."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.sources.columns import concat
from dataprep.sources.entries import IMAGE_SUFFIXES, is_folder, scan_folder
from dataprep.sources.walk import FolderId, Skip, Visit, identify
from manifests.errors import SourceError
from manifests.process.text import plural, printable

#: How many skipped links, and other folders, to name, each in a message of its own.
MAX_FOLDER_NOTICES = 5


class Scan:
    """Collects the images of folders, one split after the other.

    Attributes:
        root: folder that paths are relative to.
        rejected: rows for ``rejected.jsonl``: files whose names are not valid UTF-8.
        folders: the folders that were visited, and those above them up to `root`.

    """

    def __init__(self, root: str, skip: Skip | None = None) -> None:
        self.root = root
        self._skip = skip
        self.rejected: list[dict[str, str]] = []
        self.folders: set[FolderId] = {identify(root)}
        self._paths: list[pa.Array] = []
        self._stats: list[NDArray[np.int64]] = []
        self._skipped: Counter[str] = Counter()
        self._links: list[str] = []
        self._left_out: list[str] = []

    def add(self, *folders: str) -> list[int]:
        """List the images in the folders of a split and in their subfolders, sorted by path.

        Return their numbers.

        Each real folder is visited once, however many links lead to it: by its real path if that is
        in one of the folders, else by the first link in sorted order.
        """
        visit = Visit(self.root, folders, self._skip)
        self.folders |= visit.run()
        self.rejected += visit.rejected
        self._skipped += visit.skipped
        self._links += visit.notices
        self._left_out += visit.left_out
        for images in visit.images:
            images.sort()
            if images:
                paths, *stats = zip(*images, strict=True)
                self._paths.append(pa.array(paths, pa.large_string()))
                self._stats.append(np.array(stats, np.int64).T)
        return [len(images) for images in visit.images]

    @property
    def path(self) -> pa.Array:
        """Paths of all images, large_string [n], in the order in which folders were added."""
        return concat(self._paths)

    @property
    def size(self) -> NDArray[np.int64]:
        """File sizes in bytes, int64 [n]; `UNREADABLE` if a size is not known."""
        return self._all_stats[:, 0]

    @property
    def stamp(self) -> NDArray[np.int64]:
        """Modification times in ns and inodes, int64 [n, 2]; see `Source.stamp`."""
        return self._all_stats[:, 1:]

    @property
    def _all_stats(self) -> NDArray[np.int64]:
        return np.concatenate([*self._stats, np.empty((0, 3), np.int64)])

    @property
    def notices(self) -> list[str]:
        """Messages about files, folders and links that were skipped."""
        notices = [
            *_some(self._left_out, "skipped {} of masks or annotations", "more folder"),
            *_some(self._links, "skipped {} to folders that are visited already", "more link"),
        ]
        if not self._skipped:
            return notices
        counts = ", ".join(f"{suffix} {count:,}" for suffix, count in self._skipped.most_common(8))
        return [*notices, f"skipped files that are not images by name: {counts}"]


def _some(notices: Sequence[str], others: str, noun: str) -> list[str]:
    """Return the first messages, and one about the others."""
    more = len(notices) - MAX_FOLDER_NOTICES
    return [
        *notices[:MAX_FOLDER_NOTICES],
        *([others.format(plural(more, noun))] if more > 0 else []),
    ]


def list_folders(path: str) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    return [name for name in _folder_names(path) if not name.startswith(".")]


def hidden_notices(root: str, folders: Iterable[str] = ("",)) -> list[str]:
    """Return a message about hidden folders directly in these folders. Empty if there are none."""
    hidden = [
        f"{os.path.join(folder, name)}/"
        for folder in folders
        for name in _folder_names(os.path.join(root, folder))
        if name.startswith(".")
    ]
    return [f"skipped {plural(len(hidden), 'hidden folder')}: {_first(hidden)}"] if hidden else []


def _folder_names(path: str) -> list[str]:
    with scan_folder(path) as entries:
        return sorted(entry.name for entry in entries if is_folder(entry))


def has_folders(path: str) -> bool:
    """Return whether `path` is a folder that contains folders."""
    if not storage.is_folder(path):
        return False
    with scan_folder(path) as entries:
        return any(map(is_folder, entries))


def list_images(root: str, folder: str = "") -> list[str]:
    """Return the sorted paths of images directly in a folder, relative to `root`."""
    with scan_folder(os.path.join(root, folder)) as entries:
        names = [
            os.path.join(folder, entry.name)
            for entry in entries
            if os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES and not is_folder(entry)
        ]
    return sorted(names)


def map_splits(src: str, folders: Sequence[str], split_of: Mapping[str, str]) -> dict[str, str]:
    """Return the folder of each split (split -> folder).

    Args:
        src: the folder that contains `folders`, for the error.
        folders: folder names; each is a key of `split_of` in lower case.
        split_of: the split of each known folder name.

    Raises:
        SourceError: two folders are the same split.

    """
    splits: dict[str, str] = {}
    for name in folders:
        other = splits.setdefault(split_of[name.lower()], name)
        if other != name:
            raise SourceError(
                f"{other}/ and {name}/ are two names of the same split",
                file=src,
                hint="rename or merge the folders",
            )
    return splits


def stray_notices(images: Sequence[str], where: str) -> list[str]:
    """Return a message about images that were skipped because of their location, `where`.

    Empty if there are none.
    """
    return [f"skipped {plural(len(images), 'image')} {where}: {_first(images)}"] if images else []


def _first(names: Sequence[str]) -> str:
    return printable(names[0]) + (", ..." if len(names) > 1 else "")
