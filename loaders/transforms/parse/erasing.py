"""Transform names that mask regions of an image."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_bool, check_choice, check_probability, check_range
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import (
    parse_channels,
    parse_height_width,
    parse_number,
    parse_numbers,
    parse_pair,
)
from manifests.errors import CallError
from manifests.process.text import shown


@register("RandomErasing", "PaddleClas")
def paddleclas_erasing(
    EPSILON: Any = 0.5,
    sl: Any = 0.02,
    sh: Any = 0.4,
    r1: Any = 0.3,
    mean: Any = (0, 0, 0),
    attempt: int = 100,
    *,
    use_log_aspect: bool = False,
    mode: str = "const",
) -> Parsed:
    """Erase a random rectangle with probability `EPSILON`."""
    check_bool("use_log_aspect", use_log_aspect)
    ratio = parse_number(r1, "r1")
    modes: Any = {"const": "constant", "rand": "color", "pixel": "pixels"}
    check_choice("mode", mode, modes)
    if ratio <= 0:
        raise CallError(f"r1 must be above 0, got {shown(r1)}")
    yield RandomErasing(
        probability=_parse_probability(EPSILON, "EPSILON"),
        area=(parse_number(sl, "sl"), parse_number(sh, "sh")),
        ratio=(min(ratio, 1 / ratio), max(ratio, 1 / ratio)),
        log_ratio=use_log_aspect,
        attempts=attempt,
        mode=modes[mode],
        fill=parse_numbers(mean, "mean"),  # type: ignore[arg-type]
    )


@register("RandomErasing", "torchvision")
def torchvision_erasing(
    p: Any = 0.5,
    scale: Any = (0.02, 0.33),
    ratio: Any = (0.3, 3.3),
    value: Any = 0,
    *,
    inplace: bool = False,
) -> Parsed:
    """Erase a random rectangle with probability `p`; with the value ``"random"`` by noise."""
    check_bool("inplace", inplace)
    noise = value == "random"
    yield RandomErasing(
        probability=_parse_probability(p, "p"),
        area=_parse_scale(scale),
        ratio=parse_pair(ratio, "ratio"),
        log_ratio=True,
        attempts=10,
        mode="pixels" if noise else "constant",
        fill=_fill(0 if noise else value, "value"),
    )


@register(
    "Cutout",
    "PaddleClas",
    differs=(
        "A color as fill_value is supported; PaddleClas fails or does nothing. Squares with random"
        " colors have the side length; PaddleClas adds one pixel."
    ),
)
def cutout(n_holes: int = 1, length: int = 112, fill_value: Any = (0, 0, 0)) -> Parsed:
    """Mask squares; a `fill_value` of ``None`` or ``"none"`` draws a random color per square."""
    random_colors = fill_value is None or fill_value == "none"
    yield Cutout(n_holes, length, None if random_colors else _fill(fill_value, "fill_value"))
    if random_colors:
        yield Note(
            "PaddleClas's squares extend one pixel further to the right and bottom; here their side"
            " is length"
        )
    else:
        yield Note(
            "PaddleClas fails or does nothing if fill_value is a color; here the squares are filled"
            " with it"
        )


@register(
    "GridMask",
    "PaddleClas",
    differs="prob applies from the first epoch; PaddleClas increases it from 0.",
)
def grid_mask(
    d1: int = 96,
    d2: int = 224,
    rotate: int = 1,
    ratio: float = 0.5,
    mode: int = 0,
    prob: float = 1.0,
) -> Parsed:
    """Set a grid to 0: its lines with mode 0, the squares between them with mode 1."""
    if mode not in (0, 1):
        raise CallError(f"mode must be 0 or 1, got {shown(mode)}")
    if not (isinstance(d1, int) and isinstance(d2, int) and 2 <= d1 < d2):
        raise CallError(
            f"d1 and d2 must be integers of at least 2 with d1 < d2, got {shown(d1)} and"
            f" {shown(d2)}"
        )
    squares = bool(mode)
    yield GridMask(
        (d1, d2 - 1),
        rotate,
        parse_number(ratio, "ratio"),
        "squares" if squares else "lines",
        _parse_probability(prob, "prob"),
    )
    yield Note(
        "PaddleClas increases the probability with each epoch, from 0; here it is prob from the"
        " first epoch"
    )


@register(
    "HideAndSeek",
    "PaddleClas",
    differs=(
        "The grid covers the whole image; PaddleClas swaps the sides of images that are not square."
    ),
)
def hide_and_seek() -> Parsed:
    """Set random cells of a grid to 0.

    The side of a cell is 16, 32, 44 or 56 pixels, or no cell is changed.
    """
    yield HideAndSeek()
    yield Note(
        "PaddleClas swaps height and width of images that are not square; here the grid covers the"
        " whole image"
    )


@register(
    "CropWithPadding",
    "PaddleClas",
    differs=(
        "size and interpolation have no effect, as in PaddleClas, which does not resize either. key"
        " is an error."
    ),
)
def crop_with_padding(
    prob: float = 1,
    padding_num: float = 0,
    size: Any = 224,
    scale: Any = (0.08, 1.0),
    ratio: Any = (3 / 4, 4 / 3),
    interpolation: str = "bilinear",
    key: Any = None,
) -> Parsed:
    """Fill everything outside a random region with `padding_num`."""
    parse_height_width(size)
    if key is not None:
        raise CallError(f"key is not supported, got {shown(key)}", hint="remove it")
    if not isinstance(interpolation, str):
        raise CallError(f"interpolation must be a string, got {shown(interpolation)}")
    yield KeepPart(
        area=_parse_scale(scale),
        ratio=parse_pair(ratio, "ratio"),
        fill=parse_number(padding_num, "padding_num"),
        probability=_parse_probability(prob, "prob"),
    )


def _parse_probability(value: Any, name: str) -> float:
    probability = parse_number(value, name)
    check_probability(name, probability)
    return probability


def _parse_scale(value: Any) -> tuple[float, float]:
    scale = parse_pair(value, "scale")
    check_range("scale", scale, 0, 1)
    return scale


def _fill(value: Any, name: str) -> tuple[float, float, float]:
    """Parse one number, a list of one number, or a list of three numbers."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return parse_channels(value, name)
