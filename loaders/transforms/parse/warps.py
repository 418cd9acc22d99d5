"""Transform names that move pixels by a random map, and ScaleJitter."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from loaders.transforms.base import check_probability
from loaders.transforms.crop_resize import ScaleJitter
from loaders.transforms.geometry import Elastic, RandomAffine, RandomAffineAround, RandomPerspective
from loaders.transforms.parse.interpolation import (
    TORCHVISION_DIFFERS,
    parse_torchvision_interpolation,
)
from loaders.transforms.parse.policy_parts import parse_filter
from loaders.transforms.parse.registry import Parsed, register
from loaders.transforms.parse.values import (
    parse_fill,
    parse_height_width,
    parse_number,
    parse_numbers,
    parse_pair,
)
from manifests.errors import CallError
from manifests.process.text import shown

_BICUBIC = "The bicubic filter is bilinear."


@register("RandomAffine", "torchvision", differs=_BICUBIC)
def random_affine(
    degrees: Any,
    translate: Any = None,
    scale: Any = None,
    shear: Any = None,
    interpolation: Any = "nearest",
    fill: Any = 0,
    center: Any = None,
) -> Parsed:
    """Rotate by `degrees`, shift by fractions of the sides, scale and shear by random amounts, around `center`."""
    filter_, notes = parse_filter(interpolation)
    operation = RandomAffine(
        _around_zero(degrees, "degrees"),
        (0, 0) if translate is None else parse_pair(translate, "translate"),
        (1, 1) if scale is None else parse_pair(scale, "scale"),
        _parse_shear(shear),
        filter_,
        parse_fill(fill),
    )
    if center is None:
        yield operation
    else:
        values = {each.name: getattr(operation, each.name) for each in fields(operation)}
        yield RandomAffineAround(**values, center=parse_pair(center, "center"))
    yield from notes


@register("RandomPerspective", "torchvision", differs=_BICUBIC)
def random_perspective(
    distortion_scale: Any = 0.5, p: float = 0.5, interpolation: Any = "bilinear", fill: Any = 0
) -> Parsed:
    """Move each corner by up to `distortion_scale` of half the side toward the center, with probability `p`."""
    check_probability("p", p)
    filter_, notes = parse_filter(interpolation)
    yield RandomPerspective(
        parse_number(distortion_scale, "distortion_scale"), p, filter_, parse_fill(fill)
    )
    yield from notes


@register(
    "ElasticTransform",
    "torchvision",
    differs=f"{_BICUBIC} Slow on a CPU, where Python moves the pixels.",
)
def elastic_transform(
    alpha: Any = 50.0, sigma: Any = 5.0, interpolation: Any = "bilinear", fill: Any = 0
) -> Parsed:
    """Shift each pixel by smooth noise of strength `alpha`, blurred with a Gaussian of `sigma` pixels."""
    filter_, notes = parse_filter(interpolation)
    yield Elastic(_pair(alpha, "alpha"), _pair(sigma, "sigma"), filter_, parse_fill(fill))
    yield from notes


@register("ScaleJitter", "torchvision", differs=TORCHVISION_DIFFERS)
def scale_jitter(
    target_size: Any,
    scale_range: Any = (0.1, 2.0),
    interpolation: Any = "bilinear",
    antialias: bool = True,
) -> Parsed:
    """Resize to `target_size` times a random factor, and keep the aspect ratio.

    Images then have different sizes.
    """
    filters = parse_torchvision_interpolation(interpolation, antialias)
    yield ScaleJitter(
        parse_height_width(target_size, "target_size"),
        parse_pair(scale_range, "scale_range"),
        filters.filter,
        antialias,
    )
    yield from filters.notes


def _pair(value: Any, name: str) -> tuple[float, float]:
    return (
        parse_pair(value, name)
        if isinstance(value, (list, tuple))
        else (parse_number(value, name),) * 2
    )


def _around_zero(value: Any, name: str) -> tuple[float, float]:
    if isinstance(value, (list, tuple)):
        return parse_pair(value, name)
    limit = parse_number(value, name)
    if limit < 0:
        raise CallError(
            f"{name} must not be negative, got {shown(value)}", hint="write two numbers for a range"
        )
    return -limit, limit


def _parse_shear(shear: Any) -> tuple[float, float, float, float]:
    if shear is None:
        return 0, 0, 0, 0
    if isinstance(shear, (list, tuple)) and len(shear) == 4:
        low_x, high_x, low_y, high_y = parse_numbers(shear, "shear")
        return low_x, high_x, low_y, high_y
    return (*_around_zero(shear, "shear"), 0, 0)
