"""Records: frozen data classes that share their methods.

A frozen `dataclasses.dataclass` compiles six methods of its own, which takes a millisecond, and
every process of a command imports about seventy of them when it starts. A record compiles only
``__init__``. `dataclasses.fields`, `replace` and `asdict` take records, and records can be pickled.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Class) -> Class:
    """Make a class a frozen data class."""
    dataclass(eq=False, repr=False)(cls)
    return _share_methods(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def keyword_record(cls: Class) -> Class:
    """Make a class a frozen data class whose fields are set by keyword."""
    dataclass(eq=False, repr=False, kw_only=True)(cls)
    return _share_methods(cls)


def _share_methods(cls: Class) -> Class:
    for name in ("__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__"):
        setattr(cls, name, vars(_Methods)[name])
    return cls


class _Methods:
    """The methods that all records have: the same as `dataclasses` would make."""

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        members = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(members)})"

    def __setattr__(self, name: str, value: Any) -> None:
        # Only `__init__` sets a field that has no value.
        if name in self.__dict__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _values(made: Any) -> tuple[Any, ...]:
    return tuple([getattr(made, each.name) for each in fields(made)])
