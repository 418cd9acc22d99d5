"""Connect to an object store: the endpoint, the credentials, where they come from, and its errors.

Everything is read from the environment and from the usual files; nothing of it is ever part of a
message.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from manifests.errors import (
    CallError,
    DatasetError,
    RefusedError,
    ReplacedError,
    UnreachableError,
    is_machine_fault,
)
from manifests.remote.url import Url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Waits between the attempts of a request: 0.2 s at first, doubled up to 10 s.
_BACKOFF = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2}

#: A request that the server answers with a 5xx status, or not at all, is repeated for this long.
RETRY_SECONDS = 60.0
MAX_RETRIES = 12

#: Longest time of one attempt. An attempt to write may send a whole shard.
READ_SECONDS, WRITE_SECONDS = 30, 600

_EMULATOR = "AZURE_STORAGE_USE_EMULATOR"


def connect(url: Url, *, writes: bool = False) -> ObjectStore:
    """Return the store of a URL's bucket, cached for this process.

    Args:
        url: a URL in the bucket.
        writes: whether single attempts may take as long as a large upload does.

    Raises:
        CallError: ``obstore`` is not installed, or the environment lacks a setting that the store
            needs.

    """
    seconds = READ_SECONDS
    if writes:
        seconds = WRITE_SECONDS
    store: ObjectStore = _connect(url.scheme, url.bucket, seconds, os.getpid())
    return store


def close_connections() -> None:
    """Forget all stores, so that the next one reads the environment again.

    ``memory`` stores lose their content.
    """
    _connect.cache_clear()
    _memory.cache_clear()


@lru_cache(maxsize=256)
def _connect(scheme: str, bucket: str, seconds: int, pid: int) -> Any:
    del pid  # a part of the key: after a fork, the threads that a store needs are gone
    store = _import()
    options: dict[str, Any] = {
        "retry_config": {
            "max_retries": MAX_RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            "backoff": _BACKOFF,
        },
        "client_options": {
            "timeout": timedelta(seconds=seconds),
            "connect_timeout": timedelta(seconds=5),
        },
    }
    try:
        if scheme == "memory":
            return _memory(bucket)
        if scheme == "s3":
            return _connect_s3(store, bucket, options)
        if scheme == "gs":
            if endpoint := os.environ.get("GOOGLE_BASE_URL"):
                options["client_options"]["allow_http"] = _is_plain_http(
                    "GOOGLE_BASE_URL", endpoint
                )
            return store.GCSStore(bucket, **options)
        if scheme == "az":
            options["client_options"]["allow_http"] = _is_set(_EMULATOR)
            return store.AzureStore(bucket, **options)
        options["client_options"]["allow_http"] = scheme == "http"
        return store.HTTPStore.from_url(f"{scheme}://{bucket}", **options)
    except CallError:
        raise
    except Exception as error:  # obstore has no common type for a setting that is missing or wrong
        settings = _SETTINGS.get(scheme, "the variables of proxies, such as HTTPS_PROXY")
        raise CallError(
            f"{scheme}://{bucket} cannot be opened: a setting in the environment is missing or"
            f" wrong ({type(error).__name__})",
            hint=f"check {settings}",
        ) from None


@lru_cache(maxsize=64)
def _memory(bucket: str) -> Any:
    del bucket
    return _import().MemoryStore()


def _import() -> Any:
    try:
        from obstore import store
    except ImportError:
        raise CallError(
            "URLs need the package obstore, which is not installed",
            hint="run `pip install 'dataprep-loaders[cloud]'`",
        ) from None
    return store


def _connect_s3(store: Any, bucket: str, options: dict[str, Any]) -> Any:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    has_keys = os.environ.get("AWS_ACCESS_KEY_ID") or _is_set("AWS_SKIP_SIGNATURE")
    if not has_keys and _aws_file():
        endpoint = _use_aws_files(options) or endpoint
    if endpoint:
        options["endpoint"] = endpoint.rstrip("/")
        options["client_options"]["allow_http"] = _is_plain_http("AWS_ENDPOINT_URL", endpoint)
    return store.S3Store(bucket, **options)


#: Address of a server: scheme, host, port and path.
_ENDPOINT = re.compile(
    r"(https?)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[!-~]*)?",
    re.ASCII | re.IGNORECASE,
)


def _is_plain_http(name: str, endpoint: str) -> bool:
    """Return whether the address of a server begins with ``http://``.

    The client ends the process for a wrong one.

    Raises:
        CallError: it is no such address. It may contain a password, so it is not repeated.

    """
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None:
        raise CallError(
            f"{name} is not the URL of a server",
            hint="write it like https://host or http://host:8333",
        )
    return match[1].lower() == "http"


def _use_aws_files(options: dict[str, Any]) -> str | None:
    """Let boto3 read the AWS files, refresh roles and single sign-on.

    Return the endpoint of the profile.
    """
    try:
        import boto3.session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise CallError(
            "the AWS credential files need the package boto3, which is not installed",
            hint=(
                "run `pip install 'dataprep-loaders[cloud]'`, or set AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY"
            ),
        ) from None
    session = boto3.session.Session()
    if session.get_credentials() is None:
        # Files without this profile's credentials: the machine's role, if any.
        return None
    options["credential_provider"] = Boto3CredentialProvider(session)
    if session.region_name:
        options["region"] = session.region_name
    scoped: dict[str, Any] = session._session.get_scoped_config()
    return scoped.get("endpoint_url")


# --- where credentials come from ----------------------------------------------------------------

#: What to check if a store refuses a request, by scheme.
_SETTINGS = {
    "s3": (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, or the profile"
        " in ~/.aws"
    ),
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


#: Where the credentials of a store come from, by scheme: the first of these variables that is set, a
#: file that exists, or else the last one.
_AWS_FILES = "the AWS files"
_GCLOUD = "~/.config/gcloud/application_default_credentials.json"
_SOURCES = {
    "s3": {
        "AWS_SKIP_SIGNATURE": "no credentials, because {name} is set",
        "AWS_ACCESS_KEY_ID": "the credentials in {name} and AWS_SECRET_ACCESS_KEY",
        _AWS_FILES: "profile {profile} in {file}",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "the web identity in {name}",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "the role of the container",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "the role of the container",
        "": "the role of this machine",
    },
    "gs": {
        "GOOGLE_SKIP_SIGNATURE": "no credentials, because {name} is set",
        "GOOGLE_BEARER_TOKEN": "the token in {name}",
        "GOOGLE_APPLICATION_CREDENTIALS": "the file in {name}",
        "GOOGLE_SERVICE_ACCOUNT": "the file in {name}",
        "GOOGLE_SERVICE_ACCOUNT_PATH": "the file in {name}",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "the credentials in {name}",
        _GCLOUD: "the login of gcloud",
        "": "the service account of this machine",
    },
    "az": {
        _EMULATOR: "the fixed credentials of the Azure emulator",
        "AZURE_STORAGE_ACCOUNT_KEY": "the credentials in {name}",
        "AZURE_STORAGE_ACCESS_KEY": "the credentials in {name}",
        "AZURE_STORAGE_SAS_KEY": "the credentials in {name}",
        "AZURE_CLIENT_SECRET": "the credentials in {name}",
        "AZURE_FEDERATED_TOKEN_FILE": "the workload identity in {name}",
        "": "the managed identity of this machine",
    },
}

#: Variables that are switches.
_SWITCHES = ("AWS_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", _EMULATOR)


def credential_source(url: Url) -> str:
    """Return where the credentials of a store come from, for a message: never the credentials themselves."""
    file, profile = _aws_file(), os.environ.get("AWS_PROFILE") or "default"
    for name, text in _SOURCES.get(url.scheme, {}).items():
        is_given: Any = not name or os.environ.get(name)
        if name in _SWITCHES:
            is_given = _is_set(name)
        elif name == _AWS_FILES:
            is_given = file
        elif name == _GCLOUD:
            is_given = os.path.isfile(os.path.expanduser(name))
        if is_given:
            return text.format(name=name, file=file, profile=profile)
    return "no credentials"


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


def _aws_file() -> str | None:
    """Return the first of the AWS files that exists."""
    for name, default in (
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        ("AWS_CONFIG_FILE", "~/.aws/config"),
    ):
        path = os.path.expanduser(os.environ.get(name) or default)
        if os.path.isfile(path):
            return path
    return None


# --- errors of object stores ----------------------------------------------------------------------
#
# A server's answer may repeat the key that was used, the text that was signed, or a URL with a
# signature. So nothing of an error's text is ever shown, except the HTTP status and the server's
# error code, which are matched strictly.

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
    return UnreachableError(
        f"the object cannot be {_PARTICIPLES.get(verb, verb)}: {_reason(text, status, code)}",
        file=place,
        hint=(
            "check the network and the endpoint, then run the same command again; finished shards"
            " are kept"
        ),
    )


def is_broken_answer(error: Exception) -> bool:
    """Return whether an answer broke off after it began, which the store's client does not repeat by itself."""
    text = str(error)
    is_repeated = "max_retries" in text.partition("Debug source")[0] or _STATUS.search(text)
    return type(error).__name__ == "GenericError" and not is_repeated


_PARTICIPLES = {"write": "written", "list": "listed", "delete": "deleted"}


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    if match is None:
        return ""
    return match[1]


#: What a part of an error's text says, in lower case. The first one counts.
_REASONS = {
    "connect": "the server cannot be reached",
    "dns": "the server cannot be reached",
    "timed out": "the server did not answer in time",
    "timeout": "the server did not answer in time",
    "builder error": "the endpoint is not a valid https:// URL",
    "url scheme is not allowed": "the endpoint is not a valid https:// URL",
}


def _reason(text: str, status: str, code: str) -> str:
    if status:
        answer = f"{status} {code}".strip()
        return f"the server answered {answer}, after retries of up to {RETRY_SECONDS:g} s"
    for part, reason in _REASONS.items():
        if part in text.lower():
            return reason
    return "the connection broke, or the server's answer was not valid"
