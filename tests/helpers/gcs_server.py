"""Google Cloud Storage on this machine: the part of its XML API that its clients need, and nothing that it refuses.

https://cloud.google.com/storage/docs/xml-api/reference-methods. A request that the service would
refuse is refused: a wrong token, an unknown parameter or header, a range behind the end, a part
that is too short, a precondition that does not hold. An upload that breaks off leaves nothing
behind. Emulators on PyPI have neither the uploads in parts nor the preconditions of this API.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from helpers.http_files import BusyServer, QuietHandler, range_of

#: Length of every part of an upload but the last, at least.
MIN_PART = 5 << 20
_PAGE = 1000
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
#: Parameters of a listing; the service refuses others.
_LIST_PARAMETERS = {
    "list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after",
}  # fmt: skip
_UPLOAD_STEPS = (
    ("POST", {"uploads"}),
    ("PUT", {"partNumber", "uploadId"}),
    ("POST", {"uploadId"}),
    ("DELETE", {"uploadId"}),
)

#: Status, body and headers.
Answer = tuple[int, bytes, dict[str, str]]


class Object(NamedTuple):
    """An object: its content, its generation and when it was written."""

    data: bytes
    generation: int
    modified: datetime

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}-{self.generation}"'


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Server(BusyServer):
    """The service. Its objects have names, its unfinished uploads have identifiers.

    Attributes:
        fault: returns what is wrong with the next answer: nothing, ``"500"``, ``"503"``, ``"slow"``
            or ``"short"``.

    Args:
        token: the bearer token that every request must have.
        bucket: the bucket that exists.

    """

    def __init__(self, token: str, bucket: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token, self.bucket = token, bucket
        self.objects: dict[str, Object] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.lock = threading.Lock()
        self.fault: Callable[[], str] = str
        self.generations = itertools.count(1_700_000_000_000_000)


class _Handler(QuietHandler):
    server: Server

    def respond(self) -> None:
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
            text = f"{_HEAD}<Error><Code>{error.code}</Code><Message/></Error>"
            answer = error.status, text.encode(), {"Content-Type": "application/xml"}
        self.answer(*answer, short=fault == "short")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = respond  # noqa: N815

    def route(self, bucket: str, fault: str) -> Answer:
        if fault in ("500", "503"):
            raise RefusedError(int(fault), "InternalError")
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            raise RefusedError(401, "AuthenticationRequired")
        if bucket != self.server.bucket:
            raise RefusedError(404, "NoSuchBucket")
        command, query = self.command, {*self.query}
        with self.server.lock:
            if not self.key:
                is_list = command == "GET" and self.query.get("list-type") == "2"
                if is_list and query <= _LIST_PARAMETERS:
                    return 200, self.list_objects(), {"Content-Type": "application/xml"}
            elif command in ("GET", "HEAD") and query <= {"generation"}:
                return self.read()
            elif command == "PUT" and not query:
                return self.put()
            elif command == "DELETE" and not query:
                return self.delete()
            elif (command, query) in _UPLOAD_STEPS:
                return self.upload()
        raise RefusedError(400, "InvalidArgument")

    # --- objects ----------------------------------------------------------------------------------

    def read(self) -> Answer:
        found = self.server.objects.get(self.key)
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
        part = range_of(self.headers.get("Range"), size)
        if part is None:
            return 200, found.data, headers
        start, end = part
        if start >= min(size, end):
            raise RefusedError(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return 206, found.data[start:end], headers

    def put(self) -> Answer:
        required = self.headers.get("x-goog-if-generation-match")
        existing = self.server.objects.get(self.key)
        if required is not None and int(required) != (existing.generation if existing else 0):
            raise RefusedError(412, "PreconditionFailed")
        return 200, b"", self.store(self.body)

    def delete(self) -> Answer:
        if self.server.objects.pop(self.key, None) is None:
            raise RefusedError(404, "NoSuchKey")
        return 204, b"", {}

    def store(self, data: bytes) -> dict[str, str]:
        if not 1 <= len(self.key.encode()) <= 1024 or not self.key.isprintable():
            raise RefusedError(400, "InvalidObjectName")
        new = Object(data, next(self.server.generations), datetime.now(UTC))
        self.server.objects[self.key] = new
        return {"ETag": new.etag, "x-goog-generation": str(new.generation)}

    def list_objects(self) -> bytes:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        limit = min(int(self.query.get("max-keys", _PAGE)), _PAGE)
        #: Entries by what they list: a folder or an object.
        entries: dict[str, str] = {}
        more = ""
        for name in sorted(self.server.objects):
            if not name.startswith(prefix):
                continue
            head, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            listed = f"{prefix}{head}{found}"
            if listed <= after or listed in entries:
                continue
            if len(entries) == limit:
                last = escape([*entries][-1])
                more = f"<NextContinuationToken>{last}</NextContinuationToken>"
                break
            if found:
                entry = f"<CommonPrefixes><Prefix>{escape(listed)}</Prefix></CommonPrefixes>"
            else:
                each = self.server.objects[name]
                modified = each.modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                entry = (
                    f"<Contents><Key>{escape(name)}</Key><Generation>{each.generation}</Generation>"
                    f"<LastModified>{modified}</LastModified><ETag>{escape(each.etag)}</ETag>"
                    f"<Size>{len(each.data)}</Size></Contents>"
                )
            entries[listed] = entry
        is_cut = str(bool(more)).lower()
        return (
            f'{_HEAD}<ListBucketResult xmlns="{_NAMESPACE}"><Prefix>{escape(prefix)}</Prefix>'
            f"<IsTruncated>{is_cut}</IsTruncated>{more}{''.join(entries.values())}</ListBucketResult>"
        ).encode()

    # --- uploads in parts -------------------------------------------------------------------------

    def upload(self) -> Answer:
        uploads = self.server.uploads
        if "uploads" in self.query:
            identifier = f"upload-{next(self.server.generations)}"
            uploads[identifier] = (self.key, {})
            return 200, _xml("InitiateMultipartUploadResult", "UploadId", identifier), {}
        identifier = self.query["uploadId"]
        key, parts = uploads.get(identifier, ("", {}))
        if key != self.key:
            raise RefusedError(404, "NoSuchUpload")
        if self.command == "PUT":
            number = int(self.query["partNumber"])
            if not 1 <= number <= 10_000:
                raise RefusedError(400, "InvalidArgument")
            parts[number] = self.body
            return 200, b"", {"ETag": _etag(self.body)}
        chosen = self.chosen_parts(parts) if self.command == "POST" else []
        del uploads[identifier]
        if self.command == "DELETE":
            return 204, b"", {}
        etag = self.store(b"".join(chosen))["ETag"]
        return 200, _xml("CompleteMultipartUploadResult", "ETag", etag), {}

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


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _xml(tag: str, name: str, value: str) -> bytes:
    inside = f"<{name}>{escape(value)}</{name}>"
    return f'{_HEAD}<{tag} xmlns="{_NAMESPACE}">{inside}</{tag}>'.encode()
