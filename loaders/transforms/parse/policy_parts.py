"""What the parsers of all policies share: levels, enhancement factors, and interpolation."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from loaders.transforms.parse.registry import Note
from loaders.transforms.policies import Amount
from manifests.errors import CallError
from manifests.process.text import shown

BilinearFilter: TypeAlias = Literal["nearest", "linear"]

#: The highest level of a step; the lowest is 0.
MAX_LEVEL = 10

BICUBIC_NOTE = Note("steps that move pixels use a bilinear filter instead of a bicubic one")

#: Enhancement factors of PaddleClas and timm: ``1 +- 0.9`` at the highest level, or from 0.1 to
#: 1.9.
FACTOR_AROUND_ONE = Amount(1, 0.9 / MAX_LEVEL, signed=True)
FACTOR_FROM_LOW = Amount(0.1, 1.8 / MAX_LEVEL)

ENHANCEMENTS = ("color", "contrast", "sharpness", "brightness")
STEPS_WITHOUT_ARGUMENT = ("autocontrast", "equalize", "invert")


def check_interpolation(value: Any, choices: tuple[str, ...]) -> tuple[Note, ...]:
    """Check an interpolation name.

    Return a note unless it is bilinear, because the filter is always bilinear.
    """
    if value not in choices:
        raise CallError(f"interpolation must be one of {', '.join(choices)}, got {shown(value)}")
    return () if value == "bilinear" else (BICUBIC_NOTE,)


def parse_filter(interpolation: Any) -> tuple[BilinearFilter, tuple[Note, ...]]:
    """Parse the ``interpolation`` of torchvision's transforms that move pixels, a name or an enum member."""
    name = getattr(interpolation, "value", interpolation)
    name = name.lower() if isinstance(name, str) else name
    notes = (
        () if name == "nearest" else check_interpolation(name, ("nearest", "bilinear", "bicubic"))
    )
    return ("nearest" if name == "nearest" else "linear"), notes
