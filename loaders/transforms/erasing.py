"""Records of operations that mask regions of an image.

They work on uint8 and on normalized images. Fill values are in the units of the image and are
rounded for uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaders.transforms.base import (
    MAX_ANGLES,
    MAX_ATTEMPTS,
    MAX_HOLES,
    MAX_SIDE,
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
    check_tuple,
    require_three_channels,
    require_uint8,
)
from manifests.errors import CallError
from manifests.process.text import shown


@dataclass(frozen=True, slots=True)
class RandomErasing(Operation):
    """Erase a random rectangle with a probability (https://arxiv.org/abs/1708.04896).

    Area and ratio are drawn until the rectangle is smaller than the image in both directions. If
    that never happens, the image stays as it is.

    Attributes:
        probability: probability of erasing.
        area: minimum and maximum area as a fraction of the image's area.
        ratio: minimum and maximum aspect ratio of the rectangle, height / width.
        log_ratio: whether the ratio is drawn uniformly on a log scale.
        attempts: maximum number of draws.
        mode: ``"constant"`` fills with `fill`, ``"color"`` with one random color per image,
            ``"pixels"`` with one random color per pixel. Random colors have mean 0 and standard
            deviation 1: use them on normalized images.
        fill: one value per channel for ``mode="constant"``.

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
        check_int("attempts", self.attempts, 1, MAX_ATTEMPTS)
        check_choice("mode", self.mode, ("constant", "color", "pixels"))
        check_numbers("fill", self.fill, 3)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must have three channels."""
        return require_three_channels(self, spec)


@dataclass(frozen=True, slots=True)
class Cutout(Operation):
    """Mask squares at random centers, clipped at the border of the image (https://arxiv.org/abs/1708.04552).

    Attributes:
        holes: number of squares.
        length: side of a square in pixels; an odd length is reduced by one.
        fill: one value per channel; ``None`` draws a random uint8 color per square and needs uint8
            images.

    """

    holes: int = 1
    length: int = 112
    fill: tuple[float, float, float] | None = (0, 0, 0)

    def __post_init__(self) -> None:
        check_int("holes", self.holes, 1, MAX_HOLES)
        check_int("length", self.length, 2, MAX_SIDE)
        if self.fill is not None:
            check_numbers("fill", self.fill, 3)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec.

        Images must have three channels, and be uint8 if `fill` is ``None``.
        """
        return (
            require_uint8(self, spec) if self.fill is None else require_three_channels(self, spec)
        )


@dataclass(frozen=True, slots=True)
class GridMask(Operation):
    """Set a grid of random period, phase and rotation to 0, with a probability (https://arxiv.org/abs/2001.04086).

    Attributes:
        period: minimum and maximum period of the grid in pixels, integers.
        angles: number of angles to draw from: 0, 1, ..., ``angles - 1`` degrees counterclockwise.
        ratio: width of a line as a fraction of the period.
        hide: mask the ``"lines"`` or the ``"squares"`` between them.
        probability: probability of masking anything.

    """

    period: tuple[int, int] = (96, 223)
    angles: int = 1
    ratio: float = 0.5
    hide: Literal["lines", "squares"] = "lines"
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_range("period", self.period, 2)
        for each in self.period:
            check_int("period", each, 2, MAX_SIDE)
        check_int("angles", self.angles, 1, MAX_ANGLES)
        check_number("ratio", self.ratio, 0, 1)
        check_choice("hide", self.hide, ("lines", "squares"))
        check_probability("probability", self.probability)


@dataclass(frozen=True, slots=True)
class HideAndSeek(Operation):
    """Set random cells of a grid to 0 (https://arxiv.org/abs/1704.04232).

    The cell size is drawn per image.

    Attributes:
        sizes: sides of a cell in pixels, drawn with equal probability; 0 masks nothing.
        probability: probability of masking a cell.

    """

    sizes: tuple[int, ...] = (0, 16, 32, 44, 56)
    probability: float = 0.5

    def __post_init__(self) -> None:
        if not (isinstance(self.sizes, tuple) and any(self.sizes)):
            raise CallError(
                f"sizes must be a tuple of integers that are not all 0, got {shown(self.sizes)}"
            )
        check_tuple("sizes", self.sizes, int)
        for each in self.sizes:
            check_int("sizes", each, 0, MAX_SIDE)
        check_probability("probability", self.probability)


@dataclass(frozen=True, slots=True)
class KeepPart(Operation):
    """Fill everything outside a random region, with a probability.

    The region is drawn as in `RandomResizedCrop`.

    Attributes:
        area: minimum and maximum area of the region as a fraction of the image's area.
        ratio: minimum and maximum aspect ratio of the region, width / height.
        fill: value of all channels outside the region.
        probability: probability of filling anything.

    """

    area: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    fill: float = 0
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_range("area", self.area, 0, 1)
        if self.area[1] == 0:
            raise CallError(f"the maximum of area must be above 0, got {shown(self.area)}")
        check_range("ratio", self.ratio, 0.01, 100)
        check_number("fill", self.fill)
        check_probability("probability", self.probability)
