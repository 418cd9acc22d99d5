"""One worker process: `WorkerProcess` starts it and sends it tasks, `serve` runs inside it.

Parent and worker exchange pickles over the worker's standard input and output.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from dataprep.engines.base import Function, Task, answer, result_of
from dataprep.images.base import share_pixel_file
from dataprep.progress import PartOfShard, listen, report_images
from manifests.errors import HINTS, WorkerDiedError
from manifests.process.program import debugs, open_streams

# --- in the parent process ----------------------------------------------------------------------

#: A worker that cannot start ends with the error number of the operating system as its exit status.
_PROGRAM = """
import os, sys
try:
    sys.path[:] = {path!r}
    from dataprep.engines.worker import serve
    serve({module!r}, {pixels!r})
except BaseException as error:
    if {debug!r}:
        sys.excepthook(type(error), error, error.__traceback__)
    os._exit(12 if isinstance(error, MemoryError) else getattr(error, "errno", None) or 1)
"""


class WorkerProcess:
    """A child process that applies functions to tasks until its standard input is closed.

    It is a fresh interpreter, because a fork of a process with threads may deadlock. Unlike
    `multiprocessing`, it does not import the program that started it: the caller's script needs no
    `if __name__ == "__main__"`, and the worker starts faster.

    Args:
        module: imported in the worker at its start.
        pixels: the file of `dataprep.images.base.create_pixel_file` that it shares.

    """

    def __init__(self, module: str, pixels: int | None = None) -> None:
        program = _PROGRAM.format(path=sys.path, module=module, pixels=pixels, debug=debugs())
        command = [sys.executable, "-X", f"utf8={sys.flags.utf8_mode}", "-c", program]
        # Without this, NumPy starts one thread per CPU in each worker for linear algebra that no
        # task uses.
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=() if pixels is None else (pixels,),
        )

    def send(self, function: Callable[[Task], Any], task: Task) -> None:
        """Send a task, even if the worker has not answered the previous one.

        Raises:
            WorkerDiedError: the worker was killed.

        """
        try:
            pickle.dump((function, task), self._process.stdin, pickle.HIGHEST_PROTOCOL)  # type: ignore[arg-type]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            raise self._end() from None

    def receive(self) -> Any:
        """Wait for the result of the earliest task without one, or raise its error.

        Raises:
            WorkerDiedError: the worker was killed.

        """
        try:
            while isinstance(answered := pickle.load(self._process.stdout), PartOfShard):  # type: ignore[arg-type]  # noqa: S301
                report_images(*answered)
        except (EOFError, pickle.UnpicklingError):
            raise self._end() from None
        return result_of(*answered)

    def _end(self) -> WorkerDiedError:
        self.kill()
        return _died(self._process.wait())

    def kill(self) -> None:
        """Kill the process without waiting for it."""
        self._process.kill()

    def wait(self) -> None:
        """Wait until the process is gone, and close its pipes."""
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]


def _died(status: int) -> WorkerDiedError:
    """Return the error for a worker process that ended with this exit status.

    Negative for a signal.
    """
    hint = (
        "run the same command again; if this happens again, use fewer --workers. Finished shards"
        " are kept"
    )
    if status == -signal.SIGKILL:
        return WorkerDiedError(
            "a worker process was killed, possibly because memory ran out", hint=hint
        )
    if status < 0:
        name = signal.Signals(-status).name
        return WorkerDiedError(
            f"a worker process was killed by {name}, possibly because a library failed", hint=hint
        )
    if status > 1 and status in HINTS:
        return WorkerDiedError(
            f"a worker process could not start ({os.strerror(status)})", hint=HINTS[status]
        )
    return WorkerDiedError(f"a worker process could not start (exit status {status})", hint=hint)


# --- in the worker process ----------------------------------------------------------------------

#: Option of prctl(2): Linux sends a signal to this process when the thread that started it ends.
_PR_SET_PDEATHSIG = 1


def serve(module: str, pixels: int | None = None) -> None:
    """Read tasks from standard input and write answers to standard output until the parent is gone."""
    # The end of input alone is not enough: a worker that is paused (SIGSTOP) notices it only some
    # time after it continues, and could write to the output folder until then.
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a task goes to standard error, so it cannot corrupt the answers
    open_streams()
    listen(_PartSender(answers))
    calls: _Calls = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(calls,), daemon=True).start()
    share_pixel_file(pixels)
    importlib.import_module(module)
    while (call := calls.get()) is not None:
        _send(answers, answer(*call))


def _send(answers: BinaryIO, message: bytes) -> None:
    with _sending:
        answers.write(message)
        answers.flush()


_sending = threading.Lock()

#: Seconds between two messages about parts of a shard: the parent must not be busy with receiving
#: them.
_PART_SECONDS = 0.1


class _PartSender:
    """Sends the parts of shards that tasks report to the parent, but not too often."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._shard = ""
        self._images = 0
        self._sent = 0.0
        self._lock = threading.Lock()  # tasks may have several threads

    def __call__(self, part: PartOfShard) -> None:
        with self._lock:
            # Images of another shard are forgotten: the shard may be finished, and then they are
            # counted.
            self._images = part.images + (self._images if part.shard == self._shard else 0)
            self._shard = part.shard
            if (now := time.monotonic()) - self._sent >= _PART_SECONDS:
                _send(
                    self._answers,
                    pickle.dumps(PartOfShard(self._shard, self._images), pickle.HIGHEST_PROTOCOL),
                )
                self._images, self._sent = 0, now


#: Functions with their tasks; ends with `None`.
_Calls = queue.SimpleQueue[tuple[Function, Any] | None]


def _receive(calls: _Calls) -> None:
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))  # noqa: S301
    except (EOFError, pickle.UnpicklingError):  # the parent is gone
        os._exit(1)
    except (
        BaseException
    ) as error:  # the module of the function cannot be imported, for example: answer that
        calls.put((_raise, error))
        calls.put(None)


def _raise(error: BaseException) -> None:
    raise error
