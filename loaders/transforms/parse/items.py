"""Parse one item of a list of transforms: a name, a name with arguments, a record or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loaders.transforms.base import MAX_NESTING, Operation
from loaders.transforms.parse.registry import BatchFunction, NeedsBytes, Note, parse_transform
from loaders.transforms.parse.torchvision_objects import flatten
from manifests.errors import CallError
from manifests.process.text import shown


@dataclass(frozen=True, slots=True)
class RecipeItem:
    """One item of the user's list, parsed.

    Attributes:
        location: position in the list, such as ``transforms[2]``.
        description: the item as Python code, such as ``CropImage(size=224)``.
        operations: its operations; may be empty.
        notes: its differences from the library that its name comes from.
        function: the user's function if the item is one.
        written: the item as a name or a name with arguments; ``None`` if it is a record or a
            function.
        needs_bytes: whether images must be uint8 before it.

    """

    location: str
    description: str
    operations: tuple[Operation, ...] = ()
    notes: tuple[str, ...] = ()
    function: Callable[[Any], Any] | None = None
    written: Any = field(default=None, compare=False)
    needs_bytes: bool = False


def written_items(source: str, items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list with their locations.

    Objects of torchvision become names with arguments.
    """
    for number, item in enumerate(items):
        yield from flatten(f"{source}[{number}]", item)


def names_in(items: Iterable[Any], depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names in a list, and in the lists inside it, with their arguments.

    Names of what contains other transforms are left out.
    """
    for item in items:
        written = {item: None} if isinstance(item, str) else item
        if not isinstance(written, Mapping):
            continue
        for name, arguments in written.items():
            given = arguments if isinstance(arguments, Mapping) else {}
            inner = given.get("transforms")
            if isinstance(inner, (list, tuple)) and depth < MAX_NESTING:
                # An error is raised where the list is parsed, which knows its location.
                with suppress(CallError):
                    yield from names_in((each for _, each in written_items("", inner)), depth + 1)
            elif isinstance(name, str):
                yield name, given


def parse_item(location: str, item: Any) -> RecipeItem:
    """Parse one item of a list.

    Raises:
        CallError: the item is unknown or wrong; the message starts with `location`.

    """
    if converts_to_rgb(item):
        return RecipeItem(location, f"{_name_of(item)}(image)")
    if callable(item) and not isinstance(item, (Operation, type)):
        return RecipeItem(location, f"{_name_of(item)}(images)", function=item)
    if isinstance(item, Operation):
        return RecipeItem(location, repr(item), (item,))
    if isinstance(item, str):
        item = {item: None}
    if not (
        isinstance(item, Mapping) and len(item) == 1 and all(isinstance(name, str) for name in item)
    ):
        raise CallError(
            f"{location} is not a transform: {shown(item)}",
            hint="write a name, or a name with arguments: {'ResizeImage': {...}}",
        )
    ((name, arguments),) = item.items()
    if arguments is not None and not isinstance(arguments, Mapping):
        raise CallError(
            f"{location}: {name} takes named arguments, got {shown(arguments)}",
            hint=f"write {{{shown(name)}: {{argument: value}}}}",
        )
    arguments = {key: _plain(value) for key, value in (arguments or {}).items()}
    try:
        parsed = parse_transform(name, arguments)
    except CallError as error:
        raise CallError(f"{location}: {error.message}", hint=error.hint) from None
    return RecipeItem(
        location,
        f"{name}({', '.join(f'{key}={shown(value)}' for key, value in arguments.items())})",
        tuple(each for each in parsed if isinstance(each, Operation)),
        tuple(each.text for each in parsed if isinstance(each, Note)),
        next((each.function for each in parsed if isinstance(each, BatchFunction)), None),
        item,
        any(isinstance(each, NeedsBytes) for each in parsed),
    )


def converts_to_rgb(function: Any) -> bool:
    """Return whether all that a function does is ``image.convert("RGB")``: images always are RGB.

    Lists for CLIP have such a function in the middle. Only its code is looked at.
    """
    code = getattr(function, "__code__", None)
    return (
        code is not None
        and code.co_names == ("convert",)
        and set(code.co_consts) - {None, getattr(function, "__doc__", None)} == {"RGB"}
        and code.co_argcount == 1
    )


def _plain(value: Any) -> Any:
    """Return an argument as Python numbers and lists, and a sequence of one number as the number.

    Scripts compute means with NumPy and torch, and torchvision accepts ``(0.5,)`` for ``0.5``.
    """
    if _is_array(value):
        value = value.tolist()
    elif isinstance(value, (list, tuple)):
        numbers = [each.tolist() if _is_array(each) else each for each in value]
        value = tuple(numbers) if isinstance(value, tuple) else numbers
    if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], (int, float)):
        return value[0]
    return value


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, a number or a tensor of NumPy or torch."""
    return type(value).__module__ in ("numpy", "torch") and hasattr(value, "tolist")


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
