"""Who writes a temporary file: host, machine and process. Tells whether the writer is still alive.

An owner is ``HOST.MACHINE.PID.START``. ``MACHINE`` is a digest of what makes process numbers
comparable: the host name, the boot, and the PID namespace, so a container or a rebooted host counts
as another machine. ``START`` is the time at which the process started, because the system uses
process numbers again.
"""

from __future__ import annotations

import os
import re
from functools import cache

#: An owner, as it appears in the name of a file. It contains no hyphen.
OWNER = r"[A-Za-z0-9_]{1,20}\.[0-9a-f]{8}\.[0-9]{1,20}\.[0-9]{1,20}"
_OWNER = re.compile(OWNER)


def this_owner() -> str:
    """Return the owner of the files that this process writes."""
    return _owner(os.getpid())


def is_dead(owner: str) -> bool:
    """Return whether an owner was a process of this machine that has ended.

    False for a process of another machine, which may be alive or not.
    """
    if not _OWNER.fullmatch(owner):
        return False
    host, machine, pid, start = owner.split(".")
    if (host, machine) != _machine():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # the process belongs to another user
        pass
    return _start(int(pid)) != start


@cache  # per process: a child has another number
def _owner(pid: int) -> str:
    return ".".join((*_machine(), str(pid), _start(pid)))


@cache
def _machine() -> tuple[str, str]:
    import hashlib
    import socket  # both take time to import, and a worker needs neither

    name = socket.gethostname()
    identity = [
        name,
        *map(_content_of, ("/proc/sys/kernel/random/boot_id", "/etc/machine-id")),
        _pid_namespace(),
    ]
    host = re.sub(r"[^A-Za-z0-9]", "_", name.partition(".")[0])[:20] or "host"
    return (
        host,
        hashlib.sha256("\0".join(identity).encode("utf-8", "surrogateescape")).hexdigest()[:8],
    )


def _content_of(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(100)
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start(pid: int) -> str:
    """Return when a process started, in clock ticks since boot.

    ``0`` if the system does not tell, or it has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "0"
    return "0" if state in "ZX" else fields[18]
