"""The cache folder, and the folder of one dataset in it.

::

    CACHE/dataprep-cache.json           marks the folder as a cache: nothing outside of such a folder is ever removed
    CACHE/NAME-DIGEST/                  one dataset: the digest is that of its URL and its manifest
        remote.json                     the URL from which everything here can be fetched again
        in-use, mapped                  empty; locked by the processes that use the dataset, or have mapped its shards
        split-0.presence                see `presence`
        files/                          manifest, sample tables, and shards: sparse files of their true length
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from loaders.cache.disk import named, write_once
from loaders.cache.locks import IN_USE, lock_unused
from manifests.errors import CallError
from manifests.process.text import printable

CACHE_MARK = "dataprep-cache.json"
_MARK_BYTES = b'{"cache_version": 1}\n'

REMOTE_NAME = "remote.json"


def open_cache(cache: str) -> None:
    """Make the cache folder, or check that it is one.

    Raises:
        CallError: it contains other files, or this user cannot use it.

    """
    mark = os.path.join(cache, CACHE_MARK)
    with named(cache):
        os.makedirs(cache, exist_ok=True)
        names = os.listdir(cache)
        if CACHE_MARK not in names and any(not name.startswith(f"{CACHE_MARK}.") for name in names):
            raise CallError(
                f"cache={printable(cache)!r} contains files of other programs",
                hint="choose an empty folder, or one that does not exist",
            )
        if CACHE_MARK not in names:
            write_once(mark, _MARK_BYTES)
        with open(mark, "rb") as file:
            if file.read(len(_MARK_BYTES) + 1) != _MARK_BYTES:
                raise CallError(
                    f"cache={printable(cache)!r} was made by another release",
                    hint="choose another cache folder",
                )


def unused_datasets(cache: str) -> list[str]:
    """Return the folders of datasets that no process uses."""
    found = []
    for name in sorted(os.listdir(cache)):
        folder = os.path.join(cache, name)
        if not os.path.isfile(os.path.join(folder, REMOTE_NAME)) or os.path.islink(folder):
            continue
        handle = lock_unused(folder)
        if handle is not None:
            os.close(handle)
            found.append(folder)
    return found


def remove_unused(folder: str) -> bool:
    """Remove the folder of a dataset unless a process uses it. Return whether it was removed."""
    handle = lock_unused(folder)
    if handle is None:
        return False
    try:
        # `remote.json` last, because without it nothing here may be removed.
        for name in (
            *(each for each in os.listdir(folder) if each not in (IN_USE, REMOTE_NAME)),
            REMOTE_NAME,
            IN_USE,
        ):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(path)
        os.rmdir(folder)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
