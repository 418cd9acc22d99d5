"""Operations that hide parts of an image. Records only; it must never know DALI.

They work on whole values and on normalised ones alike; what they fill with is on the image's own scale, and rounded
to a byte where the image is of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaders.transforms.base import (
    ImageSpec,
    Operation,
    Range,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_numbers,
    check_probability,
    check_range,
    require_three_channels,
    require_uint8,
)
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class RandomErasing(Operation):
    """Hide a random part with a probability.

    Area and ratio are drawn until the part is smaller than the image both ways; if it never is, nothing is hidden.

    Attributes:
        probability: of hiding a part.
        area: least and greatest share of the image's area.
        ratio: least and greatest height over width of the part.
        log_ratio: whether the ratio is drawn evenly on a log scale.
        attempts: draws at most.
        mode: what is put there: ``constant`` is `fill`, ``color`` a normally distributed colour for each image,
            ``pixels`` one for each pixel (mean 0, deviation 1, made for normalised images).
        fill: value of each channel.

    """

    probability: float = 0.5
    area: Range = (0.02, 0.4)
    ratio: Range = (0.3, 10 / 3)
    log_ratio: bool = False
    attempts: int = 100
    mode: Literal["constant", "color", "pixels"] = "constant"
    fill: tuple[float, float, float] = (0, 0, 0)

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_range("area", self.area, 0, 1)
        check_range("ratio", self.ratio, 0.01, 100)
        check_bool("log_ratio", self.log_ratio)
        check_int("attempts", self.attempts, 1)
        check_choice("mode", self.mode, ("constant", "color", "pixels"))
        check_numbers("fill", self.fill, 3)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form."""
        return require_three_channels(self, spec)


@dataclass(frozen=True, slots=True)
class Cutout(Operation):
    """Hide squares whose centres lie anywhere in the image; what lies beyond the edge is lost.

    Attributes:
        holes: number of squares.
        length: side of a square in pixels; an odd one is taken as one less.
        fill: value of each channel; none draws a colour of whole values for each square.

    """

    holes: int = 1
    length: int = 112
    fill: tuple[float, float, float] | None = (0, 0, 0)

    def __post_init__(self) -> None:
        check_int("holes", self.holes, 1)
        check_int("length", self.length, 2)
        if self.fill is not None:
            check_numbers("fill", self.fill, 3)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form."""
        return require_uint8(self, spec) if self.fill is None else require_three_channels(self, spec)


@dataclass(frozen=True, slots=True)
class GridMask(Operation):
    """Blacken a grid with a probability, its period, phase and turn random.

    Attributes:
        period: least and greatest distance of the grid's lines in pixels, whole.
        angles: number of turns to draw from: 0, 1, … degrees counter-clockwise.
        ratio: width of a line over the period.
        hide: ``lines``, or the ``squares`` between them.
        probability: of hiding anything.

    """

    period: tuple[int, int] = (96, 223)
    angles: int = 1
    ratio: float = 0.5
    hide: Literal["lines", "squares"] = "lines"
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_range("period", self.period, 2)
        for each in self.period:
            check_int("period", each, 2)
        check_int("angles", self.angles, 1)
        check_number("ratio", self.ratio, 0, 1)
        check_choice("hide", self.hide, ("lines", "squares"))
        check_probability("probability", self.probability)


@dataclass(frozen=True, slots=True)
class HideAndSeek(Operation):
    """Blacken cells of a grid whose size is drawn for each image.

    Attributes:
        sizes: sides of a cell in pixels, each drawn alike; 0 hides nothing.
        probability: of hiding a cell.

    """

    sizes: tuple[int, ...] = (0, 16, 32, 44, 56)
    probability: float = 0.5

    def __post_init__(self) -> None:
        if not (isinstance(self.sizes, tuple) and any(self.sizes)):
            raise CallError(f"sizes must be whole numbers, not all of them 0, got {self.sizes!r}")
        for each in self.sizes:
            check_int("sizes", each, 0)
        check_probability("probability", self.probability)


@dataclass(frozen=True, slots=True)
class KeepPart(Operation):
    """Fill all but a random part with a probability; the part is found as `RandomResizedCrop` finds it.

    Attributes:
        area: least and greatest share of the image's area that is kept.
        ratio: least and greatest width over height of the part.
        fill: value of all channels elsewhere.
        probability: of filling anything.

    """

    area: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    fill: float = 0
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_range("area", self.area, 0, 1)
        if self.area[1] == 0:
            raise CallError(f"area must end above 0, got {self.area!r}")
        check_range("ratio", self.ratio, 0.01, 100)
        check_number("fill", self.fill)
        check_probability("probability", self.probability)
