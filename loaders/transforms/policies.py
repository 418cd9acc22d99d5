"""Records of augmentation policies: steps of random strength, and how they are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from math import perm
from typing import Literal, TypeAlias

from loaders.transforms.base import (
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_STEPS,
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

#: One value per channel, 0 to 255.
Color: TypeAlias = tuple[float, float, float]

#: The names of steps. The argument of a step is
#: for ``shear_x`` and ``shear_y``: the shift of a pixel divided by its distance from the top or
#: left edge, for ``translate_x`` and ``translate_y``: the shift in pixels, for ``rotate``: the
#: angle in degrees, counterclockwise, for ``color``, ``contrast``, ``brightness`` and
#: ``sharpness``: the factor; 1 keeps the image, for ``posterize``: the number of bits to keep, for
#: ``solarize``: the threshold; values at or above it are inverted, for ``solarize_add``: the number
#: that is added to values below 128, for ``cutout``: half the side of the square in pixels. The
#: other steps have no argument.
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

#: Maximum number of orders in which weighted steps can be drawn without replacement. A table
#: contains all of them.
MAX_ORDERS = 20_000


@dataclass(frozen=True, slots=True)
class Level:
    """The strength of a step, drawn per image: uniform between two bounds, plus optional normal noise.

    Attributes:
        low: minimum level before noise.
        high: maximum level before noise; equal to `low` for a fixed level.
        bins: number of evenly spaced levels from `low` to `high`; 0 draws any value between them.
        std: standard deviation of the noise. If it is above 0, the noisy level is clipped to 0-10.

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
        """Minimum and maximum level after noise and clipping."""
        return (0, 10) if self.std else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Amount:
    """Maps a level to a step's argument: ``offset + slope * level``, or ``offset - slope * level``.

    Attributes:
        offset: argument at level 0.
        slope: change of the argument per level.
        rounding: how ``slope * level`` is rounded to an integer: ``"none"``, ``"down"`` (toward 0)
            or ``"nearest"``.
        signed: subtract instead of add with a probability of one half.
        of_side: the slope is a fraction of the image's width (of its height for ``translate_y``).

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
    """One step of a policy. The results match Pillow's.

    Attributes:
        name: one of `STEPS`.
        amount: maps the level to the argument.
        level: strength of the step.
        probability: probability of running the step.
        filter: interpolation of steps that move pixels.
        fill: color of pixels from outside the image, or of a cutout.

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
    """Run one of several sequences of steps, chosen with equal probability: AutoAugment.

    From https://arxiv.org/abs/1805.09501.

    Attributes:
        sequences: the steps of each sequence, in order.
        probability: probability of changing an image at all.

    """

    sequences: tuple[tuple[Step, ...], ...]
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_tuple("sequences", self.sequences, tuple)
        for steps in self.sequences:
            check_tuple("sequences", steps, Step)
            if len(steps) > MAX_STEPS:
                raise CallError(
                    f"sequences must contain at most {MAX_STEPS} steps each, got {len(steps)}"
                )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)


@dataclass(frozen=True, slots=True)
class RandomSteps(Operation):
    """Run randomly chosen steps of a pool one after the other: RandAugment (https://arxiv.org/abs/1909.13719).

    Attributes:
        pool: the steps to choose from.
        count: number of steps to draw.
        weights: relative probability of each step, drawn without replacement. ``None`` draws
            uniformly, with replacement.
        probability: probability of changing an image at all.

    """

    pool: tuple[Step, ...]
    count: int = 2
    weights: tuple[float, ...] | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_int("count", self.count, 0, MAX_STEPS)
        check_tuple("pool", self.pool, Step)
        if self.weights is not None:
            check_numbers("weights", self.weights, len(self.pool))
            for weight in self.weights:
                check_number("weights", weight, 0)
            self._check_orders(sum(weight > 0 for weight in self.weights))

    def _check_orders(self, drawable: int) -> None:
        if self.count > drawable:
            raise CallError(
                f"count must be at most {drawable}, the number of steps with a weight above 0, got"
                f" {self.count}"
            )
        orders = perm(drawable, self.count)
        if orders > MAX_ORDERS:
            raise CallError(
                f"count={self.count} allows {orders} orders of the weighted steps, but at most"
                f" {MAX_ORDERS} are supported",
                hint="set a smaller count, or remove the weights",
            )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)


@dataclass(frozen=True, slots=True)
class MixedChains(Operation):
    """Run chains of steps on copies of an image and mix the results with the image: AugMix.

    From https://arxiv.org/abs/1912.02781. The weights of the chains have a Dirichlet distribution,
    the share of their mixture in the output has a beta distribution.

    Attributes:
        pool: the steps to choose from, uniformly and with replacement.
        width: number of chains.
        depth: number of steps per chain; 0 draws 1, 2 or 3.
        alpha: parameter of both distributions, at least 0.01.
        probability: probability of changing an image at all.

    """

    pool: tuple[Step, ...]
    width: int = 3
    depth: int = 1
    alpha: float = 1.0
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_int("width", self.width, 1, MAX_CHAINS)
        check_int("depth", self.depth, 0, MAX_CHAIN_STEPS)
        check_number("alpha", self.alpha, 0.01)
        check_tuple("pool", self.pool, Step)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the same spec; images must be uint8."""
        return require_uint8(self, spec)
