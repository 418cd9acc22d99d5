"""The worker processes of a command that runs in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from helpers.eventually import eventually


def group_members(group: int) -> list[int]:
    """Return the running processes of a process group, as /proc lists them."""
    members = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                state, _, pgrp = (
                    Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:3]
                )
            except OSError:
                continue
            if int(pgrp) == group and state != "Z":
                members.append(int(name))
    return members


def children() -> list[int]:
    """Return the processes that this thread has started and not waited for, the last one last."""
    return [*map(int, Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())]


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, unless all of it has ended: that of a `WarmProcess` may end at any time."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def pause(group: int) -> None:
    """Stop a process group, and wait until each process has stopped: the signal alone does not wait."""
    os.killpg(group, signal.SIGSTOP)
    _wait_until_paused(lambda: group_members(group))


def kill_at_once(processes: list[int]) -> None:
    """Kill processes so that none of them sees another one die."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    _wait_until_paused(lambda: processes)
    for process in processes:
        os.kill(process, signal.SIGKILL)


def _wait_until_paused(processes: Callable[[], list[int]]) -> None:
    while any(map(_running_threads, processes())):
        time.sleep(0.001)


def _running_threads(process: int) -> list[str]:
    """Return the threads of a process that are not stopped."""
    running = []
    for path in Path("/proc", str(process), "task").glob("*/stat"):
        with suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                running.append(path.parent.name)
    return running


def workers_of(process: subprocess.Popen) -> list[int]:
    """Return the running processes that a run has started; it leads its process group."""
    return [member for member in group_members(process.pid) if member != process.pid]


def wait_until_gone(group: int, seconds: float = 120.0) -> bool:
    return eventually(lambda: not group_members(group), seconds)
