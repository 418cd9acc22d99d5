"""Files that a list or table names, of a file system or an object store. No image is opened."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.columns import Locate, row_error
from dataprep.sources.base import Integers, Names, Source, Texts, concat, sample_table, text_array
from dataprep.sources.scan import (
    NO_STATS,
    list_folders,
    list_images,
    option,
    stats_of,
    suffix_of,
)
from manifests.errors import CallError
from manifests.files import IMAGE_SUFFIXES, VIDEO_SUFFIXES, mounted_at
from manifests.json_members import shorten
from manifests.process.text import agree, plural
from manifests.remote.url import is_url, join_path, normal_path, parse_url
from manifests.schema import UNREADABLE

if TYPE_CHECKING:
    from concurrent.futures import Future


#: Parts of a path that `os.path.normpath` removes.
_NOT_NORMAL = r"(^|/)\.{0,2}(/|$)"


def normalize_paths(path: pa.Array, locate: Locate) -> pa.Array:
    """Return paths as `os.path.normpath` does, and URLs in their normal form, large_string [n].

    Raises:
        SourceError: a URL cannot be read, or may contain a credential.

    """
    if not pc.any(pc.match_substring_regex(path, _NOT_NORMAL)).as_py():
        return path
    rows = count()

    def normal(name: str) -> str:
        row = next(rows)
        try:
            if is_url(name):
                return normal_path(name)
            return os.path.normpath(name)
        except CallError as error:
            raise row_error(locate, row, error.message, error.hint) from None

    return _changed(path, normal)


def _changed(path: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """Return a column with each text changed."""
    return concat([text_array(map(change, names)) for names in _slices(path)])


#: `file_stats` stops after this many files that cannot be read: most likely, --image-root is wrong.
MAX_MISSING = 100_000


def file_stats(root: str, path: pa.Array, most: int | None = None) -> Integers:
    """Return size, modification time in ns, and inode of each file, int64 [n, 3].

    `UNREADABLE` and -1 if not a file, and after `most` such files.
    """
    most = MAX_MISSING if most is None else most
    stats = np.full((len(path), 3), NO_STATS, np.int64)
    archive = mounted_at(root)
    is_remote = (is_url(root) and not archive) or pc.any(pc.match_substring(path, "://")).as_py()
    look_up = storage.stat if archive else os.stat
    rows = enumerate(chain.from_iterable(_slices(path)))
    missing = 0
    for row, name in _fill_in_remote(stats, root, rows) if is_remote else rows:
        try:
            status = look_up(os.path.join(root, name))
        except (OSError, ValueError):
            missing += 1
            if missing > most:
                break
            continue
        if stat.S_ISREG(status.st_mode):
            stats[row] = stats_of(status)
    return stats


#: In a folder of an object store with more images than this, one listing takes fewer requests than
#: looking up each of them.
_MAX_LOOKUPS = 3

#: Requests that are under way at a time; the connections limit how many of them run.
_WINDOW = 256

#: Rows of the images of a folder, by their names.
_Rows = dict[str, list[int]]


def _fill_in_remote(
    stats: Integers, root: str, images: Iterable[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Look up images in object stores, with as few requests as possible; return the rows of local files."""
    from manifests.remote.store import open_store  # takes time, and most sources do not need it

    # The rows of each object, by the folder it is in.
    folders: defaultdict[str, _Rows] = defaultdict(dict)
    local = []
    for row, name in images:
        path = join_path(root, name)
        if is_url(path):
            folder, _, last = path.rpartition("/")
            folders[folder].setdefault(last, []).append(row)
        else:
            local.append((row, name))
    pending: deque[tuple[Future[Any], _Rows]] = deque()
    for folder, rows in folders.items():
        url = parse_url(folder)
        store = open_store(url)
        if len(rows) > _MAX_LOOKUPS and not url.is_read_only:
            pending.append((store.start_listing(), rows))
        else:
            for name in rows:
                pending.append((store.start_stat(name), rows))
        # Results are taken in the order of the requests, while others are under way.
        while len(pending) >= _WINDOW:
            _fill_in(stats, *pending.popleft())
    while pending:
        _fill_in(stats, *pending.popleft())
    return local


def _fill_in(stats: Integers, future: Future[Any], rows: _Rows) -> None:
    """Fill in the images that a request finds."""
    from dataprep.storage.remote import stat_of
    from manifests.remote.store import ObjectInfo

    try:
        result = future.result()
    except FileNotFoundError:
        return
    for info in [result] if isinstance(result, ObjectInfo) else result[1]:
        for row in rows.get(info.name, ()):
            stats[row] = stats_of(stat_of(info))


def _slices(column: pa.Array) -> Iterator[list[str]]:
    for at in range(0, len(column), 1 << 16):
        yield column.slice(at, 1 << 16).to_pylist()


def listed_source(
    root: str,
    layout: str,
    path: pa.Array,
    locate: Locate,
    splits: Names = ("train",),
    **columns: Any,
) -> Source:
    """Return the samples of a list or table, with the size and the stamp of each file.

    Args:
        root: the folder that paths are relative to.
        layout: as in `Source`.
        path: the paths, large_string [n].
        locate: returns the file and line of a row, for errors.
        splits: names of the splits.
        columns: other columns, as in `sample_table`.

    Raises:
        SourceError: an image is missing, or a path occurs twice.

    """
    path, stats, notices = _find_files(root, path, locate)
    check_paths(root, path, stats[:, 0], locate)
    table = sample_table(path, size=stats[:, 0], stamp=stats[:, 1:], **columns)
    return Source(root=root, layout=layout, table=table, splits=tuple(splits), notices=notices)


# --- paths that do not exist as they are written --------------------------------------------------


#: An absolute path of Windows.
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def _find_files(root: str, path: pa.Array, locate: Locate) -> tuple[pa.Array, Integers, Texts]:
    """Return the paths of the files that a list means, what `file_stats` returns for them, and notices.

    A path that exists is taken as it is written. Of another one, backslashes become slashes, slashes
    at the beginning are left out, and the extension is added if it has none and the folder has one
    image of this name. A name alone may be in a folder below the root.
    """
    stats = file_stats(root, path)
    missing = np.flatnonzero(stats[:, 0] == UNREADABLE)
    names = _ImageNames(root)
    if not len(missing) or names.find(path[missing[0]].as_py(), locate, int(missing[0])) is None:
        return path, stats, ()
    # The first look stops early, and the files behind that row may exist.
    if len(missing) > MAX_MISSING:
        stats = file_stats(root, path, most=len(path))
        missing = np.flatnonzero(stats[:, 0] == UNREADABLE)
    written = path.to_pylist()
    found = []
    for row in missing.tolist():
        other = names.find(written[row], locate, row)
        if other is not None:
            written[row] = other
            found.append(row)
    changed = text_array(written)
    stats[found] = file_stats(root, changed.take(pa.array(found)))
    before, after = (shown[found[0]].as_py() for shown in (path, changed))
    notice = (
        f"{plural(len(found), 'path')} {agree(len(found), 'does', 'do')} not exist as written, and"
        f" {agree(len(found), 'is', 'are')} read with slashes, below the folder of the images, and"
        f" with the extension of the file: {before} is {after}"
    )
    return changed, stats, (notice,)


#: Folders below the root in which images are looked for by their names.
_MAX_FOLDERS = 1000


class _ImageNames:
    """The names of the images in the folders that a list names, by their names without extensions."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folders: dict[str, dict[str, list[str]]] = {}
        self._below: dict[str, list[str]] | None = None

    def find(self, name: str, locate: Locate, row: int) -> str | None:
        """Return the path of the image that a path means which does not exist; `None` if none fits.

        Raises:
            SourceError: several images fit.

        """
        if is_url(name) or "\0" in name:
            return None
        plain = os.path.normpath(name.replace("\\", "/").lstrip("/"))
        if plain != name and storage.is_file(join_path(self._root, plain)):
            return plain
        folder, stem = os.path.split(plain)
        images = []
        if suffix_of(stem) not in IMAGE_SUFFIXES | VIDEO_SUFFIXES:
            images = [os.path.join(folder, each) for each in self.in_folder(folder).get(stem, [])]
        if not (images or folder):
            images = self.below().get(stem, [])
        if len(images) > 1:
            raise row_error(
                locate,
                row,
                f"image {shorten(name, 300)} can be {' or '.join(images[:2])}",
                "write the path with its folder and its extension",
            )
        return images[0] if images else None

    def below(self) -> dict[str, list[str]]:
        """Return the images in folders below the root, by their names with and without extension."""
        if self._below is None:
            self._below = {}
            pending = [""]
            with suppress(OSError, CallError):
                for folder in islice(iter(pending), _MAX_FOLDERS):
                    for name in list_folders(os.path.join(self._root, folder)):
                        pending.append(os.path.join(folder, name))
                    for path in list_images(self._root, folder) if folder else ():
                        name = os.path.basename(path)
                        for key in {name, os.path.splitext(name)[0]}:
                            self._below.setdefault(key, []).append(path)
            # In a part of the folders, a name could be unique that is not.
            if len(pending) > _MAX_FOLDERS:
                self._below = {}
        return self._below

    def in_folder(self, folder: str) -> dict[str, list[str]]:
        """Return the images in a folder; none if it cannot be listed."""
        if folder not in self._folders:
            images = self._folders[folder] = {}
            # A web server has no folders that could be listed.
            with suppress(OSError, CallError):
                for image in list_images(self._root, folder):
                    name = os.path.basename(image)
                    images.setdefault(os.path.splitext(name)[0], []).append(name)
        return self._folders[folder]


def listed_files(root: str, path: pa.Array, locate: Locate) -> tuple[pa.Array, Integers, Texts]:
    """Return what `_find_files` returns for paths of which each must exist; null is no path.

    Raises:
        SourceError: a file is missing.

    """
    rows = np.flatnonzero(np.asarray(path.is_valid()))

    def locate_given(row: int) -> tuple[str, int | None]:
        return locate(int(rows[row]))

    given, stats, notices = _find_files(root, path.drop_null(), locate_given)
    _check_exist(root, given, stats[:, 0], locate_given)
    places = np.full(len(path), -1, np.int64)
    places[rows] = np.arange(len(rows))
    every = np.zeros((len(path), 3), np.int64)
    every[rows] = stats
    return given.take(pa.array(places, mask=places < 0)), every, notices


def check_paths(root: str, path: pa.Array, size: Integers, locate: Locate) -> None:
    """Check that every image exists and that no path occurs twice."""
    _check_exist(root, path, size, locate)
    _check_unique(root, path, locate)


def _check_exist(root: str, path: pa.Array, size: Integers, locate: Locate) -> None:
    missing = np.flatnonzero(size == UNREADABLE)
    if len(missing):
        row = int(missing[0])
        name = path[row].as_py()
        total = f"{len(missing):,}" if len(missing) <= MAX_MISSING else f"more than {MAX_MISSING:,}"
        raise row_error(
            locate,
            row,
            f"image {shorten(name, 300)} does not exist in folder {shorten(root, 300)}"
            f" ({total} in total)",
            next(_missing_hints(root, name)),
        )


def _check_unique(root: str, path: pa.Array, locate: Locate) -> None:
    # Paths that occur more than once, and the first two rows of the first of them.
    path = _absolute_twins(root, path)
    counts = pc.value_counts(path)
    if len(counts) < len(path):
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        rows = np.flatnonzero(np.asarray(pc.equal(path, repeated[0])))
        row, other = rows[:2].tolist()
        first, line = locate(row)
        where = f", line {line}" if line else ""
        raise row_error(
            locate,
            other,
            f"image {shorten(repeated[0].as_py(), 300)} is listed twice ({len(repeated):,} in"
            " total)",
            f"remove this one or {os.path.basename(first)}{where}",
        )


def _absolute_twins(root: str, path: pa.Array) -> pa.Array:
    """Return the paths.

    If any is absolute, all as absolute paths in their real folders, so that twins are equal.
    """
    if not pc.any(pc.match_substring_regex(path, "^/|://")).as_py():
        return path
    real = lru_cache(1 << 16)(os.path.realpath)

    def absolute(name: str) -> str:
        image = join_path(root, name)
        if is_url(image):
            return image
        folder, last = os.path.split(image)
        return os.path.join(real(folder), last)

    return _changed(path, absolute)


def _missing_hints(root: str, name: str) -> Iterator[str]:
    """Yield what may be wrong with a path that does not exist, the most likely first."""
    bare = name.strip(" \t'\"")
    if bare != name and storage.is_file(join_path(root, bare)):
        yield f"{shorten(bare, 300)} exists there; remove the blanks or quotation marks around it"
    forms: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
    for form in forms:
        other = unicodedata.normalize(form, name)
        if other != name and storage.is_file(join_path(root, other)):
            yield (
                f"a file of this name exists in the Unicode form {form}; write the list in that"
                " form"
            )
    if _DRIVE.match(name):
        yield (
            "it is an absolute path of Windows; write paths relative to one folder, with slashes,"
            " and set --image-root to that folder"
        )
    plain = name.replace("\\", "/").lstrip("/")
    above = os.path.dirname(os.path.abspath(root))
    if not is_url(root) and storage.is_file(os.path.join(above, plain)):
        yield f"it exists in the folder above: set {option('image-root', above)}"
    # The path may begin at a folder that is not there.
    parts = plain.split("/")
    for at in range(1, len(parts)):
        if storage.is_file(join_path(root, "/".join(parts[at:]))):
            yield (
                f"{shorten('/'.join(parts[at:]), 300)} exists there; write the paths without"
                f" {shorten('/'.join(parts[:at]) + '/', 300)}"
            )
    first, *rest = name.split()
    if rest and storage.is_file(join_path(root, first)):
        yield (
            f"{shorten(first, 300)} exists there; if an image has several labels, write them without"
            f" blanks, {'|'.join([*rest, 'LABEL'])}, or in a CSV"
        )
    folder, last = os.path.split(plain)
    yield from _name_hints(_ImageNames(root).in_folder(folder), os.path.splitext(last)[0])
    yield "set --image-root to the folder that paths are relative to, or remove the line"


def _name_hints(images: Mapping[str, Names], stem: str) -> Iterator[str]:
    """Yield the images of a folder that a name without suffix may mean."""
    if stem in images:
        yield f"its folder has {shorten(images[stem][0])}; write the extension that the file has"
    for other, names in images.items():
        if other.lower() == stem.lower():
            yield f"its folder has {shorten(names[0])}; write upper and lower case as the file has"
