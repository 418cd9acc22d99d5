"""Look up the images of a list or table in object stores, with as few requests as possible."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from dataprep.storage.remote import stat_of
from manifests.remote import ObjectInfo, is_url, join_path, open_store, parse_url
from manifests.remote.url import Url

#: In a folder with more images than this, one listing takes fewer requests than looking up each of
#: them.
_MAX_LOOKUPS = 3

#: Requests that are under way at a time; the connections limit how many of them run.
_WINDOW = 256


def split_urls(
    root: str, names: Sequence[str]
) -> tuple[dict[Url, dict[str, list[int]]], list[int]]:
    """Return the rows of each image in an object store, by folder and name, and the rows of all local files."""
    folders: dict[Url, dict[str, list[int]]] = defaultdict(dict)
    parsed: dict[str, Url] = {}
    local: list[int] = []
    for row, name in enumerate(names):
        path = join_path(root, name)
        if not is_url(path):
            local.append(row)
            continue
        text, _, last = path.rpartition("/")
        if text not in parsed:
            parsed[text] = parse_url(text)
        folders[parsed[text]].setdefault(last, []).append(row)
    return folders, local


def find_objects(folders: dict[Url, dict[str, list[int]]]) -> Iterator[tuple[int, Any]]:
    """Yield the row and the `os.stat_result` of each image that exists.

    Args:
        folders: the rows of each image, by folder and name.

    Raises:
        CallError, StorageError: a folder cannot be listed.

    """
    pending: deque[tuple[Future[Any], dict[str, list[int]]]] = deque()
    for request in _requests(folders):
        pending.append(request)
        if len(pending) >= _WINDOW:
            yield from _found(*pending.popleft())
    while pending:
        yield from _found(*pending.popleft())


def _requests(
    folders: dict[Url, dict[str, list[int]]],
) -> Iterator[tuple[Future[Any], dict[str, list[int]]]]:
    for folder, rows in folders.items():
        store = open_store(folder)
        if len(rows) > _MAX_LOOKUPS and not folder.is_read_only:
            yield store.start_listing(), rows
        else:
            yield from ((store.start_stat(name), {name: numbers}) for name, numbers in rows.items())


def _found(future: Future[Any], rows: dict[str, list[int]]) -> Iterator[tuple[int, Any]]:
    try:
        result = future.result()
    except FileNotFoundError:
        return
    objects: list[ObjectInfo] = [result] if isinstance(result, ObjectInfo) else result[1]
    for info in objects:
        for row in rows.get(info.name, ()):
            yield row, stat_of(info)
