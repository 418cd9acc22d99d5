"""Flips, rotations, padding, and operations that move pixels by a random map.

Sizes and positions are float32 [2] (height before width, top before left) on the CPU. Each CPU
operator takes approximately 1 microsecond per sample regardless of what it computes, so the graph
uses few, vectorized operators. The maps count pixels from the top left corner of the image, so the
center of the first pixel is at 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from loaders.arrays import Array, Float32s, Floats, Ints
from loaders.dali.combinators import select, sometimes
from loaders.dali.crop_resize import INTERPOLATION, interpolation, round_half_even
from loaders.dali.graph import (
    GraphContext,
    Node,
    apply,
    compute,
    constant,
    fn,
    image_sides,
    math,
    types,
)
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.geometry import (
    Elastic,
    Flip,
    Pad,
    PadTo,
    RandomAffine,
    RandomPerspective,
    RandomRightAngle,
    Rotate,
    RotateAround,
)


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
    coin = context.random.of_clips(coin)
    how = {"horizontal": "", "vertical": " vertically"}.get(operation.axis, " both ways")
    context.random.show(lambda coin: f"flipped{how}" if coin else "", lambda: (coin,))
    return coin


@apply.register
def _rotate(operation: Rotate, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    first = context.random.shown
    angle = context.random.uniform(operation, "angle", *operation.degrees)
    context.random.show(lambda angle: f"rotated {angle:+.0f}\N{DEGREE SIGN}", lambda: (angle,))
    interp_type = interpolation(operation, operation.filter, context)
    color = np.broadcast_to(operation.fill, 3).tolist()

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

    return sometimes(operation, "coin", [image, angle], rotate, context, first=first)


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
        case "center even":
            # As a center crop of torchvision where the image is larger.
            padded = math.floor(math.max(room, 0.0) * 0.5)
            start = round_half_even(math.max(room * -1.0, 0.0) * 0.5) - padded
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
    if mode == "edge":
        return [inner] * count
    return [fn.flip(inner, vertical=int(axis == 0), horizontal=int(axis == 1))]


# Affine
# --------------------------------------------------------------------------------------------------


@apply.register
def _(operation: RandomAffine, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    def draw(rng: np.random.Generator, batch_size: int) -> list[Array]:
        angle, scale, shear, shift = draw_affine(operation, rng, batch_size)
        linear = inverse_affine(angle, scale, shear)
        return [linear.astype(np.float32), shift.astype(np.float32)]

    linear, shift = context.random.from_numpy(operation, "map", context.batch_size, draw, (2, 1))
    context.random.show_drawn(
        lambda rng, count: _describe_affine(*draw_affine(operation, rng, count))
    )
    return _warp_affine(operation, image, [linear, shift], spec, context)


@apply.register
def _(operation: RotateAround, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    # Pillow does not mix the image with the fill color. torchvision's tensors do.
    if not spec.is_uint8:
        return _rotate(operation, image, spec, context)

    def draw_angles(rng: np.random.Generator, count: int) -> Floats:
        return rng.uniform(*operation.degrees, count)

    def draw(rng: np.random.Generator, batch_size: int) -> list[Array]:
        angle = -draw_angles(rng, batch_size)
        linear = inverse_affine(angle, np.ones(batch_size), np.zeros((batch_size, 2)))
        return [linear.astype(np.float32)]

    (linear,) = context.random.from_numpy(operation, "map", context.batch_size, draw, (2,))
    context.random.show_drawn(
        lambda rng, count: [
            f"rotated {angle:+.0f}\N{DEGREE SIGN}" for angle in draw_angles(rng, count)
        ]
    )
    return _warp_affine(operation, image, [linear], spec, context)


#: Pixels that the GPU's places are moved to the right and down. A rotation by 45 degrees maps the
#: diagonals exactly between two pixels. Pillow takes the right or lower one; float32 rounds a place
#: by up to 3e-5 in an image of 512 pixels, on the GPU in other steps than on the CPU, so it takes
#: either (0.5% of the pixels of an image of 100 x 150).
_NUDGE = 5e-5


def _warp_affine(
    operation: RandomAffine | RotateAround,
    image: Node,
    drawn: list[Node],
    spec: ImageSpec,
    context: GraphContext,
) -> Node:
    """Move pixels by the inverse of a linear map around a center.

    Args:
        operation: the center, the filter and the fill color.
        image: uint8 HWC.
        drawn: the inverse, float32 [2, 2], and how far the center moves as shares of the width and
            the height, float32 [2]; without the second one it stays.
        spec: of the image.
        context: where the graph runs.

    """
    nodes = drawn
    if spec.size is None:
        nodes = [*drawn, image.shape(dtype=types.FLOAT)]
    (matrix,) = compute(partial(_matrices, operation, spec.size, context.gpu), *nodes)

    def warp(image: Node, filter_: str, border: dict[str, Any]) -> Node:
        return fn.warp_affine(image, matrix=matrix, interp_type=INTERPOLATION[filter_], **border)

    if context.mask_fill is not None:
        return warp(image, "nearest", {"fill_value": context.mask_fill})
    return _warp_and_fill(
        image, partial(warp, border={}), partial(warp, border={"fill_value": 0}), operation
    )


def _matrices(
    operation: RandomAffine | RotateAround,
    size: Size | None,
    gpu: bool,
    linear: Float32s,
    *others: Float32s,
) -> list[Float32s]:
    """Return the maps of `_warp_affine`, [N, 2, 3], of images of one size or of the last argument's."""
    shapes = np.array([size], np.float32) if size is not None else others[-1]
    sides = shapes[:, 1::-1]
    center = sides / 2
    if operation.center is not None:
        center = np.array([operation.center], np.float32)
    moved = center
    if isinstance(operation, RandomAffine):
        moved = center + np.round(others[0] * sides)
    offset = center - (linear * moved[:, None]).sum(2)
    if gpu:
        offset += np.float32(_NUDGE)
    return [np.concatenate([linear, offset[:, :, None]], axis=2)]


def draw_affine(
    operation: RandomAffine, rng: np.random.Generator, count: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Draw angles in degrees and scales, [N], shears across and down in degrees and shifts as shares, [N, 2]."""
    angle = rng.uniform(*operation.degrees, count)
    scale = rng.uniform(*operation.scale, count)
    shear = rng.uniform(operation.shear[::2], operation.shear[1::2], (count, 2))
    return angle, scale, shear, rng.uniform(-1, 1, (count, 2)) * operation.translate


def _describe_affine(angle: Floats, scale: Floats, shear: Floats, shift: Floats) -> list[str]:
    degree = "\N{DEGREE SIGN}"
    parts = {
        "rotated": [f"{each:+.0f}{degree}" if each else "" for each in angle],
        "scaled by": [f"{each:.2f}" if each != 1 else "" for each in scale],
        "sheared": [
            f"{across:+.0f}{degree} {down:+.0f}{degree}" if across or down else ""
            for across, down in shear
        ],
        "shifted": [
            f"{across:+.0%} {down:+.0%}" if across or down else "" for across, down in shift
        ],
    }
    return [
        ", ".join(f"{name} {texts[at]}" for name, texts in parts.items() if texts[at])
        for at in range(len(angle))
    ]


def inverse_affine(angle: Floats, scale: Floats, shear: Floats) -> Floats:
    """Return the linear part of the map from a pixel of the result to one of the image, as torchvision has it.

    Args:
        angle: in degrees, [N].
        scale: [N].
        shear: of the x axis and of the y axis, in degrees, [N, 2].

    Returns:
        [N, 2, 2].

    """
    rotation = np.deg2rad(angle)
    x, y = np.deg2rad(shear).T
    a = np.cos(rotation - y) / np.cos(y)
    c = np.sin(rotation - y) / np.cos(y)
    b = -a * np.tan(x) - np.sin(rotation)
    d = -c * np.tan(x) + np.cos(rotation)
    return np.moveaxis(np.array([[d, -b], [-c, a]]) / scale, -1, 0)


# Perspective
# --------------------------------------------------------------------------------------------------


@apply.register
def _(operation: RandomPerspective, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    def draw(rng: np.random.Generator, batch_size: int) -> list[Array]:
        return [rng.random((batch_size, 4, 2)).astype(np.float32)]

    (drawn,) = context.random.from_numpy(operation, "corners", context.batch_size, draw, (2,))
    matrix = fn.python_function(
        image.shape(dtype=types.INT32),
        drawn,
        function=lambda shape, drawn: perspective(
            drawn, (int(shape[0]), int(shape[1])), operation.distortion
        ),
    )

    fill = {}
    if context.mask_fill is not None:
        fill = {"fill_value": context.mask_fill}

    def warp_all(image: Node, matrix: Node) -> Node:
        def warp(image: Node, filter_: str, border: str) -> Node:
            return fn.experimental.warp_perspective(
                image, matrix=matrix, interp_type=INTERPOLATION[filter_], border_mode=border, **fill
            )

        if context.mask_fill is not None:
            return warp(image, "nearest", "constant")
        return _warp_and_fill(
            image, partial(warp, border="replicate"), partial(warp, border="constant"), operation
        )

    first = context.random.shown
    context.random.show(lambda drawn: f"perspective {drawn.mean():.0%}", lambda: (drawn,))
    return sometimes(operation, "whether", [image, matrix], warp_all, context, first=first)


def perspective(drawn: Float32s, size: tuple[int, int], distortion: float) -> Float32s:
    """Return the map from a pixel of the result to one of the image: float32 [3, 3].

    Args:
        drawn: how far each corner moves to the right and down, from the top left corner clockwise,
            from 0 to below 1 of the possible moves: [4, 2].
        size: height and width of the image.
        distortion: maximum move of a corner as a fraction of half the side.

    """
    sides = np.array([size[1], size[0]])
    starts = _CORNERS * (sides - 1)
    ends = moved_corners(drawn, sides, distortion)
    rows = []
    for (x, y), (u, v) in zip(ends, starts, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    solved = np.linalg.lstsq(
        np.array(rows, np.float64), starts.ravel().astype(np.float64), rcond=None
    )[0]
    return np.append(solved, 1).reshape(3, 3).astype(np.float32)


#: The corners of an image, from the top left one clockwise: right and down.
_CORNERS = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])


def moved_corners(drawn: Float32s, sides: Ints, distortion: float) -> Floats:
    """Return where the corners move to, in pixels to the right and down: [..., 4, 2].

    Args:
        drawn: as for `perspective`, [..., 4, 2].
        sides: width and height of the image.
        distortion: as for `perspective`.

    """
    moves = (distortion * (sides // 2)).astype(int)
    ends: Floats = _CORNERS * (sides - moves - 1) + np.floor(drawn * (moves + 1))
    return ends


def _warp_and_fill(
    image: Node,
    warp: Callable[..., Node],
    warp_mask: Callable[..., Node],
    operation: RandomAffine | RandomPerspective | RotateAround,
) -> Node:
    """Warp an image, and set pixels from outside to the fill color.

    Pillow does not interpolate between the image and the fill color, so a mask of the image moves
    with it.

    Args:
        image: uint8 HWC.
        warp: moves an image with a filter. Pixels from outside repeat the edge.
        warp_mask: does the same, with zeros outside.
        operation: the filter and the fill color.

    """
    color = np.round(np.broadcast_to(operation.fill, 3))
    if operation.filter == "nearest" and not color.any():
        return warp_mask(image, "nearest")  # nothing is mixed, and the color is the mask's
    moved = warp(image, operation.filter)
    inside = warp_mask(image[:, :, 0:1] | types.Constant(255).uint8(), "nearest")
    # Map 255 to 0, and 0 to the fill color.
    outside = fn.coord_transform(
        inside, M=(-color / 255).tolist(), T=color.tolist(), dtype=types.UINT8
    )
    return (moved & inside) | outside


# Elastic
# --------------------------------------------------------------------------------------------------


@apply.register
def _(operation: Elastic, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    shape = image.shape(dtype=types.INT32)
    shifts = []
    for name, alpha, sigma in zip(
        ("across", "down"), operation.alpha, operation.sigma, strict=True
    ):
        noise = fn.random.uniform(
            range=[-1.0, 1.0],
            shape=fn.cat(shape[0:2], types.Constant(np.array([1], np.int32))),
            seed=context.random.seed(operation, name),
        )
        noise = context.random.of_clips(noise)
        if sigma > 0:
            window = (int(8 * sigma) + 1) | 1
            # Height before width.
            sigmas = [max(0.01, each) for each in operation.sigma[::-1]]
            noise = fn.gaussian_blur(
                fn.reshape(noise, layout="HWC"), window_size=[window] * 2, sigma=sigmas
            )
        shifts.append(noise * (alpha / 2))
    filter_ = operation.filter
    if context.mask_fill is not None:
        filter_ = "nearest"
    return elastic(image, fn.cat(*shifts, axis=2), filter_, context.fill(operation.fill), context)


def elastic(
    image: Node, shift: Node, filter_: str, fill: Sequence[float], context: GraphContext
) -> Node:
    """Take each pixel from a place that is shifted.

    Args:
        image: uint8 HWC; int16 for a mask of that type.
        shift: float32 [H, W, 2] on the CPU, pixels to the right and down.
        filter_: ``"nearest"`` or ``"linear"``.
        fill: color of pixels from outside the image.
        context: where the graph runs.

    """
    if not context.gpu:
        return fn.python_function(
            image,
            shift,
            function=lambda pixels, moves: shifted(pixels, moves, filter_, fill),
            output_layouts="HWC",
        )
    grid = fn.python_function(shift, function=lambda moves: places_inside(moves, filter_))
    places = fn.reshape(grid.gpu(), layout="HWC")
    # What DALI does with places outside the image is not documented, so they are moved to its edge.
    moved = fn.experimental.remap(
        image,
        places[:, :, 0],
        places[:, :, 1],
        interp=INTERPOLATION[filter_],
        pixel_origin="center",
    )
    inside = places[:, :, 2:3]
    return fn.cast_like(moved * inside + constant(fill).gpu() * (1.0 - inside), image)


def places_inside(shift: Float32s, filter_: str) -> Float32s:
    """Return where each pixel comes from: float32 [height, width, 3].

    Args:
        shift: float32 [height, width, 2], pixels to the right and down.
        filter_: ``"nearest"`` or ``"linear"``.

    Returns:
        The column and the row, moved to the edge if they are outside the image, and the share of
        the pixel that the image has in it, from 0 (outside) to 1.

    """
    last = np.array([shift.shape[1] - 1, shift.shape[0] - 1], np.float32)
    place = pixel_numbers(*shift.shape[:2]) + shift
    inside = np.clip(place, 0, last)
    beyond = np.abs(place - inside)
    share = np.clip(1 - beyond, 0, 1) if filter_ == "linear" else beyond <= 0.5
    return np.concatenate([inside, share.prod(axis=-1, keepdims=True)], axis=-1).astype(np.float32)


def pixel_numbers(height: int, width: int) -> Float32s:
    """Return the column and the row of each pixel: float32 [height, width, 2]."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns, rows], axis=-1).astype(np.float32)


def shifted(pixels: Array, shift: Float32s, filter_: str, fill: Sequence[float]) -> Array:
    """Compute `elastic` with NumPy, for one image."""
    height, width, channels = pixels.shape
    place = pixel_numbers(height, width) + shift
    padded = np.empty((height + 2, width + 2, channels), np.float32)
    padded[:] = np.array(fill, np.float32)
    padded[1:-1, 1:-1] = pixels
    # The border of one pixel stands for everything outside.
    place = np.clip(place + 1, 0, [width + 1, height + 1])
    if filter_ == "nearest":
        column, row = np.moveaxis(np.rint(place).astype(int), -1, 0)
        taken: Array = padded[row, column].astype(pixels.dtype)
        return taken
    start = np.minimum(place.astype(int), [width, height])
    right, down = np.moveaxis((place - start)[..., None], 2, 0)
    column, row = np.moveaxis(start, -1, 0)
    top = padded[row, column] * (1 - right) + padded[row, column + 1] * right
    bottom = padded[row + 1, column] * (1 - right) + padded[row + 1, column + 1] * right
    mixed: Array = np.rint(top * (1 - down) + bottom * down).astype(pixels.dtype)
    return mixed
