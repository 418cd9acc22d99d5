"""A folder of objects in an object store: list, look up, read, write, create and delete them."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter, itemgetter, sub
from typing import TYPE_CHECKING, Any, TypeVar

from manifests.errors import CallError, DatasetError, StorageError
from manifests.records import record
from manifests.remote.connect import connect, is_broken_answer, translated
from manifests.remote.url import Url, check_key, parse_url

if TYPE_CHECKING:
    from typing_extensions import Buffer


@record
class ObjectInfo:
    """An object in a store.

    Attributes:
        name: its path, relative to the folder of the store that returned it.
        bytes: its length.
        etag: changes whenever the object is replaced; `None` if the store has none.
        version: number of this content, in stores that number it.
        modified_ns: time of the last change, in ns since 1970.

    """

    name: str
    bytes: int
    etag: str | None
    modified_ns: int
    version: str | None = None


# --- requests in threads, and retries of interrupted responses ------------------------------------

Result = TypeVar("Result")

#: Ranges of one object that are at most this many bytes apart are read in one request. A request
#: costs about as much time as this many bytes do: 20 to 100 ms at 10 to 100 MB/s.
COALESCE_BYTES = 1 << 20

#: A longer request is divided, so that several connections work on it, and a retry repeats little.
MAX_REQUEST_BYTES = 16 << 20

#: Connections that one process uses at a time.
CONNECTIONS = 32

#: An interrupted response is requested again this many times. Refused and failed requests are
#: retried by obstore.
_ATTEMPTS = 4
_FIRST_WAIT = 0.2


class BrokenOffError(Exception):
    """An answer was shorter than the server said."""


def repeat(url: Url, read: Callable[[], Result]) -> Result:
    """Read, and read again if the answer breaks off; translate errors."""
    with translated(url, "read"):
        for attempt in range(_ATTEMPTS):
            try:
                return read()
            except DatasetError:
                raise
            except Exception as error:
                if attempt == _ATTEMPTS - 1 or not (
                    isinstance(error, BrokenOffError) or is_broken_answer(error)
                ):
                    raise
                time.sleep(_FIRST_WAIT * 2**attempt)
    raise AssertionError("unreachable")


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    del pid  # a fork has none of the threads
    return ThreadPoolExecutor(CONNECTIONS, "object store")


def submit(function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Call a function in a thread: Python handles no signal while the main thread waits for a server."""
    return _pool(os.getpid()).submit(function, *arguments)


# --- the folder -----------------------------------------------------------------------------------

_log = logging.getLogger(__name__)

#: An object of up to this many bytes is written in one request, so an interrupted upload leaves
#: nothing behind. It is above the default ``--shard-size``; the stores allow 4 GiB at least.
SINGLE_PUT_BYTES = 320 << 20

#: Length of the parts of longer objects. The stores allow 10,000 parts.
PART_BYTES = 64 << 20

#: The object that `Store.check_conditions` creates twice. If a run is killed in between, the next
#: run deletes it.
PROBE_NAME = ".dataprep-probe"
_PROBES = 5

#: An object that no store has: its ETag would be the MD5 sum of its content, and Google's
#: generations are far larger.
_ANOTHER_OBJECT = ObjectInfo(PROBE_NAME, 0, etag=f'"{"0" * 32}"', modified_ns=0, version="1")

#: Requests in advance of the one that is being processed, while an object is read from end to end.
_AHEAD = 2


@record
class Store:
    """A folder in an object store. Names are paths relative to it.

    It holds no connection, so it can be pickled and used in any process; all methods can be called
    from several threads. While a method waits for the server, Ctrl-C interrupts the main thread as
    usual.

    Every method raises `StorageError` if the store cannot be reached or refuses the request, after
    retries of up to `connect.RETRY_SECONDS`, and `CallError` if the bucket does not exist. No
    message contains a credential.

    Attributes:
        url: the folder.

    """

    url: Url

    def __str__(self) -> str:
        return str(self.url)

    def list_objects(self) -> Iterator[ObjectInfo]:
        """Iterate over all objects below the folder, in no particular order."""
        folder = self._writable(self.url, "list")
        with translated(folder, "list"):
            chunks = connect(folder).list(folder.path or None, chunk_size=1000)
        while True:
            with translated(folder, "list"):
                chunk = submit(next, chunks, None).result()
            if chunk is None:
                return
            yield from map(self._info, chunk)

    def start_listing(self) -> Future[tuple[list[str], list[ObjectInfo]]]:
        """Begin to list the folder; the future returns the folders and the objects directly in it, by name."""
        folder = self._writable(self.url, "list")

        def read() -> tuple[list[str], list[ObjectInfo]]:
            with translated(folder, "list"):
                result = connect(folder).list_with_delimiter(folder.path or None)
            objects = map(self._info, result["objects"])
            prefixes = map(self._relative, result["common_prefixes"])
            return sorted(prefixes), sorted(objects, key=attrgetter("name"))

        return submit(read)

    def stat(self, name: str) -> ObjectInfo:
        """Look up an object.

        Raises:
            FileNotFoundError: it does not exist.

        """
        return self.start_stat(name).result()

    def start_stat(self, name: str) -> Future[ObjectInfo]:
        """Begin to look up an object; the future returns what `stat` does."""
        url = self._url(name)
        return submit(repeat, url, lambda: self._info(connect(url).head(url.path)))

    def get(self, name: str, check: Callable[[ObjectInfo], None] | None = None) -> Buffer:
        """Read a whole object, which must fit into memory.

        Args:
            name: the object.
            check: is called with the object before its content is read, and may raise an error.

        Raises:
            FileNotFoundError: it does not exist.

        """
        return self.start_get(name, check).result()

    def start_get(
        self, name: str, check: Callable[[ObjectInfo], None] | None = None
    ) -> Future[Buffer]:
        """Begin to read a whole object; the future returns what `get` does."""
        url = self._url(name)

        def read() -> Buffer:
            answer = connect(url).get(url.path)
            info = self._info(answer.meta)
            if check is not None:
                check(info)
            data: Buffer = answer.bytes()
            if memoryview(data).nbytes != info.bytes:
                raise BrokenOffError
            return data

        return submit(repeat, url, read)

    def start_range(
        self, name: str, start: int, end: int, *, etag: str | None = None
    ) -> Future[Buffer]:
        """Begin to read bytes `start` to `end` of an object.

        Args:
            name: the object.
            start: first byte.
            end: byte after the last.
            etag: of the object that is expected.

        Raises (the future does):
            FileNotFoundError: the object does not exist.
            ReplacedError: it is not the one with this `etag` any more.
            StorageError: it ends before the range does.

        """
        url = self._url(name)
        options: Any = {"range": (start, end)}
        if etag:
            options["if_match"] = etag

        def read() -> Buffer:
            answer = connect(url).get(url.path, options=options)
            size = answer.meta["size"]
            if size < end:
                raise StorageError(
                    f"the object has {size:,} bytes, but bytes up to {end:,} are needed",
                    file=str(url),
                    byte=size,
                    hint="it was shortened or replaced; restore it, or make the dataset again",
                )
            data = answer.bytes()
            if len(data) != end - start:
                raise BrokenOffError
            return data

        return submit(repeat, url, read)

    def read_parts(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[memoryview]:
        """Read parts of an object in the calling thread; the client requests about ten at a time.

        Args:
            name: the object.
            ranges: (start, end) of each part in bytes.

        Raises:
            FileNotFoundError: the object does not exist.
            StorageError: the store cannot be reached or refuses the request, or the object ends
                before a part does.

        """
        url = self._url(name)
        starts, ends = (list(map(itemgetter(side), ranges)) for side in (0, 1))

        def read() -> Sequence[memoryview]:
            parts = connect(url).get_ranges(url.path, starts=starts, ends=ends, coalesce=0)
            views = [memoryview(part) for part in parts]
            if list(map(len, views)) != list(map(sub, ends, starts)):
                raise BrokenOffError
            return views

        return repeat(url, read)

    def chunks(
        self, name: str, size: int, *, start: int = 0, etag: str | None = None
    ) -> Iterator[memoryview]:
        """Read an object from `start` to `size` in order.

        While one chunk is processed, the next are on their way.

        Args:
            name: the object.
            size: its length in bytes.
            start: first byte to read.
            etag: of the object that is expected.

        Raises:
            FileNotFoundError, ReplacedError, StorageError: as `start_range` does.

        """
        starts = iter(range(start, size, MAX_REQUEST_BYTES))
        pending: deque[Future[Buffer]] = deque()
        while True:
            while len(pending) <= _AHEAD and (at := next(starts, None)) is not None:
                pending.append(
                    self.start_range(name, at, min(at + MAX_REQUEST_BYTES, size), etag=etag)
                )
            if not pending:
                return
            yield memoryview(pending.popleft().result())

    def put(self, name: str, data: Buffer) -> None:
        """Write an object, or replace it. Readers see the old content or all of the new."""
        view = memoryview(data)
        url = self._writable(self._url(name), "write")
        options: dict[str, Any] = {"use_multipart": False}
        if may_have_parts(view.nbytes):
            options = {"use_multipart": True, "chunk_size": PART_BYTES}
        started = time.monotonic()
        with translated(url, "write"):
            submit(lambda: connect(url, writes=True).put(url.path, view, **options)).result()
        _log.info(
            "%s: %d bytes are uploaded in %.1f s", url, view.nbytes, time.monotonic() - started
        )

    def create(self, name: str, data: Buffer) -> bool:
        """Write an object only if there is none of this name.

        Returns:
            Whether it was written. After a request that had to be repeated, `False` may mean that
            the first attempt wrote it; so compare the content.

        """
        return self._put_if(name, data, "create", "AlreadyExistsError")

    def replace(self, name: str, data: Buffer, old: ObjectInfo) -> bool:
        """Write an object only if it is still the one that `old` describes.

        Returns:
            Whether it was written. `False` is as uncertain as in `create`.

        """
        mode = {}
        if old.etag:
            mode["e_tag"] = old.etag
        if old.version:
            mode["version"] = old.version
        try:
            return self._put_if(name, data, mode, "PreconditionError")
        except (
            FileNotFoundError
        ):  # Amazon S3 answers 404 if there is no object any more, where others answer 412
            return False

    def _put_if(self, name: str, data: Buffer, mode: Any, refusal: str) -> bool:
        """Write an object on a condition; return whether it was met.

        `refusal` is obstore's error if it was not.
        """
        url = self._writable(self._url(name), "write")
        with translated(url, "write"):
            try:
                submit(
                    lambda: connect(url, writes=True).put(url.path, memoryview(data), mode=mode)
                ).result()
            except Exception as error:
                if type(error).__name__ != refusal:
                    raise
                return False
        return True

    def delete(self, name: str, check: Callable[[], None] | None = None) -> None:
        """Delete an object, if it exists. Stores have no condition for it.

        Args:
            name: the object.
            check: is called right before the request, and may raise an error.

        """
        url = self._writable(self._url(name), "delete")
        if check is not None:
            check()
        with suppress(FileNotFoundError), translated(url, "delete"):
            submit(connect(url).delete, url.path).result()

    def check_conditions(self) -> None:
        """Check that the store honors the conditions of `create` and `replace`.

        Also checks that it can be written.

        Raises:
            CallError: the store ignores one, so several writers could replace each other's files.

        """
        try:
            # Another process may delete the probe in between, so one try that fails proves nothing.
            creates = any(not self.create(PROBE_NAME, b"") for _ in range(2 * _PROBES))
            replaces = creates and not self.replace(PROBE_NAME, b"", _ANOTHER_OBJECT)
        finally:
            with suppress(
                StorageError
            ):  # there is nothing to delete, or the first deletion that matters says why not
                self.delete(PROBE_NAME)
        if not replaces:
            condition = "create-if-absent (If-None-Match: *)"
            if creates:
                condition = "replace-if-unchanged (If-Match)"
            raise CallError(
                f"{self.url.scheme}://{self.url.bucket}: this object store ignores {condition}",
                hint="update its server, or write to a local folder and copy the dataset",
            )

    def _url(self, name: str) -> Url:
        return self.url.join(check_key(name))

    def _writable(self, url: Url, verb: str) -> Url:
        if url.is_read_only:
            refused = "written"
            if verb == "list":
                refused = "listed"
            raise CallError(
                f"{url}: {url.scheme}:// URLs can only be read, not {refused}",
                hint="use the s3://, gs:// or az:// URL of the bucket",
            )
        return url

    def _info(self, meta: Any) -> ObjectInfo:
        """Return what obstore's metadata of an object say."""
        modified = meta["last_modified"]
        return ObjectInfo(
            name=self._relative(meta["path"]),
            bytes=meta["size"],
            etag=meta["e_tag"],
            modified_ns=int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000,
            version=meta["version"],
        )

    def _relative(self, key: str) -> str:
        if self.url.path:
            key = key[len(self.url.path) + 1 :]
        return key


def open_store(url: str | Url) -> Store:
    """Return the store of a folder's URL. Nothing is sent to the server.

    Raises:
        CallError: the URL is not valid.

    """
    if isinstance(url, str):
        url = parse_url(url)
    return Store(url)


# --- uploads in parts that a killed process left: they are invisible, and cost money --------------
#
# Only S3 and what speaks its protocol needs this; Azure forgets such parts after a week, and Google
# Cloud Storage has rules for them. ``obstore`` cannot list uploads, so this uses ``boto3``.


def may_have_parts(length: int) -> bool:
    """Return whether an object of this length is uploaded in parts."""
    return length > SINGLE_PUT_BYTES


#: Unfinished uploads of each object, by their ids, when this process began its own.
_before: dict[Url, frozenset[str]] = {}


def begin_upload(url: Url) -> None:
    """Note the unfinished uploads of an object before this process uploads it in parts.

    See `abort_uploads`.
    """
    _before.pop(url, None)
    if url.scheme == "s3":
        with suppress(Exception):  # as in abort_uploads
            _before[url] = frozenset(upload["UploadId"] for upload in _unfinished(_client(), url))


def abort_uploads(url: Url, *, only_own: bool = False) -> int:
    """Abort all unfinished uploads of one object, or only the one that this process began.

    Return their number; 0 if that is not possible. A failure is no error: the lifecycle rule in
    docs/object-storage.md removes what remains.

    Nothing tells the id of an upload that ``obstore`` begins. It is the oldest that did not exist
    right before.
    """
    before = _before.pop(url, None)
    aborted = 0
    if url.scheme != "s3" or (only_own and before is None):
        return aborted
    # boto3 is not installed, has no credentials, or the server refuses to list uploads.
    with suppress(Exception):
        client = _client()
        uploads = sorted(_unfinished(client, url), key=itemgetter("Initiated"))
        if only_own:
            known = before or ()
            uploads = [each for each in uploads if each["UploadId"] not in known][:1]
        for upload in uploads:
            _abort(client, url, upload)
            aborted += 1
    return aborted


def delete_versions(url: Url, is_own: Callable[[str], bool]) -> str:
    """Delete all versions of objects that were deleted, and abort their unfinished uploads.

    Args:
        url: the folder.
        is_own: returns whether an object in the folder counts, by its name. Objects that exist stay,
            with their versions.

    Returns:
        Why this is not possible; empty if it was done.

    """
    if url.scheme != "s3":
        return "only S3 lists them"
    prefix = f"{url.path}/"
    try:
        client = _client()
        for upload in _listed(client, "list_multipart_uploads", url, prefix, "Uploads"):
            if is_own(upload["Key"].removeprefix(prefix)):
                _abort(client, Url(url.scheme, url.bucket, upload["Key"]), upload)
        versions = _listed(client, "list_object_versions", url, prefix, "Versions")
        current = set()
        for each in versions:
            if each["IsLatest"]:
                current.add(each["Key"])
        markers = _listed(client, "list_object_versions", url, prefix, "DeleteMarkers")
        for each in (*versions, *markers):
            if each["Key"] not in current and is_own(each["Key"].removeprefix(prefix)):
                client.delete_object(
                    Bucket=url.bucket, Key=each["Key"], VersionId=each["VersionId"]
                )
    # boto3 is not installed, has no credentials, or the server refuses.
    except Exception as error:
        return (str(error).splitlines() or [type(error).__name__])[0][:200]
    return ""


def _listed(
    client: Any, operation: str, url: Url, prefix: str, member: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for page in client.get_paginator(operation).paginate(Bucket=url.bucket, Prefix=prefix):
        found += page.get(member, ())
    return found


def _abort(client: Any, url: Url, upload: Mapping[str, Any]) -> None:
    client.abort_multipart_upload(Bucket=url.bucket, Key=url.path, UploadId=upload["UploadId"])


def _unfinished(client: Any, url: Url) -> list[dict[str, Any]]:
    paginator = client.get_paginator("list_multipart_uploads")
    found = []
    for page in paginator.paginate(Bucket=url.bucket, Prefix=url.path):
        for upload in page.get("Uploads", ()):
            if upload["Key"] == url.path:
                found.append(upload)
    return found


def _client() -> Any:
    import boto3.session
    from botocore.config import Config

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    addressing = "auto"
    if endpoint:
        addressing = "path"
    session = boto3.session.Session()
    return session.client(
        "s3",
        region_name=region or session.region_name or "us-east-1",
        endpoint_url=endpoint,
        config=Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"max_attempts": 2},
            s3={"addressing_style": addressing},
        ),
    )
