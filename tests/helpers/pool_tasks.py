"""Functions that tests run with `Engine.run_with_pool`; workers import them."""

import os
import signal
import time
from pathlib import Path

from helpers.engine_tasks import meet


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


def parts_that_meet(work, pool):
    """The same in the processes of the pool: no part ends before so many of them take part."""
    parts = list(_replied(pool.map(doubled_together, work)))
    return [part.result() for part in parts]


def _replied(parts):
    for part in parts:
        part.reply(0)
        yield part


def doubled_together(work):
    number, *place = work
    meet(place)
    return (yield from doubled(number))


def begin_and_count(path):
    Path(path, f"{os.getpid()}-{time.monotonic_ns()}").touch()
    yield 1
    return 1


def count_before_replies(task, pool):
    """Take parts until no more come, and return how many began, and how many of all were finished."""
    folder, number, expected = task
    parts, begun = [], 0
    for part in pool.map(begin_and_count, [folder] * number):
        parts.append(part)
        if len(parts) == expected:
            time.sleep(0.3)  # a pool without a bound goes on
            begun = len(os.listdir(folder))
        if len(parts) >= expected:
            for waiting in parts[-expected:] if len(parts) == expected else parts[-1:]:
                waiting.reply(0)
    return begun, sum(part.result() for part in parts)


def until_all_take_part(folder, processes):
    """Yield whole tasks until so many processes have worked on one: how they are shared is a matter of chance."""
    deadline, number = time.monotonic() + 300, 0
    while len(os.listdir(folder)) < processes and time.monotonic() < deadline:
        yield number, folder
        number += 1


def whole_task(number, pool):
    return pool.apply(process_of, number)


def process_of(work):
    number, folder = work
    Path(folder, str(os.getpid())).touch()
    time.sleep(0.01)
    return number, os.getpid()


def wait_for_the_next_task(task, pool):
    """All parts of the first task are done, but the task itself waits until a part of the second has begun."""
    number, folder = task
    for part in pool.map(begin_and_count, [str(Path(folder, str(number)))] * 3):
        part.reply(0)
    deadline = time.monotonic() + 120
    while number == 0 and not os.listdir(Path(folder, "1")) and time.monotonic() < deadline:
        time.sleep(0.001)
    return number, len(os.listdir(Path(folder, "1")))


def fail_at_once(number):
    if number == 7:
        raise ValueError("number 7 is bad")
    yield number


def fail_after_the_reply(number):
    yield number
    if number == 7:
        raise ValueError("number 7 is bad")


def run_failing_at_once(numbers, pool):
    return [part.result() for part in _replied(pool.map(fail_at_once, numbers))]


def run_failing_later(numbers, pool):
    return [part.result() for part in list(_replied(pool.map(fail_after_the_reply, numbers)))]


def fail_itself(numbers, pool):
    for part in pool.map(doubled, numbers):
        part.reply(0)
        if part.value == 7:
            raise ValueError("number 7 is bad")


def kill_a_worker(parent, pool):
    return [part.result() for part in list(_replied(pool.map(die_in_workers, [parent] * 30_000)))]


def die_in_workers(parent):
    time.sleep(0.005)
    if os.getpid() != parent:
        os.kill(os.getpid(), 9)
    yield 0


def never_reply(numbers, pool):
    """A task that waits for ever: for an engine that is closed in the middle."""
    if numbers == [0]:
        return 0
    for part in pool.map(doubled, numbers):
        if part.value == 1:
            part.result()
    return None


def lose_the_file(task, pool):
    """A worker is killed; the task then removes the file that a part of the parent writes."""
    try:
        return [part.result() for part in _replied(pool.map(die_or_miss_the_file, [task] * 4))]
    finally:
        Path(task[0], "removed").touch()


def die_or_miss_the_file(task):
    folder, parent = task
    waits_for = "removed" if os.getpid() == parent else "begun"
    if os.getpid() == parent:
        Path(folder, "begun").touch()
    deadline = time.monotonic() + 120
    while not Path(folder, waits_for).exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    raise FileNotFoundError("the file was removed")
    yield
