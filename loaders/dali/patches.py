"""Patchify: the size that a budget of tokens gives an image, and the cut into patches."""

from __future__ import annotations

import numpy as np

from loaders.arrays import Array, Ints
from loaders.dali.crop_resize import interpolation
from loaders.dali.graph import GraphContext, Node, apply, compute, fn, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.patches import Patchify
from manifests.naflex import token_grids


@apply.register
def _(operation: Patchify, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    def find_sizes(shapes: Ints, budgets: Ints) -> list[Array]:
        grids = np.empty((len(shapes), 2), np.float32)
        for budget in np.unique(budgets).tolist():
            chosen = budgets == budget
            grids[chosen] = token_grids(
                shapes[chosen, :2], operation.patch, budget, operation.most_ratio
            )
        return [grids * np.float32(operation.patch)]

    (size,) = compute(find_sizes, image.shape(), _budget(operation, context))
    return fn.resize(
        image,
        size=size,
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

    def find_shapes(shapes: Ints, budgets: Ints) -> list[Array]:
        grids = (shapes[:, :2] // side).astype(np.int32)
        # [rows, patch, columns, patch, channels], then both numbers of a patch before its pixels.
        cuts = np.full((len(shapes), 5), (0, side, 0, side, channels), np.int32)
        cuts[:, 0::2][:, :2] = grids
        lengths = budgets
        if operation.rearranges:
            # As long as the longest image of the batch, and one more.
            lengths = grids.prod(1, dtype=np.int32) + 1
        return [grids, cuts, lengths.astype(np.int32)[:, None]]

    grid, shape, length = compute(find_shapes, image.shape(), _budget(operation, context), count=3)
    pixels = fn.transpose(fn.reshape(image, shape=shape, layout=""), perm=[0, 2, 1, 3, 4])
    patches = fn.reshape(pixels, shape=[-1, side * side * channels])
    patches = fn.pad(patches, axes=[0], shape=length)
    if operation.rearranges:
        patches = fn.pad(patches, axes=[0])
    return [patches, grid]


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
