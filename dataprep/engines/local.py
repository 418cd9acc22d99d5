"""The engine that runs tasks in this process and in worker processes on the same machine.

The engine does not know what a task does. A free process takes the next task. If a worker dies, the
run raises an error instead of blocking. Workers end with the process that started them, however it
ends.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from dataprep.engines.base import (
    Function,
    PartFunction,
    PooledFunction,
    Result,
    Results,
    Task,
    abandon,
    begin,
    default_workers,
    proceed,
)
from dataprep.engines.worker import WorkerProcess
from dataprep.images.base import create_pixel_file, share_pixel_file
from manifests.process.interrupts import delayed_interrupts


class InlinePool:
    """Runs the parts of a task in this process, in this thread. See `base.Pool`."""

    workers = 1

    def map(self, function: PartFunction[Task], arguments: Iterable[Task]) -> Iterator[_InlinePart]:
        """Run the parts one after the other; see `base.Pool.map`.

        Reply to each part before the next one.
        """
        for argument in arguments:
            steps = function(argument)
            yield _InlinePart(steps, next(steps))

    def apply(self, function: Callable[[Task], Result], argument: Task) -> Result:
        """Apply a function to an argument."""
        return function(argument)


class _InlinePart:
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
        yield from self._run(function, tasks, max_workers, has_parts=False)

    def run_with_pool(
        self,
        function: PooledFunction[Task, Result],
        tasks: Iterable[Task],
        max_workers: int,
    ) -> Results[Result]:
        """Apply a function to each task, with a pool that all tasks share.

        See `base.Engine.run_with_pool`.
        """
        yield from self._run(function, tasks, max_workers, has_parts=True)

    def _run(
        self,
        function: Callable[..., Any],
        tasks: Iterable[Any],
        max_workers: int,
        *,
        has_parts: bool,
    ) -> Results[Any]:
        workers = max(min(self.workers, max_workers), 1)
        if workers == 1:  # no thread is started
            for task in tasks:
                yield function(task, None) if has_parts else function(task)
            return
        pool = SharedPool(function, tasks, workers, has_parts=has_parts)
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
                self._pixels = create_pixel_file()
                share_pixel_file(self._pixels)
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
            share_pixel_file(None)
            os.close(self._pixels)
            self._pixels = None


# --- parts of tasks: a pool of this process and its workers ---------------------------------------
# Each task runs in a thread of its own, which only coordinates. A free process takes the next part
# of the earliest task that has one left, and the next task starts only when there is none: the end
# of one task overlaps with the beginning of the next, and few tasks are unfinished at a time.

#: Parts that a process has taken and not finished: the one it works on, the next one, and two that
#: wait for a reply.
PARTS_PER_WORKER = 4

#: Seconds after which this process looks for an interrupt, while it waits for others.
_INTERRUPT_SECONDS = 0.1

#: Requests that a worker has: the one it works on, and the next one, so that it never waits for
#: this process.
_REQUESTS_PER_WORKER = 2

_numbers = itertools.count()


class SharedPool:
    """Runs tasks, or the parts of tasks.

    Args:
        function: the function of the tasks.
        tasks: its arguments.
        workers: the number of processes, including this one.
        has_parts: whether the function gets a pool for its parts; see `base.Engine.run_with_pool`.
            Otherwise each task is one part.

    """

    def __init__(
        self, function: Callable[..., Any], tasks: Iterable[Any], workers: int, *, has_parts: bool
    ) -> None:
        self.workers = workers
        self._has_parts = has_parts
        # A whole task takes long, so a process takes the next one when it is free.
        self._parts_per_worker = PARTS_PER_WORKER if has_parts else 1
        self._function = function
        self._tasks: Iterator[Any] | None = iter(tasks)
        self._active: list[Any] = []
        self._results = deque[Any]()
        self._error: BaseException | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._here = _Member()
        #: Protects all attributes of this object, of its tasks, members and parts. The thread that
        #: consumes the results delays interrupts while it is locked: one that arrives while it is
        #: being locked would leave it locked.
        self.changed = threading.Condition()

    def run(self, processes: list[WorkerProcess]) -> Results[Any]:
        """Run all tasks, and yield their results as they finish.

        This process works on parts too.
        """
        with delayed_interrupts():
            for process in processes:
                self._start_thread(self._feed, process)
        while True:
            request = self._take(self._here, wait=True)
            if request is not None:
                part, is_first = request
                try:
                    call = begin(part.first_call()) if is_first else proceed(part.second_call())
                except Exception:
                    # After an error elsewhere, the file of this part is removed: say what came first.
                    if self._error is None:
                        raise
                    raise self._error from None
                self._put(part, *call)
            while self._results:
                yield self._results.popleft()
            if self._error is not None:
                raise self._error
            if self._is_finished():
                return

    def close(self) -> None:
        """End all threads: the tasks that are not finished raise an error.

        Their workers must be gone.
        """
        with delayed_interrupts(), self.changed:
            self._closed = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()
        for part in self._here.parts:
            abandon(part.number)

    # --- scheduling -------------------------------------------------------------------------------

    def _take(self, member: _Member, *, wait: bool) -> tuple[_Part, bool] | None:
        """Return a part for a process to work on, and whether this is its first step.

        Returns:
            `None` if there is none and `wait` is false, at the end of the run, and for this process
            if there is a result.

        """
        with delayed_interrupts() as interrupts, self.changed:
            while not self._closed and not interrupts:
                if member.replied:
                    return member.replied.popleft(), False
                if len(member.parts) < self._parts_per_worker and (part := self._next_part()):
                    part.member = member
                    member.parts.append(part)
                    return part, True
                if not wait or self._is_finished() or (member is self._here and self._results):
                    return None
                self.changed.wait(_INTERRUPT_SECONDS if member is self._here else None)
        return None

    def _next_part(self) -> _Part | None:
        """Return the next part of the earliest task, or start another task if there is no part."""
        try:
            if not self._has_parts:
                return self._next_task()
            for task in self._active:
                part: _Part | None = task.next_part()
                if part is not None:
                    return part
            if (
                self._tasks is None
                or len(self._active) > self.workers
                or any(t.is_starting for t in self._active)
            ):
                return None
            for argument in self._tasks:
                self._active.append(task := _TaskPool(self, self.workers))
                self._start_thread(self._run_task, task, argument)
                return None
            self._tasks = None
            self.changed.notify_all()
        except BaseException as error:
            self._fail(error)
        return None

    def _next_task(self) -> _Part | None:
        """Return the next task as a part; `None` if there is none."""
        for argument in self._tasks or ():
            self._active.append(part := _Part(self, self._function, argument))
            return part
        self._tasks = None
        self.changed.notify_all()
        return None

    def _is_finished(self) -> bool:
        return self._closed or (self._tasks is None and not self._active)

    def _put(self, part: _Part, is_finished: bool, value: Any) -> None:
        """Record what a process answered to a request."""
        with delayed_interrupts(), self.changed:
            if is_finished:
                part.result_value, part.is_finished = value, True
                part.member.parts.remove(part)
                if not self._has_parts:
                    self._active.remove(part)
                    self._results.append(value)
            else:
                part.value, part.is_ready = value, True
            self.changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self.changed:
            if not self._closed:
                self._error, self._closed = error, True
            self.changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait in the thread of a task; `changed` must be locked.

        Raises:
            _ClosedError: the run has failed.

        """
        self.changed.wait_for(lambda: self._closed or condition())
        if self._closed:
            raise _ClosedError

    # --- threads ----------------------------------------------------------------------------------

    def _start_thread(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run_task(self, task: _TaskPool, argument: Any) -> None:
        """Run one task, in its own thread."""
        try:
            result = self._function(argument, task)
            with self.changed:
                self._results.append(result)
        except _ClosedError:
            pass
        except BaseException as error:  # raised again in the thread that consumes the results
            self._fail(error)
        finally:
            with self.changed:
                self._active.remove(task)
                self.changed.notify_all()

    def _feed(self, process: WorkerProcess) -> None:
        """Send requests to one worker and receive its answers, in its own thread."""
        member = _Member()
        sent: deque[_Part] = deque()
        try:
            while True:
                while len(sent) < _REQUESTS_PER_WORKER and (
                    request := self._take(member, wait=not sent)
                ):
                    part, is_first = request
                    if is_first:
                        process.send(begin, part.first_call())
                    else:
                        process.send(proceed, part.second_call())
                    sent.append(part)
                if not sent:
                    return
                is_finished, value = process.receive()
                self._put(sent.popleft(), is_finished, value)
        except BaseException as error:  # raised again in the thread that consumes the results
            self._fail(error)


class _ClosedError(Exception):
    """Ends the thread of a task, because the run has failed elsewhere."""


@dataclass(eq=False)
class _Member:
    """One of the processes.

    Attributes:
        parts: the parts that it has taken and not finished.
        replied: the parts of these that have a reply.

    """

    parts: list[_Part] = field(default_factory=list)
    replied: deque[_Part] = field(default_factory=deque)


class _TaskPool:
    """What a task sees of the pool: implements `base.Pool`."""

    def __init__(self, shared: SharedPool, workers: int) -> None:
        self.workers = workers
        self.is_starting = True
        self._shared = shared
        self._function: Function = abs
        self._arguments: Iterator[Any] | None = None
        self._taken: deque[_Part] = deque()

    def map(self, function: PartFunction[Task], arguments: Iterable[Task]) -> Iterator[_Part]:
        """Start a part for each argument; see `base.Pool.map`."""
        yield from self._run(function, arguments, lambda part: part.is_ready)

    def apply(self, function: Callable[[Task], Result], argument: Task) -> Result:
        """Apply a function to an argument in one of the processes; see `base.Pool.apply`."""
        (part,) = self._run(function, [argument], lambda part: part.is_finished)
        return part.result()  # type: ignore[no-any-return]

    def _run(
        self,
        function: Function,
        arguments: Iterable[Any],
        is_done: Callable[[_Part], bool],
    ) -> Iterator[_Part]:
        """Offer parts to the processes, and yield them in order as soon as they are done."""
        shared = self._shared
        with shared.changed:
            self._function, self._arguments, self.is_starting = function, iter(arguments), False
            shared.changed.notify_all()
        while True:
            with shared.changed:
                shared.wait_until(
                    lambda: is_done(self._taken[0]) if self._taken else self._arguments is None
                )
                if not self._taken:
                    return
                part = self._taken.popleft()
            yield part

    def next_part(self) -> _Part | None:
        """Return a part that no process has taken; `None` if there is none."""
        if self._arguments is None:
            return None
        for argument in self._arguments:
            self._taken.append(part := _Part(self._shared, self._function, argument))
            return part
        self._arguments = None
        self._shared.changed.notify_all()
        return None


class _Part:
    """Implements `base.TaskPart`."""

    member: _Member

    def __init__(self, shared: SharedPool, function: Function, argument: Any) -> None:
        self.number = next(_numbers)
        self.value: Any = None
        self.is_ready = self.is_finished = False
        self.result_value: Any = None
        self._shared = shared
        self._function = function
        self._argument = argument
        self._reply: Any = None

    def first_call(self) -> tuple[int, Function, Any]:
        """Return the argument of `base.begin`."""
        call = self.number, self._function, self._argument
        self._argument = None  # may be large, and is not needed again
        return call

    def second_call(self) -> tuple[int, Any]:
        """Return the argument of `base.proceed`."""
        return self.number, self._reply

    def reply(self, reply: Any) -> None:
        """Let the function continue; see `base.TaskPart.reply`."""
        with self._shared.changed:
            self._reply = reply
            self.member.replied.append(self)
            self._shared.changed.notify_all()

    def result(self) -> Any:
        """Wait for the result; see `base.TaskPart.result`."""
        with self._shared.changed:
            self._shared.wait_until(lambda: self.is_finished)
        return self.result_value
