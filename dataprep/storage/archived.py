"""Files of an archive as files in a folder, while the archive is a source: ``photos.zip/cat/1.jpg``."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dataprep.storage.local import LocalFiles, made_status
from manifests.files import FileKind, check_length

#: In the listing of a folder, what stands for a folder.
_FOLDER = -1


class ArchivedFiles(LocalFiles):
    """The files of an archive, listed once. `manifests.files.mounted` makes them readable by path.

    Args:
        path: path or URL of the archive.
        names: the name of each file, without ``..`` and without a slash at the beginning.
        sizes: the size of each file in bytes.
        status: what the file system says about the archive.
        read_row: returns the content of a file, by its row in `names`.

    """

    def __init__(
        self,
        path: str,
        names: Sequence[str],
        sizes: Sequence[int],
        status: os.stat_result,
        read_row: Callable[[int], bytes],
    ) -> None:
        self.path = path
        self._sizes, self._status, self._read_row = sizes, status, read_row
        # The rows of the files in each folder, by name.
        self._folders: dict[str, dict[str, int]] = {"": {}}
        for row, name in enumerate(names):
            folder, _, last = name.rpartition("/")
            self._folder(folder)[last] = row

    def _folder(self, folder: str) -> dict[str, int]:
        """Return the content of a folder, which is made with the folders above it."""
        content = self._folders.get(folder)
        if content is None:
            content = self._folders[folder] = {}
            above, _, last = folder.rpartition("/")
            self._folder(above)[last] = _FOLDER
        return content

    def _row(self, path: str) -> int:
        name = path[len(self.path) + 1 :].rstrip("/")
        if not name:
            return _FOLDER
        folder, _, last = name.rpartition("/")
        row = self._folders.get(folder, {}).get(last)
        if row is None:
            raise FileNotFoundError(errno.ENOENT, "the archive has no such file", path)
        return row

    def status(self, row: int) -> os.stat_result:
        """Return what is known of a file, or a folder, as `os.stat` does."""
        if row == _FOLDER:
            return made_status(stat.S_IFDIR, 0, 0, 0)
        archive = self._status
        return made_status(stat.S_IFREG, int(self._sizes[row]), archive.st_mtime_ns, archive.st_ino)

    def stat(self, path: str) -> os.stat_result:
        """Look up a file or a folder."""
        return self.status(self._row(path))

    def list(self, folder: str) -> Sequence[ArchivedEntry]:
        """Return the files and folders in a folder."""
        content = self._folders.get(folder[len(self.path) + 1 :].rstrip("/"))
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "the archive has no such folder", folder)
        return [ArchivedEntry(name, row, self) for name, row in content.items()]

    def read(self, path: str, kind: FileKind) -> bytes:
        """Return the content of a file; see `manifests.files.MountedArchive`."""
        row = self._row(path)
        if row == _FOLDER:
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        check_length(int(self._sizes[row]), path, kind)
        return self._read_row(row)


class ArchivedEntry(NamedTuple):
    """A file or folder in an archive; implements `dataprep.storage.files.Entry`."""

    name: str
    row: int
    files: ArchivedFiles

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self.row == _FOLDER

    def is_symlink(self) -> bool:
        """Return `False`: links are resolved, or rejected, when the archive is listed."""
        return False

    def stat(self) -> os.stat_result:
        """Return its length, and time and inode of the archive."""
        return self.files.status(self.row)
