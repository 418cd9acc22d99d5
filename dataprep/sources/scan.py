"""Folders of images, of a file system or an object store. No image is opened."""

from __future__ import annotations

import heapq
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.sources.base import (
    Integers,
    Names,
    RejectedRow,
    Source,
    concat,
    first_names,
    numbered,
    sample_table,
    text_array,
)
from manifests.errors import SourceError
from manifests.files import IMAGE_SUFFIXES, VIDEO_SUFFIXES, mounted_at
from manifests.json_members import is_unicode
from manifests.process.text import agree, plural
from manifests.remote.url import is_url
from manifests.schema import SPLIT_ALIASES, SPLIT_WORDS, UNREADABLE, split_order

if TYPE_CHECKING:
    pass


def is_folder(entry: storage.Entry) -> bool:
    """Return whether an entry is a folder or a link to one; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


#: Folders that file systems and programs put beside images, and their thumbnails, in lower case.
_JUNK = frozenset(
    [
        "__macosx",
        "@eadir",
        "@tmp",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "recycler",
        "system volume information",
        "lost+found",
        "__pycache__",
        "thumbs.db",
        "desktop.ini",
    ]
)
_THUMBNAIL = "_THUMB_"


def is_junk(name: str) -> bool:
    """Return whether a file or folder is hidden, or was added by a file system or a program."""
    return name.startswith(".") or name.lower() in _JUNK or _THUMBNAIL in name


def _junk_name(name: str, folder: bool) -> str:
    """Return how a message calls such a file or folder."""
    if _THUMBNAIL in name:
        return f"*{_THUMBNAIL}*"
    if name.startswith("."):
        return "hidden folders" if folder else "hidden files"
    return f"{name}/" if folder else name


def suffix_of(name: str) -> str:
    """Return the extension of a file name in lower case, with its dot."""
    # The same as `os.path.splitext` for names that do not start with a dot, at a third of the cost.
    return name[name.rfind(".") :].lower() if "." in name else ""


def is_dicom(path: str, suffix: str) -> bool:
    """Return whether a local file is a DICOM whose name has no extension, or is a UID: 1.2.840.1."""
    if suffix.strip(".0123456789") or (is_url(path) and not mounted_at(path)):
        return False
    with suppress(OSError):
        # Opening a named pipe would block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(handle, 4, 128) == b"DICM"
        finally:
            os.close(handle)
    return False


#: Suffixes of the files that scans look for.
_sought: ContextVar[frozenset[str]] = ContextVar("sought", default=IMAGE_SUFFIXES)


@contextmanager
def seeking(suffixes: frozenset[str]) -> Iterator[None]:
    """Let scans look for files with other suffixes than images, until the end of the block."""
    token = _sought.set(suffixes)
    try:
        yield
    finally:
        _sought.reset(token)


def _is_image(path: str, suffix: str) -> bool:
    """Return whether scans look for a file."""
    sought = _sought.get()
    return suffix in sought or (sought is IMAGE_SUFFIXES and is_dicom(path, suffix))


#: `stats_of` a file that cannot be read.
NO_STATS = (UNREADABLE, -1, -1)


def stats_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return size, modification time in ns, and inode.

    The inode without its highest bit, to fit into int64.
    """
    return status.st_size, status.st_mtime_ns, status.st_ino & 0x7FFFFFFFFFFFFFFF


# --- scans ----------------------------------------------------------------------------------------


#: Device and inode of a folder.
FolderId = tuple[int, int]

#: Which of the folders in a folder not to visit: name -> the reason.
Skip = Callable[[Names], dict[str, str]]

#: An image: path, size in bytes, modification time in ns, inode.
Image = tuple[str, int, int, int]

#: How many skipped links, and other folders, to name, each in a message of its own.
MAX_FOLDER_NOTICES = 5


class Scan:
    """Collects the images of folders, one split after the other.

    Each real folder of a split is visited once, however many links lead to it: by its real path if
    that is in one of the folders, else by the first link in sorted order.

    Attributes:
        root: folder that paths are relative to.
        rejected: rows for ``rejected.jsonl``: files whose names are not valid UTF-8.
        folders: the folders that were visited, and those above them up to `root`.
        label_files: size, modification time and inode of the files with labels, by path.

    """

    def __init__(self, root: str, skip: Skip | None = None, labels: Collection[str] = ()) -> None:
        """Prepare a scan of folders in `root`.

        Args:
            root: folder that paths are relative to.
            skip: names the folders not to visit.
            labels: suffixes of the files with labels, which are collected, too.

        """
        self.root = root
        self.label_files: dict[str, tuple[int, int, int]] = {}
        self._labels = labels
        # Images whose names need no look at each character.
        self._plain_suffixes = _sought.get().difference(labels)
        #: Whether a path is the path of a URL, which ``?`` and ``#`` end.
        self._in_url = is_url(root) and not mounted_at(root)
        if self._in_url:
            self._plain_suffixes = frozenset()
        self.rejected: list[RejectedRow] = []
        self.folders = {storage.identify(root)}
        self._skip = skip
        self._paths: list[pa.Array] = []
        self._stats = [np.empty((0, 3), np.int64)]
        # What was skipped: files by suffix, folders that `skip` named, and links.
        self._skipped: Counter[str] = Counter()
        self._left_out: list[str] = []
        self._skipped_links: list[str] = []
        # The walk through the folders of one split.
        self._seen: dict[FolderId, str] = {}
        self._links: list[tuple[str, list[Image]]] = []

    def add(self, *folders: str) -> list[int]:
        """List the images in the folders of a split and in their subfolders, sorted by path.

        Return their numbers.
        """
        # The folders above count as seen: a link to one of them would lead back to the split.
        self._seen = {}
        for folder in filter(None, folders):
            for above in ("", *folders_above(folder)):
                self._seen[storage.identify(os.path.join(self.root, above))] = ""
        images: list[list[Image]] = [[] for _ in folders]
        paths = [os.path.join(self.root, folder) for folder in folders]
        storage.prefetch_folders(paths)
        # Real folders come first, then links to folders, in sorted order.
        for folder, path, own in zip(folders, paths, images, strict=True):
            if os.path.islink(path):
                heapq.heappush(self._links, (folder, own))
            else:
                self._walk(folder, own)
        while self._links:
            self._walk(*heapq.heappop(self._links))
        self.folders |= self._seen.keys()
        for found in images:
            found.sort()
            if found:
                names, *stats = zip(*found, strict=True)
                self._paths.append(text_array(names))
                self._stats.append(np.array(stats, np.int64).T)
        return [*map(len, images)]

    def _walk(self, folder: str, images: list[Image]) -> None:
        """Visit a folder and its real subfolders, without recursion: folders may be nested thousands deep.

        Args:
            folder: the folder, relative to `root`.
            images: the images that are found are added to it.

        """
        pending = [folder]
        while pending:
            folder = pending.pop()
            identity = storage.identify(os.path.join(self.root, folder))
            first = self._seen.get(identity)
            if first is None:
                self._seen[identity] = folder
                pending += sorted(self._list(folder, images), reverse=True)
                continue
            why = f"the same folder as {first}"
            if f"{folder}/".startswith(os.path.join(first, "")):
                why = "a link to a folder above it"
            self._skipped_links.append(f"skipped {folder}: it is {why}")

    def _list(self, folder: str, images: list[Image]) -> list[str]:
        """Note the images of one folder; return its subfolders to visit now.

        Links to folders are visited later.
        """
        is_link = {}
        above = f"{folder}/" if folder else ""
        with storage.scan_folder(os.path.join(self.root, folder)) as entries:
            for entry in entries:
                name = entry.name
                path = above + name
                suffix = suffix_of(name)
                # Most files are images with plain names, and each call for them shows in the speed.
                if (
                    suffix in self._plain_suffixes
                    and path.isascii()
                    and name[0] != "."
                    and _THUMBNAIL not in name
                    and not is_folder(entry)
                ):
                    images.append((path, *entry_stats(entry)))
                elif is_junk(name):
                    self._skipped[_junk_name(name, is_folder(entry))] += 1
                elif problem := self._problem(path, name):
                    escaped = os.fsencode(path).decode("utf-8", "backslashreplace")
                    row = {"source": escaped, "reason": "bad-name", "detail": problem}
                    self.rejected.append(row)
                elif is_folder(entry):
                    is_link[name] = entry.is_symlink()
                elif suffix in self._labels:
                    self.label_files[path] = entry_stats(entry)
                elif _is_image(os.path.join(self.root, path), suffix):
                    images.append((path, *entry_stats(entry)))
                else:
                    self._skipped[suffix or "no extension"] += 1
        # Links to folders wait until all real folders have been visited.
        reasons = self._skip(sorted(is_link)) if self._skip else {}
        self._left_out += skipped_notices(reasons, folder)
        subfolders = []
        for name in is_link.keys() - reasons.keys():
            path = os.path.join(folder, name)
            if is_link[name]:
                heapq.heappush(self._links, (path, images))
            else:
                subfolders.append(path)
        return subfolders

    def _problem(self, path: str, name: str) -> str:
        if not is_unicode(path):
            return "the file name is not valid UTF-8; rename the file"
        if self._in_url and ("?" in name or "#" in name):
            return "the name contains ? or #, which end the path of a URL; rename it"
        return ""

    def source(self, layout: str, splits: Names, **columns: Any) -> Source:
        """Return a source of all images, in the order in which folders were added.

        Args:
            layout: as in `Source`.
            splits: as in `Source`.
            columns: other columns, as in `sample_table`.

        """
        stats = self.stats
        return Source(
            root=self.root,
            layout=layout,
            table=sample_table(self.path, size=stats[:, 0], stamp=stats[:, 1:], **columns),
            splits=tuple(splits),
            notices=tuple(self.notices),
            rejected=tuple(self.rejected),
            folders=frozenset(self.folders),
        )

    @property
    def path(self) -> pa.Array:
        """Paths of all images, large_string [n], in the order in which folders were added."""
        return concat(self._paths)

    @property
    def stats(self) -> Integers:
        """Sizes in bytes, modification times in ns and inodes, int64 [n, 3]; see `file_stats`."""
        return np.concatenate(self._stats)

    @property
    def notices(self) -> list[str]:
        """Messages about files, folders and links that were skipped."""
        notices = _first_notices(self._left_out, "more folder", "of masks or annotations")
        notices += _first_notices(
            self._skipped_links, "more link", "to folders that are visited already"
        )
        return notices + skipped_files(self._skipped)


def _first_notices(notices: list[str], noun: str, others: str) -> list[str]:
    more = len(notices) - MAX_FOLDER_NOTICES
    if more <= 0:
        return notices
    return [*notices[:MAX_FOLDER_NOTICES], f"skipped {plural(more, noun)} {others}"]


def scan_splits(
    root: str, splits: Mapping[str, str], layout: str, skip: Skip | None = None
) -> Source:
    """Return the images in the folder of each split (split -> folder)."""
    scan, order = Scan(root, skip), split_order({*splits})
    counts = [sum(scan.add(splits[split])) for split in order]
    return scan.source(layout, order, split=numbered(counts))


def skipped_files(counts: Counter[str]) -> list[str]:
    """Return a message about files that were skipped, by their suffixes. Empty if there are none."""
    if not counts:
        return []
    shown = ", ".join(f"{suffix} {count:,}" for suffix, count in counts.most_common(8))
    if _sought.get() is not IMAGE_SUFFIXES:
        return [f"skipped files that are not videos by name: {shown}"]
    notices = [f"skipped files that are not images by name: {shown}"]
    if videos := sum(counts[suffix] for suffix in VIDEO_SUFFIXES):
        notices.append(
            f"{plural(videos, 'video')} beside the images {agree(videos, 'is', 'are')} not"
            " converted; --fps 5, --every 8 or --all-frames converts frames of videos instead"
        )
    return notices


def skipped_notices(reasons: Mapping[str, str], above: str = "") -> list[str]:
    """Return a message about each folder that was skipped for a reason."""
    notices = []
    for folder, why in reasons.items():
        notices.append(f"skipped {os.path.join(above, folder)}/, {why}")
    return notices


def folders_above(path: str) -> list[str]:
    """Return the folders that contain a file or folder: of ``a/b/1.jpg``, ``a`` and ``a/b``."""
    return [*accumulate(path.split("/")[:-1], "{}/{}".format)]


def entry_stats(entry: storage.Entry) -> tuple[int, int, int]:
    """Return size, modification time in ns and inode of a file; `NO_STATS` of a broken link, for example."""
    try:
        return stats_of(entry.stat())
    except OSError:
        return NO_STATS


def list_folders(path: str) -> list[str]:
    """Return the sorted names of the folders in a folder, without `is_junk`."""
    return [name for name in _folder_names(path) if not is_junk(name)]


def hidden_notices(root: str, folders: Iterable[str] = ("",)) -> list[str]:
    """Return a message about `is_junk` folders directly in these folders. Empty if there are none."""
    hidden = []
    for folder in folders:
        for name in _folder_names(os.path.join(root, folder)):
            if is_junk(name):
                hidden.append(f"{os.path.join(folder, name)}/")
    is_hidden = all(os.path.basename(name[:-1]).startswith(".") for name in hidden)
    return _skipped(hidden, "hidden folder" if is_hidden else "hidden or system folder")


def _folder_names(path: str) -> list[str]:
    with storage.scan_folder(path) as entries:
        return sorted(entry.name for entry in entries if is_folder(entry))


def has_folders(path: str) -> bool:
    """Return whether `path` is a folder that contains folders."""
    return storage.is_folder(path) and bool(list_folders(path))


class Content(NamedTuple):
    """What is directly in a folder, beside `is_junk`.

    Attributes:
        has_images: whether there is an image. Then the rest is not known.
        folders: the names of the folders, sorted.
        has_files: whether there are other files.

    """

    has_images: bool
    folders: Names = ()
    has_files: bool = False


def look_into(path: str) -> Content:
    """Look into a folder, up to its first image."""
    folders, has_files = [], False
    with storage.scan_folder(path) as entries:
        for entry in entries:
            name = entry.name
            if is_junk(name):
                continue
            if is_folder(entry):
                folders.append(name)
            elif _is_image(os.path.join(path, name), suffix_of(name)):
                return Content(has_images=True)
            else:
                has_files = True
    return Content(has_images=False, folders=sorted(folders), has_files=has_files)


#: Folders to look into for an image.
_MAX_VISITED = 10_000


def has_images_below(path: str, folders: Names) -> bool:
    """Return whether one of some folders in a folder, or a folder below it, contains an image."""
    pending = [os.path.join(path, name) for name in reversed(folders)]
    for _ in range(_MAX_VISITED):
        if not pending:
            return False
        folder = pending.pop()
        content = look_into(folder)
        if content.has_images:
            return True
        for name in reversed(content.folders):
            pending.append(os.path.join(folder, name))
    return bool(pending)


def list_images(root: str, folder: str = "") -> list[str]:
    """Return the sorted paths of images directly in a folder, relative to `root`."""
    names = []
    with storage.scan_folder(os.path.join(root, folder)) as entries:
        for entry in entries:
            name = entry.name
            if is_junk(name) or is_folder(entry):
                continue
            if _is_image(os.path.join(root, folder, name), suffix_of(name)):
                names.append(os.path.join(folder, name))
    return sorted(names)


# --- names of splits ------------------------------------------------------------------------------


#: Parts of a folder name: words, also in camel case, and numbers.
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

#: A word that contains the name of a split: trainset, valimages.
_COMPOUND = re.compile(rf"({'|'.join(SPLIT_WORDS)})(set|data|dataset|images?|imgs?|pics?|split)s?")

#: Folders of splits: train, train2017, obj_train_data (of CVAT).
_SPLIT = re.compile(r"(?:obj_)?([a-z]+?)(?:_data)?[-_]?\d*")


def plain_split_of(folder: str) -> str | None:
    """Return the split that the whole name of a folder states, as of tools; `split_of` finds it in other names too."""
    match = _SPLIT.fullmatch(folder.lower())
    return SPLIT_WORDS.get(match[1]) if match else None


def split_of(name: str) -> str | None:
    """Return the split that the name of a folder means; `None` if it is the name of none, or of several."""
    found = set()
    for part in map(str.lower, _NAME_PARTS.findall(name)):
        compound = _COMPOUND.fullmatch(part)
        split = SPLIT_WORDS.get(compound[1] if compound else part)
        found.add(split)
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def exact_split(name: str) -> str | None:
    """Return the split that is called so, in any case; `None` if it is none."""
    return SPLIT_ALIASES.get(name.lower())


def map_splits(
    src: str, folders: Names, find: Callable[[str], str | None] = exact_split
) -> dict[str, str]:
    """Return the folder of each split (split -> folder).

    Args:
        src: the folder that contains `folders`, for the error.
        folders: folder names; other folders than splits are left out.
        find: returns the split that a name means.

    Raises:
        SourceError: two folders are the same split.

    """
    splits: dict[str, str] = {}
    for name in folders:
        split = find(name)
        other = splits.setdefault(split, name) if split else name
        if other != name:
            raise SourceError(
                f"{other}/ and {name}/ are two names of the same split, {split}",
                file=src,
                hint="rename or merge the folders",
            )
    return splits


def option(name: str, *parts: str) -> str:
    """Return an option with a path, as a shell takes it."""
    return f"--{name} {shlex.quote(os.path.join(*parts))}"


def stray_notices(images: Names, where: str) -> list[str]:
    """Return a message about images that were skipped because of their location, `where`.

    Empty if there are none.
    """
    return _skipped(images, "image", f" {where}")


def _skipped(names: Names, noun: str, where: str = "") -> list[str]:
    if not names:
        return []
    return [f"skipped {plural(len(names), noun)}{where}: {first_names(names, 1)}"]
