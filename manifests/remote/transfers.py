"""Open an object as a file descriptor, and abort uploads that a killed process left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from manifests.remote.url import Url, is_url, parse_url

if TYPE_CHECKING:
    from manifests.remote.store import ObjectInfo

# `manifests.remote.store` takes time to import, and local files do not need it.

#: An object of up to this many bytes is kept in memory; a longer one in a temporary file without a
#: name.
IN_MEMORY_BYTES = 16 << 20


class _TooLongForMemoryError(Exception):
    pass


Item = TypeVar("Item")
Result = TypeVar("Result")

#: Threads that wait for the answers of an object store.
_THREADS = 16


def open_downloaded(url: str, check: Callable[[int], None]) -> int:
    """Return a file descriptor with the content of an object, at its first byte.

    Args:
        url: the object.
        check: is called with its length before the content is read, and may raise an error.

    Raises:
        FileNotFoundError: it does not exist.
        CallError, StorageError: it cannot be read.

    """
    from manifests.remote.store import open_store

    place = parse_url(url)
    store = open_store(place.parent)
    found: list[ObjectInfo] = []

    def check_object(info: ObjectInfo) -> None:
        found.append(info)
        check(info.bytes)
        if info.bytes > IN_MEMORY_BYTES:
            raise _TooLongForMemoryError

    try:
        parts = iter([memoryview(store.get(place.name, check_object))])
        handle = os.memfd_create(place.name[-100:], os.MFD_CLOEXEC)
    except _TooLongForMemoryError:
        info = found[0]
        parts = store.chunks(place.name, info.bytes, etag=info.etag)
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        for part in parts:
            _write(handle, part)
        os.lseek(handle, 0, os.SEEK_SET)
    except BaseException:
        os.close(handle)
        raise
    return handle


def object_length(url: str) -> int:
    """Return the length of an object in bytes.

    Raises:
        FileNotFoundError: it does not exist.
        CallError, StorageError: it cannot be read.

    """
    from manifests.remote.store import open_store

    place = parse_url(url)
    return open_store(place.parent).stat(place.name).bytes


def _write(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]


def some_files(folder: str, most: int) -> list[str] | None:
    """Return names of at most `most` files below a folder; `None` if it does not exist."""
    if not is_url(folder):
        if not os.path.isdir(folder):
            return None
        found = (name for _, _, files in os.walk(folder) for name in files)
        return list(islice(found, most))
    url = parse_url(folder)
    if url.is_read_only:
        return []
    from manifests.remote.store import open_store

    keys = [each.name for each in islice(open_store(url).list_objects(), most)]
    return keys or None


def map_files(
    folder: str, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Apply a function that reads files to each item, in order.

    Several at a time in an object store, and at most `_THREADS` results ahead.
    """
    if not is_url(folder):
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # takes time, and local files do not need it

    rest = iter(items)
    with ThreadPoolExecutor(_THREADS) as threads:
        while some := [*islice(rest, _THREADS)]:
            yield from threads.map(function, some)


# --- uploads in parts that a killed process left: they are invisible, and cost money --------------
#
# Only S3 and what speaks its protocol needs this; Azure forgets such parts after a week, and Google
# Cloud Storage has rules for them. ``obstore`` cannot list uploads, so this uses ``boto3``.


def may_have_parts(length: int) -> bool:
    """Return whether an object of this length is uploaded in parts."""
    from manifests.remote import store

    return length > store.SINGLE_PUT_BYTES


#: Unfinished uploads of each object, by their ids, when this process began its own.
_before: dict[Url, frozenset[str]] = {}


def begin_upload(url: Url) -> None:
    """Note the unfinished uploads of an object before this process uploads it in parts.

    See `abort_own_upload`.
    """
    _before.pop(url, None)
    if url.scheme == "s3":
        with suppress(Exception):  # as in abort_uploads
            _before[url] = frozenset(upload["UploadId"] for upload in _unfinished(_client(), url))


def abort_own_upload(url: Url) -> int:
    """Abort the unfinished upload that this process began, and return 1.

    0 if there is none or it is not possible.

    Nothing tells the id of an upload that ``obstore`` begins. It is the oldest that did not exist
    right before.
    """
    before = _before.pop(url, None)
    if before is None:
        return 0
    with suppress(Exception):  # as in abort_uploads
        client = _client()
        new = [upload for upload in _unfinished(client, url) if upload["UploadId"] not in before]
        if new:
            own = min(new, key=lambda upload: upload["Initiated"])
            client.abort_multipart_upload(Bucket=url.bucket, Key=url.path, UploadId=own["UploadId"])
            return 1
    return 0


def abort_uploads(url: Url) -> int:
    """Abort all unfinished uploads of one object, and return their number.

    0 if that is not possible.

    A failure is no error: the lifecycle rule in docs/object-storage.md removes what remains.
    """
    if url.scheme != "s3":
        return 0
    aborted = 0
    with suppress(
        Exception
    ):  # boto3 is not installed, has no credentials, or the server refuses to list uploads
        client = _client()
        for upload in _unfinished(client, url):
            client.abort_multipart_upload(
                Bucket=url.bucket, Key=url.path, UploadId=upload["UploadId"]
            )
            aborted += 1
    return aborted


def _unfinished(client: Any, url: Url) -> list[dict[str, Any]]:
    pages = client.get_paginator("list_multipart_uploads").paginate(
        Bucket=url.bucket, Prefix=url.path
    )
    return [
        upload for page in pages for upload in page.get("Uploads", ()) if upload["Key"] == url.path
    ]


def _client() -> Any:
    import boto3.session
    from botocore.config import Config

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    session = boto3.session.Session()
    return session.client(
        "s3",
        region_name=region or session.region_name or "us-east-1",
        endpoint_url=endpoint,
        config=Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"max_attempts": 2},
            s3={"addressing_style": "path" if endpoint else "auto"},
        ),
    )
