"""Transform names that change colors or blur."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import (
    MAX_GAUSSIAN,
    MAX_MOTION,
    MAX_MOTION_ANGLE,
    Range,
    check_int,
    check_probability,
)
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import parse_number, parse_pair, parse_width_height
from manifests.errors import CallError
from manifests.process.text import shown


def _factor_range(value: Any, name: str) -> Range:
    """Parse a factor: two numbers, or one number x for the range from 1 - x, but at least 0, to 1 + x."""
    if isinstance(value, (list, tuple)):
        return parse_pair(value, name)
    amount = parse_number(value, name)
    if amount < 0:
        raise CallError(f"{name} must not be negative, got {shown(value)}")
    return max(0.0, 1 - amount), 1 + amount


def _hue_range(value: Any) -> Range:
    if isinstance(value, (list, tuple)):
        return parse_pair(value, "hue")
    amount = parse_number(value, "hue")
    if not 0 <= amount <= 0.5:
        raise CallError(
            "hue must be a number from 0 to 0.5, or two numbers from -0.5 to 0.5, got"
            f" {shown(value)}"
        )
    return -amount, amount


@register(
    "ColorJitter",
    "PaddleClas",
    "torchvision",
    differs="The hue is shifted in floating point; Pillow shifts it in bytes.",
)
def color_jitter(
    prob: float = 2, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
) -> Parsed:
    """Change brightness, contrast, saturation and hue in random order, with probability `prob` (above 1: always)."""
    probability = parse_number(prob, "prob")
    if probability < 0:
        raise CallError(f"prob must not be negative, got {shown(prob)}")
    yield ColorJitter(
        brightness=_factor_range(brightness, "brightness"),
        contrast=_factor_range(contrast, "contrast"),
        saturation=_factor_range(saturation, "saturation"),
        hue=_hue_range(hue),
        probability=min(probability, 1.0),
    )


@register(
    "RawColorJitter",
    "PaddleClas",
    differs="The hue is shifted in floating point; Pillow shifts it in bytes.",
)
def raw_color_jitter(
    brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
) -> Parsed:
    """Change brightness, contrast, saturation and hue of every image in random order."""
    yield from color_jitter(1.0, brightness, contrast, saturation, hue)


@register("RandomGrayscale", "torchvision", "PaddleClas")
def random_grayscale(p: float = 0.1) -> Parsed:
    """Convert an image to three equal gray channels with probability `p`."""
    check_probability("p", p)
    yield RandomGrayscale(p)


@register("Grayscale", "torchvision", differs="Only num_output_channels=3 is supported.")
def grayscale(num_output_channels: int = 3) -> Parsed:
    """Convert every image to three equal gray channels."""
    if num_output_channels != 3:
        raise CallError(
            f"num_output_channels must be 3, got {shown(num_output_channels)}",
            hint="remove it, and use one channel of each batch",
        )
    yield ConvertColor("GRAY")


@register(
    "PCALighting",
    "PaddleClas",
    differs=(
        "For uint8 images the color is multiplied by 255, as in AlexNet; PaddleClas does not"
        " scale it."
    ),
)
def pca_lighting() -> Parsed:
    """Add one random color along the principal components of ImageNet's colors."""
    yield PCALighting()
    yield Note(
        "PaddleClas adds amounts for values from 0 to 1 to images of any range; here they are"
        " multiplied by 255 for uint8 images, as in AlexNet"
    )


@register("ToRGB", "loaders")
def to_rgb() -> Parsed:
    """Convert to red, green, blue."""
    yield ConvertColor("RGB")


@register("ToBGR", "loaders")
def to_bgr() -> Parsed:
    """Convert to blue, green, red."""
    yield ConvertColor("BGR")


@register("ToGray", "loaders")
def to_gray() -> Parsed:
    """Convert to three equal gray channels."""
    yield ConvertColor("GRAY")


@register("ToLab", "loaders")
def to_lab() -> Parsed:
    """Convert to CIE L*a*b* (D65) in OpenCV's uint8 encoding: L * 255 / 100, a + 128, b + 128."""
    yield ConvertColor("LAB")


@register("ToHSV", "loaders")
def to_hsv() -> Parsed:
    """Convert to hue, saturation and value, each from 0 to 255 as in Pillow and OpenCV's ``_FULL`` conversion."""
    yield ConvertColor("HSV")


@register("ToYCbCr", "loaders")
def to_ycbcr() -> Parsed:
    """Convert to JPEG's Y, Cb and Cr in this order, each from 0 to 255 as in Pillow."""
    yield ConvertColor("YCbCr")


@register("GaussianBlur", "torchvision")
def gaussian_blur(kernel_size: Any, sigma: Any = (0.1, 2.0)) -> Parsed:
    """Blur with a Gaussian.

    `kernel_size` is one integer or (width, height), `sigma` one number or a range.
    """
    bounds = (
        parse_pair(sigma, "sigma")
        if isinstance(sigma, (list, tuple))
        else (parse_number(sigma, "sigma"),) * 2
    )
    window = parse_width_height(kernel_size, "kernel_size")
    if not all(side % 2 for side in window):
        raise CallError(f"kernel_size must be odd, got {shown(kernel_size)}")
    yield GaussianBlur(window, bounds)


@register(
    "BlurImage",
    "PaddleClas",
    differs=(
        "Returns only the image, not blur_image. Gaussians of 5 and 7 pixels differ from OpenCV's"
        " by at most 4."
    ),
)
def blur_image(
    ratio: float = 0.5,
    motion_max_ksize: int = 12,
    motion_max_angle: int = 45,
    gaussian_max_ksize: int = 12,
) -> Parsed:
    """Blur an image with probability `ratio`, by defocus or motion."""
    probability = parse_number(ratio, "ratio")
    check_probability("ratio", probability)
    check_int("motion_max_ksize", motion_max_ksize, 6, MAX_MOTION)
    check_int("motion_max_angle", motion_max_angle, 1, MAX_MOTION_ANGLE)
    check_int("gaussian_max_ksize", gaussian_max_ksize, 6, MAX_GAUSSIAN)
    yield RandomBlur(probability, motion_max_ksize, motion_max_angle, gaussian_max_ksize)
    yield Note(
        "PaddleClas also returns blur_image, which is True for a blurred image; here only the image"
        " is returned"
    )
    yield Note(
        "OpenCV uses tabulated weights for Gaussians of 5 and 7 pixels; here all weights are"
        " computed, so uint8 values differ by at most 4"
    )
