"""Augmentation policies in the graph: AutoAugment, RandAugment, AugMix and similar ones.

NumPy draws the steps of each image and their strength; `policy_steps` defines what each step does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.combinators import find_turns, follow, where
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.dali.policy_steps import (
    NOT_ROUNDED,
    ROUND_DOWN,
    SETTINGS,
    WITHOUT_SETTINGS,
    Numbers,
    branch,
    family,
    prepare,
    settings,
    share_of_side,
)
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.policies import MixedChains, Policy, RandomSteps, Step, SubPolicies

_IDENTITY = Step("identity")

#: The columns of the step table before the settings.
_COLUMNS = (
    "probability", "branch", "low", "spread", "bins", "std", "minimum", "maximum", "slope",
    "rounding", "of_side", "vertical", "signed", "sign",
)  # fmt: skip

#: Stands for rounding to the nearest integer.
_NEAREST = 0.5

#: Added before rounding down, because a float32 may be slightly below the integer that it
#: represents.
_EPSILON = 1e-4


@dataclass(frozen=True, slots=True)
class DrawnSteps:
    """The steps drawn for a batch of N images, S steps for each.

    Attributes:
        branch: each step's index in `StepTable.families`: int32 [S, N].
        settings: each step's settings, as in `policy_steps.settings`: float64 [S, N, 9].
        center: the center of a cutout, down and right, as fractions of the image: float64 [S, N,
            2].
        rows: the row of each step in the table: [S, N].
        positions: its position in the row; broadcast against `rows`.
        applied: whether it is applied: [S, N].
        change: what is added to its argument at level 0: float64 [S, N].
        share: the same as a share of a side, for shifts whose pixels only the graph knows; `None`
            if it knows none.

    """

    branch: NDArray[np.int32]
    settings: Numbers
    center: Numbers
    rows: NDArray[Any]
    positions: NDArray[Any]
    applied: NDArray[np.bool_]
    change: Numbers
    share: Numbers | None


class StepTable:
    """Rows of steps as an array of numbers. One row is drawn for each image.

    Attributes:
        families: the families of the steps. Each is a branch of the graph. `"identity"` is the
            first if some images may stay unchanged. The others follow from most to least frequent,
            so that most images take a short path in the tree of branches.
        shares: the expected share of each family, relative to all steps.
        turns: the way to each family in the tree of branches, see `combinators.find_turns`.
        rows: number of rows.
        probabilities: the probability of each row; `None` if all are equally likely.

    """

    def __init__(
        self,
        rows: Iterable[Sequence[Step]],
        row_probabilities: Sequence[float] | None = None,
        *,
        probability: float = 1,
    ) -> None:
        """Build the table.

        Args:
            rows: sequences of steps that are applied one after another. Shorter rows are filled
                with `"identity"`.
            row_probabilities: probability of each row; `None` if all are equally likely.
            probability: probability that an image gets any step at all.

        """
        rows = list(rows)
        longest = max(map(len, rows))
        rows = [(*row, *[_IDENTITY] * (longest - len(row))) for row in rows]
        shares: dict[tuple[Any, ...], float] = {}
        if probability < 1:
            shares[family(_IDENTITY)] = 1 - probability
        for row, row_probability in zip(
            rows, row_probabilities or [1 / len(rows)] * len(rows), strict=True
        ):
            for step in row:
                share = probability * row_probability / longest
                shares[family(step)] = shares.get(family(step), 0) + share * step.probability
                if step.probability < 1:
                    shares[family(_IDENTITY)] = shares.get(family(_IDENTITY), 0) + share * (
                        1 - step.probability
                    )
        self.families = tuple(
            sorted(shares, key=lambda key: (key[0] != "identity", -shares[key], key))
        )
        self.shares = [shares[key] for key in self.families]
        self.turns = find_turns(self.shares)
        self._numbers = np.array([[self._row(step) for step in row] for row in rows])
        self._steps = rows
        self.rows = len(rows)
        self.probabilities = None if row_probabilities is None else np.array(row_probabilities)

    def _row(self, step: Step) -> list[float]:
        level, amount = step.level, step.amount
        base, change = settings(step)
        if amount.of_side and not step.name.startswith("translate"):
            raise TypeError(
                f"Amount(of_side=True) is for translate_x and translate_y, not for {step.name}"
            )
        rounding = {"none": NOT_ROUNDED, "down": _EPSILON, "nearest": _NEAREST}[amount.rounding]
        return [
            step.probability, self.families.index(family(step)),
            level.low, level.high - level.low, level.bins, level.std, *level.bounds, abs(amount.slope),
            rounding, amount.of_side, step.name.endswith("_y"), amount.signed, -1 if amount.slope < 0 else 1,
            *(base + change * amount.offset), *change,
        ]  # fmt: skip

    def draw(
        self,
        rng: np.random.Generator,
        rows: NDArray[Any],
        positions: NDArray[Any],
        size: Size | None,
        applied: NDArray[np.bool_] | None = None,
    ) -> DrawnSteps:
        """Draw the strength of steps, and whether each is applied.

        Args:
            rng: the generator.
            rows: the row of each step of each image: [S, N].
            positions: the position of each step in its row; broadcast against `rows`.
            size: height and width of the images. If `None`, the graph computes shifts that are
                fractions of a side.
            applied: whether each step is applied at all: [S, N] or [N]; `None` if all are.

        """
        numbers = self._numbers[rows, positions]
        row = dict(zip(_COLUMNS, np.moveaxis(numbers, -1, 0), strict=False))
        base, change = numbers[..., -2 * SETTINGS : -SETTINGS], numbers[..., -SETTINGS:]
        is_applied = rng.random(rows.shape) < row["probability"]
        if applied is not None:
            is_applied &= applied
        sign = np.where(row["signed"] > 0, rng.choice((-1.0, 1.0), rows.shape), row["sign"])
        amount = row["slope"] * _draw_level(row, rng)
        share = None
        if size is None:
            share = sign * amount
            in_graph = row["of_side"] > 0
            base = (
                base
                + share_of_side(row["vertical"], amount, sign, row["rounding"])
                * in_graph[..., None]
            )
            amount = np.where(in_graph, 0, amount)
        else:
            amount = amount * np.where(row["of_side"] > 0, np.where(row["vertical"] > 0, *size), 1)
        # torchvision and NumPy round halves to even. The products are not exact.
        rounded = np.where(
            row["rounding"] == _NEAREST,
            np.rint(np.round(amount, 9)),
            np.floor(amount + row["rounding"]),
        )
        amount = np.where(row["rounding"] == NOT_ROUNDED, amount, rounded)
        signed = sign * amount
        return DrawnSteps(
            branch=(row["branch"] * is_applied).astype(np.int32),
            settings=base + change * signed[..., None],
            center=rng.random((*rows.shape, 2)),
            rows=rows,
            positions=positions,
            applied=is_applied,
            change=signed,
            share=share,
        )

    def describe(self, drawn: DrawnSteps) -> list[str]:
        """Return for each image the steps that are applied, with their arguments."""
        positions = np.broadcast_to(drawn.positions, drawn.rows.shape)
        shares = np.full(drawn.change.shape, np.nan) if drawn.share is None else drawn.share
        arrays = (drawn.rows, positions, drawn.applied, drawn.change, shares)
        texts = (
            [
                _describe_step(self._steps[row][position], change, share)
                for row, position, applied, change, share in zip(*image, strict=True)
                if applied
            ]
            for image in zip(*(array.T for array in arrays), strict=True)
        )
        return [", ".join(filter(None, each)) for each in texts]

    @property
    def has_settings(self) -> bool:
        """Whether any branch takes settings."""
        return any(key[0] not in WITHOUT_SETTINGS for key in self.families)

    def graph_inputs(self, drawn: DrawnSteps, size: Size | None) -> list[NDArray[Any]]:
        """Return the inputs of the graph for each step in order.

        These are the ways to the branches, bool [N] for each level of `turns`, and the settings,
        float32 [N, 3, 3], which are left out if no branch takes them, because DALI warns about
        unused outputs.
        """
        prepared = np.zeros((*drawn.branch.shape, 3, 3), np.float32)
        for number, key in enumerate(self.families):
            in_family = drawn.branch == number
            prepared[in_family] = prepare(
                key, drawn.settings[in_family], drawn.center[in_family], size
            )
        inputs: list[NDArray[Any]] = []
        for branches, numbers in zip(drawn.branch, prepared, strict=True):
            inputs += [*self.turns[:, branches], *[numbers] * self.has_settings]
        return inputs


def _describe_step(step: Step, change: float, share: float) -> str:
    name, amount = step.name.replace("_", " "), step.amount
    if step.name == "identity":
        return ""
    if not amount.slope and not amount.offset:
        return name
    if amount.of_side and not np.isnan(share):
        return f"{name} {share:.0%}"
    return f"{name} {amount.offset + change:.3g}"


def _draw_level(row: dict[str, Numbers], rng: np.random.Generator) -> Numbers:
    unit = rng.random(row["low"].shape)
    binned = np.floor(unit * row["bins"]) / np.maximum(row["bins"] - 1, 1)
    level = row["low"] + row["spread"] * np.where(row["bins"] > 0, binned, unit)
    noisy = np.clip(
        level + row["std"] * rng.standard_normal(level.shape), row["minimum"], row["maximum"]
    )
    return np.where(row["std"] > 0, noisy, level)


def make_step_table(operation: Policy) -> StepTable:
    """Return the table that a policy draws from."""
    rows, probabilities = operation.rows
    return StepTable(rows, probabilities, probability=operation.changed)


def draw_steps(
    operation: Policy,
    table: StepTable,
    size: Size | None,
    rng: np.random.Generator,
    count: int,
) -> DrawnSteps:
    """Draw the steps for `count` images, in the order in which they are applied."""
    positions = np.arange(operation.length)[:, None]
    if operation.redraws:
        row = rng.integers(table.rows, size=(operation.length, count))
        positions = np.array(0)
    elif table.probabilities is None:
        row = rng.integers(table.rows, size=count)
    else:
        row = rng.choice(table.rows, count, p=table.probabilities / table.probabilities.sum())
    row = np.broadcast_to(row, (operation.length, count))
    return table.draw(rng, row, positions, size, rng.random(count) < operation.probability)


def draw_chains(
    operation: MixedChains,
    table: StepTable,
    size: Size | None,
    rng: np.random.Generator,
    applied: NDArray[np.bool_],
) -> DrawnSteps:
    """Draw the steps of all chains, chain by chain.

    `applied` is `False` for images that get no step.
    """
    count, depth = len(applied), operation.depth or 3
    # The last step of each chain; with a depth of 0 the depth is drawn.
    last = np.full((1, 1), depth - 1)
    if operation.depth == 0:
        last = rng.integers(3, size=(operation.width, count))
    chains = (operation.width, depth, count)
    reached = np.broadcast_to(last[:, None] >= np.arange(depth)[:, None], chains).reshape(-1, count)
    rows = rng.integers(len(operation.pool), size=reached.shape)
    return table.draw(rng, rows, np.array(0), size, reached & applied)


def draw_shares(operation: MixedChains, rng: np.random.Generator, count: int) -> Numbers:
    """Draw the weights of the image itself and of each chain in the result: [1 + width, count].

    They sum to 1.
    """
    alpha = operation.alpha
    mixture = rng.beta(alpha, alpha, count)
    chains = rng.dirichlet([alpha] * operation.width, count).T
    return np.concatenate([1 - mixture[None], chains * mixture])


@apply.register(SubPolicies)
@apply.register(RandomSteps)
def _(operation: Policy, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    if not operation.length:
        return image
    table, size = make_step_table(operation), spec.size

    def draw(rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        return table.graph_inputs(draw_steps(operation, table, size, rng, count), size)

    inputs = _draw(operation, draw, context)
    context.random.show_drawn(
        lambda rng, count: table.describe(draw_steps(operation, table, size, rng, count))
    )
    for _ in range(operation.length):
        image = _apply_step(table, image, inputs, size, context)
    return image


@apply.register
def _(operation: MixedChains, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    table = make_step_table(operation)
    is_optional = operation.probability < 1

    def draw(rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        applied = rng.random(count) < operation.probability
        drawn = draw_chains(operation, table, spec.size, rng, applied)
        shares = draw_shares(operation, rng, count).astype(np.float32)
        return [*shares, *table.graph_inputs(drawn, spec.size), *[applied] * is_optional]

    inputs = _draw(operation, draw, context)

    def describe(rng: np.random.Generator, count: int) -> list[str]:
        applied = rng.random(count) < operation.probability
        return table.describe(draw_chains(operation, table, spec.size, rng, applied))

    context.random.show_drawn(describe)
    shares = [context.to_device(next(inputs)) for _ in range(operation.width + 1)]
    copies = [image] * operation.width
    for number, _ in product(range(operation.width), range(operation.depth or 3)):
        copies[number] = _apply_step(table, copies[number], inputs, spec.size, context)
    nodes = [image, *copies, *shares]
    return where(next(inputs), nodes, _weighted_sum) if is_optional else _weighted_sum(*nodes)


def _weighted_sum(*nodes: Node) -> Node:
    """Return the sum of images, each times its share; the nodes are all images, then all shares."""
    middle = len(nodes) // 2
    result, *others = (
        image * share for image, share in zip(nodes[:middle], nodes[middle:], strict=True)
    )
    for other in others:
        result = result + other
    return fn.cast(result + ROUND_DOWN, dtype=types.UINT8)


def _apply_step(
    table: StepTable, image: Node, inputs: Iterator[Node], size: Size | None, context: GraphContext
) -> Node:
    """Apply the next step of each image; `inputs` are the nodes of `StepTable.graph_inputs`."""
    ways = [next(inputs) for _ in table.turns]
    settings = [next(inputs)] if table.has_settings else []
    branches = [branch(key, size, context) for key in table.families]
    return follow(ways, [image, *settings], branches, table.shares)


def _draw(
    operation: Policy,
    draw: Callable[..., list[NDArray[Any]]],
    context: GraphContext,
) -> Iterator[Node]:
    ndims = [array.ndim - 1 for array in draw(np.random.default_rng(0), 1)]
    if not ndims:
        return iter(())
    return iter(context.random.from_numpy(operation, "steps", context.batch_size, draw, ndims))
