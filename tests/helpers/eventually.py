"""Wait for what another thread or the system does soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    """Wait until a condition holds; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def wait_until_idle() -> None:
    """Wait until all other threads of this process wait for something, and none has anything left to do."""
    idle = 0
    while idle < 20:
        time.sleep(0.005)
        idle = idle + 1 if _states() <= {"S"} else 0


def _states() -> set[str]:
    """Return the states of the other threads of this process.

    One that is ready to run, but does not, is in state R.
    """
    states = set()
    for path in Path("/proc/self/task").glob("*/stat"):
        if path.parent.name != str(threading.get_native_id()):
            with suppress(OSError):
                states.add(path.read_text().rpartition(")")[2].split()[0])
    return states
