"""Augmentation policies: which steps are drawn for each image, and how strong. It must never know what a step does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.conditional import where
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.dali.policy_steps import (
    NOT_ROUNDED,
    PLAIN,
    SETTINGS,
    Branch,
    Numbers,
    branch,
    family,
    prepare,
    settings,
    share_of_side,
)
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.policies import MixedChains, RandomSteps, Step, SubPolicies

_IDLE = Step("identity")

#: What the table of steps says of each, before the settings.
_COLUMNS = (
    "probability", "branch", "low", "spread", "bins", "std", "least", "most", "slope",
    "half", "of_side", "upright", "signed", "sign",
)  # fmt: skip

#: Added before a rounding to the nearest that shall be one down.
_DOWN = -0.498

#: float32 may come out a little below the whole number that is meant.
_LITTLE = 1e-4


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn for all steps of all images; the first axis are the steps, the second the images.

    Attributes:
        branch: which of `Steps.families` each step is of.
        settings: of each step.
        centre: of a cutout, down and right, as shares of the image.

    """

    branch: NDArray[np.int32]
    settings: Numbers
    centre: Numbers


class Steps:
    """Rows of steps, one of which is drawn for each image, as numbers in a table.

    Attributes:
        families: kinds of steps, each a branch of the graph; images left as they are come first, if any may be.
        shares: how many images of a batch each family has about, in parts of all.

    """

    def __init__(
        self, rows: Iterable[Sequence[Step]], chances: Sequence[float] | None = None, *, going: float = 1
    ) -> None:
        """Take rows of steps, how likely each is (without, all are alike), and how likely anything is done."""
        rows = list(rows)
        longest = max(map(len, rows))
        rows = [(*row, *[_IDLE] * (longest - len(row))) for row in rows]
        found: dict[tuple[Any, ...], float] = {family(_IDLE): 1 - going} if going < 1 else {}
        for row, chance in zip(rows, chances or [1 / len(rows)] * len(rows), strict=True):
            for step in row:
                share = going * chance / longest
                found[family(step)] = found.get(family(step), 0) + share * step.probability
                if step.probability < 1:
                    found[family(_IDLE)] = found.get(family(_IDLE), 0) + share * (1 - step.probability)
        # The common ones first: so the tree of branches is shallow for most images.
        self.families = tuple(sorted(found, key=lambda key: (key[0] != "identity", -found[key], key)))
        self.shares = [found[key] for key in self.families]
        self._numbers = np.array([[self._row(step) for step in row] for row in rows])

    def _row(self, step: Step) -> list[float]:
        level, amount = step.level, step.amount
        base, change = settings(step)
        if amount.of_side and not step.name.startswith("translate"):
            raise TypeError(f"only a shift can be a share of a side, not the argument of {step.name}")
        half = {"none": NOT_ROUNDED, "down": _LITTLE, "nearest": 0.5}[amount.rounding]
        return [
            step.probability, self.families.index(family(step)),
            level.low, level.high - level.low, level.bins, level.std, *level.bounds, abs(amount.slope),
            half, amount.of_side, step.name.endswith("_y"), amount.signed, -1 if amount.slope < 0 else 1,
            *(base + change * amount.offset), *change,
        ]  # fmt: skip

    def draw(
        self,
        rng: np.random.Generator,
        rows: NDArray[Any],
        places: NDArray[Any],
        size: Size | None,
        going: NDArray[np.bool_] | None = None,
    ) -> Drawn:
        """Draw steps.

        Args:
            rng: of the draws.
            rows: the row of each step of each image.
            places: of the steps in the rows.
            size: of the images, if it is known; without it, shifts by shares of a side are left to the graph.
            going: whether each step is done at all.

        """
        found = self._numbers[rows, places]
        row = dict(zip(_COLUMNS, np.moveaxis(found, -1, 0), strict=False))
        given, change = found[..., -2 * SETTINGS : -SETTINGS], found[..., -SETTINGS:]
        done = rng.random(rows.shape) < row["probability"]
        if going is not None:
            done &= going
        sign = np.where(row["signed"] > 0, rng.choice((-1.0, 1.0), rows.shape), row["sign"])
        amount = row["slope"] * _draw_level(row, rng)
        if size is None:
            waits = row["of_side"] > 0
            given = given + share_of_side(row["upright"], amount, sign, row["half"]) * waits[..., None]
            amount = np.where(waits, 0, amount)
        else:
            amount = amount * np.where(row["of_side"] > 0, np.where(row["upright"] > 0, *size), 1)
        amount = np.where(row["half"] == NOT_ROUNDED, amount, np.floor(amount + row["half"]))
        return Drawn(
            branch=(row["branch"] * done).astype(np.int32),
            settings=given + change * (sign * amount)[..., None],
            centre=rng.random((*rows.shape, 2)),
        )

    @property
    def chooses(self) -> bool:
        """Whether there is more than one branch."""
        return len(self.families) > 1

    @property
    def tells(self) -> bool:
        """Whether any branch needs settings."""
        return any(key[0] not in PLAIN for key in self.families)

    def arrays(self, drawn: Drawn, size: Size | None) -> list[NDArray[Any]]:
        """Return what `do` takes, for each step in order: DALI warns of what is made and not used."""
        ready = np.zeros((*drawn.branch.shape, 3, 3))
        for number, key in enumerate(self.families):
            mine = drawn.branch == number
            ready[mine] = prepare(key, drawn.settings[mine], drawn.centre[mine], size)
        kinds = [drawn.branch] * self.chooses + [ready.astype(np.float32)] * self.tells
        return [array for step in zip(*kinds, strict=True) for array in step]

    def do(self, image: Node, drawn: Iterator[Node], size: Size | None, context: GraphContext) -> Node:
        """Do the next step that is drawn for each image; `drawn` are the nodes of `arrays`."""
        index = next(drawn) if self.chooses else None
        given = [next(drawn)] if self.tells else []
        branches = [branch(key, size, context) for key in self.families]
        return _choose((index, image, *given), list(zip(branches, self.shares, strict=True)))


def _draw_level(row: dict[str, Numbers], rng: np.random.Generator) -> Numbers:
    unit = rng.random(row["low"].shape)
    binned = np.floor(unit * row["bins"]) / np.maximum(row["bins"] - 1, 1)
    level = row["low"] + row["spread"] * np.where(row["bins"] > 0, binned, unit)
    noisy = np.clip(level + row["std"] * rng.standard_normal(level.shape), row["least"], row["most"])
    return np.where(row["std"] > 0, noisy, level)


def _choose(nodes: Sequence[Node], branches: Sequence[tuple[Branch, float]], first: int = 0) -> Node:
    """Do the branch of each image, like `select`, by a tree whose halves have about as many images each.

    What a node of the tree costs goes with the images that come there, so the common ones have a short way.

    Args:
        nodes: index, image, and what a branch gets besides.
        branches: each with its share of the images.
        first: the index of the first branch.

    """
    if len(branches) == 1:
        return branches[0][0](*nodes[1:])
    sums = np.cumsum([share for _, share in branches])
    middle = int(np.abs(sums[:-1] - sums[-1] / 2).argmin()) + 1
    low = nodes[0] < first + middle
    halves = [fn._conditional.split(node, predicate=low) for node in nodes]
    lower, upper = zip(*halves, strict=True)
    return fn._conditional.merge(
        _choose(lower, branches[:middle], first), _choose(upper, branches[middle:], first + middle), predicate=low
    )


def make_steps(operation: SubPolicies | RandomSteps | MixedChains) -> Steps:
    """Return the steps that a policy draws from."""
    going = operation.probability
    if isinstance(operation, SubPolicies):
        return Steps(operation.sequences, going=going)
    if isinstance(operation, RandomSteps) and operation.weights is not None:
        orders, chances = weighted_orders(operation.weights, operation.count)
        return Steps(([operation.pool[number] for number in order] for order in orders), chances, going=going)
    if isinstance(operation, MixedChains) and not operation.depth:
        going *= 2 / 3
    return Steps(([step] for step in operation.pool), going=going)


def draw_rows(
    operation: SubPolicies | RandomSteps, rng: np.random.Generator, count: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw the row of each step of `count` images, and return also the steps' places in the rows."""
    if isinstance(operation, SubPolicies):
        places = np.arange(max(map(len, operation.sequences)))[:, None]
        row = rng.integers(len(operation.sequences), size=count)
    elif operation.weights is None:
        return rng.integers(len(operation.pool), size=(operation.count, count)), np.array(0)
    else:
        orders, chances = weighted_orders(operation.weights, operation.count)
        places = np.arange(operation.count)[:, None]
        row = rng.choice(len(orders), count, p=np.array(chances) / sum(chances))
    return np.broadcast_to(row, (len(places), count)), places


def draw_steps(
    operation: SubPolicies | RandomSteps, steps: Steps, size: Size | None, rng: np.random.Generator, count: int
) -> Drawn:
    """Draw the steps that a policy does to each of `count` images, in order."""
    rows, places = draw_rows(operation, rng, count)
    return steps.draw(rng, rows, places, size, rng.random(count) < operation.probability)


@cache
def weighted_orders(weights: tuple[float, ...], count: int) -> tuple[list[tuple[int, ...]], list[float]]:
    """Return every order in which `count` can be drawn without replacement, and how likely each is."""
    total = sum(weights)
    orders = list(permutations([number for number, weight in enumerate(weights) if weight > 0], count))
    chances = []
    for order in orders:
        chance, left = 1.0, total
        for number in order:
            chance *= weights[number] / left
            left -= weights[number]
        chances.append(chance)
    return orders, chances


@apply.register
def _(operation: SubPolicies, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _one_after_another(operation, image, spec, context)


@apply.register
def _(operation: RandomSteps, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _one_after_another(operation, image, spec, context) if operation.count else image


def _one_after_another(
    operation: SubPolicies | RandomSteps, image: Node, spec: ImageSpec, context: GraphContext
) -> Node:
    steps = make_steps(operation)

    def draw(rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        return steps.arrays(draw_steps(operation, steps, spec.size, rng, count), spec.size)

    drawn = _draw(operation, draw, context)
    length = max(map(len, operation.sequences)) if isinstance(operation, SubPolicies) else operation.count
    for _ in range(length):
        image = steps.do(image, drawn, spec.size, context)
    return image


@apply.register
def _(operation: MixedChains, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    steps = make_steps(operation)
    unsure = operation.probability < 1

    def draw(rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        going = rng.random(count) < operation.probability
        drawn = draw_chains(operation, steps, spec.size, rng, going)
        shares = np.ascontiguousarray(draw_shares(operation, rng, count), np.float32)
        return [*shares, *steps.arrays(drawn, spec.size), *[going] * unsure]

    drawn = _draw(operation, draw, context)
    shares = [context.to_device(next(drawn)) for _ in range(operation.width + 1)]
    copies = [image] * operation.width
    for number, _ in product(range(operation.width), range(operation.depth or 3)):
        copies[number] = steps.do(copies[number], drawn, spec.size, context)
    nodes = [image, *copies, *shares]
    return where(next(drawn), nodes, _mixed) if unsure else _mixed(*nodes)


def _mixed(*nodes: Node) -> Node:
    """Mix as many images, by as many shares."""
    middle = len(nodes) // 2
    result, *others = (image * share for image, share in zip(nodes[:middle], nodes[middle:], strict=True))
    for other in others:
        result = result + other
    return fn.cast(result + _DOWN, dtype=types.UINT8)


def draw_chains(
    operation: MixedChains, steps: Steps, size: Size | None, rng: np.random.Generator, going: NDArray[np.bool_]
) -> Drawn:
    """Draw the steps of all chains, those of the first chain first; `going` says for each image whether any is done."""
    count, depth = len(going), operation.depth or 3
    last = rng.integers(3, size=(operation.width, count)) if operation.depth == 0 else np.full((1, 1), depth - 1)
    chains = (operation.width, depth, count)
    reached = np.broadcast_to(last[:, None] >= np.arange(depth)[:, None], chains).reshape(-1, count)
    rows = rng.integers(len(operation.pool), size=reached.shape)
    return steps.draw(rng, rows, np.array(0), size, reached & going)


def draw_shares(operation: MixedChains, rng: np.random.Generator, count: int) -> Numbers:
    """Draw how much of the result is the image and how much each chain; the sum is 1, the last axis the images."""
    alpha = operation.alpha
    mixture = rng.beta(alpha, alpha, count)
    chains = rng.dirichlet([alpha] * operation.width, count).T
    return np.concatenate([1 - mixture[None], chains * mixture])


def _draw(
    operation: SubPolicies | RandomSteps | MixedChains, draw: Callable[..., list[NDArray[Any]]], context: GraphContext
) -> Iterator[Node]:
    ranks = [array.ndim - 1 for array in draw(np.random.default_rng(0), 1)]
    return iter(context.random.from_numpy(operation, "steps", context.batch_size, draw, ranks) if ranks else ())
