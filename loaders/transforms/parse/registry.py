"""Names and arguments that users write -> operations. The register of names, and how one is looked up."""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from loaders.transforms.base import Operation, Size
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Note:
    """What a user should know of a word: where the result is not exactly that of the library it comes from."""

    text: str


#: What a word means: operations in order, and notes. Its parameters are those a user may write.
Parsed: TypeAlias = Iterator["Operation | Note"]
Parser: TypeAlias = Callable[..., Parsed]
_W = TypeVar("_W", bound=Parser)

_PARSERS: dict[str, Parser] = {}


def register(*names: str) -> Callable[[_W], _W]:
    """Register a function as the meaning of these names."""

    def decorate(meaning: _W) -> _W:
        for name in names:
            if name in _PARSERS:
                raise ValueError(f"{name} has a meaning already")
            _PARSERS[name] = meaning
        return meaning

    return decorate


def known_transforms() -> tuple[str, ...]:
    """Return every registered name, sorted."""
    return tuple(sorted(_PARSERS))


def parse_transform(name: str, arguments: Mapping[str, Any]) -> tuple[Operation | Note, ...]:
    """Return what a name with arguments means.

    Raises:
        CallError: the name or an argument is unknown (the message has the nearest known ones), an argument is
            missing, or a value is wrong.

    """
    if name not in _PARSERS:
        raise CallError(f"{name!r} is no known transform", hint=_nearest(name, _PARSERS))
    parameters = inspect.signature(_PARSERS[name]).parameters
    free = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for given in arguments:
        if not isinstance(given, str) or (given not in parameters and not free):
            hint = _nearest(given, parameters) if parameters else "it takes no argument"
            raise CallError(f"{name} has no argument {given!r}", hint=hint)
    for each in parameters.values():
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD and each.name not in arguments:
            hint = f"write {{{name!r}: {{{each.name!r}: ...}}}}"
            raise CallError(f"{name} lacks its argument {each.name!r}", hint=hint)
    try:
        return tuple(_PARSERS[name](**arguments))
    except CallError as error:
        raise CallError(f"{name}: {error.message}", hint=error.hint) from None


def width_height(value: Any, name: str = "size") -> Size:
    """Read a size as PaddleClas writes it: one number for a square, or width and height."""
    height, width = height_width(value, name)
    return width, height


def height_width(value: Any, name: str = "size") -> Size:
    """Read a size as torchvision writes it: one number for a square, or height and width."""
    sides = value if isinstance(value, (list, tuple)) else (value, value)
    if len(sides) != 2 or not all(isinstance(each, int) and not isinstance(each, bool) for each in sides):
        raise CallError(f"{name} must be one whole number or two, got {value!r}")
    return sides[0], sides[1]


_FRACTION = re.compile(r"\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*(?:/\s*([\d.]+(?:e[-+]?\d+)?))?\s*", re.IGNORECASE)


def number(value: Any, name: str) -> float:
    """Read a number, or a text such as ``1.0/255.0``, which is read and not run."""
    found = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    read = math.nan
    try:
        if found:
            read = float(found[1]) / float(found[2] or 1)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            read = float(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    if math.isfinite(read):
        return read
    raise CallError(f"{name} must be a number or a fraction such as '1.0/255.0', got {value!r}")


def numbers(value: Any, name: str) -> tuple[float, ...]:
    """Read a list of numbers; each may be a fraction."""
    if not isinstance(value, (list, tuple)):
        raise CallError(f"{name} must be a list of numbers, got {value!r}")
    return tuple(number(each, name) for each in value)


def pair(value: Any, name: str) -> tuple[float, float]:
    """Read two numbers; each may be a fraction."""
    found = numbers(value, name)
    if len(found) != 2:
        raise CallError(f"{name} must be two numbers, got {value!r}")
    return found[0], found[1]


def _nearest(name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    lowered = {each.lower(): each for each in known}
    near = [lowered[each] for each in difflib.get_close_matches(str(name).lower(), lowered, n=3, cutoff=0.5)]
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
