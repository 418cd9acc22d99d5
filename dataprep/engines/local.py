"""The engine that runs tasks in this process and in worker processes on the same machine.

The engine does not know what a task does. A free process takes the next task. If a worker dies, the
run raises an error instead of blocking. Workers end with the process that started them, however it
ends.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from dataprep.engines.base import (
    Function,
    PartFunction,
    PooledFunction,
    Result,
    Results,
    Task,
    default_workers,
)
from dataprep.engines.worker import WorkerProcess
from dataprep.images import pixel_memory


class InlinePool:
    """Runs the parts of a task in this process, in this thread. See `base.Pool`."""

    workers = 1

    def map(self, function: PartFunction[Task], arguments: Iterable[Task]) -> Iterator[_Part]:
        """Run the parts one after the other; see `base.Pool.map`.

        Reply to each part before the next one.
        """
        for argument in arguments:
            steps = function(argument)
            yield _Part(steps, next(steps))

    def apply(self, function: Callable[[Task], Result], argument: Task) -> Result:
        """Apply a function to an argument."""
        return function(argument)


class _Part:
    """Implements `base.TaskPart`."""

    def __init__(self, steps: Generator[Any, Any, Any], value: Any) -> None:
        self.value = value
        self._steps = steps
        self._result: Any = None

    def reply(self, reply: Any) -> None:
        try:
            self._steps.send(reply)
        except StopIteration as end:
            self._result = end.value

    def result(self) -> Any:
        return self._result


# --- the engine -----------------------------------------------------------------------------------

_log = logging.getLogger(__name__)


def run(function: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Results[Result]:
    """Apply a function to tasks in `workers` processes, this one included.

    Yield results as they finish.
    """
    with closing(LocalEngine(workers)) as engine:
        yield from engine.run(function, tasks, workers)


class LocalEngine:
    """Runs tasks in this process and in up to `workers - 1` worker processes. See `base.Engine`.

    The thread that starts the workers must outlive them: Linux kills them when that thread ends.

    Args:
        workers: the maximum number of processes, including this one; `None` means one per CPU.

    """

    is_local = True

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or default_workers()
        self._processes: list[WorkerProcess] = []
        self._pixels: int | None = None

    def start(self, module: str) -> None:
        """Start one worker ahead of its tasks, if `workers` allows one, and import `module` in it."""
        if self.workers > 1 and not self._processes:
            self._add_process(module)

    def check(self, function: Callable[[Task], None], argument: Task) -> None:
        """Do nothing: the workers use the folders and the installation of this process."""

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], max_workers: int
    ) -> Results[Result]:
        """Apply a function to each task and yield results as they finish; see `base.Engine.run`.

        This process works on tasks too, and begins while the workers are still starting.
        """
        worker_count = max(min(self.workers, max_workers) - 1, 0)
        with self._started(worker_count, function.__module__) as processes:
            yield from _run_shared(processes, function, _TaskQueue(tasks))

    def run_with_pool(
        self,
        function: PooledFunction[Task, Result],
        tasks: Iterable[Task],
        max_workers: int,
    ) -> Results[Result]:
        """Apply a function to each task, with a pool that all tasks share.

        See `base.Engine.run_with_pool`.

        With one worker, no thread is started.
        """
        workers = max(min(self.workers, max_workers), 1)
        if workers == 1:
            for task in tasks:
                yield function(task, None)
            return
        from dataprep.engines.pool import SharedPool  # workers do not need it

        pool = SharedPool(function, tasks, workers)
        with closing(pool), self._started(workers - 1, function.__module__) as processes:
            yield from pool.run(processes)

    @contextmanager
    def _started(self, count: int, module: str) -> Iterator[list[WorkerProcess]]:
        """Start this many workers; after an error, an interrupt, or a caller that stops early, kill them."""
        try:
            while len(self._processes) < count:
                self._add_process(module)
            yield self._processes[:count]
        except BaseException:  # don't wait for running tasks
            self.close()
            raise

    def _add_process(self, module: str) -> None:
        # Block SIGINT and SIGTERM: an interrupt must not arrive between the start of a process and
        # its entry in the list, and the new process inherits the mask, so Ctrl-C and a scheduler's
        # SIGTERM never reach a worker.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            if self._pixels is None:
                self._pixels = pixel_memory.create_file()
                pixel_memory.share(self._pixels)
            self._processes.append(WorkerProcess(module, self._pixels))
            _log.info("worker process %d is started", len(self._processes))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)

    def close(self) -> None:
        """Kill all workers and wait until they are gone."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        if self._pixels is not None:
            pixel_memory.share(None)
            os.close(self._pixels)
            self._pixels = None


class _TaskQueue(Iterator[Task]):
    """An iterator over tasks that several threads can share."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)
        self._lock = threading.Lock()

    def __next__(self) -> Task:
        with self._lock:
            return next(self._tasks)


#: What the threads of the workers put into a queue: the result of a task, or the error that ended
#: the thread; each thread ends with `None`.
_Answers = queue.SimpleQueue[tuple[Any, BaseException | None] | None]


def _run_shared(
    processes: list[WorkerProcess], function: Callable[[Task], Result], tasks: _TaskQueue[Task]
) -> Results[Result]:
    """Run tasks here and in the workers until no task is left.

    One thread per worker waits for its answers.
    """
    answers: _Answers = queue.SimpleQueue()
    for process in processes:
        arguments = (process, function, tasks, answers)
        threading.Thread(target=_feed, args=arguments, daemon=True).start()
    running, is_last = len(processes), False
    while running or not is_last:
        for task in tasks:
            yield function(task)
            break
        else:
            is_last = True
        while running and (is_last or not answers.empty()):
            answer = answers.get()
            if answer is None:
                running -= 1
                continue
            result, error = answer
            if error is not None:
                raise error
            yield result


def _feed(
    process: WorkerProcess,
    function: Function,
    tasks: _TaskQueue[Any],
    answers: _Answers,
) -> None:
    """Send tasks to one worker until no task is left or a task fails."""
    try:
        for task in tasks:
            answers.put((process.apply(function, task), None))
    except BaseException as error:  # raised again in the thread that consumes the results
        answers.put((None, error))
    answers.put(None)
