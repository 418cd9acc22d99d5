"""Records of operations that erase regions of an image.

They work on uint8 and on normalized images. Fill values are in the units of the image and are
rounded for uint8. Labels stay: what a region covers is still labeled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from loaders.transforms.base import (
    MAX_ANGLES,
    MAX_ATTEMPTS,
    MAX_HOLES,
    MAX_SIDE,
    MAX_STEPS,
    Color,
    Operation,
    Probability,
    Range,
    Scale,
    check_int,
    check_tuple,
    integers,
    ranges,
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

    takes = "channels"
    moves = "nothing"

    probability: Probability = 0.5
    area: Annotated[Range, ranges(0, 1)] = (0.02, 0.4)
    ratio: Annotated[Range, ranges(0.01, 100)] = (0.3, 10 / 3)
    log_ratio: bool = False
    attempts: Annotated[int, integers(1, MAX_ATTEMPTS)] = 100
    mode: Literal["constant", "color", "pixels"] = "constant"
    fill: Color = (0, 0, 0)

    @property
    def most(self) -> int:
        """The largest number of rectangles in an image."""
        return 1

    @property
    def any_layout(self) -> bool:
        """Whether it takes images in the dtype and layout of a batch: random colors are float32."""
        return self.mode == "constant"


@dataclass(frozen=True, slots=True)
class EraseSeveral(RandomErasing):
    """Erase from one to `most` random rectangles, all numbers equally likely, as timm does.

    A class of its own, because the ``repr`` of `RandomErasing` seeds its random numbers.

    Attributes:
        most: the largest number of rectangles. The area of each is divided by the number drawn.

    """

    most: Annotated[int, integers(1, MAX_STEPS)] = 2


@dataclass(frozen=True, slots=True)
class Cutout(Operation):
    """Fill squares at random centers, clipped at the border of the image (https://arxiv.org/abs/1708.04552).

    Attributes:
        holes: number of squares.
        length: side of a square in pixels; an odd length is reduced by one.
        fill: one value per channel; ``None`` draws a random uint8 color per square and needs uint8
            images.

    """

    moves = "nothing"

    holes: Annotated[int, integers(1, MAX_HOLES)] = 1
    length: Annotated[int, integers(2, MAX_SIDE)] = 112
    fill: Color | None = (0, 0, 0)

    @property
    def takes(self) -> Literal["channels", "uint8"]:
        """Random colors are bytes."""
        return "uint8" if self.fill is None else "channels"

    def scaled(self, scale: Scale) -> Cutout:
        """Scale the squares."""
        return replace(self, length=scale.length(self.length, 2))


@dataclass(frozen=True, slots=True)
class GridMask(Operation):
    """Set a grid of random period, phase and rotation to 0, with a probability (https://arxiv.org/abs/2001.04086).

    Attributes:
        period: minimum and maximum period of the grid in pixels, integers.
        angles: number of angles to draw from: 0, 1, ..., ``angles - 1`` degrees counterclockwise.
        ratio: width of a line as a fraction of the period.
        hide: erase the ``"lines"`` or the ``"squares"`` between them.
        probability: probability of erasing anything.

    """

    moves = "nothing"

    period: Annotated[tuple[int, int], ranges(2)] = (96, 223)
    angles: Annotated[int, integers(1, MAX_ANGLES)] = 1
    ratio: Probability = 0.5
    hide: Literal["lines", "squares"] = "lines"
    probability: Probability = 1.0

    def _check(self) -> None:
        for each in self.period:
            check_int("period", each, 2, MAX_SIDE)

    def scaled(self, scale: Scale) -> GridMask:
        """Scale the period."""
        low, high = self.period
        return replace(self, period=(scale.length(low, 2), scale.length(high, 2)))


@dataclass(frozen=True, slots=True)
class HideAndSeek(Operation):
    """Set random cells of a grid to 0 (https://arxiv.org/abs/1704.04232).

    The cell size is drawn per image.

    Attributes:
        sizes: sides of a cell in pixels, drawn with equal probability; 0 erases nothing.
        probability: probability of erasing a cell.

    """

    moves = "nothing"

    sizes: tuple[int, ...] = (0, 16, 32, 44, 56)
    probability: Probability = 0.5

    def _check(self) -> None:
        if not (isinstance(self.sizes, tuple) and any(self.sizes)):
            raise CallError(
                f"sizes must be a tuple of integers that are not all 0, got {shown(self.sizes)}"
            )
        check_tuple("sizes", self.sizes, int)
        for each in self.sizes:
            check_int("sizes", each, 0, MAX_SIDE)

    def scaled(self, scale: Scale) -> HideAndSeek:
        """Scale the cells."""
        return replace(self, sizes=tuple(side and scale.length(side) for side in self.sizes))


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

    moves = "nothing"

    area: Annotated[Range, ranges(0, 1)] = (0.08, 1.0)
    ratio: Annotated[Range, ranges(0.01, 100)] = (3 / 4, 4 / 3)
    fill: float = 0
    probability: Probability = 1.0

    def _check(self) -> None:
        if self.area[1] == 0:
            raise CallError(f"the maximum of area must be above 0, got {shown(self.area)}")
