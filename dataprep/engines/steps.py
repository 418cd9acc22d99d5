"""Run a part: up to its yield, then on from the reply; see `base.Part`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

#: Functions that wait for their reply, by the number of their part.
_waiting: dict[int, Generator[Any, Any, Any]] = {}


def begin(call: tuple[int, Callable[[Any], Any], Any]) -> tuple[bool, Any]:
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
