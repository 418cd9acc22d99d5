"""Records of operations that flip, rotate, pad, or move pixels by a random map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaders.transforms.base import (
    MAX_SIDE,
    MAX_SIGMA,
    Filter,
    ImageSpec,
    Operation,
    Range,
    Size,
    check_choice,
    check_int,
    check_number,
    check_numbers,
    check_probability,
    check_range,
    check_size,
    require_uint8,
)
from loaders.transforms.policies import Color
from manifests.errors import CallError

PAD_MODES = ("constant", "edge", "reflect", "symmetric")


@dataclass(frozen=True, slots=True)
class Flip(Operation):
    """Flip with a probability.

    Attributes:
        probability: probability of flipping an image.
        axis: ``"horizontal"`` swaps left and right, ``"vertical"`` swaps top and bottom, ``"both"``
            rotates by 180 degrees.

    """

    probability: float = 0.5
    axis: Literal["horizontal", "vertical", "both"] = "horizontal"

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_choice("axis", self.axis, ("horizontal", "vertical", "both"))


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

    degrees: Range
    probability: float = 1.0
    filter: Filter = "nearest"
    fill: float | tuple[float, float, float] = 0

    def __post_init__(self) -> None:
        check_range("degrees", self.degrees, -360, 360)
        check_probability("probability", self.probability)
        check_choice("filter", self.filter, ("nearest", "linear"))
        if isinstance(self.fill, tuple):
            check_numbers("fill", self.fill, 3)
        else:
            check_number("fill", self.fill)


@dataclass(frozen=True, slots=True)
class RotateAround(Rotate):
    """Rotate every image around a point, and do not mix uint8 images with `fill` at the edge, as Pillow.

    Attributes:
        center: the point in pixels to the right and down from the top left corner; `None` means the
            center of the image.

    """

    center: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        Rotate.__post_init__(self)
        if self.center is not None:
            check_numbers("center", self.center, 2)
            for value in self.center:
                check_number("center", value, -MAX_SIDE, MAX_SIDE)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; around a point, images must be uint8."""
        return spec if self.center is None else require_uint8(self, spec)


@dataclass(frozen=True, slots=True)
class RandomRightAngle(Operation):
    """Rotate by 0, 90, 180 or 270 degrees counterclockwise, each with the same probability."""

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec. Its size is ``None`` unless images are square."""
        square = spec.size is not None and spec.size[0] == spec.size[1]
        return spec if square else spec.with_size(None)


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

    left: int
    top: int
    right: int
    bottom: int
    fill: tuple[float, float, float] = (0, 0, 0)
    mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"

    def __post_init__(self) -> None:
        for name in ("left", "top", "right", "bottom"):
            check_int(name, getattr(self, name), 0, MAX_SIDE)
        check_numbers("fill", self.fill, 3)
        check_choice("mode", self.mode, PAD_MODES)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the padded size."""
        if spec.size is None:
            return spec
        height, width = spec.size
        mirrored = {"reflect": 1, "symmetric": 0}.get(self.mode)
        if mirrored is not None and (
            max(self.top, self.bottom) + mirrored > height
            or max(self.left, self.right) + mirrored > width
        ):
            raise CallError(
                f"Pad cannot mirror more pixels than an image of {height} x {width} pixels has",
                hint='add fewer pixels, or set the mode to "edge"',
            )
        return spec.with_size((height + self.top + self.bottom, width + self.left + self.right))


@dataclass(frozen=True, slots=True)
class PadTo(Operation):
    """Pad images to a size. Larger images are cropped.

    Attributes:
        size: height and width of the output in pixels; ``None`` pads each side to a multiple of
            `divisor`.
        divisor: used if `size` is ``None``.
        at: position of the image in the output: ``"center"`` (rounded down), ``"start"`` (top
            left), ``"end"`` (bottom right), or its (top, left) offset in pixels.
        fill: one value per channel, truncated to an integer for uint8 images.

    """

    size: Size | None = None
    divisor: int = 32
    at: Literal["center", "start", "end"] | tuple[int, int] = "start"
    fill: tuple[float, float, float] = (127.5, 127.5, 127.5)

    def __post_init__(self) -> None:
        if self.size is not None:
            check_size("size", self.size)
        check_int("divisor", self.divisor, 1, MAX_SIDE)
        if isinstance(self.at, tuple):
            check_numbers("at", self.at, 2)
            for offset in self.at:
                check_int("at", offset, 0, MAX_SIDE)
        else:
            check_choice("at", self.at, ("center", "start", "end"))
        check_numbers("fill", self.fill, 3)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`, or with sides that are multiples of `divisor`."""
        if self.size is not None or spec.size is None:
            return spec.with_size(self.size)
        height, width = (-(-side // self.divisor) * self.divisor for side in spec.size)
        return spec.with_size((height, width))


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

    degrees: Range
    translate: tuple[float, float] = (0, 0)
    scale: Range = (1, 1)
    shear: tuple[float, float, float, float] = (0, 0, 0, 0)
    filter: Literal["nearest", "linear"] = "nearest"
    fill: Color = (0, 0, 0)

    def __post_init__(self) -> None:
        check_range("degrees", self.degrees, -360, 360)
        check_numbers("translate", self.translate, 2)
        for share in self.translate:
            check_number("translate", share, 0, 1)
        check_range("scale", self.scale, 0.01, 100)
        check_numbers("shear", self.shear, 4)
        check_range("shear", self.shear[:2], -89, 89)
        check_range("shear", self.shear[2:], -89, 89)
        _check_pixels(self.filter, self.fill)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)


@dataclass(frozen=True, slots=True)
class RandomAffineAround(RandomAffine):
    """`RandomAffine` around another point than the center of the image.

    A class of its own, because the ``repr`` of `RandomAffine` seeds its random numbers.

    Attributes:
        center: the point, in pixels to the right and down from the top left corner of the image.

    """

    center: tuple[float, float] = (0, 0)

    def __post_init__(self) -> None:
        RandomAffine.__post_init__(self)
        check_numbers("center", self.center, 2)
        for value in self.center:
            check_number("center", value, -MAX_SIDE, MAX_SIDE)


@dataclass(frozen=True, slots=True)
class RandomPerspective(Operation):
    """View the image from a random direction, with a probability: each corner moves toward the center.

    Attributes:
        distortion: maximum move of a corner as a fraction of half the side, from 0 to 1.
        probability: probability of changing an image.
        filter: ``"nearest"`` or ``"linear"``.
        fill: color of pixels from outside the image.

    """

    distortion: float = 0.5
    probability: float = 0.5
    filter: Literal["nearest", "linear"] = "linear"
    fill: Color = (0, 0, 0)

    def __post_init__(self) -> None:
        check_number("distortion", self.distortion, 0, 1)
        check_probability("probability", self.probability)
        _check_pixels(self.filter, self.fill)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)


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

    alpha: tuple[float, float] = (50, 50)
    sigma: tuple[float, float] = (5, 5)
    filter: Literal["nearest", "linear"] = "linear"
    fill: Color = (0, 0, 0)

    def __post_init__(self) -> None:
        check_numbers("alpha", self.alpha, 2)
        check_numbers("sigma", self.sigma, 2)
        for name in ("alpha", "sigma"):
            for value in getattr(self, name):
                check_number(name, value, 0, MAX_SIGMA if name == "sigma" else 1e6)
        _check_pixels(self.filter, self.fill)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)


def _check_pixels(filter_: str, fill: Color) -> None:
    check_choice("filter", filter_, ("nearest", "linear"))
    check_numbers("fill", fill, 3)
    for value in fill:
        check_number("fill", value, 0, 255)
