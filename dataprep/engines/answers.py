"""What a worker answers to a task, as bytes: the result, or the error with its traceback, whatever was raised."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any


def answer(function: Callable[[Any], Any], task: Any) -> bytes:
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
