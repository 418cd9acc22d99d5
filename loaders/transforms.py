"""One frozen record an operation, and the presets made of them. Pure; it must never know DALI."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TypeAlias

from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class RandomResizedCrop:
    """Cut a random part out and resize it, bilinear and antialiased, to a square.

    Attributes:
        size: side of the square in pixels.
        area: least and greatest share of the image's area that the part covers.
        ratio: least and greatest width over height of the part, drawn evenly on a log scale.

    """

    size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True, slots=True)
class RandomFlip:
    """Mirror left and right with this probability."""

    probability: float = 0.5


@dataclass(frozen=True, slots=True)
class ResizeShort:
    """Resize the shorter side to `size` pixels, bilinear and antialiased; the longer is rounded down."""

    size: int


@dataclass(frozen=True, slots=True)
class CenterCrop:
    """Cut a square of `size` pixels out of the middle; an image must not be smaller."""

    size: int


@dataclass(frozen=True, slots=True)
class Normalize:
    """Subtract `mean` and divide by `std`, a value each for R, G, B on the scale from 0 to 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


Operation: TypeAlias = RandomResizedCrop | RandomFlip | ResizeShort | CenterCrop | Normalize

_IMAGENET = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

#: Every preset takes RGB images of any size and gives images of one size, normalised.
PRESETS: dict[str, tuple[Operation, ...]] = {
    "imagenet-train": (RandomResizedCrop(224), RandomFlip(), _IMAGENET),
    "imagenet-eval": (ResizeShort(256), CenterCrop(224), _IMAGENET),
}


def preset(name: str) -> tuple[Operation, ...]:
    """Return the operations of a preset.

    Raises:
        CallError: there is none of that name; the message has the nearest one.

    """
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(str(name), PRESETS, n=1)
    mend = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(map(repr, PRESETS))}"
    raise CallError(f"transforms={name!r} is no preset", mend=mend)
