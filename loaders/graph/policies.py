"""Augmentation policies: which steps are drawn for each image, and how strong. It must never know what a step does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from loaders.graph.augmentations import SETTINGS, branch, family, settings
from loaders.graph.base import Node, Run, apply, fn, math, select, types, where
from loaders.transforms.base import Form, Operation
from loaders.transforms.policies import MixedChains, RandomSteps, Step, SubPolicies

_IDLE = Step("identity")

#: What the table of steps says of each, before the settings.
_COLUMNS = (
    "probability", "branch", "low", "spread", "binned", "bins", "gaps", "std", "least", "most", "slope",
    "rounded", "half", "of_width", "of_height", "least_sign", "most_sign",
)  # fmt: skip

#: Added before a rounding to the nearest that shall be one down.
_DOWN = -0.498

#: float32 may come out a little below the whole number that is meant.
_LITTLE = 1e-4


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn for one step of each image, on the processor.

    Attributes:
        branch: which of `Steps.families` the step is of; a scalar, int32.
        settings: of the step, float32.

    """

    branch: Node
    settings: Node


class Steps:
    """Rows of steps, one of which is drawn for each image; as numbers in a table, so that the graph stays small.

    Attributes:
        families: kinds of steps, each a branch of the graph; images left as they are come first, if any may be.

    """

    def __init__(self, rows: Iterable[Sequence[Step]], *, idle: bool = False) -> None:
        """Take rows of steps; `idle` says that images may be left as they are, whatever the steps' probabilities."""
        rows = list(rows)
        longest = max(map(len, rows))
        rows = [(*row, *[_IDLE] * (longest - len(row))) for row in rows]
        steps = [step for row in rows for step in row]
        first = [_IDLE] if idle or any(step.probability < 1 for step in steps) else []
        found = {family(step) for step in first + steps}
        self.families = tuple(sorted(found, key=lambda key: (key[0] != "identity", key)))
        self._numbers = np.array([[self._row(step) for step in row] for row in rows], np.float32)
        self._table: Node = None

    def _row(self, step: Step) -> list[float]:
        level, amount = step.level, step.amount
        upright = step.name.endswith("_y")
        sign = -1 if amount.slope < 0 else 1
        base, change = settings(step)
        return [
            step.probability, self.families.index(family(step)),
            level.low, level.high - level.low, level.bins > 0, level.bins, max(level.bins - 1, 1), level.std,
            *level.bounds, abs(amount.slope),
            amount.rounding != "none", 0.5 if amount.rounding == "nearest" else _LITTLE,
            amount.of_side and not upright, amount.of_side and upright,
            *((-1, 1) if amount.signed else (sign, sign)), *(base + change * amount.offset), *change,
        ]  # fmt: skip

    def draw(
        self, image: Node, index: Node, owner: Operation, name: str, run: Run, *, place: int = 0, going: Node = None
    ) -> Drawn:
        """Draw a step for each image.

        Args:
            image: whose size an argument may depend on.
            index: of the image's row, int32.
            owner: whose draws they are.
            name: the beginning of the draws' names.
            run: the run.
            place: of the step in the row.
            going: a bool for each image, false where nothing is done; none where that is never so.

        """
        if self._table is None:
            self._table = types.Constant(self._numbers, device="cpu")
        row = _Row(self._table[index, place], self._numbers[:, place])
        chosen = row.node("branch")
        if row.some("probability", but=1):
            chosen = chosen * (run.draws.uniform(owner, f"{name} probability", 0, 1) < row["probability"])
        if going is not None:
            chosen = chosen * going
        base, change = row.settings
        given = base + change * _difference(row, image, owner, name, run)
        if any(key[0] == "cutout" for key in self.families):
            at = fn.random.uniform(range=[0.0, 1.0], shape=[2], seed=run.draws.seed(owner, f"{name} centre"))
            given = fn.cat(given, at)
        return Drawn(fn.cast(chosen, dtype=types.INT32), given)

    def do(self, image: Node, drawn: Drawn, run: Run) -> Node:
        """Do the step that is drawn for each image."""
        return select(drawn.branch, (image, drawn.settings), [branch(key, run) for key in self.families])


class _Row:
    """A row of the table for each image; a column that is the same in all rows is a number, and no node."""

    def __init__(self, node: Node, rows: NDArray[np.float32]) -> None:
        self._node = node
        self._columns = dict(zip(_COLUMNS, rows.T, strict=False))

    def some(self, column: str, *, but: float = 0) -> bool:
        """Whether any row has another value there than this."""
        return bool((self._columns[column] != but).any())

    def node(self, column: str) -> Node:
        """Return a column as a node in any case."""
        return self._node[_COLUMNS.index(column)]

    @property
    def settings(self) -> tuple[Node, Node]:
        """Settings at level 0, and by how much they change with the argument."""
        first, middle = len(_COLUMNS), len(_COLUMNS) + SETTINGS
        return self._node[first:middle], self._node[middle : middle + SETTINGS]

    def __getitem__(self, column: str) -> Node:
        values = self._columns[column]
        return float(values[0]) if (values == values[0]).all() else self.node(column)


def _difference(row: _Row, image: Node, owner: Operation, name: str, run: Run) -> Node:
    """Draw by how much the argument differs from that at level 0."""
    change = row.node("slope") * _level(row, owner, name, run)
    if row.some("of_width") or row.some("of_height"):
        shape = image.shape(dtype=types.FLOAT)
        change = change * (1 + row["of_width"] * (shape[1] - 1) + row["of_height"] * (shape[0] - 1))
    if row.some("rounded"):
        change = change + row["rounded"] * (math.floor(change + row["half"]) - change)
    if row.some("least_sign", but=1):
        sign = fn.random.uniform(values=[-1.0, 1.0], seed=run.draws.seed(owner, f"{name} sign"))
        change = change * math.clamp(sign, row["least_sign"], row["most_sign"])
    return change


def _level(row: _Row, owner: Operation, name: str, run: Run) -> Node:
    level = row["low"]
    if row.some("spread"):
        unit = run.draws.uniform(owner, f"{name} level", 0, 1)
        if row.some("binned"):
            unit = unit + row["binned"] * (math.floor(unit * row["bins"]) / row["gaps"] - unit)
        level = level + row["spread"] * unit
    if row.some("std"):
        noise = run.draws.normal(owner, f"{name} noise", 0, 1)
        level = math.clamp(level + row["std"] * noise, row["least"], row["most"])
    return level


def draw_steps(operation: SubPolicies | RandomSteps, image: Node, run: Run) -> tuple[Steps, list[Drawn]]:
    """Draw the steps that a policy does to each image, in order."""
    going = run.draws.coin(operation, "going", operation.probability) if operation.probability < 1 else None
    idle = going is not None
    if isinstance(operation, SubPolicies):
        steps = Steps(operation.sequences, idle=idle)
        row = run.draws.whole(operation, "sequence", len(operation.sequences))
        places = [(row, place) for place in range(max(map(len, operation.sequences)))]
    elif operation.weights is None:
        steps = Steps(([step] for step in operation.pool), idle=idle)
        places = [
            (run.draws.whole(operation, f"choice {number}", len(operation.pool)), 0)
            for number in range(operation.count)
        ]
    else:
        orders, chances = weighted_orders(operation.weights, operation.count)
        steps = Steps(([operation.pool[number] for number in order] for order in orders), idle=idle)
        drawn = fn.random.choice(len(orders), p=chances, seed=run.draws.seed(operation, "order"))
        row = fn.cast(drawn, dtype=types.INT32)
        places = [(row, place) for place in range(operation.count)]
    return steps, [
        steps.draw(image, row, operation, f"step {number}", run, place=place, going=going)
        for number, (row, place) in enumerate(places)
    ]


def weighted_orders(weights: Sequence[float], count: int) -> tuple[list[tuple[int, ...]], list[float]]:
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
def _(operation: SubPolicies, image: Node, form: Form, run: Run) -> Node:
    return _one_after_another(operation, image, run)


@apply.register
def _(operation: RandomSteps, image: Node, form: Form, run: Run) -> Node:
    return _one_after_another(operation, image, run) if operation.count else image


def _one_after_another(operation: SubPolicies | RandomSteps, image: Node, run: Run) -> Node:
    steps, sequence = draw_steps(operation, image, run)
    for drawn in sequence:
        image = steps.do(image, drawn, run)
    return image


@apply.register
def _(operation: MixedChains, image: Node, form: Form, run: Run) -> Node:
    steps, chains = draw_chains(operation, image, run)
    shares = draw_shares(operation, run)

    def mixed(image: Node, *nodes: Node) -> Node:
        rest = iter(nodes)
        result = image * run.place(next(rest))
        for chain in chains:
            copy, share = image, run.place(next(rest))
            for _ in chain:
                copy = steps.do(copy, Drawn(next(rest), next(rest)), run)
            result = result + copy * share
        return fn.cast(result + _DOWN, dtype=types.UINT8)

    nodes = [shares[0]]
    for chain, share in zip(chains, shares[1:], strict=True):
        nodes += [share, *(node for drawn in chain for node in (drawn.branch, drawn.settings))]
    if operation.probability == 1:
        return mixed(image, *nodes)
    return where(run.draws.coin(operation, "going", operation.probability), (image, *nodes), mixed)


def draw_chains(operation: MixedChains, image: Node, run: Run) -> tuple[Steps, list[list[Drawn]]]:
    """Draw the steps of each chain."""
    draws, pool = run.draws, operation.pool
    steps = Steps(([step] for step in pool), idle=not operation.depth)
    chains = []
    for number in range(operation.width):
        last = None if operation.depth else draws.whole(operation, f"depth {number}", 3)
        chain = []
        for place in range(operation.depth or 3):
            name = f"chain {number} step {place}"
            row = draws.whole(operation, f"{name} choice", len(pool))
            going = None if last is None else last >= place
            chain.append(steps.draw(image, row, operation, name, run, going=going))
        chains.append(chain)
    return steps, chains


def draw_shares(operation: MixedChains, run: Run) -> list[Node]:
    """Draw how much of the result is the image and how much each chain; the sum is 1."""
    draws, alpha = run.draws, operation.alpha
    mixture = draws.beta(operation, "mixture", alpha, alpha)
    shares, left = [1 - mixture], mixture
    for number in range(operation.width - 1):
        # One weight of a Dirichlet distribution is beta distributed, and so is each next one's part of what is left.
        part = draws.beta(operation, f"share {number}", alpha, alpha * (operation.width - 1 - number))
        shares.append(left * part)
        left = left * (1 - part)
    return [*shares, left]
