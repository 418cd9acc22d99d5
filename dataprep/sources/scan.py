"""Find images in folders, of a file system or an object store. No image is opened."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.sources.columns import NO_STATS, concat, stats_of
from manifests.errors import SourceError
from manifests.remote import is_url
from manifests.text import plural, printable

#: Files with other suffixes are skipped, and reported in a notice. The content of a file decides its actual format.
IMAGE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".avif"),
        *(".heic", ".heif", ".jp2", ".j2k", ".jxl", ".ppm", ".pgm"),
    )
)


#: How many skipped links to name, each in a message of its own.
MAX_LINK_NOTICES = 5

#: Device and inode of a folder.
FolderId = tuple[int, int]

#: An image: path, size in bytes, modification time in ns, inode.
_Image = tuple[str, int, int, int]


class Scan:
    """Collects the images of folders, one split after the other.

    Attributes:
        root: folder that paths are relative to.
        rejected: rows for ``rejected.jsonl``: files whose names are not valid UTF-8.
        folders: the folders that were visited, and those above them up to `root`.

    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.rejected: list[dict[str, str]] = []
        self.folders: set[FolderId] = {_identify(root)}
        self._paths: list[pa.Array] = []
        self._stats: list[NDArray[np.int64]] = []
        self._skipped: Counter[str] = Counter()
        self._links: list[str] = []

    def add(self, *folders: str) -> list[int]:
        """List the images in the folders of a split and in their subfolders, sorted by path; return their numbers.

        Each real folder is visited once, however many links lead to it: by its real path if that is in one of the
        folders, else by the first link in sorted order.
        """
        visit = _Visit(self.root, folders)
        self.folders |= visit.run()
        self.rejected += visit.rejected
        self._skipped += visit.skipped
        self._links += visit.notices
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
        """Messages about files and links that were skipped."""
        notices = self._links[:MAX_LINK_NOTICES]
        if more := len(self._links) - len(notices):
            notices.append(f"skipped {plural(more, 'more link')} to folders that are visited already")
        if not self._skipped:
            return notices
        counts = ", ".join(f"{suffix} {count:,}" for suffix, count in self._skipped.most_common(8))
        return [*notices, f"skipped files that are not images by name: {counts}"]


class _Visit:
    """One walk through the folders of a split. Real folders come first, then links to folders, in sorted order.

    Attributes:
        images: for each of the folders, its images.
        rejected: as in `Scan`.
        skipped: number of skipped files by suffix.
        notices: messages about skipped links.

    """

    def __init__(self, root: str, folders: Sequence[str]) -> None:
        self.images: list[list[_Image]] = [[] for _ in folders]
        self.rejected: list[dict[str, str]] = []
        self.skipped: Counter[str] = Counter()
        self.notices: list[str] = []
        self._root = root
        self._folders = folders
        self._seen: dict[FolderId, str] = {}
        self._above: set[FolderId] = set()
        self._links: list[tuple[str, int]] = []

    def run(self) -> set[FolderId]:
        """Walk; return the folders that were visited, and those above them."""
        self._above = {_identify(os.path.join(self._root, parent)) for parent in _parents(self._folders)}
        prefetch_folders(os.path.join(self._root, folder) for folder in self._folders)
        for number, folder in enumerate(self._folders):
            if os.path.islink(os.path.join(self._root, folder)):
                heapq.heappush(self._links, (folder, number))
            else:
                self._walk(folder, number)
        while self._links:
            self._walk(*heapq.heappop(self._links))
        return {*self._seen, *self._above}

    def _walk(self, folder: str, number: int) -> None:
        """Visit a folder and its real subfolders, without recursion: folders may be nested thousands deep."""
        pending = [folder]
        while pending:
            folder = pending.pop()
            identity = _identify(os.path.join(self._root, folder))
            if other := self._reason_to_skip(folder, identity):
                self.notices.append(f"skipped {printable(folder)}: it is {other}")
                continue
            self._seen[identity] = folder
            subfolders = self._list(folder, self.images[number], number)
            pending += sorted(subfolders, reverse=True)

    def _reason_to_skip(self, folder: str, identity: FolderId) -> str:
        first = self._seen.get(identity)
        if identity in self._above or first == "" or (first and folder.startswith(f"{first}/")):
            return "a link to a folder above it"
        return f"the same folder as {printable(first)}" if first else ""

    def _list(self, folder: str, images: list[_Image], number: int) -> list[str]:
        """Append the images of one folder; return its subfolders. Links to folders are visited later."""
        subfolders = []
        with scan_folder(os.path.join(self._root, folder)) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith("."):
                    self.skipped["hidden folders" if is_folder(entry) else "hidden files"] += 1
                elif not is_utf8(path):
                    self._reject(path, "bad-name", "the file name is not valid UTF-8; rename the file")
                elif is_folder(entry):
                    if entry.is_symlink():
                        heapq.heappush(self._links, (path, number))
                    else:
                        subfolders.append(path)
                elif (suffix := suffix_of(entry.name)) not in IMAGE_SUFFIXES:
                    self.skipped[suffix or "no extension"] += 1
                else:
                    images.append((path, *_stats_of(entry)))
        return subfolders

    def _reject(self, path: str, reason: str, detail: str) -> None:
        escaped = os.fsencode(path).decode("utf-8", "backslashreplace")
        self.rejected.append({"source": escaped, "reason": reason, "detail": detail})


def _identify(folder: str) -> FolderId:
    if is_url(folder):  # it has no links, so its name identifies it
        return -1, hash(folder.rstrip("/"))
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _parents(folders: Sequence[str]) -> set[str]:
    """Return the paths above all folders, with the empty path for the root."""
    above: set[str] = set()
    pending = [os.path.dirname(folder) for folder in folders if folder]
    while pending:
        parent = pending.pop()
        if parent not in above:
            above.add(parent)
            pending += [os.path.dirname(parent)] if parent else []
    return above


@contextmanager
def scan_folder(path: str) -> Iterator[Iterable[storage.Entry]]:
    """Iterate over the files and folders in a folder, as `os.scandir` does."""
    if is_url(path):
        yield storage.list_folder(path)
    else:
        with os.scandir(path) as entries:  # large folders are never in memory as a whole
            yield entries


def prefetch_folders(paths: Iterable[str]) -> None:
    """Begin to list the folders of an object store that are about to be scanned."""
    urls = [path for path in paths if is_url(path)]
    if urls:
        from dataprep.storage.remote import REMOTE

        REMOTE.prefetch(urls)


def is_folder(entry: storage.Entry) -> bool:
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


def suffix_of(name: str) -> str:
    """Return the extension of a file name in lower case, with its dot."""
    # The same as `os.path.splitext` for names that do not start with a dot, at a third of the cost.
    return name[name.rfind(".") :].lower() if "." in name else ""


def _stats_of(entry: storage.Entry) -> tuple[int, int, int]:
    try:
        return stats_of(entry.stat())
    except OSError:
        return NO_STATS


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
                f"{other}/ and {name}/ are two names of the same split", file=src, hint="rename or merge the folders"
            )
    return splits


def stray_notices(images: Sequence[str], where: str) -> list[str]:
    """Return a message about images that were skipped because of their location, `where`. Empty if there are none."""
    return [f"skipped {plural(len(images), 'image')} {where}: {_first(images)}"] if images else []


def _first(names: Sequence[str]) -> str:
    return printable(names[0]) + (", ..." if len(names) > 1 else "")
