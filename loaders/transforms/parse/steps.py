"""Transform names that run one step of an augmentation policy with a probability."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_int, check_number, check_probability
from loaders.transforms.parse.registry import Parsed, register
from loaders.transforms.policies import Amount, RandomSteps, Step


def _step(name: str, probability: Any, argument: float = 0) -> RandomSteps:
    check_probability("p", probability)
    return RandomSteps((Step(name, Amount(argument), probability=probability),), 1)


@register("RandomInvert", "torchvision")
def random_invert(p: float = 0.5) -> Parsed:
    """Invert the colors with probability `p`."""
    yield _step("invert", p)


@register("RandomPosterize", "torchvision")
def random_posterize(bits: int, p: float = 0.5) -> Parsed:
    """Keep the highest `bits` bits of each value, with probability `p`."""
    check_int("bits", bits, 0, 8)
    yield _step("posterize", p, bits)


@register("RandomSolarize", "torchvision")
def random_solarize(threshold: float, p: float = 0.5) -> Parsed:
    """Invert the values at or above `threshold` (0 to 255), with probability `p`."""
    check_number("threshold", threshold, 0, 256)
    yield _step("solarize", p, threshold)


@register("RandomAutocontrast", "torchvision")
def random_autocontrast(p: float = 0.5) -> Parsed:
    """Stretch each channel to the full range from 0 to 255, with probability `p`."""
    yield _step("autocontrast", p)


@register("RandomEqualize", "torchvision")
def random_equalize(p: float = 0.5) -> Parsed:
    """Equalize the histogram of each channel, with probability `p`."""
    yield _step("equalize", p)


@register("RandomAdjustSharpness", "torchvision")
def random_adjust_sharpness(sharpness_factor: float, p: float = 0.5) -> Parsed:
    """Blur (factor 0), keep (1) or sharpen (2) an image, with probability `p`."""
    check_number("sharpness_factor", sharpness_factor, 0, 1000)
    yield _step("sharpness", p, sharpness_factor)
