"""Translate the errors of object stores into ours.

A server's answer may repeat the key that was used, the text that was signed, or a URL with a
signature. So nothing of an error's text is ever shown, except the HTTP status and the server's
error code, which are matched strictly.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from manifests.errors import CallError, DatasetError, RefusedError, ReplacedError, UnreachableError
from manifests.process.unexpected_errors import is_machine_fault
from manifests.remote.connect import RETRY_SECONDS, credential_source
from manifests.remote.url import Url

_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CODE = re.compile(r"<Code>([A-Za-z]{3,60})</Code>")

#: Wrong usage rather than a fault: no retry and no later run helps.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "ContainerBeingDeleted")


@contextmanager
def translated(url: Url, verb: str) -> Iterator[None]:
    """Raise what an object store's client raises in this block as one of our errors.

    Args:
        url: the object or folder.
        verb: what cannot be done, for the message: ``"read"``.

    Raises:
        FileNotFoundError: the object does not exist.
        CallError: the bucket does not exist, or the store cannot do this.
        ReplacedError: the object is not the expected one any more.
        StorageError: any other reason, after all retries.

    """
    try:
        yield
    except (DatasetError, MemoryError):
        raise
    except Exception as error:
        if is_machine_fault(error):
            raise
        raise translate(error, url, verb) from None


def translate(error: Exception, url: Url, verb: str) -> Exception:
    """Return our error for one of a store's client."""
    name, text = type(error).__name__, str(error)
    status, code = _first(_STATUS, text), _first(_CODE, text)
    place = str(url)
    if code in _NO_BUCKET:
        return CallError(
            f"{url.scheme}://{url.bucket}: the bucket does not exist",
            hint="check its name, or create it",
        )
    if name in ("PreconditionError", "NotModifiedError"):
        return ReplacedError(
            "the object was replaced while it was in use",
            file=place,
            hint="do not change a dataset that is in use",
        )
    if isinstance(error, ValueError):
        return CallError(f"{place} is not a valid key of an object", hint="rename it")
    if isinstance(error, FileNotFoundError) or status == "404":
        return FileNotFoundError(errno.ENOENT, "the object does not exist", place)
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
        reason = f" ({code})" if code else ""
        return RefusedError(
            f"the object store refused permission{reason} to {verb} it with"
            f" {credential_source(url)}",
            file=place,
            hint="check these credentials and the permissions that docs/object-storage.md lists",
        )
    return _unreachable(place, verb, _reason(text, status, code))


def _unreachable(place: str, verb: str, reason: str) -> UnreachableError:
    return UnreachableError(
        f"the object cannot be {_PARTICIPLES.get(verb, verb)}: {reason}",
        file=place,
        hint=(
            "check the network and the endpoint, then run the same command again; finished shards"
            " are kept"
        ),
    )


def is_broken_answer(error: Exception) -> bool:
    """Return whether an answer broke off after it began, which the store's client does not repeat by itself."""
    text = str(error)
    return (
        type(error).__name__ == "GenericError"
        and "max_retries" not in text.partition("Debug source")[0]
        and not (_STATUS.search(text))
    )


_PARTICIPLES = {"write": "written", "list": "listed", "delete": "deleted"}


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _reason(text: str, status: str, code: str) -> str:
    if status:
        return (
            f"the server answered {status}{f' {code}' if code else ''}, after retries of up to"
            f" {RETRY_SECONDS:g} s"
        )
    lowered = text.lower()
    if "connect" in lowered or "dns" in lowered:
        return "the server cannot be reached"
    if "timed out" in lowered or "timeout" in lowered:
        return "the server did not answer in time"
    if "builder error" in lowered or "url scheme is not allowed" in lowered:
        return "the endpoint is not a valid https:// URL"
    return "the connection broke, or the server's answer was not valid"
