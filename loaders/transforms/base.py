"""What every operation is and declares. Pure; it must never know DALI, or the names that users write."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias

from manifests.errors import CallError

#: Height and width in pixels.
Size: TypeAlias = tuple[int, int]

#: Longer sides would take a batch's memory before anybody could look at it.
MAX_SIDE = 2**15

#: Least and greatest value, both included.
Range: TypeAlias = tuple[float, float]

#: How pixels are interpolated; ``random`` draws ``linear`` or ``cubic`` for each image.
Filter: TypeAlias = Literal["nearest", "linear", "cubic", "triangular", "lanczos", "random"]
FILTERS = ("nearest", "linear", "cubic", "triangular", "lanczos", "random")


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What is known of every image between two operations; images are HWC.

    Attributes:
        size: height and width, where all images have the same; else none.
        channels: of a pixel.
        is_uint8: whether values are whole numbers from 0 to 255 (uint8); else they are float32.
        color_space: the colour space, ``RGB`` or ``BGR``, ``GRAY``, ``LAB``, ``HSV``, ``YCbCr``.

    """

    size: Size | None = None
    channels: int = 3
    is_uint8: bool = True
    color_space: str = "RGB"

    def with_size(self, size: Size | None) -> ImageSpec:
        """Return the same with another size."""
        return replace(self, size=size)


class Operation:
    """One step from an image to an image, as data: frozen, compared by value, checked when made.

    Raises:
        CallError: a value is wrong; the message names it.

    """

    __slots__ = ()

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the form of what comes out.

        Raises:
            CallError: the operation cannot work on images of this form.

        """
        return spec

    @property
    def pointwise(self) -> bool:
        """Whether a pixel's new value depends on that pixel and on draws alone, so that resizing may come first."""
        return False


class BatchOperation(Operation):
    """An operation on a batch, after all that work on an image; it mixes images, and their labels."""

    __slots__ = ()


def short_repr(record: Any) -> str:
    """Return a record as it can be written, without what is as by default."""
    if not is_dataclass(record):
        return repr(record)
    values = [
        f"{field.name}={short_repr(getattr(record, field.name))}"
        for field in fields(record)
        if getattr(record, field.name) != field.default
    ]
    return f"{type(record).__name__}({', '.join(values)})"


def require_uint8(operation: Operation, spec: ImageSpec) -> ImageSpec:
    """Return `form` if its values are uint8 colours; the check of operations that work on bytes.

    Raises:
        CallError: they are not.

    """
    if not spec.is_uint8:
        raise CallError(
            f"{type(operation).__name__} works on whole values from 0 to 255, and here they are normalised",
            hint="put it before the normalisation",
        )
    return require_three_channels(operation, spec)


def require_three_channels(operation: Operation, spec: ImageSpec) -> ImageSpec:
    """Return `form` if its pixels have three channels.

    Raises:
        CallError: they have not.

    """
    if spec.channels != 3:
        raise CallError(
            f"{type(operation).__name__} works on three channels, and here there are {spec.channels}",
            hint="put it before the normalisation that adds a channel",
        )
    return spec


def check_size(name: str, value: object) -> None:
    """Check that a value is a `Size`."""
    if not (isinstance(value, tuple) and len(value) == 2 and all(_whole(each) and each >= 1 for each in value)):
        raise CallError(f"{name} must be a height and a width of at least 1, got {value!r}", hint=_as_tuple(value))
    if max(value) > MAX_SIDE:
        raise CallError(f"{name} must be a height and a width of at most {MAX_SIDE}, got {value!r}")


def check_int(name: str, value: Any, least: int) -> None:
    """Check that a value is a whole number and not less than `least`."""
    if not _whole(value) or value < least:
        raise CallError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_bool(name: str, value: object) -> None:
    """Check that a value is a bool."""
    if not isinstance(value, bool):
        raise CallError(f"{name} must be True or False, got {value!r}")


def check_number(name: str, value: Any, least: float = float("-inf"), most: float = float("inf")) -> None:
    """Check that a value is a number from `least` to `most`, which infinity is not."""
    bounds = _bounds(least, most)
    if not _number(value) or not least <= value <= most:
        raise CallError(f"{name} must be a number{bounds}, got {value!r}")


def check_probability(name: str, value: object) -> None:
    """Check that a value is a probability."""
    check_number(name, value, 0, 1)


def check_range(name: str, value: Any, least: float = float("-inf"), most: float = float("inf")) -> None:
    """Check that a value is a `Range` within bounds."""
    pair = isinstance(value, tuple) and len(value) == 2 and all(map(_number, value))
    if not pair or not least <= value[0] <= value[1] <= most:
        bounds = _bounds(least, most)
        raise CallError(f"{name} must be two numbers{bounds}, the lesser first, got {value!r}", hint=_as_tuple(value))


def check_numbers(name: str, value: Any, count: int) -> None:
    """Check that a value is a tuple of that many numbers."""
    if not (isinstance(value, tuple) and len(value) == count and all(map(_number, value))):
        raise CallError(f"{name} must be {count} numbers, got {value!r}", hint=_as_tuple(value))


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Check that a value is one of the known words."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        raise CallError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def check_type(name: str, value: object, *kinds: type) -> None:
    """Check that a value is a record of one of the kinds."""
    if not isinstance(value, kinds):
        raise CallError(f"{name} must be of {_named(kinds)}, got {value!r}")


def check_tuple(name: str, value: object, *kinds: type) -> None:
    """Check that a value is a tuple, not empty, of records of the kinds."""
    if not isinstance(value, tuple) or not value:
        raise CallError(f"{name} must be a tuple of at least one {_named(kinds)}, got {value!r}")
    for each in value:
        check_type(name, each, *kinds)


def _named(kinds: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _as_tuple(value: object) -> str:
    return "write a tuple" if isinstance(value, list) else ""


def _whole(value: object) -> bool:
    # Sizes and counts are int32 in DALI.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _bounds(least: float, most: float) -> str:
    if most < float("inf"):
        return f" from {least:g} to {most:g}"
    return f" of at least {least:g}" if least > float("-inf") else ""
