"""Files and folders in a folder, of a file system or an object store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dataprep import storage
from manifests.remote import is_url

#: Files with other suffixes are skipped, and reported in a notice. The content of a file decides
#: its actual format.
IMAGE_SUFFIXES = frozenset(
    (
        *(
            ".jpg",
            ".jpeg",
            ".jpe",
            ".jfif",
            ".png",
            ".webp",
            ".bmp",
            ".dib",
            ".tif",
            ".tiff",
            ".gif",
            ".avif",
        ),
        *(".heic", ".heif", ".jp2", ".j2k", ".jxl", ".ppm", ".pgm"),
    )
)


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
