"""Parse argument values as users write them: sizes, numbers, fractions such as ``"1.0/255.0"``, and colors."""

from __future__ import annotations

import math
import re
from typing import Any

from loaders.transforms.base import MAX_NUMBER_LENGTH, Size
from manifests.errors import CallError
from manifests.process.text import shown

_NUMBER = r"[0-9.]+(?:e[-+]?[0-9]+)?"
_FRACTION = re.compile(rf"([-+]?{_NUMBER})(?:\s*/\s*({_NUMBER}))?", re.IGNORECASE)


def parse_width_height(value: Any, name: str = "size") -> Size:
    """Parse a size in PaddleClas's order: one integer for a square, or (width, height).

    Returns (height, width).
    """
    width, height = parse_height_width(value, name)
    return height, width


def parse_height_width(value: Any, name: str = "size") -> Size:
    """Parse a size in torchvision's order: one integer for a square, or (height, width)."""
    sides = value if isinstance(value, (list, tuple)) else (value, value)
    if len(sides) != 2 or not all(
        isinstance(each, int) and not isinstance(each, bool) for each in sides
    ):
        raise CallError(f"{name} must be one integer or two integers, got {shown(value)}")
    return sides[0], sides[1]


def parse_number(value: Any, name: str) -> float:
    """Parse a finite number, or a string such as ``"1.0/255.0"``.

    Strings are parsed, never evaluated.
    """
    match = None
    if isinstance(value, str):
        if len(value) > MAX_NUMBER_LENGTH:
            raise CallError(
                f"{name} must have at most {MAX_NUMBER_LENGTH} characters, got {len(value)}"
            )
        match = _FRACTION.fullmatch(value.strip())
    number = math.nan
    try:
        if match:
            number = float(match[1]) / float(match[2] or 1)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    if math.isfinite(number):
        return number
    raise CallError(
        f"{name} must be a number or a fraction such as '1.0/255.0', got {shown(value)}"
    )


def parse_numbers(value: Any, name: str) -> tuple[float, ...]:
    """Parse a list of numbers or fractions."""
    if not isinstance(value, (list, tuple)):
        raise CallError(f"{name} must be a list of numbers, got {shown(value)}")
    return tuple(parse_number(each, name) for each in value)


def parse_pair(value: Any, name: str) -> tuple[float, float]:
    """Parse a list of two numbers or fractions."""
    numbers = parse_numbers(value, name)
    if len(numbers) != 2:
        raise CallError(f"{name} must be two numbers, got {shown(value)}")
    return numbers[0], numbers[1]


def parse_channels(value: Any, name: str) -> tuple[float, float, float]:
    """Parse one number for all channels, or a list of three numbers."""
    numbers = (
        parse_numbers(value, name)
        if isinstance(value, (list, tuple))
        else (parse_number(value, name),) * 3
    )
    if len(numbers) != 3:
        raise CallError(f"{name} must be one number or three numbers, got {shown(value)}")
    return numbers[0], numbers[1], numbers[2]


def parse_fill(fill: Any) -> tuple[float, float, float]:
    """Parse torchvision's ``fill``: as `parse_channels`, and `None` means black."""
    return parse_channels(0 if fill is None else fill, "fill")
