"""The base class of operations, what they declare about images, checks of their fields, and limits."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias

from manifests.errors import CallError
from manifests.process.text import shown

#: Transforms in a list, including those inside `RandomApply` and similar transforms, and how deep
#: they may be nested.
MAX_TRANSFORMS = 100
MAX_NESTING = 8

#: Transforms in `RandomOrder`. The graph computes each of them in each place.
MAX_ORDERED = 6

#: Views of each image.
MAX_VIEWS = 32

#: Characters of a number that is written as text, such as ``"1.0/255.0"``, and of a policy such as
#: ``rand-m9-n2``.
MAX_NUMBER_LENGTH = 100
MAX_POLICY_LENGTH = 200

#: Longest side of an image in pixels. A batch of larger images exhausts memory, and the error does
#: not explain why.
MAX_SIDE = 2**15

#: Pixels of an image of known size. uint8 RGB images of this size take 768 MiB each.
MAX_PIXELS = 2**28

#: Values of one field of a transform that contains several, for example the steps that a policy
#: draws from.
MAX_VALUES = 1000

#: Steps that a policy runs one after another. Each is a part of the graph.
MAX_STEPS = 20

#: Chains of an AugMix policy, and steps of a chain.
MAX_CHAINS = 8
MAX_CHAIN_STEPS = 8

#: Draws of the rectangle of `RandomErasing`. The memory grows with it.
MAX_ATTEMPTS = 1000

#: Squares of `Cutout`.
MAX_HOLES = 1000

#: Sides of the kernels of a Gaussian blur and of a motion blur, in pixels, and the motion's angle
#: in degrees.
MAX_GAUSSIAN = 999
MAX_MOTION = 24
MAX_MOTION_ANGLE = 90

#: Standard deviation of the Gaussian of an elastic transform, in pixels.
MAX_SIGMA = 100

#: Angles that the grid of `GridMask` is drawn from, in degrees.
MAX_ANGLES = 360

#: Classes of mixed labels. Every label of a batch is a row of this length.
MAX_CLASSES = 1_000_000

#: Samples in a batch of one rank, and in an epoch of one rank, that a config file may set.
MAX_BATCH_SIZE = 2**16
MAX_EPOCH_SAMPLES = 2**25


#: Height and width in pixels.
Size: TypeAlias = tuple[int, int]

#: Minimum and maximum, both inclusive.
Range: TypeAlias = tuple[float, float]

#: Interpolation filter; ``"random"`` draws ``"linear"`` or ``"cubic"`` per image.
Filter: TypeAlias = Literal["nearest", "linear", "cubic", "triangular", "lanczos", "random"]
FILTERS = ("nearest", "linear", "cubic", "triangular", "lanczos", "random")


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What is known about every image between two operations. Images are HWC.

    Attributes:
        size: height and width in pixels if all images have the same size, else ``None``.
        channels: channels per pixel.
        is_uint8: ``True`` for uint8 values from 0 to 255, ``False`` for float32.
        color_space: ``"RGB"``, ``"BGR"``, ``"GRAY"``, ``"LAB"``, ``"HSV"`` or ``"YCbCr"``.
        crops: number of crops that `MultiCrop` has made of every image; 0 for plain images. Images
            are then NHWC.

    """

    size: Size | None = None
    channels: int = 3
    is_uint8: bool = True
    color_space: str = "RGB"
    crops: int = 0

    def with_size(self, size: Size | None) -> ImageSpec:
        """Return a copy with another size."""
        return replace(self, size=size)


class Operation:
    """Base of all operations: a frozen record, compared by value, that checks its fields when it is created.

    The ``repr`` of an operation seeds its random numbers and is part of a loader's checkpoint.
    Renaming a class or a field therefore changes what is drawn for a given seed.

    Raises:
        CallError: a value is wrong; the message names the field.

    """

    __slots__ = ()

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of the operation's output for inputs of `spec`.

        Raises:
            CallError: the operation does not support such images.

        """
        return spec

    @property
    def needs_size(self) -> bool:
        """Whether `output` raises an error for images that are too small."""
        return False

    @property
    def pointwise(self) -> bool:
        """Whether each output pixel depends only on the same input pixel and on random draws.

        A pointwise operation can run after a crop instead of before it. Every linear one is
        pointwise.
        """
        return self.linear

    @property
    def linear(self) -> bool:
        """Whether it is pointwise, and the mean of two results is the result of the mean, except for rounding.

        A linear operation can run after a resize instead of before it. One that clips at 0 and 255
        is not linear.
        """
        return False


class BatchOperation(Operation):
    """An operation on a whole batch.

    It runs after all per-image operations and mixes images and their labels.
    """

    __slots__ = ()


def short_repr(record: Any) -> str:
    """Return the ``repr`` of a dataclass, or of a tuple of them, without the fields that have their default value."""
    if type(record) is tuple:
        items = ", ".join(map(short_repr, record))
        return f"({items},)" if len(record) == 1 else f"({items})"
    if not is_dataclass(record):
        return repr(record)
    values = [
        f"{field.name}={short_repr(getattr(record, field.name))}"
        for field in fields(record)
        if getattr(record, field.name) != field.default
    ]
    return f"{type(record).__name__}({', '.join(values)})"


def require_uint8(operation: Operation, spec: ImageSpec) -> ImageSpec:
    """Return `spec` if images are uint8 with three channels.

    Raises:
        CallError: they are not.

    """
    if not spec.is_uint8:
        raise CallError(
            f"{type(operation).__name__} needs uint8 values from 0 to 255, but the images are"
            " normalized at this point",
            hint="move it before the normalization",
        )
    return require_three_channels(operation, spec)


def require_three_channels(operation: Operation, spec: ImageSpec) -> ImageSpec:
    """Return `spec` if images have three channels.

    Raises:
        CallError: they do not.

    """
    if spec.channels != 3:
        raise CallError(
            f"{type(operation).__name__} needs three channels, but the images have {spec.channels}"
            " at this point",
            hint="move it before the normalization that adds a channel",
        )
    return spec


def check_size(name: str, value: object) -> None:
    """Check that a value is a `Size` with sides from 1 to `MAX_SIDE`."""
    if not (
        isinstance(value, tuple)
        and len(value) == 2
        and all(_is_int(each) and each >= 1 for each in value)
    ):
        raise CallError(
            f"{name} must be (height, width), two integers of at least 1, got {shown(value)}",
            hint=_tuple_hint(value),
        )
    if max(value) > MAX_SIDE:
        raise CallError(
            f"{name} must be (height, width), each at most {MAX_SIDE}, got {shown(value)}"
        )
    if value[0] * value[1] > MAX_PIXELS:
        raise CallError(
            f"{name} must be (height, width) with a product of at most {MAX_PIXELS}, got"
            f" {shown(value)}"
        )


def check_int(name: str, value: Any, minimum: int, maximum: int | None = None) -> None:
    """Check that a value is an integer of at least `minimum` and at most `maximum`, or what DALI can store."""
    if not _is_int(value) or value < minimum or (maximum is not None and value > maximum):
        bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise CallError(f"{name} must be an integer {bounds}, got {shown(value)}")


def check_bool(name: str, value: object) -> None:
    """Check that a value is a bool."""
    if not isinstance(value, bool):
        raise CallError(f"{name} must be True or False, got {shown(value)}")


def check_number(
    name: str, value: Any, minimum: float = float("-inf"), maximum: float = float("inf")
) -> None:
    """Check that a value is a finite number from `minimum` to `maximum`."""
    if not _is_number(value) or not minimum <= value <= maximum:
        raise CallError(
            f"{name} must be a number{_bounds_text(minimum, maximum)}, got {shown(value)}"
        )


def check_probability(name: str, value: object) -> None:
    """Check that a value is a number from 0 to 1."""
    check_number(name, value, 0, 1)


def check_range(
    name: str, value: Any, minimum: float = float("-inf"), maximum: float = float("inf")
) -> None:
    """Check that a value is a `Range` inside ``[minimum, maximum]``."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))
    if not is_pair or not minimum <= value[0] <= value[1] <= maximum:
        bounds = _bounds_text(minimum, maximum)
        raise CallError(
            f"{name} must be two numbers{bounds} in ascending order, got {shown(value)}",
            hint=_tuple_hint(value),
        )


def check_numbers(name: str, value: Any, count: int) -> None:
    """Check that a value is a tuple of `count` numbers."""
    if not (isinstance(value, tuple) and len(value) == count and all(map(_is_number, value))):
        raise CallError(
            f"{name} must be {count} numbers, got {shown(value)}", hint=_tuple_hint(value)
        )


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that a value is one of the given strings."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise CallError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}"
        )


def check_type(name: str, value: object, *types: type) -> None:
    """Check that a value is an instance of one of the types."""
    if not isinstance(value, types):
        raise CallError(f"{name} must be of type {_type_names(types)}, got {shown(value)}")


def check_tuple(name: str, value: object, *types: type) -> None:
    """Check that a value is a non-empty tuple of instances of the types."""
    if not isinstance(value, tuple) or not value:
        raise CallError(
            f"{name} must be a tuple of at least one {_type_names(types)}, got {shown(value)}"
        )
    if len(value) > MAX_VALUES:
        raise CallError(f"{name} must contain at most {MAX_VALUES} values, got {len(value)}")
    for each in value:
        check_type(name, each, *types)


def _type_names(types: tuple[type, ...]) -> str:
    *others, last = (each.__name__ for each in types)
    return f"{', '.join(others)} or {last}" if others else last


def _tuple_hint(value: object) -> str:
    return "write a tuple instead of a list" if isinstance(value, list) else ""


def _is_int(value: object) -> bool:
    # DALI stores sizes and counts as int32.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
    )


def _bounds_text(minimum: float, maximum: float) -> str:
    if maximum < float("inf"):
        return f" from {minimum:g} to {maximum:g}"
    return f" of at least {minimum:g}" if minimum > float("-inf") else ""
