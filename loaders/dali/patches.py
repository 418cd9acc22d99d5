"""Patchify: the size that a budget of tokens gives an image, and the cut into patches."""

from __future__ import annotations

from typing import Any

import numpy as np

from loaders.dali.crop_resize import interpolation
from loaders.dali.graph import GraphContext, Node, apply, constant, fn, image_sides, math, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.patches import Patchify
from manifests.naflex import LEAST_RATIO, MOST_STEPS, RATIO_STEP


@apply.register
def _(operation: Patchify, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    grid = _grid(operation, image_sides(image), _budget(operation, context))
    return fn.resize(
        image,
        size=fn.cast(grid * float(operation.patch), dtype=types.FLOAT),
        interp_type=interpolation(operation, operation.filter, context),
        antialias=operation.antialias,
    )


def cut(operation: Patchify, image: Node, channels: int, context: GraphContext) -> list[Node]:
    """Cut HWC images of the operation's sizes into patches.

    Returns:
        The patches of each image with its padding, [T, patch * patch * channels], where images are;
        and rows and columns of patches, int32 [2], on the CPU. If the patches of a batch are
        rearranged, the last one of each image is padding.

    """
    side = operation.patch
    grid = fn.cast(image.shape()[:2], dtype=types.INT32) // side
    patch, depth = (types.Constant(np.int32(number)) for number in (side, channels))
    # [rows, patch, columns, patch, channels], then both numbers of a patch before its pixels.
    shape = fn.stack(grid[0], patch, grid[1], patch, depth)
    pixels = fn.transpose(fn.reshape(image, shape=shape, layout=""), perm=[0, 2, 1, 3, 4])
    patches = fn.reshape(pixels, shape=[-1, side * side * channels])
    if operation.rearranges:
        # As long as the longest image of the batch, and one more.
        longer = fn.reshape(grid[0] * grid[1] + 1, shape=[1])
        return [fn.pad(fn.pad(patches, axes=[0], shape=longer), axes=[0]), grid]
    budget = fn.reshape(_budget(operation, context), shape=[1])
    return [fn.pad(patches, axes=[0], shape=budget), grid]


def _budget(operation: Patchify, context: GraphContext) -> Node:
    """Return the budget of each image, an int32 scalar."""
    if len(operation.budgets) == 1:
        return types.Constant(np.int32(operation.budgets[0]))
    draw = context.budgets
    if draw is None:
        raise TypeError("nothing draws the budgets of this graph")
    return fn.external_source(
        lambda batch: draw(operation, batch.iteration).astype(np.int32),
        batch=True,
        batch_info=True,
        dtype=types.INT32,
        ndim=0,
    )


def _grid(operation: Patchify, sides: Node, budget: Node) -> Node:
    """Return rows and columns of patches, float64 [2]; as `manifests.naflex.token_grids` does."""
    side = float(operation.patch)
    sides = _double(sides)
    counts = _double(constant(np.arange(1, operation.most_tokens + 1)))
    columns = math.floor(_double(budget) / counts)
    ratios = math.min(counts * side / sides[0], columns * side / sides[1])
    # DALI reduces no float64, and the steps are integers.
    steps = math.floor((ratios - _exact(LEAST_RATIO)) / _exact(RATIO_STEP))
    steps = fn.reductions.max(fn.cast(math.clamp(steps, 0.0, float(MOST_STEPS)), dtype=types.INT32))
    ratio = _double(steps) * _exact(RATIO_STEP) + _exact(LEAST_RATIO)
    return math.max(math.ceil(sides * math.min(ratio, operation.most_ratio) / side), 1.0)


def _double(node: Node) -> Any:
    return fn.cast(node, dtype=types.FLOAT64)


def _exact(value: float) -> Any:
    """Return a float64, which DALI's constants are not, from two float32."""
    high = float(np.float32(value))
    low = float(np.float32(value - high))
    return _double(types.Constant(high)) + _double(types.Constant(low))
