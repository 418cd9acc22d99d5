"""Gaussian blur and motion blur."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loaders.dali.conditional import select, where
from loaders.dali.graph import GraphContext, Node, apply, fn, math, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import GaussianBlur, RandomBlur


@apply.register
def _(operation: GaussianBlur, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    sigma = context.random.uniform(operation, "sigma", *operation.sigma)
    context.random.show(lambda sigma: f"blur {sigma:.2f}", lambda: (sigma,))
    return fn.gaussian_blur(image, window_size=list(operation.window), sigma=sigma)


@apply.register
def _(operation: RandomBlur, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    sides = len(range(5, operation.gaussian_length, 2))
    draw = fn.random.uniform(
        range=[0.0, sides], shape=[2], seed=context.random.seed(operation, "sides")
    )
    window = fn.cast(math.floor(draw), dtype=types.INT32) * 2 + 5
    kernels = motion_kernels(operation.motion_length, operation.motion_angle)
    kernel = types.Constant(kernels)[context.random.integers(operation, "motion", len(kernels))]

    def gaussian(image: Node, window: Node, _: Node) -> Node:
        return fn.gaussian_blur(image, window_size=window)

    def motion(image: Node, _: Node, kernel: Node) -> Node:
        return stretch_contrast(fn.filter(image, context.to_device(kernel)))

    kind = context.random.integers(operation, "which", 2)
    coin = context.random.coin(operation, "whether", operation.probability)
    context.random.show(
        lambda coin, kind: ("Gaussian blur", "motion blur")[int(kind)] if coin else "",
        lambda: (coin, kind),
    )
    return where(
        coin,
        (image, kind, window, kernel),
        lambda image, kind, window, kernel: select(
            kind, (image, window, kernel), (gaussian, motion)
        ),
    )


def stretch_contrast(image: Node) -> Node:
    """Scale the values of each image to the range 0 to 255, over all channels: uint8 HWC -> uint8 HWC."""
    minimum = fn.reductions.min(image)
    value_range = math.max(fn.reductions.max(image) - minimum, 1)
    return fn.cast(
        (image - fn.cast(minimum, dtype=types.FLOAT)) * (255.0 / value_range), dtype=types.UINT8
    )


def motion_kernels(length: int, angle: int) -> NDArray[np.float32]:
    """Return the kernels of motion blur, as in PaddleClas: float32 [K, N, N].

    Each kernel averages along a line. There is one kernel for each odd length of at least 5 that is
    less than `length`, and each integer angle from -`angle` to `angle` - 1 degrees. A line is the
    diagonal of a square, rotated counterclockwise with linear interpolation. It rotates around the
    lower right corner of the middle pixel, which cuts off a little of the ends of longer lines.
    """
    lengths = range(5, length, 2)
    widest = lengths[-1]
    kernels = np.zeros((len(lengths), 2 * angle, widest, widest))
    angles = np.deg2rad(np.arange(-angle, angle))[:, None, None]
    for number, side in enumerate(lengths):
        down, right = np.mgrid[:side, :side] - side / 2
        # The position in the diagonal that each pixel comes from.
        x = np.cos(angles) * right - np.sin(angles) * down + side / 2
        y = np.sin(angles) * right + np.cos(angles) * down + side / 2
        line = np.pad(np.eye(side), 2)
        left, top = (
            np.clip(np.floor(x), -2, side).astype(int),
            np.clip(np.floor(y), -2, side).astype(int),
        )
        dx, dy = x - left, y - top
        inside = (x > -1) & (x < side) & (y > -1) & (y < side)
        rotated = sum(
            line[top + 2 + i, left + 2 + j] * (dy if i else 1 - dy) * (dx if j else 1 - dx)
            for i in (0, 1)
            for j in (0, 1)
        )
        margin = (widest - side) // 2
        kernels[number, :, margin : margin + side, margin : margin + side] = (
            np.where(inside, rotated, 0) / side
        )
    return kernels.reshape(-1, widest, widest).astype(np.float32)
