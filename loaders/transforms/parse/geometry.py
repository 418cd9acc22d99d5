"""Transform names that flip, rotate or pad."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from loaders.transforms.base import check_bool, check_choice, check_probability
from loaders.transforms.geometry import (
    PAD_MODES,
    Flip,
    Pad,
    PadTo,
    RandomRightAngle,
    Rotate,
    RotateAround,
)
from loaders.transforms.parse.interpolation import (
    parse_backend,
)
from loaders.transforms.parse.policy_parts import parse_filter
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import (
    parse_channels,
    parse_fill,
    parse_number,
    parse_numbers,
    parse_pair,
    parse_width_height,
)
from manifests.errors import CallError
from manifests.process.text import shown


@register("RandFlipImage", "PaddleClas")
def rand_flip_image(flip_code: int = 1) -> Parsed:
    """Flip with a probability of 0.5.

    `flip_code` 1 swaps left and right, 0 swaps top and bottom, -1 swaps both.
    """
    if flip_code not in (-1, 0, 1):
        raise CallError(f"flip_code must be 1, 0 or -1, got {shown(flip_code)}")
    yield Flip(0.5, {1: "horizontal", 0: "vertical", -1: "both"}[flip_code])  # type: ignore[arg-type]


@register("RandomHorizontalFlip", "PaddleClas")
def random_horizontal_flip(prob: float = 0.5) -> Parsed:
    """Swap left and right with probability `prob`."""
    check_probability("prob", prob)
    yield Flip(prob, "horizontal")


@register("RandomHorizontalFlip", "torchvision")
def torchvision_horizontal_flip(p: float = 0.5) -> Parsed:
    """Swap left and right with probability `p`."""
    check_probability("p", p)
    yield Flip(p, "horizontal")


@register("RandomVerticalFlip", "PaddleClas")
def random_vertical_flip(prob: float = 0.5) -> Parsed:
    """Swap top and bottom with probability `prob`."""
    check_probability("prob", prob)
    yield Flip(prob, "vertical")


@register("RandomVerticalFlip", "torchvision")
def torchvision_vertical_flip(p: float = 0.5) -> Parsed:
    """Swap top and bottom with probability `p`."""
    check_probability("p", p)
    yield Flip(p, "vertical")


@register(
    "RandomRotation",
    "torchvision",
    differs="The bicubic filter is bilinear. expand=True is an error.",
)
def random_rotation(
    degrees: Any,
    interpolation: Any = "nearest",
    expand: bool = False,
    center: Any = None,
    fill: Any = 0,
) -> Parsed:
    """Rotate by an angle between -degrees and degrees, or between two angles, around `center`."""
    rotation, notes = _parse_rotation(degrees, 1.0, interpolation, expand, fill)
    point = None if center is None else parse_pair(center, "center")
    values = {each.name: getattr(rotation, each.name) for each in fields(rotation)}
    yield RotateAround(**values, center=point)
    yield from notes


@register(
    "RandomRotation",
    "PaddleClas",
    differs="The bicubic filter is bilinear. expand and center are errors.",
)
def paddleclas_rotation(
    degrees: Any,
    prob: float = 0.5,
    interpolation: Any = "nearest",
    expand: bool = False,
    center: Any = None,
    fill: Any = 0,
) -> Parsed:
    """Rotate with probability `prob` by an angle between -degrees and degrees, or between two angles."""
    if center is not None:
        raise CallError(
            "center is not supported", hint="remove it; images always rotate around their center"
        )
    rotation, notes = _parse_rotation(degrees, prob, interpolation, expand, fill)
    yield rotation
    yield from notes


def _parse_rotation(
    degrees: Any, probability: float, interpolation: Any, expand: Any, fill: Any
) -> tuple[Rotate, tuple[Note, ...]]:
    check_bool("expand", expand)
    if expand:
        raise CallError(
            "expand=True is not supported", hint="remove it; images always keep their size"
        )
    if isinstance(degrees, (list, tuple)):
        bounds = parse_pair(degrees, "degrees")
    else:
        limit = parse_number(degrees, "degrees")
        bounds = (-limit, limit)
    filter_, notes = parse_filter(interpolation)
    check_probability("prob", probability)
    color = parse_fill(fill)
    if isinstance(fill, (list, tuple)) and len({*color}) > 1:
        fill = color
    elif not isinstance(fill, (int, float)):
        fill = color[0]
    return Rotate(bounds, probability, filter_, fill), notes


@register(
    "RandomRot90", "PaddleClas", differs="Returns only the image, not random_rot90_orientation."
)
def random_rot90() -> Parsed:
    """Rotate by a random multiple of 90 degrees."""
    yield RandomRightAngle()
    yield Note(
        "PaddleClas also returns the rotation as random_rot90_orientation; here only the image is"
        " returned"
    )


def parse_padding(padding: Any, fill: Any, mode: str) -> Pad:
    """Parse torchvision's padding: one number, (left and right, top and bottom), or (left, top, right, bottom)."""
    sides = tuple(padding) if isinstance(padding, (list, tuple)) else (padding,)
    if len(sides) not in (1, 2, 4) or not all(isinstance(each, int) for each in sides):
        raise CallError(f"padding must be one, two or four integers, got {shown(padding)}")
    left, top, right, bottom = sides * (4 // len(sides))
    values = (
        parse_numbers(fill, "fill")
        if isinstance(fill, (list, tuple))
        else (parse_number(fill, "fill"),) * 3
    )
    return Pad(left, top, right, bottom, values, mode)  # type: ignore[arg-type]


@register("Pad", "torchvision")
def pad_image(padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Parsed:
    """Pad: one number for all sides, (left and right, top and bottom), or (left, top, right, bottom)."""
    yield parse_padding(padding, fill, padding_mode)


@register("Pad", "PaddleClas", differs="padding_mode has no effect, as in PaddleClas.")
def paddleclas_pad(
    padding: Any, fill: Any = 0, padding_mode: str = "constant", backend: str = "pil"
) -> Parsed:
    """Pad with a constant, whatever `padding_mode` is."""
    parse_backend(backend)
    check_choice("padding_mode", padding_mode, PAD_MODES)
    yield parse_padding(padding, fill, "constant")
    if padding_mode != "constant":
        yield Note("padding_mode has no effect, as in PaddleClas, which pads with a constant")


@register("Pad_paddle_vision", "PaddleClas")
def pad_paddle_vision(padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Parsed:
    """Pad as paddle.vision's Pad: one number, (left and right, top and bottom), or (left, top, right, bottom)."""
    yield parse_padding(padding, fill, padding_mode)


@register("Padv2", "PaddleClas")
def pad_v2(
    size: Any = None,
    size_divisor: int = 32,
    pad_mode: int = 0,
    offsets: Any = None,
    fill_value: Any = (127.5, 127.5, 127.5),
) -> Parsed:
    """Pad to (width, height).

    `pad_mode` 0 pads right and bottom, 1 all sides, 2 left and top, -1 uses `offsets`.
    """
    if pad_mode not in (-1, 0, 1, 2):
        raise CallError(f"pad_mode must be one of -1, 0, 1, 2, got {shown(pad_mode)}")
    if pad_mode == -1 and offsets is None:
        raise CallError(
            "pad_mode=-1 needs offsets", hint="set offsets to [left, top], or use another pad_mode"
        )
    offset = None if offsets is None else parse_width_height(offsets, "offsets")
    at: Any = {-1: offset, 0: "start", 1: "center", 2: "end"}[pad_mode]
    target = None if size is None else parse_width_height(size)
    yield PadTo(target, size_divisor, at, parse_channels(fill_value, "fill_value"))
