"""Operations that contain others, and the branches of the graph that they and other operations use.

A combinator runs all contained operations on all images, and selects the results afterwards: inside
of a branch, operations could not draw random values.

In a branch, each sample is processed only by its own branch. This is the only module that uses
private operators of DALI: ``fn._conditional.split`` and
``fn._conditional.merge``. DALI's public API, ``if`` in a function decorated with
``pipeline_def(enable_conditionals=True)``, creates the same two operators. It gives the same
images, but AutoGraph rewrites the source of every function that the graph calls:

- the first batch of a process takes 1.2 s longer (`imagenet-train` on a CPU with DALI 2.4: 2.7 s
  instead of 1.5 s),
- ``zip(..., strict=True)`` raises a `TypeError`, and a node that ``next()`` returns cannot be a
  condition.

Because the operators are private, `pyproject.toml` requires DALI below version 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.graph import GraphContext, Node, apply, apply_all, compute, fn
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.combinators import RandomApply, RandomChoice, RandomOrder


def where(condition: Node, nodes: Sequence[Node], then: Callable[..., Node]) -> Node:
    """Return ``then(*nodes)`` for the samples whose condition is true, and ``nodes[0]`` for the others.

    Args:
        condition: a bool scalar per sample, on the CPU.
        nodes: everything that `then` uses and that differs between samples. The first one is the
            image.
        then: builds the branch. Its result must have the dtype and the number of dimensions of
            ``nodes[0]``.

    """
    halves = [fn._conditional.split(node, predicate=condition) for node in nodes]
    return fn._conditional.merge(
        then(*(chosen for chosen, _ in halves)), halves[0][1], predicate=condition
    )


def sometimes(
    operation: Any,
    name: str,
    nodes: Sequence[Node],
    then: Callable[..., Node],
    context: GraphContext,
    *,
    first: int,
) -> Node:
    """Return ``then(*nodes)`` for the share `operation.probability` of the samples, and ``nodes[0]`` for the others.

    A preview keeps the descriptions from number `first` on only for the samples that change.
    """
    if operation.probability == 1:
        return then(*nodes)
    coin = context.random.coin(operation, name, operation.probability)
    context.random.show_only(first, coin)
    return where(coin, nodes, then)


def select(
    index: Node,
    nodes: Sequence[Node],
    branches: Sequence[Callable[..., Node]],
    shares: Sequence[float] | None = None,
) -> Node:
    """Return ``branches[index](*nodes)``.

    Args:
        index: an int32 scalar per sample, on the CPU.
        nodes: everything that the branches use and that differs between samples.
        branches: functions that build the branches. All must return the same dtype and number of
            dimensions.
        shares: the expected share of the samples in each branch, up to a common factor; `None` if
            all are equal.

    """
    shares = shares or [1.0] * len(branches)
    turns = find_turns(shares)
    ways: Sequence[Node] = ()
    if len(turns):
        ways = compute(lambda chosen: [*turns[:, chosen]], index, count=len(turns))
    return follow(ways, nodes, branches, shares)


def find_turns(shares: Sequence[float]) -> NDArray[np.bool_]:
    """Return the way to each branch in a tree of branches: whether it goes to the first half, at each level.

    Each node of the tree takes time for the samples that reach it, so the tree is balanced by
    `shares`: common branches are close to its root.

    Returns:
        [levels, branches], `False` below a branch. Without levels if there is one branch.

    """
    if len(shares) == 1:
        return np.zeros((0, 1), bool)
    middle = _middle(shares)
    halves = [find_turns(shares[:middle]), find_turns(shares[middle:])]
    levels = max(map(len, halves))
    below = [np.pad(half, ((0, levels - len(half)), (0, 0))) for half in halves]
    first = np.arange(len(shares)) < middle
    return np.concatenate([first[None], np.concatenate(below, axis=1)])


def follow(
    ways: Sequence[Node],
    nodes: Sequence[Node],
    branches: Sequence[Callable[..., Node]],
    shares: Sequence[float],
) -> Node:
    """Return what `select` does; `ways` are the columns of `find_turns` of each sample's branch.

    They are bool scalars on the CPU, one node for each level.
    """
    if len(branches) == 1:
        return branches[0](*nodes)
    middle = _middle(shares)
    turn, *below = ways
    halves = [fn._conditional.split(node, predicate=turn) for node in (*below, *nodes)]
    first, second = zip(*halves, strict=True)
    return fn._conditional.merge(
        follow(first[: len(below)], first[len(below) :], branches[:middle], shares[:middle]),
        follow(second[: len(below)], second[len(below) :], branches[middle:], shares[middle:]),
        predicate=turn,
    )


def _middle(shares: Sequence[float]) -> int:
    """Return how many branches together get approximately half of the samples: at least 1, but not all branches."""
    sums = np.cumsum(shares)
    return int(np.abs(sums[:-1] - sums[-1] / 2).argmin()) + 1


def apply_chain(
    chain: Sequence[Operation], image: Node, spec: ImageSpec, context: GraphContext
) -> Node:
    """Add operations to the graph, one after another."""
    return apply_all(chain, image, spec, context)[0]


@apply.register
def _(operation: RandomApply, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    first = context.random.shown
    changed = apply_chain(operation.operations, image, spec, context)
    coin = context.random.coin(operation, "whether", operation.probability)
    context.random.show_only(first, coin)
    return where(coin, [image, changed], lambda _, changed: changed)


@apply.register
def _(operation: RandomChoice, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    weights = np.array(operation.weights or [1.0] * len(operation.chains))
    weights = weights / weights.sum()

    def draw(rng: np.random.Generator, batch_size: int) -> list[NDArray[Any]]:
        return [rng.choice(len(weights), batch_size, p=weights).astype(np.int32)]

    (index,) = context.random.from_numpy(operation, "which", context.batch_size, draw, (0,))
    return _pick(index, _run_all(operation.chains, index, image, spec, context), weights)


@apply.register
def _(operation: RandomOrder, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    count = len(operation.chains)
    orders = np.array(list(permutations(range(count))), np.int32)

    def draw(rng: np.random.Generator, batch_size: int) -> list[NDArray[Any]]:
        drawn = orders[rng.integers(len(orders), size=batch_size)]
        return [*drawn.T]

    known = operation.output(spec)
    for index in context.random.from_numpy(
        operation, "order", context.batch_size, draw, [0] * count
    ):
        image = _pick(index, _run_all(operation.chains, index, image, known, context))
    return image


def _run_all(
    chains: Sequence[Sequence[Operation]],
    index: Node,
    image: Node,
    spec: ImageSpec,
    context: GraphContext,
) -> list[Node]:
    """Add all chains to the graph, side by side.

    A preview describes for each image only its own chain.
    """
    images = []
    for number, chain in enumerate(chains):
        first = context.random.shown
        images.append(apply_chain(chain, image, spec, context))
        context.random.show_only(first, index, number)
    return images


def _pick(index: Node, images: Sequence[Node], shares: NDArray[np.float64] | None = None) -> Node:
    """Return ``images[index]`` for each sample."""
    if len(images) == 1:
        return images[0]
    branches: list[Callable[..., Node]] = [partial(_item, number) for number in range(len(images))]
    return select(index, images, branches, None if shares is None else shares.tolist())


def _item(number: int, *images: Node) -> Node:
    return images[number]
