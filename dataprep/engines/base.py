"""The interface of an engine, which applies a function to many independent tasks, in this process or in others."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

#: What an engine calls with a task or a part.
Function = Callable[[Any], Any]

#: The function of the parts of a task; see `TaskPart`.
PartFunction = Callable[[Task], Generator[Any, Any, Any]]

#: A function that also gets a pool; see `Engine.run_with_pool`.
PooledFunction = Callable[[Task, "Pool | None"], Result]

#: The results of tasks, as they finish.
Results = Generator[Result, None, None]


def default_workers() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class TaskPart(Protocol):
    """A part of a task, which runs in one of the processes of a pool in two steps.

    The function of a part is a generator function. It yields one value, is continued with the reply
    to this value, and returns its result. Between the two steps, the process works on other parts.

    Attributes:
        value: what the function yielded.

    """

    value: Any

    def reply(self, reply: Any) -> None:
        """Let the function continue: the ``yield`` expression has this value. Does not wait."""

    def result(self) -> Any:
        """Wait for the result of the function, or raise its error."""


class Pool(Protocol):
    """Processes on one machine that work on parts of tasks.

    The task itself runs in a thread of the main process.

    Attributes:
        workers: the number of processes, including this one.

    """

    workers: int

    def map(self, function: PartFunction[Task], arguments: Iterable[Task]) -> Iterator[TaskPart]:
        """Start a part for each argument, and yield the parts in order, each as soon as it has yielded its value.

        At most `dataprep.engines.local.PARTS_PER_WORKER` parts for each process are between their
        start and their result, so a caller that replies late makes the pool wait.
        """

    def apply(self, function: Callable[[Task], Result], argument: Task) -> Result:
        """Apply a function to an argument in one of the processes, and wait for the result."""
        raise NotImplementedError


class Engine(Protocol):
    """Runs shard tasks. A task gives the same result in any process and in any order.

    Tasks may run on other machines that have the same program and the same folders; `check` proves
    that they do.

    Attributes:
        is_local: whether all workers use this machine and this installation.

    """

    is_local: bool

    @property
    def workers(self) -> int:
        """The maximum number of processes that work on tasks at the same time."""
        raise NotImplementedError

    def start(self, module: str) -> None:
        """Start a worker before its first task is known, and import in it the module that defines the function."""

    def check(self, function: Callable[[Task], None], argument: Task) -> None:
        """Call a function once on each machine other than this one, and in each of its workers before its first task.

        Call it before `run`. A local engine does nothing.

        Args:
            function: a function at the top level of an importable module, which raises an error if
                this machine must not run tasks, for example because it lacks a folder or has
                another release of a library.
            argument: its picklable argument.

        Raises:
            DatasetError: the error that the function raised, with the name of the machine.

        """

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], max_workers: int
    ) -> Results[Result]:
        """Apply a function to each task and yield results as they finish, in any order.

        Args:
            function: a function at the top level of an importable module.
            tasks: picklable arguments. An engine takes a task only when a worker is free, so memory
                use does not grow with the number of tasks. If they are a `Sequence`, which must be
                picklable as a whole, an engine may send it to each machine once, and then only the
                positions of tasks.
            max_workers: a lower limit than `workers`, for example the number of tasks.

        Raises:
            WorkerDiedError: a worker process ended without a result.

        """
        raise NotImplementedError

    def run_with_pool(
        self,
        function: PooledFunction[Task, Result],
        tasks: Iterable[Task],
        max_workers: int,
    ) -> Results[Result]:
        """Do the same as `run` with tasks that one process would work on for too long.

        The function also gets a pool of processes of the machine that runs the task, or `None` if
        it is to work in its own process alone. An engine on another machine gives a task several
        CPUs by calling, inside of the one task that it sends there,
        ``LocalEngine(cpus).run_with_pool(function, [task], cpus)``.

        Args:
            function: as for `run`. It may run in a thread.
            tasks: as for `run`. Their parts are worked on in the order of the tasks, so the first
                tasks finish first.
            max_workers: a lower limit than `workers`, for example the number of parts of all tasks.

        Raises:
            WorkerDiedError: a worker process ended without a result.

        """
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers."""


# --- answers of a worker: the pickled result, or the error with its traceback ---------------------


def answer(function: Function, task: Any) -> bytes:
    """Call a function in the worker.

    Return its pickled result, error and traceback, for `result_of`.
    """
    try:
        return pickle.dumps((function(task), None, ""), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        trace = traceback.format_exc()
        return pickle.dumps((None, _picklable(error), trace), pickle.HIGHEST_PROTOCOL)


def result_of(result: Any, error: BaseException | None, trace: str) -> Any:
    """Return the result of a task, or raise its error with the worker's traceback as the cause."""
    if error is not None:
        raise error from _WorkerTraceback(trace)
    return result


class _WorkerTraceback(Exception):  # noqa: N818
    """Carries the worker's traceback, as the cause of the error that is raised in the parent."""

    @property
    def trace(self) -> str:
        """The traceback as Python prints it."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"\n{self.trace}"


def _picklable(error: BaseException) -> BaseException:
    """Return an error that the parent can unpickle.

    Most classes of errors in libraries do not care about this.
    """
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return (
        error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    )


# --- run a part: up to its yield, then on from the reply; see `TaskPart` ------------------------------

#: Functions that wait for their reply, by the number of their part.
_waiting: dict[int, Generator[Any, Any, Any]] = {}


def begin(call: tuple[int, Function, Any]) -> tuple[bool, Any]:
    """Call the function of a part with its argument.

    Returns:
        Whether the part is finished, and its result or else the value that the function yielded.

    """
    number, function, argument = call
    outcome = function(argument)
    if not isinstance(outcome, Generator):
        return True, outcome
    value = next(outcome)
    _waiting[number] = outcome
    return False, value


def proceed(call: tuple[int, Any]) -> tuple[bool, Any]:
    """Let the function of a part continue with a reply, and return `True` and its result."""
    number, reply = call
    try:
        _waiting.pop(number).send(reply)
    except StopIteration as end:
        return True, end.value
    raise RuntimeError("the function of a part yielded twice")


def abandon(number: int) -> None:
    """Forget a part that waits for a reply which will not come."""
    _waiting.pop(number, None)
