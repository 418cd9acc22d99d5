"""Records of operations that flip, rotate, pad, or move pixels by a random map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

from loaders.transforms.base import (
    MAX_SIDE,
    MAX_SIGMA,
    ByteColor,
    Color,
    ImageSpec,
    Operation,
    Probability,
    Range,
    Scale,
    Sides,
    Targets,
    check_choice,
    check_int,
    check_number,
    check_numbers,
    check_range,
    integers,
    numbers_each,
    ranges,
)
from manifests.errors import CallError

PAD_MODES = ("constant", "edge", "reflect", "symmetric")

#: Minimum and maximum angle.
Degrees: TypeAlias = Annotated[Range, ranges(-360, 360)]

#: A point in pixels to the right and down from the top left corner of the image.
Center: TypeAlias = Annotated[tuple[float, float], numbers_each(2, -MAX_SIDE, MAX_SIDE)]

#: Pixels to add at a side.
Pixels: TypeAlias = Annotated[int, integers(0, MAX_SIDE)]

#: Interpolation of operations that tilt images.
WarpFilter: TypeAlias = Literal["nearest", "linear"]


def _check_fill(name: str, value: Any) -> None:
    if isinstance(value, tuple):
        check_numbers(name, value, 3)
    else:
        check_number(name, value)


def _check_place(name: str, value: Any) -> None:
    if isinstance(value, tuple):
        check_numbers(name, value, 2)
        for offset in value:
            check_int(name, offset, 0, MAX_SIDE)
    else:
        check_choice(name, value, ("center", "center even", "start", "end"))


def _scaled_center(center: tuple[float, float], scale: Scale) -> tuple[float, float]:
    return center[0] * scale.width, center[1] * scale.height


@dataclass(frozen=True, slots=True)
class Flip(Operation):
    """Flip with a probability.

    Attributes:
        probability: probability of flipping an image.
        axis: ``"horizontal"`` swaps left and right, ``"vertical"`` swaps top and bottom, ``"both"``
            rotates by 180 degrees.

    """

    any_pixels = True
    moves = "straight"

    probability: Probability = 0.5
    axis: Literal["horizontal", "vertical", "both"] = "horizontal"

    def commutes(self, first: Operation) -> bool:
        """Return whether `first` makes floats of bytes, which are flipped faster."""
        return first.linear and not first.output(ImageSpec()).is_uint8


@dataclass(frozen=True, slots=True)
class Rotate(Operation):
    """Rotate around the center by a random angle. The image keeps its size.

    Attributes:
        degrees: minimum and maximum angle in degrees, counterclockwise, from -360 to 360.
        probability: probability of rotating an image.
        filter: ``"nearest"`` or ``"linear"``.
        fill: value of pixels from outside the image, or one for each channel, in the units of the
            image (0 to 255, or normalized).

    """

    moves = "tilted"

    degrees: Degrees
    probability: Probability = 1.0
    filter: WarpFilter = "nearest"
    fill: Annotated[float | Color, _check_fill] = 0


@dataclass(frozen=True, slots=True)
class RotateAround(Rotate):
    """Rotate every image around a point, and do not mix uint8 images with `fill` at the edge, as Pillow.

    Attributes:
        center: the point in pixels to the right and down from the top left corner; `None` means the
            center of the image.

    """

    center: Center | None = None

    @property
    def takes(self) -> Literal["any", "uint8"]:
        """The rotation around a point is for bytes."""
        return "any" if self.center is None else "uint8"

    def scaled(self, scale: Scale) -> RotateAround:
        """Scale the center."""
        if self.center is None:
            return self
        return replace(self, center=_scaled_center(self.center, scale))


@dataclass(frozen=True, slots=True)
class RandomRightAngle(Operation):
    """Rotate by 0, 90, 180 or 270 degrees counterclockwise, each with the same probability."""

    any_pixels = True
    moves = "tilted"

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec. Its size is ``None`` unless images are square."""
        square = spec.size is not None and spec.size[0] == spec.size[1]
        return spec if square else spec.with_size(None)

    def loses(self, targets: Targets) -> str | None:
        """Return why boxes cannot follow it."""
        if targets == "masks":
            return None
        return (
            "it exchanges the width and the height of the image, and boxes follow only flips, crops"
            " and sizes"
        )


@dataclass(frozen=True, slots=True)
class Pad(Operation):
    """Pad the sides.

    Attributes:
        left, top, right, bottom: number of pixels to add.
        fill: one value per channel for ``mode="constant"``, truncated to an integer for uint8
            images.
        mode: ``"constant"``, ``"edge"`` (repeat the edge pixel), ``"reflect"`` (mirror without the
            edge pixel) or ``"symmetric"`` (mirror with it). It is an error if an image has fewer
            pixels than are mirrored.

    """

    any_pixels = True
    moves = "straight"

    left: Pixels
    top: Pixels
    right: Pixels
    bottom: Pixels
    fill: Color = (0, 0, 0)
    mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"

    @property
    def needs_size(self) -> bool:
        """Whether it mirrors pixels, of which an image must have enough."""
        return self.mode in ("reflect", "symmetric")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the padded size.

        Raises:
            CallError: it mirrors more pixels than the images have.

        """
        if spec.size is None:
            return spec
        height, width = spec.size
        # Without the pixel at the edge, one pixel less can be mirrored.
        left_out = int(self.mode == "reflect")
        added = max(self.top, self.bottom), max(self.left, self.right)
        if self.needs_size and (added[0] + left_out > height or added[1] + left_out > width):
            raise CallError(
                f"padding cannot mirror more pixels than an image of {height} x {width} pixels has",
                hint='put a resize before it, add fewer pixels, or set padding_mode="edge"',
            )
        return spec.with_size((height + self.top + self.bottom, width + self.left + self.right))

    def scaled(self, scale: Scale) -> Pad:
        """Scale the added pixels."""
        left, right = (round(pixels * scale.width) for pixels in (self.left, self.right))
        top, bottom = (round(pixels * scale.height) for pixels in (self.top, self.bottom))
        return replace(self, left=left, top=top, right=right, bottom=bottom)

    def loses(self, targets: Targets) -> str | None:
        """Return why boxes cannot follow it."""
        if targets == "boxes" and self.needs_size:
            return "it shows objects a second time in the border"
        return None


@dataclass(frozen=True, slots=True)
class PadTo(Operation):
    """Pad images to a size. Larger images are cropped.

    Attributes:
        size: height and width of the output in pixels; ``None`` pads each side to a multiple of
            `divisor`.
        divisor: used if `size` is ``None``.
        at: position of the image in the output: ``"center"`` (rounded down), ``"center even"`` (if
            the image is larger, half to even), ``"start"`` (top left), ``"end"`` (bottom right), or
            its (top, left) offset in pixels.
        fill: one value per channel, truncated to an integer for uint8 images.

    """

    any_pixels = True
    moves = "straight"

    size: Sides | None = None
    divisor: Annotated[int, integers(1, MAX_SIDE)] = 32
    at: Annotated[
        Literal["center", "center even", "start", "end"] | tuple[int, int], _check_place
    ] = "start"
    fill: Color = (127.5, 127.5, 127.5)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`, or with sides that are multiples of `divisor`."""
        if self.size is not None or spec.size is None:
            return spec.with_size(self.size)
        height, width = (-(-side // self.divisor) * self.divisor for side in spec.size)
        return spec.with_size((height, width))

    def scaled(self, scale: Scale) -> PadTo:
        """Scale the size and the offset."""
        if self.size is None:
            return self
        at = self.at
        if isinstance(at, tuple):
            at = (round(at[0] * scale.height), round(at[1] * scale.width))
        return replace(self, size=scale.size(self.size), at=at)


@dataclass(frozen=True, slots=True)
class RandomAffine(Operation):
    """Rotate, shear, scale and shift around the center of the image by random amounts.

    Attributes:
        degrees: minimum and maximum angle in degrees, clockwise as in torchvision, from -360 to
            360.
        translate: maximum shift as a fraction of the width and of the height.
        scale: minimum and maximum factor, at least 0.01.
        shear: minimum and maximum angle of the x axis, then of the y axis, in degrees from -89 to
            89.
        filter: ``"nearest"`` or ``"linear"``.
        fill: color of pixels from outside the image.

    """

    takes = "uint8"
    moves = "tilted"

    degrees: Degrees
    translate: Annotated[tuple[float, float], numbers_each(2, 0, 1)] = (0, 0)
    scale: Annotated[Range, ranges(0.01, 100)] = (1, 1)
    shear: tuple[float, float, float, float] = (0, 0, 0, 0)
    filter: WarpFilter = "nearest"
    fill: ByteColor = (0, 0, 0)

    def _check(self) -> None:
        check_range("shear", self.shear[:2], -89, 89)
        check_range("shear", self.shear[2:], -89, 89)

    @property
    def center(self) -> tuple[float, float] | None:
        """The point around which images turn; ``None`` is their center."""
        return None


@dataclass(frozen=True, slots=True)
class RandomAffineAround(RandomAffine):
    """`RandomAffine` around another point than the center of the image.

    A class of its own, because the ``repr`` of `RandomAffine` seeds its random numbers.

    Attributes:
        center: the point, in pixels to the right and down from the top left corner of the image.

    """

    center: Center = (0, 0)

    def scaled(self, scale: Scale) -> RandomAffineAround:
        """Scale the center."""
        return replace(self, center=_scaled_center(self.center, scale))


@dataclass(frozen=True, slots=True)
class RandomPerspective(Operation):
    """View the image from a random direction, with a probability: each corner moves toward the center.

    Attributes:
        distortion: maximum move of a corner as a fraction of half the side, from 0 to 1.
        probability: probability of changing an image.
        filter: ``"nearest"`` or ``"linear"``.
        fill: color of pixels from outside the image.

    """

    takes = "uint8"
    moves = "tilted"

    distortion: Probability = 0.5
    probability: Probability = 0.5
    filter: WarpFilter = "linear"
    fill: ByteColor = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Elastic(Operation):
    """Shift each pixel by smooth random amounts.

    Attributes:
        alpha: strength of the shifts across and down. A shift is half of it times blurred noise
            from -1 to 1.
        sigma: standard deviation in pixels of the Gaussian that blurs the noise, across and down; 0
            does not blur.
        filter: ``"nearest"`` or ``"linear"``.
        fill: color of pixels from outside the image.

    """

    takes = "uint8"
    moves = "tilted"

    alpha: Annotated[tuple[float, float], numbers_each(2, 0, 1e6)] = (50, 50)
    sigma: Annotated[tuple[float, float], numbers_each(2, 0, MAX_SIGMA)] = (5, 5)
    filter: WarpFilter = "linear"
    fill: ByteColor = (0, 0, 0)
