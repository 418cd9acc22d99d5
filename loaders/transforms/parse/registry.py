"""The registry of transform names: the library of each name, and the function that parses its arguments.

A name that means different transforms in two libraries has a parser for each. Its arguments decide
if only one parser takes them, or both give the same operations. Else the list decides, to whose
library the other names belong; `library_of` finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
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
    """One row of `transform_table`: a name, or one of its meanings.

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


#: What a parser returns for the arguments of a transform.
_Result: TypeAlias = tuple["Operation | Note | NeedsBytes | BatchFunction", ...]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a name means in some libraries."""

    parser: Parser
    libraries: tuple[Library, ...]
    differs: str

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.parser).parameters

    def takes(self, argument: object) -> bool:
        parameters = self.parameters
        any_name = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        return isinstance(argument, str) and (argument in parameters or any_name)


_MEANINGS: dict[str, list[_Meaning]] = {}

#: The library of the list that is being parsed, if its names belong to one.
_OF_LIST: ContextVar[Library | None] = ContextVar("library", default=None)

#: The libraries whose names can mean different transforms.
_RIVALS: tuple[Library, ...] = ("PaddleClas", "torchvision")


def register(name: str, *libraries: Library, differs: str = "") -> Callable[[_P], _P]:
    """Return a decorator that registers a function as the parser of a transform name.

    Args:
        name: the name that users write.
        libraries: the libraries in which the name means this.
        differs: how results differ from the library's beyond rounding, for the documentation.

    """

    def decorate(parser: _P) -> _P:
        meanings = _MEANINGS.setdefault(name, [])
        if any({*libraries} & {*each.libraries} for each in meanings):
            raise ValueError(f"{name} is already registered")
        meanings.append(_Meaning(parser, libraries, differs))
        return parser

    return decorate


def known_transforms() -> tuple[str, ...]:
    """Return every registered name, sorted."""
    return tuple(sorted(_MEANINGS))


def is_ambiguous(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a name with arguments can be the transforms of several libraries."""
    return len(_fitting(_MEANINGS[name], arguments)) > 1


def is_of(library: Library, name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a name with arguments is a library's transform, in the list that is being parsed."""
    return any(library in each.libraries for each in _chosen(_MEANINGS[name], arguments))


def transform_table() -> tuple[TransformInfo, ...]:
    """Describe every meaning of every registered name, sorted by name.

    The documentation's table is generated from this.
    """
    rows = []
    for name in known_transforms():
        for meaning in _MEANINGS[name]:
            text = inspect.getdoc(meaning.parser) or ""
            summary = " ".join(text.partition("\n\nArgs:")[0].split())
            parameters = tuple(map(_parameter, meaning.parameters.values()))
            rows.append(
                TransformInfo(name, meaning.libraries, parameters, summary, meaning.differs)
            )
    return tuple(rows)


def _parameter(parameter: inspect.Parameter) -> Parameter:
    has_default = parameter.default is not parameter.empty
    name = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
    return Parameter(name, parameter.default if has_default else None, has_default)


def library_of(items: Iterable[tuple[str, Mapping[str, Any]]]) -> Library | None:
    """Return the library to which the names of a list belong; `None` if they do not say.

    Args:
        items: names with their arguments. A name counts if only one library has it, or has it with
            these arguments.

    """
    found: set[Library] = set()
    for name, arguments in items:
        fitting = _fitting(_MEANINGS.get(name, []), arguments)
        if len(fitting) == 1:
            rivals = [each for each in _RIVALS if each in fitting[0].libraries]
            found.update(rivals if len(rivals) == 1 else ())
    return found.pop() if len(found) == 1 else None


@contextmanager
def names_of(library: Library | None) -> Iterator[None]:
    """Let names that two libraries have mean the transforms of one of them."""
    token = _OF_LIST.set(library)
    try:
        yield
    finally:
        _OF_LIST.reset(token)


def _fitting(meanings: list[_Meaning], arguments: Mapping[str, Any]) -> list[_Meaning]:
    """Return the meanings that take all arguments, and are of the library that they may name."""
    names = [*arguments]
    if len(meanings) > 1 and "library" in arguments:
        meanings = [each for each in meanings if arguments["library"] in each.libraries]
        names.remove("library")
    return [each for each in meanings if all(map(each.takes, names))]


def _chosen(meanings: list[_Meaning], arguments: Mapping[str, Any]) -> list[_Meaning]:
    """Return the fitting meanings of the list's library, or if there are none, all."""
    fitting = _fitting(meanings, arguments)
    return [each for each in fitting if _OF_LIST.get() in each.libraries] or fitting


def parse_transform(name: str, arguments: Mapping[str, Any]) -> _Result:
    """Parse a transform name and its arguments into operations and notes, or a function.

    Raises:
        CallError: the name or an argument is unknown (the hint suggests similar ones), an argument
            is missing, or a value is wrong. Or the name means different transforms in two
            libraries, and nothing says which.

    """
    if name not in _MEANINGS:
        raise CallError(f"{shown(name)} is not a known transform", hint=suggest(name, _MEANINGS))
    meanings = _MEANINGS[name]
    chosen = _chosen(meanings, arguments)
    if not chosen:
        raise _unknown_argument(name, meanings, arguments)
    if len(meanings) > 1:
        arguments = {key: arguments[key] for key in arguments if key != "library"}
    results = [_parsed(name, each, arguments) for each in chosen]
    if any(each != results[0] for each in results):
        spelled = " or ".join(
            f"{{{shown(name)}: {{'library': {shown(each.libraries[0])}, ...}}}}" for each in chosen
        )
        raise CallError(
            f"{name} is another transform in {chosen[0].libraries[0]} than in"
            f" {chosen[1].libraries[0]}, and the other names of the list do not say which is meant",
            hint=f"write {spelled}",
        )
    return results[0]


def _parsed(name: str, meaning: _Meaning, arguments: Mapping[str, Any]) -> _Result:
    for each in meaning.parameters.values():
        if (
            each.default is each.empty
            and each.kind is not each.VAR_KEYWORD
            and each.name not in arguments
        ):
            hint = f"write {{{shown(name)}: {{{shown(each.name)}: ...}}}}"
            raise CallError(f"{name} needs the argument {shown(each.name)}", hint=hint)
    try:
        return tuple(meaning.parser(**arguments))
    except CallError as error:
        raise CallError(f"{name}: {error.message}", hint=error.hint) from None


def _unknown_argument(
    name: str, meanings: list[_Meaning], arguments: Mapping[str, Any]
) -> CallError:
    """Return the error for an argument that no library has, or for arguments of two libraries."""
    known: dict[str, Library] = {}
    for meaning in meanings:
        for parameter in meaning.parameters:
            known.setdefault(parameter, meaning.libraries[0])
    several = len(meanings) > 1
    for argument in arguments:
        if not isinstance(argument, str) or argument not in (*known, *["library"] * several):
            hint = suggest(argument, known, quote=False) if known else f"{name} takes no arguments"
            return CallError(f"{name} has no argument {shown(argument)}", hint=hint)
    libraries = [each.libraries[0] for each in meanings]
    if arguments.get("library", libraries[0]) not in libraries:
        return CallError(
            f"{name}: library must be one of {', '.join(map(repr, libraries))}, got"
            f" {shown(arguments['library'])}"
        )
    written = arguments.get("library")
    only = [] if written is None else [f"library is {shown(written)}"]
    for argument, library in known.items():
        is_shared = all(each.takes(argument) for each in meanings)
        if argument in arguments and not is_shared and library != written:
            only.append(f"{argument} is an argument of {library}")
    return CallError(
        f"{name}: {', but '.join((only[0], only[-1]))}",
        hint="use the arguments of only one library",
    )
