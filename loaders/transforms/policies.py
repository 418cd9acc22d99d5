"""Augmentation policies: steps of a drawn strength, and ways to choose among them. Records; it must never know DALI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from loaders.transforms.base import (
    ImageSpec,
    Operation,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_numbers,
    check_probability,
    check_tuple,
    check_type,
    require_uint8,
)
from manifests.errors import CallError

#: A value for each channel, 0 to 255.
Color: TypeAlias = tuple[float, float, float]

#: What a step can do. Its argument is
#: for ``shear_x`` and ``shear_y`` the shift of a pixel over its distance from the top or the left,
#: for ``translate_x`` and ``translate_y`` the shift in pixels,
#: for ``rotate`` degrees, counter-clockwise,
#: for ``color``, ``contrast``, ``brightness`` and ``sharpness`` the factor, 1 changing nothing,
#: for ``posterize`` how many bits are kept, for ``solarize`` the least value that is inverted,
#: for ``solarize_add`` what is added to values below 128,
#: for ``cutout`` half the side of the square, in pixels; the others have none.
STEPS = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "posterize",
    "solarize",
    "solarize_add",
    "invert",
    "autocontrast",
    "equalize",
    "cutout",
)  # fmt: skip

#: Most rows that the orders of a weighted draw without replacement may have.
MOST_ORDERS = 20_000


@dataclass(frozen=True, slots=True)
class Level:
    """How strong a step is, drawn for each image: evenly between two bounds, with normal noise.

    Attributes:
        low: least level before the noise.
        high: greatest level before the noise; the same as `low` for one that is fixed.
        bins: how many levels there are from `low` to `high`, evenly apart; 0 for any.
        std: deviation of the noise; above 0, the sum is kept from 0 to 10.

    """

    low: float = 0
    high: float = 0
    bins: int = 0
    std: float = 0

    def __post_init__(self) -> None:
        check_number("low", self.low)
        check_number("high", self.high, self.low)
        check_int("bins", self.bins, 0)
        check_number("std", self.std, 0)
        if self.bins == 1:
            raise CallError("bins must be 0 or at least 2, got 1")

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest level that comes out."""
        return (0, 10) if self.std else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Amount:
    """From a level to a step's argument: ``offset`` and ``slope`` times the level, added, or at random subtracted.

    Attributes:
        offset: the argument at level 0.
        slope: by how much it changes with one level.
        rounding: of the change to a whole number: ``none``, ``down`` (toward 0), or ``nearest``.
        signed: whether the change is added or subtracted with even chances.
        of_side: whether the change is a share of the image's width (its height for what works on y).

    """

    offset: float = 0
    slope: float = 0
    rounding: Literal["none", "down", "nearest"] = "none"
    signed: bool = False
    of_side: bool = False

    def __post_init__(self) -> None:
        check_number("offset", self.offset)
        check_number("slope", self.slope)
        check_choice("rounding", self.rounding, ("none", "down", "nearest"))
        check_bool("signed", self.signed)
        check_bool("of_side", self.of_side)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing done to an image, as Pillow does it.

    Attributes:
        name: one of `STEPS`.
        amount: from the level to the argument.
        level: how strong it is.
        probability: of doing it at all.
        filter: how pixels are interpolated where they move.
        fill: what comes in from outside, or what a cutout is filled with.

    """

    name: str
    amount: Amount = Amount()
    level: Level = Level()
    probability: float = 1.0
    filter: Literal["nearest", "linear"] = "nearest"
    fill: Color = (128, 128, 128)

    def __post_init__(self) -> None:
        check_choice("name", self.name, STEPS)
        check_type("amount", self.amount, Amount)
        check_type("level", self.level, Level)
        check_probability("probability", self.probability)
        check_choice("filter", self.filter, ("nearest", "linear"))
        check_numbers("fill", self.fill, 3)
        for value in self.fill:
            check_number("fill", value, 0, 255)


@dataclass(frozen=True, slots=True)
class SubPolicies(Operation):
    """Do one of several sequences of steps, each chosen alike.

    Attributes:
        sequences: the steps of each, in order.
        probability: of doing anything.

    """

    sequences: tuple[tuple[Step, ...], ...]
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_tuple("sequences", self.sequences, tuple)
        for steps in self.sequences:
            check_tuple("sequences", steps, Step)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form; they hold whole values."""
        return require_uint8(self, spec)


@dataclass(frozen=True, slots=True)
class RandomSteps(Operation):
    """Do some of a pool of steps, one after the other.

    Attributes:
        pool: the steps.
        count: how many are drawn.
        weights: how likely each is, in which case none is drawn twice; without them all are alike, and the same may
            be drawn again.
        probability: of doing anything.

    """

    pool: tuple[Step, ...]
    count: int = 2
    weights: tuple[float, ...] | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_int("count", self.count, 0)
        check_tuple("pool", self.pool, Step)
        if self.weights is not None:
            check_numbers("weights", self.weights, len(self.pool))
            for weight in self.weights:
                check_number("weights", weight, 0)
            self._check_orders(sum(weight > 0 for weight in self.weights))

    def _check_orders(self, drawable: int) -> None:
        orders = 1
        for taken in range(self.count):
            orders *= drawable - taken
        if not 0 < orders <= MOST_ORDERS:
            raise CallError(f"count must leave {MOST_ORDERS} orders of weighted steps at most, got {self.count}")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form; they hold whole values."""
        return require_uint8(self, spec)


@dataclass(frozen=True, slots=True)
class MixedChains(Operation):
    """Do several chains of steps on copies of an image, and mix what comes out with the image: AugMix.

    The chains' weights are Dirichlet distributed, the share of their mixture in the result beta distributed.

    Attributes:
        pool: the steps, all alike; the same may be drawn again.
        width: how many chains.
        depth: how many steps a chain has; 0 draws 1, 2 or 3.
        alpha: parameter of both distributions.
        probability: of doing anything.

    """

    pool: tuple[Step, ...]
    width: int = 3
    depth: int = 1
    alpha: float = 1.0
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_int("width", self.width, 1)
        check_int("depth", self.depth, 0)
        check_number("alpha", self.alpha, 0.01)
        check_tuple("pool", self.pool, Step)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the same form; they hold whole values."""
        return require_uint8(self, spec)
