"""Walk through the folders of a split: each real folder once, however many links lead to it."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from dataprep import storage
from dataprep.sources.columns import NO_STATS, stats_of
from dataprep.sources.entries import (
    IMAGE_SUFFIXES,
    is_folder,
    is_utf8,
    prefetch_folders,
    scan_folder,
    suffix_of,
)
from manifests.process.text import printable
from manifests.remote import is_url

#: Device and inode of a folder.
FolderId = tuple[int, int]

#: Which of the folders in a folder not to visit: name -> the reason.
Skip = Callable[[Sequence[str]], dict[str, str]]

#: An image: path, size in bytes, modification time in ns, inode.
Image = tuple[str, int, int, int]


class Visit:
    """One walk through the folders of a split.

    Real folders come first, then links to folders, in sorted order.

    Attributes:
        images: for each of the folders, its images.
        rejected: as in `Scan`.
        skipped: number of skipped files by suffix.
        notices: messages about skipped links.
        left_out: messages about the folders that `skip` named.

    """

    def __init__(self, root: str, folders: Sequence[str], skip: Skip | None = None) -> None:
        self.images: list[list[Image]] = [[] for _ in folders]
        self.rejected: list[dict[str, str]] = []
        self.skipped: Counter[str] = Counter()
        self.notices: list[str] = []
        self.left_out: list[str] = []
        self._root, self._is_remote = root, is_url(root)
        self._folders = folders
        self._skip = skip
        self._seen: dict[FolderId, str] = {}
        self._above: set[FolderId] = set()
        self._links: list[tuple[str, int]] = []

    def run(self) -> set[FolderId]:
        """Walk; return the folders that were visited, and those above them."""
        self._above = {
            identify(os.path.join(self._root, parent)) for parent in _parents(self._folders)
        }
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
            identity = identify(os.path.join(self._root, folder))
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

    def _list(self, folder: str, images: list[Image], number: int) -> list[str]:
        """Append the images of one folder; return its subfolders to visit now.

        Links to folders are visited later.
        """
        is_link: dict[str, bool] = {}
        with scan_folder(os.path.join(self._root, folder)) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith("."):
                    self.skipped["hidden folders" if is_folder(entry) else "hidden files"] += 1
                elif not is_utf8(path):
                    self._reject(
                        path, "bad-name", "the file name is not valid UTF-8; rename the file"
                    )
                elif self._is_remote and {"?", "#"} & {*entry.name}:
                    self._reject(
                        path,
                        "bad-name",
                        "the name contains ? or #, which end the path of a URL; rename it",
                    )
                elif is_folder(entry):
                    is_link[entry.name] = entry.is_symlink()
                elif (suffix := suffix_of(entry.name)) not in IMAGE_SUFFIXES:
                    self.skipped[suffix or "no extension"] += 1
                else:
                    images.append((path, *_stats_of(entry)))
        return self._subfolders(folder, is_link, number)

    def _subfolders(self, folder: str, is_link: Mapping[str, bool], number: int) -> list[str]:
        """Return the paths of the real folders in a folder that are not to be skipped, and note the links."""
        reasons = self._skip(sorted(is_link)) if self._skip else {}
        self.left_out += skipped_notices(
            {os.path.join(folder, name): why for name, why in reasons.items()}
        )
        subfolders = []
        for name in is_link.keys() - reasons.keys():
            path = os.path.join(folder, name)
            if is_link[name]:
                heapq.heappush(self._links, (path, number))
            else:
                subfolders.append(path)
        return subfolders

    def _reject(self, path: str, reason: str, detail: str) -> None:
        escaped = os.fsencode(path).decode("utf-8", "backslashreplace")
        self.rejected.append({"source": escaped, "reason": reason, "detail": detail})


def skipped_notices(reasons: Mapping[str, str]) -> list[str]:
    """Return a message about each folder that was skipped for a reason."""
    return [f"skipped {printable(folder)}/, {why}" for folder, why in reasons.items()]


def identify(folder: str) -> FolderId:
    """Return what is the same for all paths of a folder."""
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


def _stats_of(entry: storage.Entry) -> tuple[int, int, int]:
    try:
        return stats_of(entry.stat())
    except OSError:
        return NO_STATS
