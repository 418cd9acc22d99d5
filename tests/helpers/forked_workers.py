"""Importing this module makes the first worker of a run a fork of it, so that nothing is imported again.

A fork of a process with threads may deadlock. A worker that starts when there are some is a new
interpreter, as usual.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace

from dataprep.engines import worker


class _Fork:
    """What `WorkerProcess` uses of `subprocess.Popen`."""

    def __init__(self, program: str, environment: Mapping[str, str], files: Sequence[int]) -> None:
        self._status: int | None = None
        self._lock = threading.Lock()
        pipes: list[int] = []
        try:
            for _ in range(2):
                pipes += os.pipe()
            self.pid = os.fork()
        except OSError:
            for file in pipes:
                os.close(file)
            raise
        task_reader, task_writer, answer_reader, answer_writer = pipes
        if not self.pid:
            try:
                os.dup2(task_reader, 0)
                os.dup2(answer_writer, 1)
                _become_worker(environment, files)
                exec(program, {})
                os._exit(0)
            finally:
                os._exit(1)
        os.close(task_reader)
        os.close(answer_writer)
        self.stdin, self.stdout = os.fdopen(task_writer, "wb"), os.fdopen(answer_reader, "rb")

    def kill(self) -> None:
        if self._status is None:
            with suppress(ProcessLookupError):  # another thread waits for its end
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        with self._lock:
            if self._status is None:
                self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self._status


def _become_worker(environment: Mapping[str, str], files: Sequence[int]) -> None:
    """Keep nothing that a new interpreter would not have, such as the lock of the output."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in files:
            with suppress(OSError):  # the folder that is listed
                os.close(int(name))
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115


def _start(command: Sequence[str], **options) -> _Fork | subprocess.Popen:
    if len(os.listdir("/proc/self/task")) > 1:
        return subprocess.Popen(command, **options)
    return _Fork(command[-1], options["env"], options["pass_fds"])


if sys.platform == "linux":
    worker.subprocess = SimpleNamespace(Popen=_start, PIPE=subprocess.PIPE)
