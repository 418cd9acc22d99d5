"""Where shard tasks run: this process and others of this machine. It must never know what a task does.

Tasks are independent and give the same result wherever they run; whoever is free takes the next one. A worker
that dies is an error, never a wait; workers end with the process that started them, however it ends.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, TypeVar

from manifests.errors import WorkerDiedError

Task = TypeVar("Task")
Result = TypeVar("Result")


def default_workers() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(function: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Generator[Result, None, None]:
    """Apply a function to tasks in `workers` processes, of which this one is the first; yield results as they come."""
    with closing(Engine(workers)) as engine:
        yield from engine.run(function, tasks, workers)


class Engine:
    """A place to work: this process, and workers beside it that can be started before their first task is known.

    The thread that starts workers must outlive them: Linux ends them with it.

    Args:
        workers: processes at most, this one included; as many as there are processors where none is given.

    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or default_workers()
        self._others: list[_Worker] = []

    def start(self, module: str) -> None:
        """Start one worker ahead of its tasks, if there may be one, with the module that it will need."""
        if self.workers > 1 and not self._others:
            self._add(module)

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], most: int
    ) -> Generator[Result, None, None]:
        """Apply a function of some module to tasks, in `most` processes at most; yield results as they come.

        This process works too, and begins at once. Tasks are taken from the iterable only as workers become
        free, so memory does not grow with them.

        Raises:
            WorkerDiedError: a worker was killed.

        """
        count = min(self.workers, most)
        done = False
        try:
            while len(self._others) < count - 1:
                self._add(function.__module__)
            yield from _share(self._others[: max(count - 1, 0)], function, _Shared(tasks))
            done = True
        finally:
            if not done:  # an error, an interrupt, or a caller that wants no more: nobody waits for the rest
                self.close()

    def _add(self, module: str) -> None:
        # Neither may an interrupt come between a worker's start and its being known, nor may the worker hear one.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._others.append(_Worker(module))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """End all workers."""
        for worker in self._others:
            worker.process.kill()
        for worker in self._others:
            worker.end()
        self._others.clear()


class _Shared(Iterator[Task]):
    """An iterator that several threads take from."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)
        self._lock = threading.Lock()

    def __next__(self) -> Task:
        with self._lock:
            return next(self._tasks)


#: What a thread tells the first process: a result, or why there are no more; one that has none has come to its end.
_Answers = queue.SimpleQueue[tuple[Any, BaseException | None] | None]


def _share(
    workers: list[_Worker], function: Callable[[Task], Result], tasks: _Shared[Task]
) -> Generator[Result, None, None]:
    """Let each worker, by a thread that waits for it, and this process take tasks until there are no more."""
    answers: _Answers = queue.SimpleQueue()
    for worker in workers:
        threading.Thread(target=_lead, args=(worker, function, tasks, answers), daemon=True).start()
    left = len(workers)
    for task in tasks:
        yield function(task)
        while not answers.empty():
            if (answer := answers.get()) is None:
                left -= 1
            else:
                yield _result(answer)
    while left:
        if (answer := answers.get()) is None:
            left -= 1
        else:
            yield _result(answer)


def _result(answer: tuple[Any, BaseException | None]) -> Any:
    result, error = answer
    if error is not None:
        raise error
    return result


def _lead(worker: _Worker, function: Callable[[Any], Any], tasks: _Shared[Any], answers: _Answers) -> None:
    try:
        for task in tasks:
            answers.put((worker.apply(function, task), None))
    except BaseException as error:  # raised again where the results are taken
        answers.put((None, error))
    answers.put(None)


# --- a worker, seen from outside ----------------------------------------------------------------

_PROGRAM = "import sys; sys.path[:] = {path!r}; from dataprep.engines.local import serve; serve({module!r})"


class _Worker:
    """A process that applies functions to tasks, which come by its standard input, until that ends.

    It is a fresh interpreter, for a fork of a process with threads may hang. Unlike `multiprocessing`, it does not
    import the program that started it, so that a caller's script needs no guard and a worker is ready sooner.
    """

    def __init__(self, module: str) -> None:
        program = _PROGRAM.format(path=sys.path, module=module)
        command = [sys.executable, "-X", f"utf8={sys.flags.utf8_mode}", "-c", program]
        # NumPy would start a thread a processor in each worker for linear algebra that nobody does.
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
        self.process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def apply(self, function: Callable[[Task], Result], task: Task) -> Result:
        """Have it apply a function to a task.

        Raises:
            WorkerDiedError: it was killed.

        """
        try:
            pickle.dump((function, task), self.process.stdin, pickle.HIGHEST_PROTOCOL)  # type: ignore[arg-type]
            self.process.stdin.flush()  # type: ignore[union-attr]
            result, error, trace = pickle.load(self.process.stdout)  # type: ignore[arg-type]  # noqa: S301
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise WorkerDiedError(
                "a worker process was killed, for want of memory perhaps",
                hint="run the same command again, with fewer --workers if it recurs; finished shards are kept",
            ) from None
        if error is not None:
            raise error from _Elsewhere(trace)
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Wait until the process, which was killed, is gone."""
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]


class _Elsewhere(Exception):  # noqa: N818
    """Where in a worker an error was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


# --- a worker, seen from inside -----------------------------------------------------------------


#: Linux sends a process this signal when the thread that started it ends.
_PR_SET_PDEATHSIG = 1


def serve(module: str) -> None:
    """Answer each task that comes by standard input, by standard output; end with whoever sends them."""
    # Stopped, it would hear of its sender's death only once it is woken up, and write meanwhile.
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed must not come between
    calls: queue.SimpleQueue[tuple[Callable[[Any], Any], Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(calls,), daemon=True).start()
    importlib.import_module(module)
    while True:
        function, task = calls.get()
        pickle.dump(_answer(function, task), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _receive(calls: queue.SimpleQueue[tuple[Callable[[Any], Any], Any]]) -> None:
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))  # noqa: S301
    except (EOFError, pickle.UnpicklingError):  # whoever sent them is gone
        pass
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _answer(function: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None, str]:
    try:
        return function(task), None, ""
    except Exception as error:
        return None, error, traceback.format_exc()
