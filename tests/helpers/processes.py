"""The worker processes of a command that runs in a process group of its own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


def group_members(group: int) -> list[int]:
    """Return the running processes of a process group, as /proc lists them."""
    members = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                state, _, pgrp = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(pgrp) == group and state != "Z":
                members.append(int(name))
    return members


def workers_of(process: subprocess.Popen) -> list[int]:
    workers = []
    for child in group_members(process.pid):
        try:
            if b"engines" in Path("/proc", str(child), "cmdline").read_bytes():
                workers.append(child)
        except OSError:
            continue
    return workers


def wait_until_gone(group: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while group_members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
