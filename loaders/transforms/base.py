"""What an operation is: its traits, the images that it takes, checks of its fields, and limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from manifests.errors import CallError
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind
from manifests.process.text import shown

# Limits on what a list of transforms may ask for, so that no config takes unbounded memory or time.
# Every limit is far above what published recipes use. An error that states a limit is raised before
# anything runs.
# --------------------------------------------------------------------------------------------------

#: Transforms in a list, with the ones inside `RandomApply` and similar transforms, and how deep
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


# What is known about images
# --------------------------------------------------------------------------------------------------

#: Height and width in pixels.
Size: TypeAlias = tuple[int, int]

#: The size of images that have the size of their batch's aspect bucket, see `BucketSampler`.
BUCKET: Literal["bucket"] = "bucket"
AnySize: TypeAlias = Size | Literal["bucket"]
SizeT = TypeVar("SizeT", Size, AnySize)

#: Minimum and maximum, both inclusive.
Range: TypeAlias = tuple[float, float]

#: One value per channel.
Color: TypeAlias = tuple[float, float, float]

#: Interpolation filter; ``"random"`` draws ``"linear"`` or ``"cubic"`` per image.
Filter: TypeAlias = Literal["nearest", "linear", "cubic", "triangular", "lanczos", "random"]

#: What the labels that follow the pixels are called in messages.
Targets: TypeAlias = Literal["masks", "boxes"]


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
        patches: the most patches of a row of a batch, and the side of a patch in pixels, if
            `Patchify` cuts images, whose sizes then vary; else ``None``.
        kind: what a pixel of the dataset is. `is_uint8` says what its values are now.
        of_bucket: whether all images of a batch have one size, which depends on the aspect bucket of
            the batch. `size` is then ``None``.

    """

    size: Size | None = None
    channels: int = 3
    is_uint8: bool = True
    color_space: str = "RGB"
    crops: int = 0
    patches: tuple[int, int] | None = None
    kind: PixelKind = RGB8
    of_bucket: bool = False

    @property
    def pixels(self) -> int | None:
        """Pixels of an image, or of a row of patches, with padding; ``None`` if sizes vary."""
        if self.patches is not None:
            tokens, side = self.patches
            return tokens * side**2
        return self.size and self.size[0] * self.size[1]

    def with_size(self, size: AnySize | None) -> ImageSpec:
        """Return a copy with another size."""
        if size == BUCKET:
            return replace(self, size=None, of_bucket=True)
        return replace(self, size=size, of_bucket=False)


class Values(Enum):
    """What the values of an image are at some point of a list."""

    BYTES = "from 0 to 255"
    UNIT = "from 0 to 1"
    NORMALIZED = "normalized"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What `Loader.set` has changed. `None` means as written.

    Attributes:
        size: height and width of the images of a batch in pixels; with views, of the first view.
        magnitude: strength of the policies, in the units of their names.

    """

    size: Size | None = None
    magnitude: float | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_size("size", self.size)
        if self.magnitude is not None:
            check_number("magnitude", self.magnitude, 0)

    def changed(self, size: Any, magnitude: float | None, *, written: Size | None) -> Adjustment:
        """Return the adjustment after `Loader.set`.

        Args:
            size: a height and a width, or one number for square images. `None` changes nothing.
            magnitude: `None` changes nothing.
            written: height and width of the images without an adjustment.

        Raises:
            CallError: a value is wrong, or `size` is one number and the images are not square.

        """
        if isinstance(size, int) and not isinstance(size, bool):
            height, width = written or (0, 0)
            if height != width:
                raise CallError(
                    f"size={size} is one number, but the transforms make images of {height} x"
                    f" {width} pixels",
                    hint="set size=(height, width)",
                )
            size = (size, size)
        size = self.size if size is None else tuple(size) if isinstance(size, list) else size
        return Adjustment(size, self.magnitude if magnitude is None else magnitude)

    @property
    def text(self) -> str:
        """The change as arguments of `Loader.set`; empty if there is none."""
        values = {"size": self.size, "magnitude": self.magnitude}
        return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


#: No change.
AS_WRITTEN = Adjustment()


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors of the height and of the width of images, above 0."""

    height: float
    width: float

    def size(self, size: SizeT) -> SizeT:
        """Return a scaled height and width, at least 1. The size of a bucket stays."""
        if size == BUCKET:
            return size
        return max(1, round(size[0] * self.height)), max(1, round(size[1] * self.width))

    def length(self, length: int, least: int = 1) -> int:
        """Return a scaled length that is neither a height nor a width, at least `least`."""
        return max(least, round(length * max(self.height, self.width)))


# Operations
# --------------------------------------------------------------------------------------------------


class Checked:
    """Base of frozen records that check their fields when they are created."""

    __slots__ = ()

    def __post_init__(self) -> None:
        record: Any = type(self)
        for name, check in _field_checks(record):
            check(name, getattr(self, name))
        self._check()

    def _check(self) -> None:
        """Check what no annotation of a field can state."""


class Operation(Checked):
    """Base of all operations: a frozen record, compared by value, that checks its fields when it is created.

    A record states with its traits what the rest of the package asks: which images it takes, what
    it does to masks and boxes, what it costs, whether it can be fused, and how `Loader.set` changes
    it. A trait is a class attribute, or a property if it depends on the fields.

    The ``repr`` of an operation seeds its random numbers and is part of a loader's checkpoint.
    Renaming a class or a field therefore changes what is drawn for a given seed.

    Raises:
        CallError: a value is wrong; the message names the field.

    """

    __slots__ = ()

    #: What it does to the place of pixels: ``"nothing"``, ``"straight"`` if a box stays a box,
    #: ``"tilted"`` if a box around a moved box is larger than the object; ``""`` is not known. An
    #: operation that hides pixels does ``"nothing"``: what it covers is still labeled.
    moves: ClassVar[Literal["nothing", "straight", "tilted", ""]] = ""

    #: Whether it makes images smaller, so that the operations before it work on larger ones.
    shrinks: ClassVar[bool] = False

    #: Whether it normalizes images, which one pass over the pixels does with layout and dtype.
    normalizes: ClassVar[bool] = False

    #: Whether a combinator can contain it.
    nests: ClassVar[bool] = True

    #: Whether it takes pixels of every `PixelKind`: any number of channels, also uint16 and float32.
    any_pixels: ClassVar[bool] = False

    @property
    def takes(self) -> Literal["any", "channels", "uint8", "colors", "uint8 colors"]:
        """Images that it takes.

        All, images with three channels, uint8 images with three channels, or images with red, green
        and blue channels, which are uint8 or not.
        """
        return "any"

    @property
    def linear(self) -> bool:
        """Whether it is pointwise, and the mean of two results is the result of the mean, except for rounding.

        A linear operation can run after a resize instead of before it. One that clips at 0 and 255
        is not linear.
        """
        return False

    @property
    def pointwise(self) -> bool:
        """Whether each output pixel depends only on the same input pixel and on random draws.

        A pointwise operation can run after a crop instead of before it. Every linear one is
        pointwise.
        """
        return self.linear

    @property
    def resizes(self) -> bool:
        """Whether it sets the size of images by resizing them."""
        return False

    @property
    def any_layout(self) -> bool:
        """Whether it takes float images of a known size in the dtype and layout of a batch."""
        return False

    @property
    def needs_size(self) -> bool:
        """Whether `output` raises an error for images that are too small."""
        return False

    @property
    def operators(self) -> int:
        """About how many operators of DALI the graph has for it."""
        return 1

    @property
    def work(self) -> int:
        """How many operations the graph computes for it, with the ones that it contains."""
        return 1

    @property
    def shorter_side(self) -> int | None:
        """The shorter side of its output, if that is all that is known about the size."""
        return None

    @property
    def written(self) -> Operation:
        """The operation of the user's list that stands for this one in messages."""
        return self

    @property
    def decoded(self) -> tuple[Range, Range] | None:
        """Area and ratio of the random region that it decodes; ``None`` if it decodes whole images."""
        return None

    def check_pixels(self, kind: PixelKind) -> None:
        """Check that the operation takes pixels of a kind.

        Raises:
            CallError: it does not.

        """
        if kind == RGB8:
            return
        if not self.any_pixels:
            raise CallError(
                f"{type(self).__name__} needs 3 channels of uint8, but the dataset has {kind}",
                hint="use only crops, resizes, flips, ToTensor and Normalize for such pixels",
            )
        if any(getattr(self, "fill", ())):
            raise CallError(
                f"{type(self).__name__} fills with a color, but the dataset has {kind}",
                hint="leave out fill, or set it to 0",
            )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of the operation's output for inputs of `spec`.

        Raises:
            CallError: the operation does not support such images.

        """
        if "uint8" in self.takes and not spec.is_uint8:
            raise needs_bytes(self)
        if self.takes != "any" and spec.channels != spec.kind.channels:
            raise CallError(
                f"{type(self).__name__} needs three channels, but the images have"
                f" {spec.channels} at this point",
                hint="move it before the normalization that adds a channel",
            )
        if "colors" in self.takes and spec.color_space not in ("RGB", "BGR", "GRAY"):
            raise CallError(
                f"{type(self).__name__} needs red, green and blue channels, but the images are"
                f" {spec.color_space} at this point",
                hint="move it before the color conversion",
            )
        return spec

    def values_after(self, values: Values) -> Values:
        """Return what the values of images are after the operation.

        Raises:
            CallError: the operation is for other values.

        """
        return values

    def scaled(self, scale: Scale) -> Operation:
        """Return the operation with its sizes, padding and masks in pixels scaled.

        Raises:
            CallError: the operation makes squares, and the factors differ; or a size is too large.

        """
        return self

    def commutes(self, first: Operation) -> bool:
        """Return whether it can run before `first`, which precedes it: the result is the same."""
        return False

    @property
    def moves_pixels(self) -> bool:
        """Whether masks and boxes follow it."""
        return self.moves in ("straight", "tilted")

    def loses(self, targets: Targets) -> str | None:
        """Return why masks or boxes cannot follow the operation; ``None`` if they can."""
        if not self.moves:
            return f"what it does to {targets} is not known"
        if targets == "boxes" and self.moves == "tilted":
            return "it does not keep the sides of boxes parallel to those of the image"
        return None


#: Operations that run one after another. May be empty.
Chain: TypeAlias = tuple[Operation, ...]


def needs_bytes(operation: Operation, hint: str = "move it before the normalization") -> CallError:
    """Return the error of an operation on bytes that comes after the normalization."""
    return CallError(
        f"{type(operation).__name__} needs uint8 values from 0 to 255, but the images are"
        " normalized at this point",
        hint=hint,
    )


class BatchOperation(Operation):
    """An operation on a whole batch.

    It runs after all per-image operations and mixes images and their labels.
    """

    __slots__ = ()
    nests = False

    def loses(self, targets: Targets) -> str | None:
        """Return that no label can follow it."""
        return "it mixes each image with another one"


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


# Checks of fields
# --------------------------------------------------------------------------------------------------

#: Takes the name and the value of a field, and raises a `CallError`.
Check: TypeAlias = Callable[[str, Any], None]


@cache
def _field_checks(record: Any) -> list[tuple[str, Check]]:
    """Return the check of each field of a record, which its annotation states.

    ``Annotated`` contains the check. Choices, bools, numbers and tuples of numbers need none.
    """
    hints = get_type_hints(record, include_extras=True)
    found = ((each.name, _annotated_check(hints[each.name])) for each in fields(record))
    return [(name, check) for name, check in found if check is not None]


def _annotated_check(hint: Any) -> Check | None:
    if type(None) in get_args(hint):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
        check = _annotated_check(hint)
        return check and partial(_check_given, check)
    if get_origin(hint) is Annotated:
        given: Check = hint.__metadata__[0]
        return given
    if get_origin(hint) is Literal:
        return partial(check_choice, choices=get_args(hint))
    if get_origin(hint) is tuple and set(get_args(hint)) <= {int, float}:
        return partial(check_numbers, count=len(get_args(hint)))
    return {bool: check_bool, float: check_number}.get(hint)


def _check_given(check: Check, name: str, value: Any) -> None:
    if value is not None:
        check(name, value)


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


def no_buckets() -> CallError:
    """Return the error of transforms with ``size="bucket"`` in a loader without aspect buckets."""
    return CallError(
        'the transforms have size="bucket", but the sampler does not give batches a bucket',
        hint="pass sampler=loaders.BucketSampler(), or a size in pixels",
    )


def check_any_size(name: str, value: object) -> None:
    """Check that a value is a `Size`, or ``"bucket"``."""
    if isinstance(value, str):
        check_choice(name, value, [BUCKET])
    else:
        check_size(name, value)


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


def check_side(name: str, value: Any) -> None:
    """Check that a value is the side of a square of a supported size."""
    check_int(name, value, 1)
    check_size(name, (value, value))


def numbers_each(count: int, minimum: float, maximum: float = float("inf")) -> Check:
    """Return a check that a value is a tuple of `count` numbers in a range."""

    def check(name: str, values: Any) -> None:
        check_numbers(name, values, count)
        for value in values:
            check_number(name, value, minimum, maximum)

    return check


def integers(minimum: int, maximum: int | None = None) -> Check:
    """Return a check that a value is an integer in a range; see `check_int`."""
    return partial(check_int, minimum=minimum, maximum=maximum)


def numbers(minimum: float, maximum: float = float("inf")) -> Check:
    """Return a check that a value is a number in a range; see `check_number`."""
    return partial(check_number, minimum=minimum, maximum=maximum)


def ranges(minimum: float, maximum: float = float("inf")) -> Check:
    """Return a check that a value is a `Range` inside another one; see `check_range`."""
    return partial(check_range, minimum=minimum, maximum=maximum)


def check_kind(name: str, value: object) -> None:
    """Check that a value is a `PixelKind`."""
    check_type(name, value, PixelKind)


def check_bands(name: str, value: Any) -> None:
    """Check that a value is a tuple of numbers, one for each channel."""
    count = 1
    if isinstance(value, tuple):
        count = min(max(len(value), 1), MAX_CHANNELS)
    check_numbers(name, value, count)


#: One value per channel of any number of channels.
Bands: TypeAlias = Annotated[tuple[float, ...], check_bands]

#: A number from 0 to 1.
Probability: TypeAlias = Annotated[float, check_probability]

#: One value per channel, from 0 to 255.
ByteColor: TypeAlias = Annotated[Color, numbers_each(3, 0, 255)]

#: A `Size` with sides from 1 to `MAX_SIDE`.
Sides: TypeAlias = Annotated[Size, check_size]
#: The same, or the size of the batch's bucket.
AnySides: TypeAlias = Annotated[AnySize, check_any_size]
Side: TypeAlias = Annotated[int, check_side]
