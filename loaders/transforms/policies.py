"""Records of augmentation policies: steps of random strength, and how they are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import permutations
from math import perm
from typing import Annotated, Literal, TypeAlias

from loaders.transforms.base import (
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_STEPS,
    ByteColor,
    Checked,
    Operation,
    Probability,
    Targets,
    check_choice,
    check_number,
    check_tuple,
    check_type,
    integers,
    numbers,
    numbers_each,
)
from manifests.errors import CallError

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
class Level(Checked):
    """The strength of a step, drawn per image: uniform between two bounds, plus optional normal noise.

    Attributes:
        low: minimum level before noise.
        high: maximum level before noise; equal to `low` for a fixed level.
        bins: number of evenly spaced levels from `low` to `high`; 0 draws any value between them.
        std: standard deviation of the noise. If it is above 0, the noisy level is clipped to 0-10.

    """

    low: float = 0
    high: float = 0
    bins: Annotated[int, integers(0)] = 0
    std: Annotated[float, numbers(0)] = 0

    def _check(self) -> None:
        check_number("high", self.high, self.low)
        if self.bins == 1:
            raise CallError("bins must be 0 or at least 2, got 1")

    @property
    def bounds(self) -> tuple[float, float]:
        """Minimum and maximum level after noise and clipping."""
        return (0, 10) if self.std else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Amount(Checked):
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


@dataclass(frozen=True, slots=True)
class Step(Checked):
    """One step of a policy. The results match Pillow's.

    Attributes:
        name: one of `STEPS`.
        amount: maps the level to the argument.
        level: strength of the step.
        probability: probability of running the step.
        filter: interpolation of steps that move pixels.
        fill: color of pixels from outside the image, or of a cutout.

    """

    name: Annotated[str, partial(check_choice, choices=STEPS)]
    amount: Amount = Amount()
    level: Level = Level()
    probability: Probability = 1.0
    filter: Literal["nearest", "linear"] = "nearest"
    fill: ByteColor = (128, 128, 128)

    def _check(self) -> None:
        check_type("amount", self.amount, Amount)
        check_type("level", self.level, Level)


#: Steps that move pixels.
MOVING_STEPS = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")

#: Rows of steps that are applied one after another, and the probability of each row; ``None`` if
#: all are equally likely.
Rows: TypeAlias = "tuple[Sequence[Sequence[Step]], Sequence[float] | None]"


class Policy(Operation):
    """An operation that draws steps: a row of steps for each image, or for each place of an image."""

    __slots__ = ()

    takes = "uint8"
    moves = "nothing"

    #: Probability of changing an image at all.
    probability: float

    @property
    def operators(self) -> int:
        """Branches for the families of steps, once for each step of an image."""
        return 60 * self.length

    @property
    def rows(self) -> Rows:
        """What is drawn from."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """Steps that are applied one after another."""
        return max(map(len, self.rows[0]))

    @property
    def redraws(self) -> bool:
        """Whether a row of one step is drawn for each of the steps of an image."""
        return False

    @property
    def changed(self) -> float:
        """Share of the drawn steps that are applied, if each step is certain."""
        return self.probability

    def loses(self, targets: Targets) -> str | None:
        """Return why masks or boxes cannot follow it."""
        for step in (step for row in self.rows[0] for step in row):
            if step.name in MOVING_STEPS:
                return f"its step {step.name!r} moves pixels of the image alone"
        return None


@dataclass(frozen=True, slots=True)
class SubPolicies(Policy):
    """Run one of several sequences of steps, chosen with equal probability: AutoAugment.

    From https://arxiv.org/abs/1805.09501.

    Attributes:
        sequences: the steps of each sequence, in order.
        probability: probability of changing an image at all.

    """

    sequences: tuple[tuple[Step, ...], ...]
    probability: Probability = 1.0

    def _check(self) -> None:
        check_tuple("sequences", self.sequences, tuple)
        for steps in self.sequences:
            check_tuple("sequences", steps, Step)
            if len(steps) > MAX_STEPS:
                raise CallError(
                    f"sequences must contain at most {MAX_STEPS} steps each, got {len(steps)}"
                )

    @property
    def rows(self) -> Rows:
        """The sequences."""
        return self.sequences, None


@dataclass(frozen=True, slots=True)
class RandomSteps(Policy):
    """Run randomly chosen steps of a pool one after the other: RandAugment (https://arxiv.org/abs/1909.13719).

    Attributes:
        pool: the steps to choose from.
        count: number of steps to draw.
        weights: relative probability of each step, drawn without replacement. ``None`` draws
            uniformly, with replacement.
        probability: probability of changing an image at all.

    """

    pool: tuple[Step, ...]
    count: Annotated[int, integers(0, MAX_STEPS)] = 2
    weights: tuple[float, ...] | None = None
    probability: Probability = 1.0

    def _check(self) -> None:
        check_tuple("pool", self.pool, Step)
        if self.weights is not None:
            numbers_each(len(self.pool), 0)("weights", self.weights)
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

    @property
    def length(self) -> int:
        """The number of steps."""
        return self.count

    @property
    def redraws(self) -> bool:
        """Whether steps are drawn with replacement."""
        return self.weights is None

    @property
    def rows(self) -> Rows:
        """Each step alone, or with weights every order in which steps can be drawn."""
        if self.weights is None:
            return [[step] for step in self.pool], None
        orders, probabilities = weighted_orders(self.weights, self.count)
        return [[self.pool[number] for number in order] for order in orders], probabilities


@dataclass(frozen=True, slots=True)
class MixedChains(Policy):
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
    width: Annotated[int, integers(1, MAX_CHAINS)] = 3
    depth: Annotated[int, integers(0, MAX_CHAIN_STEPS)] = 1
    alpha: Annotated[float, numbers(0.01)] = 1.0
    probability: Probability = 1.0

    def _check(self) -> None:
        check_tuple("pool", self.pool, Step)

    @property
    def rows(self) -> Rows:
        """Each step alone."""
        return [[step] for step in self.pool], None

    @property
    def changed(self) -> float:
        """With chains of 1, 2 or 3 steps, which are equally likely, a third of the steps are not applied."""
        return self.probability if self.depth else self.probability * (2 / 3)


@cache
def weighted_orders(
    weights: tuple[float, ...], count: int
) -> tuple[list[tuple[int, ...]], list[float]]:
    """Return every order in which `count` items can be drawn without replacement, and the probability of each."""
    total = sum(weights)
    drawable = [number for number, weight in enumerate(weights) if weight > 0]
    orders = list(permutations(drawable, count))
    probabilities = []
    for order in orders:
        probability = 1.0
        remaining = total
        for number in order:
            probability *= weights[number] / remaining
            remaining -= weights[number]
        probabilities.append(probability)
    return orders, probabilities
