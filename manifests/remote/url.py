"""URLs of folders and objects in object stores. Strings only: no I/O."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from urllib.parse import unquote

from manifests.errors import CallError
from manifests.process.text import printable
from manifests.records import record

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")

#: What `parse_url` accepts. The tools of AWS, Google and Azure use these names.
SCHEMES = ("s3", "gs", "az", "https", "memory")

#: Buckets and containers. A user name, a password or a port is none.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,221}", re.ASCII)

#: Host and port of an ``https`` URL.
_HOST = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?", re.ASCII
)

#: Plain HTTP is accepted from this machine only.
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")

#: The longest key that S3, Google Cloud Storage and Azure accept, in bytes.
MAX_KEY_BYTES = 1024


@record
class Url:
    """A folder or an object in an object store.

    Attributes:
        scheme: ``"s3"``, ``"gs"``, ``"az"``, ``"https"``, ``"http"`` (this machine only) or
            ``"memory"``.
        bucket: name of the bucket or container; of ``https``, the host.
        path: key of the object or of the folder, without slashes at its ends; empty for the whole
            bucket.

    """

    scheme: str
    bucket: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}".rstrip("/")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The folder that contains it; the bucket itself if there is no folder above."""
        return replace(self, path=self.path.rpartition("/")[0])

    def join(self, name: str) -> Url:
        """Return the URL of a path in this folder."""
        return replace(self, path=f"{self.path}/{name}".strip("/"))

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written or listed there, only read by name."""
        return self.scheme in ("https", "http")


def is_url(text: object) -> bool:
    """Return whether a text begins as a URL does: ``s3://``, also with a scheme that `parse_url` refuses.

    ``file://`` counts too; `local_path` reads it. A path such as ``C:/photos`` or ``a:b`` is not a
    URL.
    """
    # Most paths have no "://", and looking for it is faster than the expression.
    return isinstance(text, str) and "://" in text and _SCHEME.match(text) is not None


def parse_url(text: str) -> Url:
    """Read a URL.

    A query string or a user name is refused, because it may contain a credential: this function
    never repeats it.

    Raises:
        CallError: the scheme is not known, or the URL has no bucket, a query string, or a path that
            is not a valid key.

    """
    scheme, rest = _divide(text)
    bucket, _, path = rest.partition("/")
    is_local = scheme.lower() == "http" and _LOOPBACK.fullmatch(bucket)
    if not is_local and scheme.lower() not in SCHEMES:
        name = "the text is not a URL that is"
        if scheme:
            name = f"{scheme}:// URLs are"
        raise CallError(
            f"{printable(name)} not supported",
            hint="use s3://, gs://, az:// or file://; https:// can be read",
        )
    scheme = scheme.lower()
    if "?" in rest or "#" in rest or "@" in bucket:
        raise CallError(
            f"the URL {scheme}://... has a query string, a fragment or a user name, which may"
            " contain a credential",
            hint="leave it out; credentials come from the environment and the usual files",
        )
    pattern, place, example = _BUCKET, "bucket", scheme
    if scheme in ("https", "http"):
        pattern, place, example, path = _HOST, "host", "https", unquote(path)
    if not pattern.fullmatch(bucket):
        raise CallError(
            f"the URL {scheme}://... has no valid {place}",
            hint=f"write it like {example}://{place}/path",
        )
    return Url(scheme, bucket, check_key(path))


def _divide(text: str) -> tuple[str, str]:
    """Return the scheme of a URL as it is written, empty if it has none, and the text after it."""
    match = _SCHEME.match(text)
    if match is None:
        return "", text
    return match[1], text[match.end() :]


def check_key(path: str) -> str:
    """Return a path without slashes at its ends, after checking that every object store can store it.

    Raises:
        CallError: it has an empty part, a part ``.`` or ``..``, a control character, or is too
            long.

    """
    key = path.strip("/")
    problem = ""
    if key and not {"", ".", ".."}.isdisjoint(key.split("/")):
        problem = "an empty part, or a part . or .."
    elif not key.isprintable() or "\\" in key:
        problem = "a control character, a backslash, or a character that is not valid Unicode"
    elif len(key.encode()) > MAX_KEY_BYTES:
        problem = f"more than {MAX_KEY_BYTES:,} bytes"
    if problem:
        raise CallError(
            f"the path {printable(key[:200])} in a URL has {problem}",
            hint="write the path of an object",
        )
    return key


def local_path(text: str) -> str:
    """Return the path that a ``file://`` URL stands for; any other text is returned as it is.

    Raises:
        CallError: the URL names another machine.

    """
    scheme, rest = _divide(text)
    if scheme.lower() != "file":
        return text
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise CallError("a file:// URL names another machine", hint="write it like file:///folder")
    return "/" + unquote(path)


def join_path(root: str, path: str) -> str:
    """Return a path below a folder.

    Either may be a URL, and an absolute path or URL is returned as it is.
    """
    if not root or path.startswith("/") or ("://" in path and is_url(path)):
        return path
    return f"{root}/{path}"


def parent_folder(path: str) -> str:
    """Return the folder that contains a path or URL; a bucket contains itself."""
    if is_url(path):
        return str(parse_url(path).parent)
    return os.path.dirname(path)


def absolute(path: str) -> str:
    """Return a path as an absolute one; a URL is absolute."""
    return path if is_url(path) else os.path.abspath(path)


def is_absolute(text: str) -> bool:
    """Return whether a text is an absolute path or a valid URL."""
    if not is_url(text):
        return text.startswith("/") and "\0" not in text
    try:
        parse_url(text)
    except CallError:
        return False
    return True


def is_read_only(path: str) -> bool:
    """Return whether nothing can be written or listed there: a web server, which has files by name."""
    return is_url(path) and parse_url(path).is_read_only


def refuse_url(path: str, message: str, hint: str) -> None:
    """Raise a `CallError` if a path is a URL."""
    if is_url(path):
        raise CallError(message, hint=hint)


def normal_path(text: str) -> str:
    """Return a path or URL that the user gives: a ``file://`` URL as a path, any other URL in its normal form.

    Raises:
        CallError: the URL is not valid.

    """
    text = local_path(text)
    if is_url(text):
        text = str(parse_url(text))
    return text
