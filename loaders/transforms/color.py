"""Records of operations that change colors or blur."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loaders.transforms.base import (
    MAX_GAUSSIAN,
    MAX_MOTION,
    MAX_MOTION_ANGLE,
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
from manifests.process.text import shown

#: Color spaces that `ConvertColor` converts to.
SPACES = ("RGB", "BGR", "GRAY", "LAB", "HSV", "YCbCr")


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
        """``True`` unless the contrast changes, which depends on the mean of the whole image."""
        return self.contrast == (1, 1)

    @property
    def linear(self) -> bool:
        """``True`` if only brightness and saturation change, and are not increased: then nothing is clipped."""
        return (
            self.pointwise and self.hue == (0, 0) and max(*self.brightness, *self.saturation) <= 1
        )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8 RGB, BGR or gray."""
        return _require_uint8_colors(self, spec)


@dataclass(frozen=True, slots=True)
class RandomGrayscale(Operation):
    """Convert an image to gray with a probability. The output keeps three (equal) channels.

    Attributes:
        probability: probability of converting an image.

    """

    probability: float = 0.1

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)

    @property
    def linear(self) -> bool:
        """Always ``True``."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8 RGB, BGR or gray."""
        return _require_uint8_colors(self, spec)


@dataclass(frozen=True, slots=True)
class PCALighting(Operation):
    """Add one random color to all pixels, along the principal components of ImageNet's colors.

    From AlexNet (Krizhevsky et al., 2012). The amounts are scaled by 255 for uint8 images.

    Attributes:
        std: standard deviation of the amount along each component.

    """

    std: float = 0.1

    def __post_init__(self) -> None:
        check_number("std", self.std, 0)

    @property
    def pointwise(self) -> bool:
        """Always ``True``."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; uint8 images stay uint8."""
        return _require_rgb_colors(self, require_three_channels(self, spec))


@dataclass(frozen=True, slots=True)
class ConvertColor(Operation):
    """Convert images to another color space, uint8 to uint8.

    Attributes:
        space: ``"RGB"``, ``"BGR"``, ``"GRAY"`` (three equal channels), ``"LAB"`` (CIE L*a*b*, D65;
            L scaled to 0-255, a and b shifted by 128), ``"HSV"`` (each channel scaled to 0-255) or
            ``"YCbCr"`` (JPEG, full range 0-255).

    """

    space: str

    def __post_init__(self) -> None:
        check_choice("space", self.space, SPACES)

    @property
    def pointwise(self) -> bool:
        """Always ``True``."""
        return True

    @property
    def linear(self) -> bool:
        """``False`` for LAB and HSV: a hue is an angle, and lightness is not proportional to light."""
        return self.space not in ("LAB", "HSV")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the color space `space`; images must be uint8 RGB, BGR or gray."""
        return replace(_require_uint8_colors(self, spec), color_space=self.space)


@dataclass(frozen=True, slots=True)
class GaussianBlur(Operation):
    """Blur with a Gaussian of random width.

    The border is reflected without repeating the edge pixel.

    Attributes:
        window: height and width of the kernel in pixels, both odd.
        sigma: minimum and maximum standard deviation in pixels, at least 0.01.

    """

    window: Size
    sigma: Range = (0.1, 2.0)

    def __post_init__(self) -> None:
        check_size("window", self.window)
        if not all(side % 2 for side in self.window):
            raise CallError(
                f"window must be (height, width), two odd integers, got {shown(self.window)}"
            )
        if max(self.window) > MAX_GAUSSIAN:
            raise CallError(
                f"window must be (height, width), each at most {MAX_GAUSSIAN}, got"
                f" {shown(self.window)}"
            )
        check_range("sigma", self.sigma, 0.01)


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

    probability: float = 0.5
    motion_length: int = 12
    motion_angle: int = 45
    gaussian_length: int = 12

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_int("motion_length", self.motion_length, 6, MAX_MOTION)
        check_int("motion_angle", self.motion_angle, 1, MAX_MOTION_ANGLE)
        check_int("gaussian_length", self.gaussian_length, 6, MAX_GAUSSIAN)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)


def _require_uint8_colors(operation: Operation, spec: ImageSpec) -> ImageSpec:
    return _require_rgb_colors(operation, require_uint8(operation, spec))


def _require_rgb_colors(operation: Operation, spec: ImageSpec) -> ImageSpec:
    if spec.color_space not in ("RGB", "BGR", "GRAY"):
        raise CallError(
            f"{type(operation).__name__} needs red, green and blue channels, but the images are"
            f" {spec.color_space} at this point",
            hint="move it before the color conversion",
        )
    return spec
