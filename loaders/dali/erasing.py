"""Mask parts of images: random erasing, cutout, grids, hide-and-seek.

Positions and sizes of the parts are float32 vectors on the CPU: height before width, top before
left. One or two operators then change the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from loaders.arrays import Array, Bools, Floats
from loaders.dali.combinators import sometimes, where
from loaders.dali.crop_resize import describe_pixels
from loaders.dali.graph import GraphContext, Node, apply, constant, fn, image_sides, math, types
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing

#: Shifts a grid by a fraction of a pixel, so that no pixel is exactly on an edge. There, the result
#: would depend on the rounding of float32.
_OFF_EDGE = 0.005


def _sides(image: Node, spec: ImageSpec) -> Node:
    return constant(spec.size) if spec.size else image_sides(image)


def _fill_values(values: Sequence[float], spec: ImageSpec) -> list[float]:
    """Return fill values.

    For uint8 images they are rounded and clipped, because DALI keeps only the lowest 8 bits.
    """
    return [float(each) for each in (np.clip(np.rint(values), 0, 255) if spec.is_uint8 else values)]


# Erasing
# --------------------------------------------------------------------------------------------------


@apply.register
def _(operation: RandomErasing, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    for number, part in enumerate(_parts(operation, image, spec, context)):
        image = _erase(operation, number, image, part, spec=spec, context=context)
    return image


def _erase(
    operation: RandomErasing,
    number: int,
    image: Node,
    drawn: tuple[Node, ...],
    *,
    spec: ImageSpec,
    context: GraphContext,
) -> Node:
    """Erase part `number` of the parts that `_parts` draws."""
    start, part, *color = drawn
    half = context.dtype == "float16"
    context.random.show(
        lambda start, part: describe_pixels(start, part, "erased") if start[0] >= 0 else "",
        lambda: (start, part),
    )
    fill = _fill_values(operation.fill, spec)
    if half:
        # `fn.erase` knows no float16 on a GPU, so it copies these values as the integers of their bits.
        image = fn.reinterpret(image, dtype=types.INT16)
        fill = np.array(fill, np.float16).view(np.int16).astype(float).tolist()

    def erase(image: Node, start: Node, part: Node, *drawn: Node) -> Node:
        match operation.mode:
            case "constant":
                return fn.erase(image, anchor=start, shape=part, fill_value=fill)
            case "color":
                return fn.erase(image, anchor=start, shape=part, fill_value=drawn[0])
        noise, sides = drawn
        padded_noise = fn.slice(
            noise, start * -1.0, sides, axes=[0, 1], normalized_anchor=False, normalized_shape=False,
            out_of_bounds_policy="pad",
        )  # fmt: skip
        return fn.erase(image, anchor=start, shape=part) + padded_noise

    nodes = [image, start, part, *color]
    if operation.mode == "pixels":
        name = f"pixels {number}" if number else "pixels"
        nodes += [_noise(operation, name, part, spec, context), _sides(image, spec)]
    # On a GPU, erasing a part outside the image takes less time than a branch.
    erased = erase(*nodes) if context.gpu else where(start[0] >= 0.0, nodes, erase)
    return fn.reinterpret(erased, dtype=types.FLOAT16) if half else erased


def _noise(
    operation: RandomErasing, name: str, part: Node, spec: ImageSpec, context: GraphContext
) -> Node:
    """Draw normal noise of the size of the part: float32 HWC, or uint8 for uint8 images."""
    noise = fn.random.normal(
        shape=fn.cast(fn.cat(part, constant([3])), dtype=types.INT32),
        seed=context.random.seed(operation, name),
        device="gpu" if context.gpu else "cpu",
    )
    noise = context.random.of_clips(noise)
    return fn.cast(noise, dtype=types.UINT8) if spec.is_uint8 else noise


def _parts(
    operation: RandomErasing, image: Node, spec: ImageSpec, context: GraphContext
) -> list[tuple[Node, ...]]:
    """Return for each part the top left corner and the sides, [2] each, and in mode `"color"` its color, [3].

    Where an image has no part, or fewer, the part is one pixel outside the image.
    """
    size = spec.size

    def draw(rng: np.random.Generator, batch_size: int) -> list[Floats]:
        counts = (rng.random(batch_size) < operation.probability).astype(int)
        if operation.most > 1:
            counts *= rng.integers(1, operation.most + 1, batch_size)
        outputs: list[Floats] = []
        for number in range(operation.most):
            candidates = draw_candidates(operation, counts > number, rng)
            # The parts of an image share the area.
            candidates /= np.sqrt(np.maximum(counts, 1))[:, None, None]
            place = rng.random((batch_size, 2))
            if size is None:
                outputs += [candidates, place]
            else:
                outputs += first_that_fits(candidates, place, size)
            if operation.mode == "color":
                color = rng.standard_normal((batch_size, 3))
                if spec.is_uint8:
                    color = np.clip(np.floor(color + 0.5), 0, 255)
                outputs.append(color)
        return [each.astype(np.float32) for each in outputs]

    ndims = [1 if size else 2, 1] + [1] * (operation.mode == "color")
    drawn = context.random.from_numpy(
        operation, "part", context.batch_size, draw, ndims * operation.most
    )
    parts = []
    for number in range(operation.most):
        first, second, *color = drawn[number * len(ndims) : (number + 1) * len(ndims)]
        if size is None:
            first, second = _first_that_fits(first, second, operation.attempts, _sides(image, spec))
        parts.append((first, second, *color))
    return parts


def draw_candidates(operation: RandomErasing, hidden: Bools, rng: np.random.Generator) -> Floats:
    """Draw one part per attempt: its height and width relative to the square root of the image's area.

    Args:
        operation: what to draw.
        hidden: which images have a part, [N].
        rng: the generator.

    Returns:
        float64 [N, attempts, 2]; 0 for images without a part.

    """
    shape = (int(hidden.sum()), operation.attempts)
    area = rng.uniform(*operation.area, shape)
    if operation.log_ratio:
        low, high = np.log(operation.ratio)
        ratio = np.exp(rng.uniform(low, high, shape))
    else:
        ratio = rng.uniform(*operation.ratio, shape)
    candidates = np.zeros((len(hidden), operation.attempts, 2))
    candidates[hidden] = np.sqrt(np.stack([area * ratio, area / ratio], axis=-1))
    return candidates


def first_that_fits(candidates: Floats, place: Floats, size: Size) -> tuple[Floats, Floats]:
    """Return the top left corner and the sides of each image's first candidate that is smaller than the image.

    Args:
        candidates: the result of `draw_candidates`.
        place: the position of the part as fractions of the number of possible positions, in [0, 1):
            [N, 2].
        size: height and width of the images.

    Returns:
        Two arrays [N, 2], in pixels. If no candidate fits, the part is one pixel at -1, outside the
        image.

    """
    sides = np.floor(candidates * np.sqrt(size[0] * size[1]) + 0.5)
    # Much faster than `all` over an axis of length 2.
    fits = (sides[..., 0] < size[0]) & (sides[..., 1] < size[1])
    first = np.arange(len(sides)), fits.argmax(axis=1)
    part = sides[first]
    hidden = (fits[first] & (part > 0).all(-1))[:, None]
    return np.where(hidden, np.floor(place * (size - part + 1)), -1), np.where(hidden, part, 1)


def _first_that_fits(candidates: Node, place: Node, count: int, sides: Node) -> tuple[Node, Node]:
    """Compute the same as `first_that_fits` in the DALI graph, for images of any size."""
    parts = math.floor(candidates * math.sqrt(sides[0] * sides[1]) + 0.5)
    fits = fn.reductions.min(fn.cast(parts < sides, dtype=types.INT32), axes=1)
    # The first candidate has the largest number, so the maximum selects the first one that fits.
    best = fn.reductions.max(fits * types.Constant(np.arange(count, 0, -1, dtype=np.int32)))
    part = parts[math.min(count - best, count - 1)]
    hidden = (best > 0) & (fn.reductions.min(part) > 0.0)
    return (_scale(place, sides - part + 1.0) + 1.0) * hidden - 1.0, (part - 1.0) * hidden + 1.0


def _scale(place: Node, counts: Node) -> Node:
    """Scale draws from [0, 1) to integers from 0 to `counts` - 1, as float32.

    The minimum is needed because `place * counts` may be rounded up to `counts`.
    """
    return math.min(math.floor(place * counts), counts - 1.0)


# Cutout, grids, cells
# -----------------------------------------------------------------------------------------------


@apply.register
def _(operation: Cutout, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    size = spec.size
    count = operation.holes
    half = float(operation.length // 2)

    def draw(rng: np.random.Generator, batch_size: int) -> list[Floats]:
        place = rng.random((batch_size, count, 2))
        outputs = [np.floor(place * size) - half if size else place]
        if operation.fill is None:
            outputs.append(np.floor(rng.uniform(0, 256, (batch_size, count, 3))))
        return [each.astype(np.float32) for each in outputs]

    start, *colors = context.random.from_numpy(
        operation, "holes", context.batch_size, draw, [2] * (1 + (operation.fill is None))
    )
    if size is None:
        start = _scale(start, _sides(image, spec)) - half
    context.random.show(
        lambda start: " ".join(f"cutout at {left:.0f}, {top:.0f}" for top, left in start),
        lambda: (start,),
    )
    if operation.fill is not None:
        return fn.erase(
            image,
            anchor=fn.reshape(start, shape=[-1]),
            shape=[2 * half] * (2 * count),
            fill_value=_fill_values(operation.fill, spec),
        )
    for hole in range(count):
        image = fn.erase(
            image, anchor=start[hole], shape=[2 * half] * 2, fill_value=colors[0][hole]
        )
    return image


@apply.register
def _(operation: GridMask, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    low, high = operation.period

    def draw(rng: np.random.Generator, batch_size: int) -> list[Array]:
        period = rng.integers(low, high + 1, batch_size, dtype=np.int32)
        square = (period - np.floor(period * operation.ratio + 0.5)) / period
        shifts = rng.integers(period, size=(2, batch_size)) - _OFF_EDGE
        angle = rng.integers(operation.angles, size=batch_size) * (np.pi / 180)
        return [period, *(each.astype(np.float32) for each in (square, *shifts, angle))]

    def hide(image: Node, *settings: Node) -> Node:
        names = ("tile", "ratio", "shift_y", "shift_x", "angle")
        # DALI sets the squares to 0. The image minus this result contains only the squares.
        masked = fn.grid_mask(image, **dict(zip(names, settings, strict=True)))
        return masked if operation.hide == "squares" else image - masked

    first = context.random.shown
    nodes = (
        image,
        *context.random.from_numpy(operation, "grid", context.batch_size, draw, [0] * 5),
    )
    context.random.show(lambda period: f"grid of {period} px", lambda: (nodes[1],))
    return sometimes(operation, "whether", nodes, hide, context, first=first)


@apply.register
def _(operation: HideAndSeek, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    size = spec.size
    # One pixel for each cell of the finest grid, 0 if the cell is hidden. Coarser grids use only
    # some of these pixels.
    finest = min(each for each in operation.sizes if each)

    def draw(rng: np.random.Generator, batch_size: int) -> list[Array]:
        cell = rng.choice(operation.sizes, batch_size)
        matrix = np.eye(2, 3) / np.maximum(cell, 1)[:, None, None]
        outputs = [cell > 0, matrix.astype(np.float32)]
        if size:
            counts = [-(-side // finest) for side in size]
            outputs.append(
                (rng.random((batch_size, *counts, 1)) >= operation.probability).astype(np.uint8)
            )
        return outputs

    hidden, matrix, *cells = context.random.from_numpy(
        operation, "cells", context.batch_size, draw, [0, 2, 3][: 3 if size else 2]
    )
    context.random.show(
        lambda hidden, matrix: f"cells of {1 / matrix[0, 0]:.0f} px" if hidden else "",
        lambda: (hidden, matrix),
    )
    sides = _sides(image, spec)
    if size is None:
        counts = fn.cat(math.ceil(sides / float(finest)), constant([1]))
        cells = [
            fn.random.coin_flip(
                probability=1 - operation.probability,
                shape=fn.cast(counts, dtype=types.INT32),
                dtype=types.UINT8,
                seed=context.random.seed(operation, "unknown cells"),
            )
        ]
        cells = [context.random.of_clips(cells[0])]

    def hide(image: Node, cells: Node, sides: Node, matrix: Node) -> Node:
        return image * fn.warp_affine(cells, matrix=matrix, size=sides, interp_type=types.INTERP_NN)

    return where(
        hidden, (image, context.to_device(fn.reshape(cells[0], layout="HWC")), sides, matrix), hide
    )


#: Maps a part's start and shape and the image's shape, [6], to the starts and shapes of the four
#: rectangles above, below, left and right of the part, [16].
_AROUND = np.array([
    [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0],
    [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [-1, 0, -1, 0, 1, 0], [0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, -1, 0, -1, 0, 1],
])  # fmt: skip


@apply.register
def _(operation: KeepPart, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    start, part = fn.random_crop_generator(
        image.shape(),
        random_area=list(operation.area),
        random_aspect_ratio=list(operation.ratio),
        num_attempts=10,
        seed=context.random.seed(operation, "part"),
    )
    start = context.random.of_clips(start)
    part = context.random.of_clips(part)
    numbers = fn.cat(
        fn.cast(start, dtype=types.FLOAT), fn.cast(part, dtype=types.FLOAT), _sides(image, spec)
    )
    around = fn.reductions.sum(constant(_AROUND) * numbers, axes=1)

    def fill(image: Node, around: Node) -> Node:
        return fn.erase(
            image,
            anchor=around[:8],
            shape=around[8:],
            fill_value=_fill_values([operation.fill], spec),
        )

    first = context.random.shown
    context.random.show(partial(describe_pixels, what="kept"), lambda: (start, part))
    return sometimes(operation, "whether", (image, around), fill, context, first=first)
