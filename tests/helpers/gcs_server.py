"""Google Cloud Storage on this machine: the part of its XML API that its clients need, and nothing that it refuses.

https://cloud.google.com/storage/docs/xml-api/reference-methods. A request that the service would
refuse is refused: a wrong token, an unknown parameter or header, a range behind the end, a part
that is too short, a precondition that does not hold. An upload that breaks off leaves nothing
behind.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

#: Length of every part of an upload but the last, at least.
MIN_PART = 5 << 20
_PAGE = 1000
_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
#: Parameters of a listing; the service refuses others.
_LIST_PARAMETERS = {
    "list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after",
}  # fmt: skip


#: Status, body and headers.
Answer = tuple[int, bytes, dict[str, str]]


@dataclass(frozen=True)
class Object:
    """An object: its content, its generation and when it was written."""

    data: bytes
    generation: int
    modified: datetime

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}-{self.generation}"'


@dataclass
class Bucket:
    """All objects of a bucket by name, and the parts of unfinished uploads by their identifier."""

    objects: dict[str, Object] = field(default_factory=dict)
    uploads: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the content follows the headers at once
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        url = urlsplit(self.path)
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        name, _, key = url.path.removeprefix("/").partition("/")
        self.key = unquote(key, errors="strict")
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length)
        if len(self.body) < length:  # the client is gone: nothing is written
            self.close_connection = True
            return
        fault = self.server.fault()
        if fault == "slow":
            time.sleep(0.2)
        try:
            answer = self.route(unquote(name), fault)
        except RefusedError as error:
            text = (
                "<?xml version='1.0'"
                f" encoding='UTF-8'?><Error><Code>{error.code}</Code><Message/></Error>"
            )
            answer = error.status, text.encode(), {"Content-Type": "application/xml"}
        self.send(*answer, short=fault == "short")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def route(self, name: str, fault: str) -> Answer:
        if fault in ("500", "503"):
            raise RefusedError(int(fault), "InternalError")
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            raise RefusedError(401, "AuthenticationRequired")
        if name not in self.server.buckets:
            raise RefusedError(404, "NoSuchBucket")
        self.bucket = self.server.buckets[name]
        query = frozenset(self.query)
        with self.bucket.lock:
            if not self.key:
                if (
                    self.command == "GET"
                    and query <= _LIST_PARAMETERS
                    and self.query.get("list-type") == "2"
                ):
                    return 200, self.list_objects(), {"Content-Type": "application/xml"}
            elif self.command in ("GET", "HEAD") and query <= {"generation"}:
                return self.read()
            elif self.command == "PUT" and not query:
                return self.put()
            elif self.command == "DELETE" and not query:
                return self.delete()
            elif (self.command, query) in _UPLOAD_STEPS:
                return self.upload()
        raise RefusedError(400, "InvalidArgument")

    def send(
        self, status: int, body: bytes, headers: dict[str, str], *, short: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if short else body)
        self.close_connection = self.close_connection or short

    # --- objects ----------------------------------------------------------------------------------

    def read(self) -> Answer:
        found = self.bucket.objects.get(self.key)
        if found is None:
            raise RefusedError(404, "NoSuchKey")
        if self.headers.get("If-Match") not in (None, found.etag):
            raise RefusedError(412, "PreconditionFailed")
        size = len(found.data)
        headers = {
            "ETag": found.etag,
            "Last-Modified": format_datetime(found.modified, usegmt=True),
            "x-goog-generation": str(found.generation),
        }
        if not (given := self.headers.get("Range")):
            return 200, found.data, {**headers, "Content-Length": str(size)}
        first, _, last = given.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last) + 1, size) if first and last else size
        if start >= size or start >= end:
            raise RefusedError(416, "InvalidRange")
        headers |= {
            "Content-Range": f"bytes {start}-{end - 1}/{size}",
            "Content-Length": str(end - start),
        }
        return 206, found.data[start:end], headers

    def put(self) -> Answer:
        required = self.headers.get("x-goog-if-generation-match")
        existing = self.bucket.objects.get(self.key)
        if required is not None and int(required) != (existing.generation if existing else 0):
            raise RefusedError(412, "PreconditionFailed")
        return 200, b"", self.store(self.body)

    def delete(self) -> Answer:
        if self.bucket.objects.pop(self.key, None) is None:
            raise RefusedError(404, "NoSuchKey")
        return 204, b"", {}

    def store(self, data: bytes) -> dict[str, str]:
        if not 1 <= len(self.key.encode()) <= 1024 or not self.key.isprintable():
            raise RefusedError(400, "InvalidObjectName")
        new = Object(data, next(self.server.generations), datetime.now(UTC))
        self.bucket.objects[self.key] = new
        return {"ETag": new.etag, "x-goog-generation": str(new.generation)}

    def list_objects(self) -> bytes:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        limit = min(int(self.query.get("max-keys", _PAGE)), _PAGE)
        entries: list[str] = []
        last, folders = "", set[str]()
        names = sorted(name for name in self.bucket.objects if name.startswith(prefix))
        for name in names:
            head, found, _ = (
                name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            )
            folder = f"{prefix}{head}{delimiter}" if found else ""
            if (folder or name) <= after or folder in folders:
                continue
            if len(entries) == limit:
                break
            last = folder or name
            if folder:
                folders.add(folder)
                entries.append(
                    f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                )
                continue
            each = self.bucket.objects[name]
            modified = each.modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            entries.append(
                f"<Contents><Key>{escape(name)}</Key><Generation>{each.generation}</Generation>"
                f"<LastModified>{modified}</LastModified><ETag>{escape(each.etag)}</ETag>"
                f"<Size>{len(each.data)}</Size></Contents>"
            )
        else:
            last = ""
        more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
        return (
            f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="{_NAMESPACE}">'
            f"<Prefix>{escape(prefix)}</Prefix><IsTruncated>{str(bool(last)).lower()}</IsTruncated>{more}"
            f"{''.join(entries)}</ListBucketResult>"
        ).encode()

    # --- uploads in parts -------------------------------------------------------------------------

    def upload(self) -> Answer:
        uploads = self.bucket.uploads
        if "uploads" in self.query:
            identifier = f"upload-{next(self.server.generations)}"
            uploads[identifier] = (self.key, {})
            return 200, _xml("InitiateMultipartUploadResult", UploadId=identifier), {}
        identifier = self.query["uploadId"]
        if uploads.get(identifier, ("",))[0] != self.key:
            raise RefusedError(404, "NoSuchUpload")
        parts = uploads[identifier][1]
        if self.command == "PUT":
            number = int(self.query["partNumber"])
            if not 1 <= number <= 10_000:
                raise RefusedError(400, "InvalidArgument")
            parts[number] = self.body
            return 200, b"", {"ETag": _etag(self.body)}
        if self.command == "DELETE":
            del uploads[identifier]
            return 204, b"", {}
        chosen = self.chosen_parts(parts)
        del uploads[identifier]
        return (
            200,
            _xml("CompleteMultipartUploadResult", ETag=self.store(b"".join(chosen))["ETag"]),
            {},
        )

    def chosen_parts(self, parts: dict[int, bytes]) -> list[bytes]:
        chosen, last = [], 0
        for part in ElementTree.fromstring(self.body):
            values = {each.tag.rpartition("}")[2]: each.text or "" for each in part}
            number = int(values["PartNumber"])
            if number <= last or number not in parts or values["ETag"] != _etag(parts[number]):
                raise RefusedError(400, "InvalidPart")
            chosen.append(parts[number])
            last = number
        if any(len(part) < MIN_PART for part in chosen[:-1]):
            raise RefusedError(400, "EntityTooSmall")
        return chosen


_UPLOAD_STEPS = (
    ("POST", frozenset({"uploads"})),
    ("PUT", frozenset({"partNumber", "uploadId"})),
    ("POST", frozenset({"uploadId"})),
    ("DELETE", frozenset({"uploadId"})),
)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _xml(tag: str, **values: str) -> bytes:
    inside = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in values.items())
    return f'<?xml version="1.0" encoding="UTF-8"?><{tag} xmlns="{_NAMESPACE}">{inside}</{tag}>'.encode()


class Server(ThreadingHTTPServer):
    """The service. Generations grow over all buckets.

    Attributes:
        fault: returns what is wrong with the next answer: nothing, ``"500"``, ``"503"``, ``"slow"``
            or ``"short"``.

    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, token: str, bucket: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.buckets = {bucket: Bucket()}
        self.fault: Callable[[], str] = str
        self.generations = itertools.count(1_700_000_000_000_000)


@contextmanager
def google(token: str, bucket: str) -> Iterator[Server]:
    """Run the service in threads of this process.

    Args:
        token: the bearer token that every request must have.
        bucket: the bucket that exists.

    """
    server = Server(token, bucket)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
