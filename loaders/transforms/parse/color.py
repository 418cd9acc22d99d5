"""Names of changing colours and of blurring. It must never know DALI."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import Range
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)
from loaders.transforms.parse.registry import Note, Parsed, number, pair, register, width_height
from manifests.errors import CallError


def _factors(value: Any, name: str) -> Range:
    """Read a factor's bounds: a number around 1, never below 0, or two numbers."""
    if isinstance(value, (list, tuple)):
        return pair(value, name)
    amount = number(value, name)
    if amount < 0:
        raise CallError(f"{name} must not be negative, got {value!r}")
    return max(0.0, 1 - amount), 1 + amount


def _turns(value: Any) -> Range:
    if isinstance(value, (list, tuple)):
        return pair(value, "hue")
    amount = number(value, "hue")
    if not 0 <= amount <= 0.5:
        raise CallError(f"hue must be a number from 0 to 0.5, or two from -0.5 to 0.5, got {value!r}")
    return -amount, amount


@register("ColorJitter")
def color_jitter(prob: float = 2, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> Parsed:
    """Change brightness, contrast, saturation and hue; a `prob` above 1 means always."""
    probability = number(prob, "prob")
    if probability < 0:
        raise CallError(f"prob must not be negative, got {prob!r}")
    yield ColorJitter(
        brightness=_factors(brightness, "brightness"),
        contrast=_factors(contrast, "contrast"),
        saturation=_factors(saturation, "saturation"),
        hue=_turns(hue),
        probability=min(probability, 1.0),
    )


@register("RawColorJitter")
def raw_color_jitter(brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> Parsed:
    """Change brightness, contrast, saturation and hue of every image."""
    yield from color_jitter(1.0, brightness, contrast, saturation, hue)


@register("RandomGrayscale")
def random_grayscale(p: float = 0.1) -> Parsed:
    """Make an image gray, in three channels."""
    yield RandomGrayscale(p)


@register("Grayscale")
def grayscale(num_output_channels: int = 3) -> Parsed:
    """Make every image gray, in three channels."""
    if num_output_channels != 3:
        raise CallError(
            f"num_output_channels must be 3, got {num_output_channels!r}", hint="take one channel of the batch"
        )
    yield ConvertColor("GRAY")


@register("PCALighting")
def pca_lighting() -> Parsed:
    """Add a random colour."""
    yield PCALighting()
    yield Note(
        "PaddleClas adds amounts meant for values from 0 to 1 to whichever values come; here those from 0 to 255 get "
        "them times 255, as AlexNet did"
    )


@register("ToRGB")
def to_rgb() -> Parsed:
    """Convert to red, green, blue."""
    yield ConvertColor("RGB")


@register("ToBGR")
def to_bgr() -> Parsed:
    """Convert to blue, green, red."""
    yield ConvertColor("BGR")


@register("ToGray")
def to_gray() -> Parsed:
    """Convert to gray in three equal channels."""
    yield ConvertColor("GRAY")


@register("ToLab")
def to_lab() -> Parsed:
    """Convert to CIE L*a*b* (D65), in bytes as OpenCV has it: L * 255 / 100, a + 128, b + 128."""
    yield ConvertColor("LAB")


@register("ToHSV")
def to_hsv() -> Parsed:
    """Convert to hue, saturation and value, each from 0 to 255, as Pillow and OpenCV's ``_FULL`` have them."""
    yield ConvertColor("HSV")


@register("ToYCbCr")
def to_ycbcr() -> Parsed:
    """Convert to JPEG's Y, Cb and Cr, each from 0 to 255, in this order, as Pillow has it."""
    yield ConvertColor("YCbCr")


@register("GaussianBlur")
def gaussian_blur(kernel_size: Any, sigma: Any = (0.1, 2.0)) -> Parsed:
    """Blur by a Gaussian; `kernel_size` is one number, or width and height."""
    bounds = pair(sigma, "sigma") if isinstance(sigma, (list, tuple)) else (number(sigma, "sigma"),) * 2
    yield GaussianBlur(width_height(kernel_size, "kernel_size"), bounds)


@register("BlurImage")
def blur_image(
    ratio: float = 0.5, motion_max_ksize: int = 12, motion_max_angle: int = 45, gaussian_max_ksize: int = 12
) -> Parsed:
    """Blur an image as out of focus or as moved."""
    yield RandomBlur(number(ratio, "ratio"), motion_max_ksize, motion_max_angle, gaussian_max_ksize)
    yield Note("PaddleClas also gives blur_image, whether an image was blurred; here there is the image alone")
    yield Note(
        "OpenCV has fixed weights for Gaussians of 5 and 7 pixels, here all are computed; bytes differ by at most 4"
    )
