"""Object stores for benchmarks: SeaweedFS on 127.0.0.1, and a proxy that adds latency to every request."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness import WrongOptionError
from helpers.servers import BUCKET, NO_SEAWEEDFS, find_weed, seaweedfs

from manifests.remote.connect import close_connections

__all__ = ["BUCKET", "latency_proxy", "served", "use_endpoint"]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run SeaweedFS, which this process and its children use; yield its endpoint."""
    if find_weed() is None:
        raise WrongOptionError(NO_SEAWEEDFS)
    with seaweedfs(folder) as environment:
        os.environ |= environment
        close_connections()
        yield environment["AWS_ENDPOINT_URL"]


def use_endpoint(endpoint: str) -> None:
    os.environ["AWS_ENDPOINT_URL"] = endpoint
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
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with this process
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
