"""A pool without other processes: each part runs where the task runs, as soon as its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from dataprep.engines.base import Result, Task


class InlinePool:
    """Runs the parts of a task in this process, in this thread. See `base.Pool`."""

    workers = 1

    def map(
        self, function: Callable[[Task], Generator[Any, Any, Any]], arguments: Iterable[Task]
    ) -> Iterator[_Part]:
        """Run the parts one after the other; see `base.Pool.map`.

        Reply to each part before the next one.
        """
        for argument in arguments:
            yield _Part(function(argument))

    def apply(self, function: Callable[[Task], Result], argument: Task) -> Result:
        """Apply a function to an argument."""
        return function(argument)


class _Part:
    """Implements `base.Part`."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self.value = next(steps)
        self._steps = steps
        self._result: Any = None

    def reply(self, reply: Any) -> None:
        try:
            self._steps.send(reply)
        except StopIteration as end:
            self._result = end.value

    def result(self) -> Any:
        return self._result
