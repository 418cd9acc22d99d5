"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress

#: Linux gives ports from 32768 on to connections, and Ray those from 10,000 to 20,000 to its
#: workers.
_FIRST, _COUNT = 20_000, 1_000

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports that no other process of this test run gets, and that no connection gets meanwhile."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    first = _FIRST + _COUNT * (int(worker) % 12 if worker.isdecimal() else 0)
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(first, first + _COUNT), _COUNT):
        if port not in _given and len(ports) < count:
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    assert len(ports) == count, "too few ports are free"
    _given.update(ports)
    return ports
