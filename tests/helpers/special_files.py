"""Make named pipes, sockets, devices and folders in the place of files, and stop a test that waits for one."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def _link_to(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def make_link(path: Path) -> None:
        target = path.with_name(f"target of {path.name}")
        make(target)
        path.symlink_to(target)

    return make_link


_MAKERS: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a socket": _socket,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}

#: How to make each, by what messages call it.
SPECIAL_FILES = _MAKERS | {f"{name}, linked": _link_to(make) for name, make in _MAKERS.items()}


@contextmanager
def stopped_after(seconds: float = 120) -> Iterator[None]:
    """Raise a `TimeoutError` in a block that hangs, also if it waits in a system call."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"the block did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
