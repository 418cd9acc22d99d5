"""Operations that change colours, and those that blur. Records only; it must never know DALI."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loaders.transforms.base import (
    ImageSpec,
    Operation,
    Range,
    Size,
    check_choice,
    check_int,
    check_number,
    check_probability,
    check_range,
    check_size,
    require_three_channels,
    require_uint8,
)
from manifests.errors import CallError

#: What colours can be converted into.
SPACES = ("RGB", "BGR", "GRAY", "LAB", "HSV", "YCbCr")


@dataclass(frozen=True, slots=True)
class ColorJitter(Operation):
    """Change brightness, contrast, saturation and hue by random amounts, in an order drawn for each image.

    The first three blend the image with black, with the mean of its gray, and with its gray: a factor of 1 changes
    nothing, 0 gives the other, more than 1 goes away from it. Hue is turned in HSV.

    Attributes:
        brightness: least and greatest factor.
        contrast: least and greatest factor.
        saturation: least and greatest factor.
        hue: least and greatest turn, as a share of the circle.
        probability: of changing anything.

    """

    brightness: Range = (1.0, 1.0)
    contrast: Range = (1.0, 1.0)
    saturation: Range = (1.0, 1.0)
    hue: Range = (0.0, 0.0)
    probability: float = 1.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            check_range(name, getattr(self, name), 0)
        check_range("hue", self.hue, -0.5, 0.5)
        check_probability("probability", self.probability)

    @property
    def pointwise(self) -> bool:
        """It is, but for the contrast: its centre is the mean of the whole image."""
        return self.contrast == (1, 1)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form."""
        return _needs_colours(self, spec)


@dataclass(frozen=True, slots=True)
class RandomGrayscale(Operation):
    """Make an image gray with a probability; it keeps its three channels.

    Attributes:
        probability: of making it gray.

    """

    probability: float = 0.1

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)

    @property
    def pointwise(self) -> bool:
        """It is."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form."""
        return _needs_colours(self, spec)


@dataclass(frozen=True, slots=True)
class PCALighting(Operation):
    """Add a random colour to the whole image, along the principal components of ImageNet's colours, as AlexNet did.

    Attributes:
        std: standard deviation of the amount of each component.

    """

    std: float = 0.1

    def __post_init__(self) -> None:
        check_number("std", self.std, 0)

    @property
    def pointwise(self) -> bool:
        """It is."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form; whole values stay whole."""
        return _known_space(self, require_three_channels(self, spec))


@dataclass(frozen=True, slots=True)
class ConvertColor(Operation):
    """Convert colours, uint8 to uint8.

    Attributes:
        space: ``RGB`` or ``BGR``, ``GRAY`` (three equal channels), ``LAB`` (CIE, D65; L from 0 to 255, a and b
            shifted by 128), ``HSV`` (all three from 0 to 255) or ``YCbCr`` (of JPEG, all three from 0 to 255).

    """

    space: str

    def __post_init__(self) -> None:
        check_choice("space", self.space, SPACES)

    @property
    def pointwise(self) -> bool:
        """It is."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of `space`."""
        return replace(_needs_colours(self, spec), color_space=self.space)


@dataclass(frozen=True, slots=True)
class GaussianBlur(Operation):
    """Blur by a Gaussian of a random width; at the edges the image is mirrored, without its outermost pixels.

    Attributes:
        window: height and width of the kernel, odd.
        sigma: least and greatest standard deviation in pixels.

    """

    window: Size
    sigma: Range = (0.1, 2.0)

    def __post_init__(self) -> None:
        check_size("window", self.window)
        if not all(side % 2 for side in self.window):
            raise CallError(f"window must be odd, got {self.window!r}")
        check_range("sigma", self.sigma, 0.01)


@dataclass(frozen=True, slots=True)
class RandomBlur(Operation):
    """Blur with a probability: as out of focus, or as moved, each alike.

    Out of focus is a Gaussian whose height and width are drawn apart. Moved is the mean along a line; it also
    stretches the image's values until they reach from 0 to 255. Sides of kernels are odd, from 5 up to a length that
    is left out.

    Attributes:
        probability: of blurring.
        motion_length: what the length of the line stays below, in pixels.
        motion_angle: greatest turn of the line from the diagonal, in degrees; whole.
        gaussian_length: what the sides of the Gaussian stay below.

    """

    probability: float = 0.5
    motion_length: int = 12
    motion_angle: int = 45
    gaussian_length: int = 12

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_int("motion_length", self.motion_length, 6)
        check_int("motion_angle", self.motion_angle, 1)
        check_int("gaussian_length", self.gaussian_length, 6)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form."""
        return require_uint8(self, spec)


def _needs_colours(operation: Operation, spec: ImageSpec) -> ImageSpec:
    return _known_space(operation, require_uint8(operation, spec))


def _known_space(operation: Operation, spec: ImageSpec) -> ImageSpec:
    if spec.color_space not in ("RGB", "BGR", "GRAY"):
        raise CallError(
            f"{type(operation).__name__} works on red, green and blue, and here the colours are {spec.color_space}",
            hint="put it before the conversion",
        )
    return spec
