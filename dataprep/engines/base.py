"""The interface of an engine, which applies a function to many independent tasks, in this process or in others."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def default_workers() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine(Protocol):
    """Runs shard tasks. A task gives the same result in any process and in any order.

    Tasks may run on other machines that have the same program and the same folders; `check` proves that they do.

    Attributes:
        workers: the maximum number of tasks that run at the same time.

    """

    workers: int

    def start(self, module: str) -> None:
        """Start a worker before its first task is known, and import in it the module that defines the function."""

    def check(self, function: Callable[[Task], None], argument: Task) -> None:
        """Call a function once on each machine other than this one, and in each of its workers before its first task.

        Call it before `run`. An engine whose workers all belong to this machine and this installation does nothing.

        Args:
            function: a function at the top level of an importable module, which raises an error if this machine must
                not run tasks, for example because it lacks a folder or has another release of a library.
            argument: its picklable argument.

        Raises:
            DatasetError: the error that the function raised, with the name of the machine.

        """

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], max_workers: int
    ) -> Generator[Result, None, None]:
        """Apply a function to each task and yield results as they finish, in any order.

        Args:
            function: a function at the top level of an importable module.
            tasks: picklable arguments. An engine takes a task only when a worker is free, so memory use does not
                grow with the number of tasks. If they are a `Sequence`, which must be picklable as a whole, an engine
                may send it to each machine once, and then only the positions of tasks.
            max_workers: a lower limit than `workers`, for example the number of tasks.

        Raises:
            WorkerDiedError: a worker process ended without a result.

        """
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers."""
