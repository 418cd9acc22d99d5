"""A command that runs in a fork of a warm process, for tests that signal it while it works.

See `warm_executable`. The fork has the process ID that signals go to, and leads a process group of
its own.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: Seconds until a process that does not start, or does not end, fails its test.
_LIMIT = 300

#: Seconds until a process that does not begin its program fails its test.
_START_LIMIT = 60

#: The file to which the process writes its ID.
_REPORT = 3


class WarmProcess:
    """What `subprocess.Popen(..., start_new_session=True)` is for an interpreter that begins with its imports done.

    Its output goes to pipes. When this object is collected, the process is killed, because the
    socket is closed over which its end would be reported. Other processes of its group are not.

    Args:
        executable: what `WarmPython.executable` returns.
        arguments: those of `python`. The program first calls `lead_group`.

    Attributes:
        pid: the process, which leads a process group.
        returncode: its exit status, or the negative number of the signal that ended it; `None`
            while it runs.

    """

    def __init__(self, executable: str, *arguments: str) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(os.fspath(Path(executable).with_name("socket")))
        pipes = [os.pipe() for _ in range(3)]
        readers, writers = [reader for reader, _ in pipes], [writer for _, writer in pipes]
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            self._send(arguments, [null, *writers])
        finally:
            for file in (null, *writers):
                os.close(file)
        self._outputs = readers[:2]
        with open(readers[2], "rb", buffering=0) as file:
            pid = file.read() if select.select([file], [], [], _START_LIMIT)[0] else b""
        if not pid:
            self._connection.shutdown(socket.SHUT_WR)  # kills the process, if it has not ended
            raise AssertionError(f"the program did not start: {self.communicate()[1]}")
        self.pid = int(pid)

    def _send(self, arguments: Sequence[str], files: Sequence[int]) -> None:
        """Ask for a fork with these arguments and with the files as its first ones."""
        request = marshal.dumps(
            (list(arguments), os.getcwd(), dict(os.environ), list(range(len(files))))
        )
        socket.send_fds(self._connection, [len(request).to_bytes(8, "big")], files)
        self._connection.sendall(request)

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self._await_end(0)

    def wait(self, timeout: float = _LIMIT) -> int:
        """Wait for the end; return `returncode`."""
        if self._await_end(timeout) is None:
            raise subprocess.TimeoutExpired("dataprep", timeout)
        assert self.returncode is not None
        return self.returncode

    def _await_end(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            status = self._connection.recv(4)
            assert status, "the warm process has ended"
            self.returncode = int.from_bytes(status, "big", signed=True)
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float = _LIMIT) -> tuple[str, str]:
        """Wait until no process has the pipes open; return what came to stdout and stderr."""
        texts, deadline = dict.fromkeys(self._outputs, b""), time.monotonic() + timeout
        while self._outputs:
            if not (
                ready := select.select(
                    self._outputs, [], [], max(0.0, deadline - time.monotonic())
                )[0]
            ):
                raise subprocess.TimeoutExpired("dataprep", timeout)
            for file in ready:
                if data := os.read(file, 1 << 16):
                    texts[file] += data
                else:
                    os.close(file)
                    self._outputs.remove(file)
        self.wait(timeout)
        stdout, stderr = (text.decode() for text in texts.values())
        return stdout, stderr

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end is not reported yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)


def lead_group() -> None:
    """Make this process the leader of a session and a process group, and tell its ID to the test."""
    os.setsid()
    os.write(_REPORT, str(os.getpid()).encode())
    os.close(_REPORT)
