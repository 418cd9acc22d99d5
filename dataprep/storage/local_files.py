"""Files on a file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from dataprep.storage.files import Entry, FileStat, View
from dataprep.storage.local import remove
from dataprep.storage.partials import rename_all
from dataprep.storage.views import chunks, open_view
from manifests.files import FileKind


class LocalFiles:
    """Files on a file system; see `dataprep.storage.files.Files`."""

    def stat(self, path: str) -> FileStat | None:
        """Look up a file; `None` if there is no file of this name."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return _stat_of(status) if stat.S_ISREG(status.st_mode) else None

    def list(self, folder: str) -> Sequence[Entry]:
        """Return the files and folders in a folder, in any order."""
        with os.scandir(folder) as entries:
            return [_entry(entry) for entry in entries]

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name."""
        return os.path.isdir(path)

    def open_view(self, path: str, span: int) -> AbstractContextManager[tuple[View, int]]:
        """Open a shard for random access; return its view and its length in bytes."""
        return open_view(path, span)

    def chunks(self, path: str, kind: FileKind) -> Iterator[memoryview]:
        """Read a file from end to end, into one buffer that each chunk replaces."""
        return chunks(path, kind)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename temporary files, in this order, after all of them are flushed to disk."""
        rename_all(pairs)

    publish_shard = publish

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        remove(path)

    def local_folder(self, folder: str) -> str:
        """Return the folder itself."""
        return folder


LOCAL = LocalFiles()


def _entry(entry: os.DirEntry[str]) -> Entry:
    try:
        is_folder = entry.is_dir()
    except OSError:  # a link to itself
        is_folder = False
    try:
        found = None if is_folder else _stat_of(entry.stat())
    except OSError:
        found = None
    return Entry(entry.name, is_folder, entry.is_symlink(), found)


def _stat_of(status: os.stat_result) -> FileStat:
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ino & 0x7FFFFFFFFFFFFFFF)
