"""Augmentation policies in the graph: AutoAugment, RandAugment, AugMix and similar ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.conditional import select, where
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.dali.policy_sampling import (
    StepTable,
    draw_chains,
    draw_shares,
    draw_steps,
    make_step_table,
)
from loaders.dali.policy_steps import ROUND_DOWN, branch
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.policies import MixedChains, RandomSteps, SubPolicies


@apply.register
def _(operation: SubPolicies, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _apply_in_order(operation, max(map(len, operation.sequences)), image, spec.size, context)


@apply.register
def _(operation: RandomSteps, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return (
        _apply_in_order(operation, operation.count, image, spec.size, context)
        if operation.count
        else image
    )


def _apply_in_order(
    operation: SubPolicies | RandomSteps,
    length: int,
    image: Node,
    size: Size | None,
    context: GraphContext,
) -> Node:
    table = make_step_table(operation)

    def draw(rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        return table.graph_inputs(draw_steps(operation, table, size, rng, count), size)

    inputs = _draw(operation, draw, context)
    context.random.show_drawn(
        lambda rng, count: table.describe(draw_steps(operation, table, size, rng, count))
    )
    for _ in range(length):
        image = _apply_step(table, image, inputs, size, context)
    return image


@apply.register
def _(operation: MixedChains, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    table = make_step_table(operation)
    is_optional = operation.probability < 1

    def draw(rng: np.random.Generator, count: int) -> list[NDArray[Any]]:
        applied = rng.random(count) < operation.probability
        drawn = draw_chains(operation, table, spec.size, rng, applied)
        shares = np.ascontiguousarray(draw_shares(operation, rng, count), np.float32)
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
    index = next(inputs) if table.has_branches else None
    settings = [next(inputs)] if table.has_settings else []
    branches = [branch(key, size, context) for key in table.families]
    return select(index, [image, *settings], branches, table.shares)


def _draw(
    operation: SubPolicies | RandomSteps | MixedChains,
    draw: Callable[..., list[NDArray[Any]]],
    context: GraphContext,
) -> Iterator[Node]:
    ndims = [array.ndim - 1 for array in draw(np.random.default_rng(0), 1)]
    if not ndims:
        return iter(())
    return iter(context.random.from_numpy(operation, "steps", context.batch_size, draw, ndims))
