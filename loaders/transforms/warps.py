"""Records of operations that move pixels by a random map: affine, perspective, elastic.

Images keep their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaders.transforms.base import (
    ImageSpec,
    Operation,
    Range,
    check_choice,
    check_number,
    check_numbers,
    check_probability,
    check_range,
    require_uint8,
)
from loaders.transforms.limits import MAX_SIDE, MAX_SIGMA
from loaders.transforms.policies import Color


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
