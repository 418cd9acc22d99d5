"""Records of operations that change colors or blur."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from loaders.transforms.base import (
    MAX_GAUSSIAN,
    MAX_MOTION,
    MAX_MOTION_ANGLE,
    ImageSpec,
    Operation,
    Probability,
    Range,
    Sides,
    integers,
    numbers,
    ranges,
)
from manifests.errors import CallError
from manifests.process.text import shown


@dataclass(frozen=True, slots=True)
class ColorJitter(Operation):
    """Change brightness, contrast, saturation and hue by random amounts, in an order drawn per image.

    As in torchvision, the first three blend the image with black, with the mean of its grayscale
    version, and with its grayscale version. A factor of 1 keeps the image, 0 gives only the other
    image, and more than 1 extrapolates. The hue is shifted in HSV, computed in floating point;
    Pillow computes it in bytes.

    Attributes:
        brightness: minimum and maximum factor, at least 0.
        contrast: minimum and maximum factor, at least 0.
        saturation: minimum and maximum factor, at least 0.
        hue: minimum and maximum shift as a fraction of the color circle, from -0.5 to 0.5.
        probability: probability of changing an image at all.

    """

    takes = "uint8 colors"
    moves = "nothing"

    brightness: Annotated[Range, ranges(0)] = (1.0, 1.0)
    contrast: Annotated[Range, ranges(0)] = (1.0, 1.0)
    saturation: Annotated[Range, ranges(0)] = (1.0, 1.0)
    hue: Annotated[Range, ranges(-0.5, 0.5)] = (0.0, 0.0)
    probability: Probability = 1.0

    @property
    def operators(self) -> int:
        """Branches for each order of the adjustments."""
        changed = [self.brightness != (1, 1), self.contrast != (1, 1), self.saturation != (1, 1)]
        return 6 * sum([*changed, self.hue != (0, 0)])

    @property
    def pointwise(self) -> bool:
        """``True`` unless the contrast changes, which depends on the mean of the whole image."""
        return self.contrast == (1, 1)

    @property
    def linear(self) -> bool:
        """``True`` if only brightness and saturation change, and are not increased: then nothing is clipped."""
        keeps_hue = self.pointwise and self.hue == (0, 0)
        return keeps_hue and max(*self.brightness, *self.saturation) <= 1


@dataclass(frozen=True, slots=True)
class RandomGrayscale(Operation):
    """Convert an image to gray with a probability. The output keeps three (equal) channels.

    Attributes:
        probability: probability of converting an image.

    """

    takes = "uint8 colors"
    moves = "nothing"
    linear = True

    probability: Probability = 0.1


@dataclass(frozen=True, slots=True)
class PCALighting(Operation):
    """Add one random color to all pixels, along the principal components of ImageNet's colors.

    From AlexNet (Krizhevsky et al., 2012). The amounts are scaled by 255 for uint8 images, which
    stay uint8.

    Attributes:
        std: standard deviation of the amount along each component.

    """

    takes = "colors"
    moves = "nothing"
    pointwise = True

    std: Annotated[float, numbers(0)] = 0.1


@dataclass(frozen=True, slots=True)
class ConvertColor(Operation):
    """Convert images to another color space, uint8 to uint8.

    Attributes:
        space: ``"RGB"``, ``"BGR"``, ``"GRAY"`` (three equal channels), ``"LAB"`` (CIE L*a*b*, D65;
            L scaled to 0-255, a and b shifted by 128), ``"HSV"`` (each channel scaled to 0-255) or
            ``"YCbCr"`` (JPEG, full range 0-255).

    """

    takes = "uint8 colors"
    moves = "nothing"
    pointwise = True

    space: Literal["RGB", "BGR", "GRAY", "LAB", "HSV", "YCbCr"]

    @property
    def linear(self) -> bool:
        """``False`` for LAB and HSV: a hue is an angle, and lightness is not proportional to light."""
        return self.space not in ("LAB", "HSV")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the color space `space`."""
        return replace(Operation.output(self, spec), color_space=self.space)


@dataclass(frozen=True, slots=True)
class GaussianBlur(Operation):
    """Blur with a Gaussian of random width.

    The border is reflected without repeating the edge pixel.

    Attributes:
        window: height and width of the kernel in pixels, both odd.
        sigma: minimum and maximum standard deviation in pixels, at least 0.01.

    """

    moves = "nothing"

    window: Sides
    sigma: Annotated[Range, ranges(0.01)] = (0.1, 2.0)

    def _check(self) -> None:
        if not all(side % 2 for side in self.window):
            raise CallError(
                f"window must be (height, width), two odd integers, got {shown(self.window)}"
            )
        if max(self.window) > MAX_GAUSSIAN:
            raise CallError(
                f"window must be (height, width), each at most {MAX_GAUSSIAN}, got"
                f" {shown(self.window)}"
            )


@dataclass(frozen=True, slots=True)
class RandomBlur(Operation):
    """Blur with a probability.

    Half of the blurred images get a defocus blur, the other half a motion blur.

    Defocus is a Gaussian whose height and width are drawn independently. Motion averages along a
    line and, as in PaddleClas, then stretches the values of the image to the full range from 0 to
    255. Kernel sides are odd numbers from 5 up to, but excluding, a maximum.

    Attributes:
        probability: probability of blurring.
        motion_length: exclusive maximum of the line's length in pixels, at least 6.
        motion_angle: maximum rotation of the line from the diagonal, in integer degrees.
        gaussian_length: exclusive maximum of the Gaussian's sides in pixels, at least 6.

    """

    takes = "uint8"
    moves = "nothing"

    probability: Probability = 0.5
    motion_length: Annotated[int, integers(6, MAX_MOTION)] = 12
    motion_angle: Annotated[int, integers(1, MAX_MOTION_ANGLE)] = 45
    gaussian_length: Annotated[int, integers(6, MAX_GAUSSIAN)] = 12
