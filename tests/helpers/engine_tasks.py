"""Functions that the tests of engines run in workers.

A worker is any process but the parent, whose number they get. One of the machines has no `dataprep`, so
functions import what they need of it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import islice
from pathlib import Path

from manifests.errors import SourceError


def square(number):
    print("output of a worker must not disturb the answers")
    time.sleep(0.002)
    return number * number, os.getpid()


def sleep(seconds):
    time.sleep(seconds)
    return seconds


def report(shard):
    """Report four images, so slowly that a worker sends each one."""
    from dataprep.progress import report_images

    for _ in range(4):
        report_images(shard, 1)
        time.sleep(0.15)


def hold_pixels(path):
    """Hold as many pixels as all processes may; fail if another one holds some."""
    from dataprep.images.base import ImageInfo, pixels_of

    with pixels_of(ImageInfo("png", 100_000, 100_000)):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        time.sleep(0.05)
        os.unlink(path)


def wait_for(path):
    """Return a path as soon as it exists; an empty one at once."""
    deadline = time.monotonic() + 300
    while path and not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return path


def meet(place):
    """Wait in a folder for this number of processes; return the number of this one."""
    folder, number = place
    Path(folder, str(os.getpid())).touch()
    while len(os.listdir(folder)) < number:
        time.sleep(0.01)
    return os.getpid()


class Unpicklable(Exception):  # noqa: N818
    def __init__(self, one, two):
        super().__init__(one)


ERRORS = {
    "a bad error": Unpicklable("the reason", 2),
    "exit": SystemExit(0),
    "memory": MemoryError(),
    "source": SourceError("is wrong", file="a.csv", line=7),
    "key": KeyError("no such key"),
}


def many(action):
    """Return so many tasks of `in_workers` that a worker surely starts: they take ten minutes in the parent."""
    return [(action, os.getpid())] * 30_000


def in_workers(task):
    """Raise an error, return a lock, wait, or kill this process with a signal, if it is a worker."""
    action, parent = task
    time.sleep(0.02)
    if os.getpid() == parent:
        return 0
    if action in ERRORS:
        raise ERRORS[action]
    if action == "a lock":
        return threading.Lock()
    if action == "wait":
        return time.sleep(600)
    return os.kill(os.getpid(), getattr(signal, action))


def die_once(marker):
    """Kill the worker that gets this task first. The second one returns the path."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return marker
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def refuse(reason):
    if reason:
        raise SourceError(reason, hint="fix it")


# --- tasks that get a pool, and their parts --------------------------------------------------------


def squares_of_pool(numbers, pool):
    """Return the squares of numbers, and the number of processes of the pool (0 without one)."""
    if pool is None:
        return [number * number for number in numbers], 0
    return [pool.apply(square, number)[0] for number in numbers], pool.workers


def doubled(number):
    """A part: yields its number, and returns it with the reply and the process."""
    reply = yield number
    return number, reply, os.getpid()


def sum_of_parts(numbers, pool):
    """A task: replies to each part with the sum of the numbers before it, and returns the results of all."""
    parts, total = [], 0
    for part in pool.map(doubled, numbers):
        part.reply(total)
        total += part.value
        parts.append(part)
    return [part.result() for part in parts]


def results(function, work, pool):
    """A task: replies to each part at once, and returns the results of all."""
    return [part.result() for part in list(_replied(pool.map(function, work)))]


def _replied(parts):
    for part in parts:
        part.reply(0)
        yield part


def doubled_together(work):
    """A part that ends when so many processes take part."""
    number, *place = work
    meet(place)
    return (yield from doubled(number))


def meet_in_pool(place, pool):
    return pool.apply(meet, place)


def begin_and_count(path):
    Path(path, f"{os.getpid()}-{time.monotonic_ns()}").touch()
    yield 1
    return 1


def count_before_replies(task, pool):
    """Return how many parts began before a reply to the first ones, and how many of all were finished."""
    folder, number, first = task
    parts = pool.map(begin_and_count, [folder] * number)
    taken = list(islice(parts, first))
    time.sleep(0.3)  # a pool without a bound goes on
    begun = len(os.listdir(folder))
    for part in taken:
        part.reply(0)
    return begun, sum(part.result() for part in [*taken, *_replied(parts)])


def wait_for_the_next_task(task, pool):
    """All parts of the first task are done, but the task itself waits until a part of the second has begun."""
    number, folder = task
    results(begin_and_count, [f"{folder}/{number}"] * 3, pool)
    deadline = time.monotonic() + 120
    while number == 0 and not os.listdir(f"{folder}/1") and time.monotonic() < deadline:
        time.sleep(0.001)
    return number, len(os.listdir(f"{folder}/1"))


def fail_at_once(number):
    if number == 7:
        raise ValueError("number 7 is bad")
    yield number


def fail_after_the_reply(number):
    yield number
    if number == 7:
        raise ValueError("number 7 is bad")


def fail_itself(numbers, pool):
    for part in _replied(pool.map(doubled, numbers)):
        if part.value == 7:
            raise ValueError("number 7 is bad")


def die_in_workers(task):
    yield in_workers(task)


def never_reply(numbers, pool):
    """A task that waits for ever, unless it has no numbers: for an engine that is closed in the middle."""
    if not numbers:
        return numbers
    for part in pool.map(doubled, numbers):
        if part.value == 1:
            part.result()
    return numbers


def lose_the_file(task, pool):
    """A worker is killed; the task then removes the file that a part of the parent writes."""
    try:
        return results(die_or_miss_the_file, [task] * 4, pool)
    finally:
        Path(task[0], "removed").touch()


def die_or_miss_the_file(task):
    folder, parent = task
    if os.getpid() == parent:
        Path(folder, "begun").touch()
        wait_for(f"{folder}/removed")
        raise FileNotFoundError("the file was removed")
    wait_for(f"{folder}/begun")
    yield os.kill(os.getpid(), signal.SIGKILL)
