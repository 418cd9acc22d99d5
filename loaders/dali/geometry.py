"""Flips, rotations and padding.

Sizes and positions are float32 [2] (height before width, top before left) on the CPU. Each CPU
operator takes approximately 1 microsecond per sample regardless of what it computes, so the graph
uses few, vectorized operators.
"""

from __future__ import annotations

from loaders.dali.conditional import select, where
from loaders.dali.graph import GraphContext, Node, apply, constant, fn, image_sides, math, types
from loaders.dali.resize import interpolation
from loaders.dali.warps import rotated
from loaders.transforms.base import ImageSpec
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate, RotateAround


@apply.register
def _(operation: Flip, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    coin = flip_coin(operation, context)
    return fn.flip(
        image,
        horizontal=coin if operation.axis != "vertical" else 0,
        vertical=coin if operation.axis != "horizontal" else 0,
    )


def flip_coin(operation: Flip, context: GraphContext) -> Node:
    """Draw whether to flip each sample: int32, 1 to flip, 0 to keep."""
    coin = fn.random.coin_flip(
        probability=operation.probability, seed=context.random.seed(operation, "coin")
    )
    how = (
        ""
        if operation.axis == "horizontal"
        else " vertically"
        if operation.axis == "vertical"
        else " both ways"
    )
    context.random.show(lambda coin: f"flipped{how}" if coin else "", lambda: (coin,))
    return coin


@apply.register
def _(operation: RotateAround, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    if spec.is_uint8:
        return rotated(operation, image, context)
    # torchvision's tensors mix with the fill color.
    return _rotate(operation, image, spec, context)


@apply.register
def _rotate(operation: Rotate, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    first = context.random.shown
    angle = context.random.uniform(operation, "angle", *operation.degrees)
    context.random.show(lambda angle: f"rotated {angle:+.0f}\N{DEGREE SIGN}", lambda: (angle,))
    interp_type = interpolation(operation, operation.filter, context)
    color = operation.fill if isinstance(operation.fill, tuple) else (operation.fill,) * 3

    def turn(image: Node, angle: Node, fill_value: float) -> Node:
        return fn.rotate(
            image, angle=angle, keep_size=True, fill_value=fill_value, interp_type=interp_type
        )

    def rotate(image: Node, angle: Node) -> Node:
        if context.mask_fill is not None:
            return turn(image, angle, context.mask_fill)
        if len({*color}) == 1:
            return turn(image, angle, color[0])
        # `fn.rotate` has one fill value for all channels.
        below = fn.coord_transform(image, T=[-value for value in color], dtype=types.FLOAT)
        turned = turn(below, angle, 0)
        return fn.cast_like(fn.coord_transform(turned, T=list(color)), image)

    if operation.probability == 1:
        return rotate(image, angle)
    coin = context.random.coin(operation, "coin", operation.probability)
    context.random.show_only(first, coin)
    return where(coin, [image, angle], rotate)


@apply.register
def _(operation: RandomRightAngle, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    def transpose(image: Node) -> Node:
        return fn.transpose(image, perm=[1, 0, 2], transpose_layout=False)

    branches = [
        lambda image: image,
        lambda image: fn.flip(transpose(image), horizontal=0, vertical=1),
        lambda image: fn.flip(image, horizontal=1, vertical=1),
        lambda image: fn.flip(transpose(image), horizontal=1, vertical=0),
    ]
    turns = context.random.integers(operation, "turns", 4)
    context.random.show(
        lambda turns: f"turned {90 * turns}\N{DEGREE SIGN}" if turns else "", lambda: (turns,)
    )
    return select(turns, [image], branches)


@apply.register
def _(operation: Pad, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    if operation.mode != "constant":
        return _pad_from_image(image, operation)
    added = constant((operation.top + operation.bottom, operation.left + operation.right))
    start = constant((-operation.top, -operation.left))
    return _pad_constant(image, start, image_sides(image) + added, context.fill(operation.fill))


@apply.register
def _(operation: PadTo, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    start, target = padded_region(operation, image_sides(image))
    return _pad_constant(image, start, target, context.fill(operation.fill))


def padded_region(operation: PadTo, sides: Node) -> tuple[Node, Node]:
    """Return where the output of `operation` begins in an image with these sides, and the sides of the output."""
    if operation.size is not None:
        target = constant(operation.size)
    else:
        target = math.ceil(sides / float(operation.divisor)) * float(operation.divisor)
    room = target - sides
    match operation.at:
        case "center":
            start = math.floor(room * 0.5) * -1.0
        case "end":
            start = room * -1.0
        case "start":
            start = room * 0.0
        case (top, left):
            start = room * 0.0 - constant((top, left))
    return start, target + start * 0.0


def _pad_constant(image: Node, start: Node, shape: Node, fill: list[float]) -> Node:
    """Return the region that starts at `start`, which may be negative, and has the shape `shape`.

    Pixels outside the image have the value `fill`.
    """
    return fn.slice(
        image, start, shape, axes=[0, 1], normalized_anchor=False, normalized_shape=False,
        out_of_bounds_policy="pad", fill_values=fill,
    )  # fmt: skip


def _pad_from_image(image: Node, operation: Pad) -> Node:
    """Pad in mode `"edge"`, `"reflect"` or `"symmetric"`.

    DALI pads with constants only, so the borders are cut out, mirrored and concatenated.
    """
    sides = image.shape(dtype=types.INT32)
    for axis, before, after in (
        (0, operation.top, operation.bottom),
        (1, operation.left, operation.right),
    ):
        image = fn.cat(
            *(_border(image, None, before, axis, operation.mode) if before else ()),
            image,
            *(_border(image, sides[axis : axis + 1], after, axis, operation.mode) if after else ()),
            axis=axis,
        )
    return image


def _border(image: Node, end: Node | None, count: int, axis: int, mode: str) -> list[Node]:
    """Return `count` rows or columns to put before an image, or after it if `end`, the length of the axis, is set."""
    length, skip = (1, 0) if mode == "edge" else (count, int(mode == "reflect"))
    start = [skip] if end is None else end - (length + skip)
    # DALI raises if the image has fewer rows or columns than are mirrored.
    inner = fn.slice(image, start=start, shape=[length], axes=[axis])
    return (
        [inner] * count
        if mode == "edge"
        else [fn.flip(inner, vertical=int(axis == 0), horizontal=int(axis == 1))]
    )
