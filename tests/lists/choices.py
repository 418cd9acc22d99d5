"""Tables of arguments: what is drawn for each, and whether the library gives the same image every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

#: In place of a value: the argument is not written.
LEFT_OUT = object()


@dataclass(frozen=True, slots=True)
class Draws:
    """A value with which the library draws: of such a list, the sizes are compared."""

    value: Any


#: A value, or a function that takes what a list depends on and returns one.
Choice: TypeAlias = Callable[[Any], Any]
Table: TypeAlias = Mapping[str, Sequence[Any]]


def choose(table: Table, context: Any) -> tuple[dict[str, Any], bool]:
    """Return arguments with one of their values each, and whether every draw gives the same image."""
    arguments, is_exact = {}, True
    for name, values in table.items():
        value = context.rng.choice(values)
        if callable(value):
            value = value(context)
        if isinstance(value, Draws):
            value, is_exact = value.value, False
        if value is not LEFT_OUT:
            arguments[name] = value
    return arguments, is_exact
