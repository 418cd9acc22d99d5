"""Functions that the tests of engines run in workers.

A worker is any process but the parent, whose number they get.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from manifests.errors import SourceError

#: Arguments of functions that do something in workers only: the parent takes ten minutes for them,
#: in which a worker surely starts.
MANY = [os.getpid()] * 30_000


def square(number):
    print("output of a worker must not disturb the answers")
    time.sleep(0.002)
    return number * number, os.getpid()


def sleep_in_workers(parent):
    if os.getpid() != parent:
        time.sleep(600)
    return 0


def sleep(seconds):
    time.sleep(seconds)
    return seconds


def wait_for(path):
    """Return a path as soon as it exists; an empty one at once."""
    while path and not Path(path).exists():
        time.sleep(0.01)
    return path


def meet(place):
    """Wait in a folder for this number of processes; return the number of this one."""
    folder, number = place
    Path(folder, str(os.getpid())).touch()
    while len(os.listdir(folder)) < number:
        time.sleep(0.01)
    return os.getpid()


def die_in_workers(parent):
    _only_in_workers(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))


def segfault_in_workers(parent):
    _only_in_workers(parent, lambda: os.kill(os.getpid(), signal.SIGSEGV))


def fail_in_workers(parent):
    _only_in_workers(parent, lambda: _raise(SourceError("is wrong", file="a.csv", line=7)))


class Unpicklable(Exception):  # noqa: N818
    def __init__(self, one, two):
        super().__init__(one)


def fail_as_libraries_do(parent):
    _only_in_workers(parent, lambda: _raise(Unpicklable("the reason", 2)))


def exit_in_workers(parent):
    _only_in_workers(parent, lambda: _raise(SystemExit(0)))


def run_out_of_memory_in_workers(parent):
    _only_in_workers(parent, lambda: _raise(MemoryError()))


def return_a_lock_in_workers(parent):
    return _only_in_workers(parent, threading.Lock)


def raise_key_error_in_workers(parent):
    return _only_in_workers(parent, lambda: {}["no such key"])


def _only_in_workers(parent, function):
    time.sleep(0.02)
    return function() if os.getpid() != parent else None


def _raise(error):
    raise error


def die_once(marker):
    """Kill the worker that gets this task first. The second one returns the path."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return marker
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def squares_of_pool(numbers, pool):
    """Return the squares of numbers, and the number of processes of the pool (0 without one)."""
    if pool is None:
        return [number * number for number in numbers], 0
    return [pool.apply(square, number)[0] for number in numbers], pool.workers


def refuse(reason):
    if reason:
        raise SourceError(reason, hint="fix it")
