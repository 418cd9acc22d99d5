"""Object stores for benchmarks: SeaweedFS on 127.0.0.1, and a proxy that adds latency to every request."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import WrongOptionError
from helpers.servers import BUCKET, NO_SEAWEEDFS, find_weed, seaweedfs
from helpers.tcp_proxy import TcpProxy

from manifests.remote.connect import close_connections

URL = f"s3://{BUCKET}/set"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run SeaweedFS, which this process and its children use; yield its endpoint."""
    if find_weed() is None:
        raise WrongOptionError(NO_SEAWEEDFS)
    with seaweedfs(folder) as environment:
        os.environ |= environment
        use_endpoint(environment["AWS_ENDPOINT_URL"])
        yield environment["AWS_ENDPOINT_URL"]


def use_endpoint(endpoint: str) -> None:
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    close_connections()


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


@contextmanager
def latency_proxy(endpoint: str, milliseconds: float) -> Iterator[str]:
    """Run a proxy that delivers each request late, in a process of its own. Yield its endpoint."""
    context = multiprocessing.get_context("spawn")
    ports: Any = context.SimpleQueue()
    arguments = (port_of(endpoint), milliseconds / 1000, ports)
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get()}"
    finally:
        process.kill()
        process.join()


def _serve(port: int, delay: float, ports: Any) -> None:
    ports.put(TcpProxy(port, delay=delay).port)
    time.sleep(1e6)
