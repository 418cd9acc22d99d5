"""Read the values of arguments as users write them: numbers, sizes, colors and filters.

A reader takes a value and the name of its argument, and returns what a record needs. `Argument`
declares one in a row of the table of names; a function declares one for a parameter with
``Annotated[type, reader]``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard

from loaders.transforms.base import (
    BUCKET,
    MAX_NUMBER_LENGTH,
    AnySize,
    Chain,
    Color,
    Filter,
    Operation,
    Range,
    Size,
    check_bool,
    check_choice,
    check_probability,
    check_range,
)
from manifests.errors import CallError
from manifests.process.text import shown

#: Takes a value and the name of the argument. Raises a `CallError` that names both.
Reader: TypeAlias = Callable[[Any, str], Any]
#: Arguments of a transform by name, as they are written.
Arguments: TypeAlias = Mapping[str, Any]


#: Where a name comes from; ``"loaders"`` for names of this package.
Library: TypeAlias = Literal["PaddleClas", "torchvision", "timm", "loaders"]
Libraries: TypeAlias = tuple[Library, ...]
#: Returns the height and width of all images of a dataset, or `None` if they vary.
ImageSize: TypeAlias = Callable[[], Size | None]


@dataclass(frozen=True, slots=True)
class Note:
    """Tells users how a transform with these arguments differs from its library."""

    text: str


Notes: TypeAlias = tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class NeedsBytes:
    """Says that images must be uint8 before the transform, which would convert others back."""


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """A user's function that takes and returns the tensor of a whole batch.

    Called after everything else.
    """

    function: Callable[[Any], Any]


#: What a name with arguments gives: the operations in order, notes, and what they need; or a
#: function.
Part: TypeAlias = Operation | Note | NeedsBytes | BatchFunction
Parsed: TypeAlias = Iterator[Part]


@dataclass(frozen=True, slots=True)
class Noted:
    """What a reader returns for a value that needs notes."""

    value: Any
    notes: Notes


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a name.

    Attributes:
        read: the reader of its value.
        default: its default, as users would write it; `REQUIRED` if it has none.
        field: the field of the record that it sets; empty if it has the argument's name.

    """

    read: Reader
    default: Any
    field: str = ""

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED


#: The default of an argument that must be given.
REQUIRED: Any = object()


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Put a place before the messages of errors."""
    try:
        yield
    except CallError as error:
        raise CallError(f"{place}: {error.message}", hint=error.hint) from None


@contextmanager
def setting(variable: ContextVar[Any], value: Any) -> Iterator[Any]:
    """Set a variable for all that is parsed inside, and yield its value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


# Numbers, sizes and colors
# --------------------------------------------------------------------------------------------------

_NUMBER = r"[0-9.]+(?:e[-+]?[0-9]+)?"
_FRACTION = re.compile(rf"([-+]?{_NUMBER})(?:\s*/\s*({_NUMBER}))?", re.IGNORECASE)


def is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return whether a value is a list or a tuple, as YAML and Python write several numbers."""
    return isinstance(value, (list, tuple))


def read_number(value: Any, name: str) -> float:
    """Read a finite number, or a string such as ``"1.0/255.0"``.

    Strings are parsed, never evaluated.
    """
    # Configs of PaddleClas contain fractions, which it evaluates as Python.
    match = None
    if isinstance(value, str):
        if len(value) > MAX_NUMBER_LENGTH:
            raise CallError(
                f"{name} must have at most {MAX_NUMBER_LENGTH} characters, got {len(value)}"
            )
        match = _FRACTION.fullmatch(value.strip())
    number = math.nan
    try:
        if match:
            number = float(match[1]) / float(match[2] or 1)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    if math.isfinite(number):
        return number
    raise CallError(
        f"{name} must be a number or a fraction such as '1.0/255.0', got {shown(value)}"
    )


def read_numbers(value: Any, name: str) -> tuple[float, ...]:
    """Read a list of numbers or fractions."""
    if not is_list(value):
        raise CallError(f"{name} must be a list of numbers, got {shown(value)}")
    return tuple(read_number(each, name) for each in value)


def read_pair(value: Any, name: str) -> tuple[float, float]:
    """Read a list of two numbers or fractions."""
    numbers = read_numbers(value, name)
    if len(numbers) != 2:
        raise CallError(f"{name} must be two numbers, got {shown(value)}")
    return numbers[0], numbers[1]


def read_one_or_two(value: Any, name: str) -> tuple[float, float]:
    """Read two numbers, or one number that stands for both."""
    if is_list(value):
        return read_pair(value, name)
    number = read_number(value, name)
    return number, number


def read_around_zero(value: Any, name: str) -> Range:
    """Read two numbers, or one number x for the range from -x to x."""
    if is_list(value):
        return read_pair(value, name)
    limit = read_number(value, name)
    if limit < 0:
        raise CallError(
            f"{name} must not be negative, got {shown(value)}", hint="write two numbers for a range"
        )
    return -limit, limit


def read_channels(value: Any, name: str) -> Color:
    """Read one number for all channels, or a list of three numbers."""
    if not is_list(value):
        return (read_number(value, name),) * 3
    numbers = read_numbers(value, name)
    if len(numbers) != 3:
        raise CallError(f"{name} must be one number or three numbers, got {shown(value)}")
    return numbers[0], numbers[1], numbers[2]


def read_bands(value: Any, name: str) -> tuple[float, ...]:
    """Read one number for three channels, or a list with a number for each channel."""
    if not is_list(value):
        return read_channels(value, name)
    return read_numbers(value, name)


def read_fill(value: Any, name: str) -> Color:
    """Read torchvision's ``fill``: a color, or `None` for black."""
    if value is None:
        value = 0
    return read_channels(value, name)


def read_any_size(value: Any, name: str = "size") -> AnySize:
    """Read a size in torchvision's order, or ``"bucket"``."""
    if value == BUCKET:
        return BUCKET
    return read_height_width(value, name)


def read_height_width(value: Any, name: str = "size") -> Size:
    """Read a size in torchvision's order: one integer for a square, or (height, width)."""
    sides = value if is_list(value) else (value, value)
    # True is an int in Python, but not a size.
    whole = [isinstance(each, int) and not isinstance(each, bool) for each in sides]
    if whole != [True, True]:
        raise CallError(f"{name} must be one integer or two integers, got {shown(value)}")
    return sides[0], sides[1]


def read_width_height(value: Any, name: str = "size") -> Size:
    """Read a size in PaddleClas's order: one integer for a square, or (width, height).

    Returns (height, width).
    """
    width, height = read_height_width(value, name)
    return height, width


def checked(check: Callable[..., None], *bounds: Any) -> Reader:
    """Return a reader of values that pass a check, and stay as they are written."""

    def read(value: Any, name: str) -> Any:
        check(name, value, *bounds)
        return value

    return read


read_bool = checked(check_bool)
#: A number from 0 to 1.
read_probability = checked(check_probability)


def read_probability_text(value: Any, name: str) -> float:
    """Read a number from 0 to 1, or a fraction such as ``"1/4"``."""
    number = read_number(value, name)
    check_probability(name, number)
    return number


def read_shares(value: Any, name: str) -> Range:
    """Read two numbers from 0 to 1 in ascending order."""
    shares = read_pair(value, name)
    check_range(name, shares, 0, 1)
    return shares


def optional(read: Reader) -> Reader:
    """Return a reader that also accepts `None`."""
    return lambda value, name: None if value is None else read(value, name)


def choice(choices: Mapping[str, str]) -> Reader:
    """Return a reader of names, each of which stands for a value of a record."""

    def read(value: Any, name: str) -> str:
        check_choice(name, value, choices)
        return choices[value]

    return read


def read_as_given(value: Any, name: str) -> Any:
    """Return the value: the record or the function checks it."""
    return value


def read_transforms(value: Any, name: str) -> Any:
    """Stand for the reader of a list of transforms, which `items` has because it reads names."""
    raise NotImplementedError


def read_operator(value: Any, name: str) -> Any:
    """Stand for the reader of an operator of OpSampler and its arguments, which `items` has too."""
    raise NotImplementedError


Number: TypeAlias = Annotated[float, read_number]
Pair: TypeAlias = Annotated[tuple[float, float], read_pair]
Shares: TypeAlias = Annotated[Range, read_shares]
Channels: TypeAlias = Annotated[Any, read_channels]

#: One number for three channels, or a list with a number for each channel.
Means: TypeAlias = Annotated[Any, read_bands]
Fill: TypeAlias = Annotated[Any, read_fill]
HeightWidth: TypeAlias = Annotated[Any, read_height_width]
HeightWidthOrBucket: TypeAlias = Annotated[Any, read_any_size]
WidthHeight: TypeAlias = Annotated[Any, read_width_height]
Bool: TypeAlias = Annotated[bool, read_bool]
Probability: TypeAlias = Annotated[float, read_probability]
ProbabilityText: TypeAlias = Annotated[float, read_probability_text]
Chains: TypeAlias = Annotated[tuple[Chain, ...], read_transforms]


# Filters
# --------------------------------------------------------------------------------------------------

#: The filter for each name of OpenCV, Pillow and torchvision. Box and Hamming filters, and OpenCV's
#: area, are replaced by the nearest that DALI has.
_FILTERS: dict[str, Filter] = {
    "nearest": "nearest",
    "nearest-exact": "nearest",
    "bilinear": "linear",
    "bicubic": "cubic",
    "lanczos": "lanczos",
    "box": "triangular",
    "hamming": "triangular",
    "area": "triangular",
    "random": "random",
}

#: The names of each library, in the order in which messages list them.
_NAMES = {
    "cv2": ("nearest", "bilinear", "bicubic", "area", "lanczos", "random"),
    "pil": ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos", "random"),
    "torchvision": ("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos", "box", "hamming"),
}

# How pixels differ from torchvision's: the largest difference in twelve photographs of 200 to 310
# pixels, resized to 97 x 131, 224 x 224 and 400 x 500.
_REPLACED = (
    "the {} filter is replaced by an antialiased triangle filter: pixels of photographs differ by up"
    " to 117 of 255"
)
_SHARPER = Note(
    "without antialias, bicubic has the coefficient -0.5, as in Pillow; torchvision's is -0.75 for"
    " tensors. Pixels of photographs differ by up to 28 of 255"
)

_CV2_BICUBIC = "the bicubic filter uses Pillow's coefficient of -0.5; OpenCV uses -0.75"
_NEAREST = (
    "the nearest filter takes the pixel at the center, as Pillow does; OpenCV takes the pixel"
    " at the top left"
)

#: How a filter differs from the library's filter of this name.
_FILTER_NOTES = {
    ("cv2", "nearest"): _NEAREST,
    ("cv2", "bicubic"): _CV2_BICUBIC,
    ("cv2", "random"): _CV2_BICUBIC,
    ("cv2", "area"): "the area filter is an antialiased triangle filter; OpenCV's is a box filter",
    ("cv2", "lanczos"): "the Lanczos filter has three lobes; OpenCV's has four",
    ("pil", "box"): "the box filter is replaced by an antialiased triangle filter",
    ("pil", "hamming"): "the Hamming filter is replaced by an antialiased triangle filter",
    ("torchvision", "box"): _REPLACED.format("box"),
    ("torchvision", "hamming"): _REPLACED.format("hamming"),
}

#: The differences to the filters of torchvision and OpenCV, for the documentation.
TORCHVISION_DIFFERS = (
    "The box and Hamming filters are an antialiased triangle filter; bicubic without antialias has"
    " Pillow's coefficient."
)
CV2_DIFFERS = "With backend cv2, bilinear is exact; the other filters follow Pillow."
BICUBIC_DIFFERS = "The bicubic filter is bilinear."

#: Policies and warps have no bicubic filter.
BICUBIC_NOTE = Note(
    "steps that move pixels use a bilinear filter instead of a bicubic one. Pixels of photographs"
    " differ by up to 84 of 255, by 2.5 on average"
)


def _read_filter(value: Any, library: str, asked: str) -> tuple[Filter, Notes]:
    """Read the name of a filter, in any case."""
    name = _lower(value)
    names = _NAMES[library]
    if name not in names:
        raise CallError(
            f"interpolation must be one of {', '.join(names)}{asked}, got {shown(value)}"
        )
    notes: Notes = ()
    if (library, name) in _FILTER_NOTES:
        notes = (Note(_FILTER_NOTES[library, name]),)
    return _FILTERS[name], notes


def _lower(value: Any) -> Any:
    """Return text in lower case, and other values as they are."""
    return value.lower() if isinstance(value, str) else value


def _filter_name(value: Any) -> Any:
    """Return the name of a filter, which a member of an enum or Pillow's number may give."""
    value = getattr(value, "value", value)
    # True is no filter.
    if type(value) is int and 0 <= value < len(_PILLOW):
        value = _PILLOW[value]
    return _lower(value)


#: Filters by Pillow's numbers, which torchvision takes, too.
_PILLOW = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def read_backend(backend: Any, name: str = "backend") -> str:
    """Read PaddleClas's ``backend``: ``"cv2"`` or ``"pil"``, in any case."""
    library = _lower(backend)
    check_choice(name, library, ("cv2", "pil"))
    return str(library)


def paddleclas_filter(interpolation: Any, backend: str) -> tuple[Filter, bool, Notes]:
    """Read PaddleClas's ``interpolation``: the filter, whether it is antialiased, and notes.

    Only Pillow's filters and OpenCV's area are antialiased.
    """
    if interpolation is None:
        interpolation = "bilinear"
    filter_, notes = _read_filter(interpolation, backend, f" for backend {backend!r}")
    return filter_, backend == "pil" or filter_ == "triangular", notes


def torchvision_filter(interpolation: Any, antialias: bool) -> tuple[Filter, Notes]:
    """Read torchvision's ``interpolation``: the filter, and notes."""
    filter_, notes = _read_filter(_filter_name(interpolation), "torchvision", "")
    if filter_ == "cubic" and not antialias:
        notes = (_SHARPER,)
    return filter_, notes


def one_of(*names: str) -> Reader:
    """Return a reader of one of several names."""

    def read(value: Any, name: str) -> str:
        if value not in names:
            raise CallError(f"{name} must be one of {', '.join(names)}, got {shown(value)}")
        return value  # type: ignore[no-any-return]

    return read


_read_warp_name = one_of("nearest", "bilinear", "bicubic")


def read_warp_filter(value: Any, name: str) -> Any:
    """Read the ``interpolation`` of torchvision's transforms that move pixels."""
    given = _read_warp_name(_filter_name(value), name)
    if given == "bicubic":
        return Noted("linear", (BICUBIC_NOTE,))
    return _FILTERS[given]


WarpFilter: TypeAlias = Annotated[Any, read_warp_filter]
Backend: TypeAlias = Annotated[str, read_backend]
