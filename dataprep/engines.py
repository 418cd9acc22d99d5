"""Where shard tasks run: this machine's processes. It must never know what a task does.

Tasks are independent and give the same result wherever they run. A worker that dies is an error, never
a wait; workers end with the process that started them, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from manifests.errors import WorkerDiedError

Task = TypeVar("Task")
Result = TypeVar("Result")


def default_workers() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(function: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Generator[Result, None, None]:
    """Apply a function to tasks in `workers` processes, of which this one is the first; yield results as they come.

    This process begins at once, while the others still start. Tasks are taken from the iterable only as workers
    become free, so memory does not grow with them.

    Raises:
        WorkerDiedError: a worker process was killed.

    """
    if workers <= 1:
        yield from map(function, tasks)
        return
    before = set(multiprocessing.active_children())  # of whoever calls: not ours to end
    pool = ProcessPoolExecutor(workers - 1, multiprocessing.get_context("spawn"), _begin_worker)
    done = False
    try:
        yield from _share(pool, function, iter(tasks), 2 * (workers - 1))
        done = True
    except BrokenProcessPool:
        raise WorkerDiedError(
            "a worker process was killed, for want of memory perhaps",
            mend="run the same command again, with fewer --workers if it recurs; finished shards are kept",
        ) from None
    finally:
        if not done:  # an error, an interrupt, or a caller that wants no more: nobody waits for the rest
            for child in set(multiprocessing.active_children()) - before:
                child.kill()
        pool.shutdown(cancel_futures=True)


def _share(
    pool: ProcessPoolExecutor, function: Callable[[Task], Result], tasks: Iterator[Task], ahead: int
) -> Iterator[Result]:
    """Keep `ahead` tasks with the pool, and do the next one here; when there are no more, wait for the pool's."""
    first = list(islice(tasks, 1))  # a task for this process, however few there are
    pending = _submit(pool, function, islice(tasks, ahead))
    for task in chain(first, tasks):
        yield function(task)
        finished = {future for future in pending if future.done()}
        pending = (pending - finished) | _submit(pool, function, islice(tasks, len(finished)))
        yield from (future.result() for future in finished)
    while pending:
        finished, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in finished)


def _submit(
    pool: ProcessPoolExecutor, function: Callable[[Task], Result], tasks: Iterator[Task]
) -> set[Future[Result]]:
    """Submit tasks; workers that this starts are deaf to an interrupt from their first instruction on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return {pool.submit(function, task) for task in tasks}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    # The process that started this one answers an interrupt for both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
