"""Connect to a Ray cluster, without what Ray prints, and with one line for each thing that can go wrong."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from manifests.errors import CallError, StoppedError, WorkerDiedError
from manifests.process.program import debugs
from manifests.process.text import one_line, printable

#: Seconds to wait for an answer from the address of a cluster.
_CONNECT_SECONDS = 10.0

#: How often to connect: a cluster forks a process for each client `ray://`, which sometimes dies at
#: once.
_ATTEMPTS = 3

#: Read by Ray when it is imported.
_ENVIRONMENT = {
    "RAY_NUM_REDIS_GET_RETRIES": "2",  # attempts to connect, of up to 40 seconds each
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # it prints a stack at SIGTERM
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # silences a warning about this variable
}

_HINT = "start one with `ray start --head`, or give the address of a running one with --address"
AGAIN = "run the same command again; finished shards are kept"


def connect(address: str) -> tuple[Any, bool]:
    """Connect this process to a cluster, unless it already is.

    Return the module `ray`, and whether this call did it.

    Args:
        address: ``"auto"`` for the cluster of this machine or of ``RAY_ADDRESS``, ``HOST:PORT``, or
            ``ray://HOST:PORT``.

    Raises:
        CallError: Ray is not installed, or there is no cluster at this address that this process
            can use.

    """
    ray = _import()
    if ray.is_initialized():
        return ray, False
    _check_answer(_running_cluster(ray) if address == "auto" else address)
    for attempt in range(_ATTEMPTS):
        with _own_signals(), _quiet(ray):
            try:
                level = logging.INFO if debugs() else logging.FATAL
                ray.init(address=address, log_to_driver=debugs(), logging_level=level)
                break
            except Exception as error:
                with suppress(Exception):
                    ray.shutdown()
                if isinstance(error, ConnectionAbortedError) and attempt + 1 < _ATTEMPTS:
                    continue
                reason = _first_line(error)
                raise CallError(
                    f"--address {address}: the Ray cluster cannot be used: {reason}", hint=_HINT
                ) from None
    return ray, True


def _import() -> Any:
    if not debugs():
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise CallError(
            "--engine ray needs the package ray", hint="run `pip install 'dataprep-loaders[ray]'`"
        ) from None
    return ray


def _running_cluster(ray: Any) -> str:
    """Return the address of the cluster that ``RAY_ADDRESS`` names, or that this machine belongs to."""
    try:
        return os.environ.get("RAY_ADDRESS") or str(
            ray._private.services.canonicalize_bootstrap_address("auto")
        )
    except ConnectionError:
        raise CallError(
            "--engine ray: this machine does not belong to a Ray cluster", hint=_HINT
        ) from None


def _check_answer(address: str) -> None:
    """Check that something answers at an address: Ray itself would try for minutes.

    Raises:
        CallError: nothing does, or this is not an address.

    """
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("", "ray") or not (port or parts.scheme):
        raise CallError(
            f"--address {printable(address)} is not an address of a Ray cluster",
            hint="use auto, HOST:PORT (6379 by default) or ray://HOST:PORT (10001 by default)",
        )
    if parts.scheme:
        _check_client()
    reason = unreachable(host, port or 10001)
    if reason:
        raise CallError(
            f"--address {printable(address)}: no Ray cluster answers there ({reason})", hint=_HINT
        )


def _check_client() -> None:
    try:
        import_module("grpc")
    except ImportError:
        raise CallError(
            "--address ray://… needs the package grpcio",
            hint="run `pip install 'dataprep-loaders[ray]'`",
        ) from None


#: The beginning of a connection of HTTP/2, on which gRPC is based: a fixed text and an empty frame
#: of settings.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def unreachable(host: str, port: int, seconds: float = _CONNECT_SECONDS) -> str:
    """Return why no server of Ray answers at a TCP port; an empty string if one does."""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return ""
            connection.sendall(_HTTP2_GREETING)
            frame = connection.recv(9, socket.MSG_WAITALL)
    except OSError as error:
        return error.strerror or str(error)
    return "" if frame[3:4] == _HTTP2_GREETING[-6:-5] else "there is another kind of server"


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the signal handlers of this program, which `ray.init` replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        with suppress(ValueError):  # not the main thread, where `ray.init` replaces nothing
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Let Ray print nothing while it connects, and no messages of the cluster after that.

    Its libraries in C++ print to the standard error of the process, and its messages would go to
    standard output, between the results of a command.
    """
    if debugs():
        yield
        return
    # Ray has no option for the messages of its raylets ("a worker died"), which it prints even
    # without `log_to_driver`.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    with warnings.catch_warnings(), _no_stderr():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Drop what is written to the standard error of this process, except what the handler of Ctrl-C writes."""
    handler, saved, null = (
        signal.getsignal(signal.SIGINT),
        os.dup(2),
        os.open(os.devnull, os.O_WRONLY),
    )

    def restore_and_interrupt(number: int, frame: Any) -> None:
        os.dup2(saved, 2)
        if callable(handler):
            handler(number, frame)

    if callable(handler) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, restore_and_interrupt)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


@contextmanager
def translate_errors(ray: Any) -> Iterator[None]:
    """Raise an error of Ray itself as one that says what to do."""
    try:
        yield
    except (
        ray.exceptions.RayTaskError
    ) as error:  # our function returns its errors, so it could not be called
        reason = str(error.cause) if getattr(error, "cause", None) else str(error)
        raise StoppedError(
            f"a machine of the Ray cluster cannot run dataprep: {_last_line(reason)}",
            hint="install the same release of dataprep on every machine of the cluster",
        ) from None
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise WorkerDiedError(f"the Ray cluster failed: {_first_line(error)}", hint=AGAIN) from None


def check_connection(ray: Any) -> None:
    """Check that the cluster answers.

    Ray itself ends the process some time after a part that it needs is gone.

    Raises:
        WorkerDiedError: it does not answer.

    """
    if ray.util.client.ray.is_connected():
        return  # a client raises an error by itself
    if reason := _local_part_gone(ray):
        raise WorkerDiedError(f"Ray does not run on this machine any more ({reason})", hint=AGAIN)
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    for _ in range(3):
        reason = unreachable(host, int(port), seconds=5)
        if not reason:
            return
        time.sleep(5)
    raise WorkerDiedError(
        f"the head of the Ray cluster does not answer any more ({reason})", hint=AGAIN
    )


def _local_part_gone(ray: Any) -> str:
    """Return why the raylet, the process of Ray on this machine, does not answer.

    An empty string if it does.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(ray._private.worker.global_worker.node.raylet_socket_name)
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _first_line(error: BaseException) -> str:
    """Return the first line of a message, with the last one if it only introduces a traceback."""
    text = str(error).strip()
    first = next(iter(text.splitlines()), "") or type(error).__name__
    return one_line(f"{first} {_last_line(text)}" if first.endswith(":") else first)


def _last_line(text: str) -> str:
    return one_line(next(reversed(text.strip().splitlines()), ""))
