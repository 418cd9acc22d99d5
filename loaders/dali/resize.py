"""Resize, and RandomDownscale, which removes detail."""

from __future__ import annotations

from typing import Any

from loaders.dali.conditional import select, where
from loaders.dali.graph import GraphContext, Node, apply, constant, fn, image_sides, math, types
from loaders.transforms.base import Filter, ImageSpec, Operation, Size
from loaders.transforms.resize import RandomDownscale, Resize, ResizeWithin, ScaleJitter

#: Adding and subtracting this number rounds a float32 to the nearest integer, and halves to even.
_ROUND_EVEN = 1.5 * 2**23

#: Added before rounding down, because a float32 may be slightly below the integer that it
#: represents.
_EPSILON = 1e-4

INTERPOLATION = {
    "nearest": types.INTERP_NN,
    "linear": types.INTERP_LINEAR,
    "cubic": types.INTERP_CUBIC,
    "triangular": types.INTERP_TRIANGULAR,
    "lanczos": types.INTERP_LANCZOS3,
}


def round_half_even(values: Node) -> Node:
    """Round float32 values below 2**22 to the nearest integer, and halves to even."""
    return (values + _ROUND_EVEN) - _ROUND_EVEN


def resize_target(operation: Resize, image: Node, spec: ImageSpec) -> Node | Size:
    """Return the height and width that `operation` gives an image: a tuple if known, else float32 [2] per sample."""
    size = operation.output(spec).size
    return size if size is not None else resized_sides(operation, image_sides(image))


def resized_sides(operation: Resize, sides: Node) -> Node:
    """Return the height and width, float32 [2], that `operation` gives an image with these sides."""
    if operation.size is not None:
        return sides * 0.0 + constant(operation.size)
    target, most = sides, float("inf")
    if operation.shorter is not None:
        exact = sides * float(operation.shorter) / fn.reductions.min(sides)
        target = math.floor(exact) if operation.rounding == "down" else round_half_even(exact)
        most = 1.0
    if not isinstance(operation, ResizeWithin):
        return target
    share = math.min(float(operation.longest) / fn.reductions.max(target), most)
    return math.max(math.floor(target * share + _EPSILON), 1.0)


def resize(
    operation: Resize, image: Node, target: Node | Size, context: GraphContext, **roi: Any
) -> Node:
    """Resize an image, or its region `roi`, to `target` (height, width) with the operation's filter."""
    size = list(map(float, target)) if isinstance(target, tuple) else target
    return fn.resize(
        image,
        size=size,
        interp_type=interpolation(operation, operation.filter, context),
        antialias=operation.antialias,
        **roi,
    )


def interpolation(owner: Operation, name: Filter, context: GraphContext) -> Any:
    """Return DALI's interpolation type: a constant, or one per sample for `"random"` (linear or cubic)."""
    if context.mask_fill is not None:
        return INTERPOLATION["nearest"]
    if name != "random":
        return INTERPOLATION[name]
    coin = context.random.coin(owner, "filter", 0.5)
    linear, cubic = int(types.INTERP_LINEAR), int(types.INTERP_CUBIC)
    return fn.reinterpret(
        fn.cast(coin, dtype=types.INT32) * (cubic - linear) + linear, dtype=types.INTERP_TYPE
    )


@apply.register
def _(operation: Resize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return resize(operation, image, resize_target(operation, image, spec), context)


@apply.register
def _(operation: ScaleJitter, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.resize(
        image,
        size=jittered_sides(operation, image_sides(image), context),
        interp_type=interpolation(operation, operation.filter, context),
        antialias=operation.antialias,
    )


def jittered_sides(operation: ScaleJitter, sides: Node, context: GraphContext) -> Node:
    """Return the height and width, float32 [2], that `operation` gives an image with these sides."""
    factor = fn.reductions.min(constant(operation.target[::-1]) / sides)
    scale = context.random.uniform(operation, "scale", *operation.scale)
    context.random.show(lambda scale: f"scaled by {scale:.2f}", lambda: (scale,))
    # An image has at least one pixel.
    return math.max(math.floor(sides * (factor * scale) + _EPSILON), 1.0)


@apply.register
def _(operation: RandomDownscale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    share = context.random.uniform(operation, "share", *operation.share)
    sides = image_sides(image)
    interp_types = [INTERPOLATION[name] for name in ("nearest", "linear", "cubic", "lanczos")]

    side = math.floor(sides[0] * share)
    small = fn.stack(side, side)
    down = context.random.integers(operation, "down", len(interp_types))
    up = context.random.integers(operation, "up", len(interp_types))
    branches = [
        lambda image, size, interp_type=interp_type: fn.resize(
            image, size=size, interp_type=interp_type, antialias=False
        )
        for interp_type in interp_types
    ]

    def degrade(image: Node, small: Node, sides: Node, down: Node, up: Node) -> Node:
        return select(up, [select(down, [image, small], branches), sides], branches)

    coin = context.random.coin(operation, "coin", operation.probability)
    context.random.show(
        lambda coin, share: f"shrunk to {share:.0%}" if coin else "", lambda: (coin, share)
    )
    return where(coin, [image, small, sides, down, up], degrade)
