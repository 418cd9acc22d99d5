"""Decode images in a process of their own, with limits on its memory and its CPU time.

The decoders of formats such as HEIC and DICOM are large C libraries, and a file may crash them or
keep them busy. Here this costs one image: the process dies, and the next image gets a new one.
A worker starts its process at the first image that needs one.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dataprep.images.base import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator


class Limits(NamedTuple):
    """What one step may use.

    Attributes:
        memory: bytes of address space beyond what the process has before the step.
        seconds: CPU time.

    """

    memory: int
    seconds: int


PROGRAM = """
import sys
from importlib import import_module
sys.path[:] = {path!r}
decoders = import_module({module!r})
import_module("dataprep.images.isolated").serve(decoders.STEPS, decoders.describe)
"""


class IsolatedProcess:
    """A child process that decodes one image at a time, started when it is needed.

    Args:
        module: the module whose `STEPS` it runs.

    """

    def __init__(self, module: str = "dataprep.images.decoders") -> None:
        self._module = module
        atexit.register(self.stop)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # tasks may have several threads

    def call(
        self, step: str, data: bytes, settings: Mapping[str, Any], limits: Limits
    ) -> tuple[dict[str, Any], bytes]:
        """Apply a function of the module to an encoded image.

        Args:
            step: name of the function.
            data: the encoded image.
            settings: its other arguments, which JSON can express.
            limits: what the step may use.

        Returns:
            The values that the function returns, and its bytes.

        Raises:
            Rejected: the image does not decode, or not within the limits.
            MemoryError: the system has no memory left.

        """
        request = {"step": step, "bytes": len(data), "settings": settings, "limits": limits}
        with self._lock:
            try:
                values, content = self._exchange(json.dumps(request).encode(), data)
            except BaseException:
                self.stop()  # an answer that nobody read would be taken for the next one
                raise
        if values is None:
            raise self._death(limits)
        if "reason" in values:
            raise Rejected(values["reason"], values["detail"])
        return values, content

    def _exchange(self, request: bytes, data: bytes) -> tuple[dict[str, Any] | None, bytes]:
        """Return the answer; `None` if the process ended instead."""
        process = self._process = self._process or _start(self._module)
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise BrokenPipeError
        with suppress(BrokenPipeError):
            stdin.write(request + b"\n")
            stdin.write(data)
            stdin.flush()
        line = stdout.readline()
        values = json.loads(line) if line.endswith(b"\n") else None
        content = stdout.read(values["bytes"]) if values else b""
        if values and len(content) == values["bytes"]:
            return values, content
        return None, b""

    def _death(self, limits: Limits) -> Exception:
        """Return the error for a process that ended during a step."""
        status = self._process.wait() if self._process else 0
        self.stop()
        if status == -signal.SIGXCPU:
            return Rejected(
                "too-large", f"decoding it takes more than {limits.seconds} s of CPU time"
            )
        if status == -signal.SIGKILL:
            return MemoryError("the process that decodes images was killed")
        if status >= 0:
            return RuntimeError(f"the process that decodes images ended with status {status}")
        return Rejected("corrupt", f"the decoder crashed with {signal.Signals(-status).name}")

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]


#: The process of this worker.
ISOLATED = IsolatedProcess()


def _start(module: str) -> subprocess.Popen[bytes]:
    # One arena: with one for each thread, address space would say little about memory.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", PROGRAM.format(path=sys.path, module=module)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # C libraries print what they think of a file
        env=environment,
    )


# --- in the child process -------------------------------------------------------------------------


#: A function that decodes: from an encoded image and settings to values and bytes.
Step = Callable[..., tuple[dict[str, Any], bytes]]


def serve(steps: Mapping[str, Step], describe: Callable[[Exception], str]) -> None:
    """Read images from standard input and answer with their pixels until the input ends.

    Args:
        steps: the functions that the parent process can call, by name.
        describe: makes one line of what a function has raised.

    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends the input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        step = partial(steps[request["step"]], data, **request["settings"])
        values, content = _apply(step, Limits(*request["limits"]), describe)
        answers.write(json.dumps({**values, "bytes": len(content)}).encode() + b"\n")
        answers.write(content)
        answers.flush()


def _apply(
    step: Step, limits: Limits, describe: Callable[[Exception], str]
) -> tuple[dict[str, Any], bytes]:
    """Return what a function returns, or why the image is rejected."""
    try:
        with _limited(limits):
            return step()
    except Rejected as error:
        return {"reason": error.reason, "detail": error.detail}, b""
    except MemoryError:
        detail = f"decoding it takes more than {limits.memory >> 20} MiB of memory"
        return {"reason": "too-large", "detail": detail}, b""
    except Exception as error:  # damaged images raise many kinds
        return {"reason": "corrupt", "detail": describe(error)}, b""


@contextmanager
def _limited(limits: Limits) -> Iterator[None]:
    """Limit this process until the end of the block."""
    kinds = {resource.RLIMIT_CPU: int(time.process_time()) + limits.seconds + 1}
    if sys.platform == "linux":  # other systems do not say how much is in use
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        kinds[resource.RLIMIT_AS] = used + limits.memory
    before = {kind: resource.getrlimit(kind) for kind in kinds}
    for kind, most in kinds.items():
        _, hard = before[kind]
        resource.setrlimit(kind, (most if hard < 0 else min(most, hard), hard))
    try:
        yield
    finally:
        for kind, limit in before.items():
            resource.setrlimit(kind, limit)
