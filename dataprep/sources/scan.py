"""Find images in folders with `os.scandir`. No image is opened."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.sources.columns import concat
from manifests.errors import SourceError
from manifests.schema import UNREADABLE
from manifests.text import plural, printable

#: Files with other suffixes are skipped, and reported in a notice. The content of a file decides its actual format.
IMAGE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".avif"),
        *(".heic", ".heif", ".jp2", ".j2k", ".jxl", ".ppm", ".pgm"),
    )
)


class Scan:
    """Collects the images of folders, one folder after the other.

    Attributes:
        root: folder that paths are relative to.
        rejected: rows for ``rejected.jsonl``: files whose names are not valid UTF-8.

    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.rejected: list[dict[str, str]] = []
        self._paths: list[pa.Array] = []
        self._sizes: list[NDArray[np.int64]] = []
        self._skipped: Counter[str] = Counter()
        self._notices: list[str] = []

    def add(self, folder: str) -> int:
        """List all images in a folder and its subfolders, sorted by path; return their number."""
        images: list[tuple[str, int]] = []
        self._walk(folder, [], images)
        images.sort()
        if images:
            self._paths.append(pa.array([path for path, _ in images], pa.large_string()))
            self._sizes.append(np.array([size for _, size in images], np.int64))
        return len(images)

    @property
    def path(self) -> pa.Array:
        """Paths of all images, large_string [n], in the order in which folders were added."""
        return concat(self._paths)

    @property
    def size(self) -> NDArray[np.int64]:
        """File sizes in bytes, int64 [n]; `UNREADABLE` if a size is not known."""
        return np.concatenate([*self._sizes, np.empty(0, np.int64)])

    @property
    def notices(self) -> list[str]:
        """Messages about files and links that were skipped."""
        if not self._skipped:
            return self._notices
        counts = ", ".join(f"{suffix} {count:,}" for suffix, count in self._skipped.most_common(8))
        return [*self._notices, f"skipped files that are not images by name: {counts}"]

    def _walk(self, folder: str, parents: list[tuple[int, int]], images: list[tuple[str, int]]) -> None:
        status = os.stat(os.path.join(self.root, folder))
        here = (status.st_dev, status.st_ino)
        if here in parents:
            self._notices.append(f"skipped {printable(folder)}: it is a link to a folder above it")
            return
        with os.scandir(os.path.join(self.root, folder)) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith("."):
                    self._skipped["hidden files"] += 1
                elif not is_utf8(path):
                    self._reject(path, "bad-name", "the file name is not valid UTF-8; rename the file")
                elif is_folder(entry):
                    self._walk(path, [*parents, here], images)
                elif (suffix := _suffix_of(entry.name)) not in IMAGE_SUFFIXES:
                    self._skipped[suffix or "no extension"] += 1
                else:
                    images.append((path, _size_of(entry)))

    def _reject(self, path: str, reason: str, detail: str) -> None:
        escaped = os.fsencode(path).decode("utf-8", "backslashreplace")
        self.rejected.append({"source": escaped, "reason": reason, "detail": detail})


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_utf8(name: str) -> bool:
    """Return whether a file name is valid UTF-8, so that it can be stored as text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _suffix_of(name: str) -> str:
    # The same as `os.path.splitext` for names that do not start with a dot, at a third of the cost.
    return name[name.rfind(".") :].lower() if "." in name else ""


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return UNREADABLE


def list_folders(path: str) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    return sorted(entry.name for entry in os.scandir(path) if is_folder(entry) and not entry.name.startswith("."))


def has_folders(path: str) -> bool:
    """Return whether `path` is a folder that contains folders."""
    return os.path.isdir(path) and any(map(is_folder, os.scandir(path)))


def list_images(root: str, folder: str = "") -> list[str]:
    """Return the sorted paths of images directly in a folder, relative to `root`."""
    with os.scandir(os.path.join(root, folder)) as entries:
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
                f"{other}/ and {name}/ are two names of the same split", file=src, hint="rename or merge the folders"
            )
    return splits


def stray_notices(images: Sequence[str], where: str) -> list[str]:
    """Return a message about images that were skipped because of their location, `where`. Empty if there are none."""
    return [f"skipped {plural(len(images), 'image')} {where}: {_first(images)}"] if images else []


def _first(names: Sequence[str]) -> str:
    return printable(names[0]) + (", ..." if len(names) > 1 else "")
