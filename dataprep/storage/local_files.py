"""Files on a file system."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from dataprep.storage.commit import rename_all, replace_file
from dataprep.storage.files import Entry, View
from dataprep.storage.local import remove
from dataprep.storage.views import chunks, open_view
from manifests.files import FileKind, kind_of, read_file


class LocalFiles:
    """Files on a file system; see `dataprep.storage.files.Files`."""

    def stat(self, path: str) -> os.stat_result:
        """Look up a file or a folder."""
        return os.stat(path)

    def list(self, folder: str) -> Sequence[Entry]:
        """Return the files and folders in a folder, in any order."""
        with os.scandir(folder) as entries:
            return [*entries]

    def remember(self, folder: str) -> AbstractContextManager[None]:
        """Do nothing: the operating system already caches metadata."""
        del folder
        return nullcontext()

    def make_folder(self, folder: str) -> None:
        """Make a folder, and those above it."""
        os.makedirs(folder, exist_ok=True)

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

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless there is one. The caller has locked the folder."""
        if os.path.lexists(path):
            return False
        replace_file(path, data)
        return True

    def replace(self, path: str, data: bytes, old: bytes) -> bool:
        """Replace a small file whose content is `old`. The caller has locked the folder."""
        try:
            content = read_file(path, kind_of(path))
        except FileNotFoundError:
            return False
        if content == old:
            replace_file(path, data)
        return content in (old, data)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        remove(path)

    def local_folder(self, folder: str) -> str:
        """Return the folder itself."""
        return folder


LOCAL = LocalFiles()
