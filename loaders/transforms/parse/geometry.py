"""Transform names that flip, rotate or pad."""

from __future__ import annotations

from typing import Any, Literal

from loaders.transforms.base import check_bool, check_choice, check_probability
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate
from loaders.transforms.parse.interpolation import (
    parse_backend,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import (
    parse_channels,
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


def _flip_probability(prob: float, p: float | None) -> float:
    if p is None:
        check_probability("prob", prob)
        return prob
    check_probability("p", p)
    return p


@register("RandomHorizontalFlip", "torchvision", "PaddleClas")
def random_horizontal_flip(prob: float = 0.5, p: float | None = None) -> Parsed:
    """Swap left and right with a probability: `p` (torchvision) or `prob` (PaddleClas)."""
    yield Flip(_flip_probability(prob, p), "horizontal")


@register("RandomVerticalFlip", "torchvision", "PaddleClas")
def random_vertical_flip(prob: float = 0.5, p: float | None = None) -> Parsed:
    """Swap top and bottom with a probability: `p` (torchvision) or `prob` (PaddleClas)."""
    yield Flip(_flip_probability(prob, p), "vertical")


@register(
    "RandomRotation",
    "PaddleClas",
    "torchvision",
    differs=(
        "prob is 0.5 by default as in PaddleClas; torchvision rotates every image. The bicubic"
        " filter is bilinear. expand and center are errors."
    ),
)
def random_rotation(
    degrees: Any,
    prob: float | None = None,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Any = None,
    fill: float = 0,
) -> Parsed:
    """Rotate by an angle between -degrees and degrees, or between two angles."""
    check_bool("expand", expand)
    if expand or center is not None:
        raise CallError(
            "expand and center are not supported",
            hint="remove them; images always rotate around their center and keep their size",
        )
    check_choice("interpolation", interpolation, ("nearest", "bilinear", "bicubic"))
    if isinstance(degrees, (list, tuple)):
        bounds = parse_pair(degrees, "degrees")
    else:
        limit = parse_number(degrees, "degrees")
        bounds = (-limit, limit)
    filter_: Literal["nearest", "linear"] = "nearest" if interpolation == "nearest" else "linear"
    probability = 0.5 if prob is None else prob
    check_probability("prob", probability)
    yield Rotate(bounds, probability, filter_, fill)
    if prob is None:
        yield Note(
            "prob is 0.5 as in PaddleClas; torchvision rotates every image: set prob=1 for that"
        )
    if interpolation == "bicubic":
        yield Note("the bicubic filter is replaced by a bilinear one")


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


@register(
    "Pad",
    "PaddleClas",
    "torchvision",
    differs="padding_mode is followed, as in torchvision; PaddleClas always pads with a constant.",
)
def pad_image(
    padding: Any, fill: Any = 0, padding_mode: str = "constant", backend: str = "pil"
) -> Parsed:
    """Pad: one number for all sides, (left and right, top and bottom), or (left, top, right, bottom)."""
    parse_backend(backend)
    yield parse_padding(padding, fill, padding_mode)
    if padding_mode != "constant":
        yield Note(
            "padding_mode is followed, as in torchvision; PaddleClas always pads with a constant"
        )


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
