"""The registry of transform names: the library of each name, and the function that parses its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from loaders.transforms.base import Operation
from manifests.errors import CallError
from manifests.process.text import shown, suggest


@dataclass(frozen=True, slots=True)
class Note:
    """Tells users how a transform with these arguments differs from the library that it comes from."""

    text: str


@dataclass(frozen=True, slots=True)
class NeedsBytes:
    """Says that images must be uint8 before the transform, which would convert others back."""


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """A user's function that takes and returns the tensor of a whole batch.

    Called after everything else.
    """

    function: Callable[[Any], Any]


#: Where a name comes from; ``"loaders"`` for names of this package.
Library: TypeAlias = Literal["PaddleClas", "torchvision", "timm", "loaders"]

#: What a parser yields: the operations in order, notes, and what they need; or a function.
Parsed: TypeAlias = Iterator["Operation | Note | NeedsBytes | BatchFunction"]

#: Takes the arguments that users write, under the library's names, and yields operations and notes.
Parser: TypeAlias = Callable[..., Parsed]
_P = TypeVar("_P", bound=Parser)


class Parameter(NamedTuple):
    """A parameter of a transform.

    `default` is ``None`` if `has_default` is ``False``; ``**name`` accepts any.
    """

    name: str
    default: Any
    has_default: bool


@dataclass(frozen=True, slots=True)
class TransformInfo:
    """One row of `transform_table`.

    Attributes:
        name: the name that users write.
        libraries: the libraries whose parameters it accepts.
        parameters: the parameters in order, with their defaults.
        summary: what the transform does: the docstring of its parser.
        differs: how results differ from the library's beyond rounding; empty if they do not.

    """

    name: str
    libraries: tuple[Library, ...]
    parameters: tuple[Parameter, ...]
    summary: str
    differs: str

    @property
    def library(self) -> str:
        """The libraries as text: ``"PaddleClas, torchvision"``."""
        return ", ".join(self.libraries)


@dataclass(frozen=True, slots=True)
class _Entry:
    parser: Parser
    libraries: tuple[Library, ...]
    differs: str


_ENTRIES: dict[str, _Entry] = {}


def register(name: str, *libraries: Library, differs: str = "") -> Callable[[_P], _P]:
    """Return a decorator that registers a function as the parser of a transform name.

    Args:
        name: the name that users write.
        libraries: the libraries whose parameters the function accepts.
        differs: how results differ from the library's beyond rounding, for the documentation.

    """

    def decorate(parser: _P) -> _P:
        if name in _ENTRIES:
            raise ValueError(f"{name} is already registered")
        _ENTRIES[name] = _Entry(parser, libraries, differs)
        return parser

    return decorate


def known_transforms() -> tuple[str, ...]:
    """Return every registered name, sorted."""
    return tuple(sorted(_ENTRIES))


def transform_table() -> tuple[TransformInfo, ...]:
    """Describe every registered name, sorted by name.

    The documentation's table is generated from this.
    """
    return tuple(_info(name, _ENTRIES[name]) for name in known_transforms())


def _info(name: str, entry: _Entry) -> TransformInfo:
    parameters = inspect.signature(entry.parser).parameters.values()
    text = inspect.getdoc(entry.parser) or ""
    summary = " ".join(text.partition("\n\nArgs:")[0].split())
    return TransformInfo(
        name, entry.libraries, tuple(map(_parameter, parameters)), summary, entry.differs
    )


def _parameter(parameter: inspect.Parameter) -> Parameter:
    has_default = parameter.default is not parameter.empty
    name = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
    return Parameter(name, parameter.default if has_default else None, has_default)


def parse_transform(
    name: str, arguments: Mapping[str, Any]
) -> tuple[Operation | Note | NeedsBytes | BatchFunction, ...]:
    """Parse a transform name and its arguments into operations and notes, or a function.

    Raises:
        CallError: the name or an argument is unknown (the hint suggests similar ones), an argument
            is missing, or a value is wrong.

    """
    if name not in _ENTRIES:
        raise CallError(f"{shown(name)} is not a known transform", hint=suggest(name, _ENTRIES))
    parser = _ENTRIES[name].parser
    parameters = inspect.signature(parser).parameters
    accepts_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for argument in arguments:
        if not isinstance(argument, str) or (argument not in parameters and not accepts_any):
            hint = (
                suggest(argument, parameters, quote=False)
                if parameters
                else f"{name} takes no arguments"
            )
            raise CallError(f"{name} has no argument {shown(argument)}", hint=hint)
    for each in parameters.values():
        if (
            each.default is each.empty
            and each.kind is not each.VAR_KEYWORD
            and each.name not in arguments
        ):
            hint = f"write {{{shown(name)}: {{{shown(each.name)}: ...}}}}"
            raise CallError(f"{name} needs the argument {shown(each.name)}", hint=hint)
    try:
        return tuple(parser(**arguments))
    except CallError as error:
        raise CallError(f"{name}: {error.message}", hint=error.hint) from None
