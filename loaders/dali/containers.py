"""Operations that contain others: each image takes the results that were drawn for it.

All contained operations run on all images, and the results are selected afterwards. Inside of a
branch of the graph, operations could not draw random values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.conditional import select, where
from loaders.dali.graph import GraphContext, Node, apply, apply_all
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.containers import RandomApply, RandomChoice, RandomOrder


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
        return [np.ascontiguousarray(drawn[:, place]) for place in range(count)]

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
