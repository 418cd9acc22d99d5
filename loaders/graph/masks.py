"""Hiding parts in DALI: one or two operators on images, the parts computed on the processor.

Where a part lies and how large it is are float32 vectors: height before width, top before left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loaders.graph.base import Node, Run, apply, fn, math, types, where
from loaders.transforms.base import Form, Operation, Range
from loaders.transforms.masks import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing

#: Moves a grid by less than a pixel, so that no pixel lies on its edge, where float32 decides.
_OFF_EDGE = 0.005


def _constant(values: npt.ArrayLike) -> Node:
    return types.Constant(np.array(values, np.float32))


def _sides(image: Node) -> Node:
    return image.shape(dtype=types.FLOAT)[:2]


def _even(operation: Operation, name: str, bounds: Range, shape: Sequence[int], run: Run) -> Node:
    """Draw float32 of a shape, evenly."""
    if bounds[0] == bounds[1]:
        return _constant(np.full(shape, bounds[0]))
    return fn.random.uniform(range=list(bounds), shape=list(shape), seed=run.draws.seed(operation, name))


def _whole(operation: Operation, name: str, counts: Node, shape: Sequence[int], run: Run) -> Node:
    """Draw whole float32 from 0 to `counts` - 1, evenly."""
    # A draw next to one may round up to the end.
    return math.min(math.floor(_even(operation, name, (0.0, 1.0), shape, run) * counts), counts - 1.0)


def _fill(values: Sequence[float], form: Form) -> list[float]:
    """Return what to fill with; where bytes are needed the nearest ones, for DALI would take the lowest eight bits."""
    return [float(each) for each in (np.clip(np.rint(values), 0, 255) if form.whole else values)]


# Erasing -------------------------------------------------------------------------------------------------------------


@apply.register
def _(operation: RandomErasing, image: Node, form: Form, run: Run) -> Node:
    sides = _sides(image)
    part, fits = _part(operation, sides, run)
    start = _whole(operation, "place", math.max(sides - part, 0.0) + 1.0, (2,), run)
    hidden = run.draws.coin(operation, "whether", operation.probability) & fits

    match operation.mode:
        case "constant":
            fill = _fill(operation.fill, form)
            return where(
                hidden,
                (image, start, part),
                lambda image, start, part: fn.erase(image, anchor=start, shape=part, fill_value=fill),
            )
        case "color":
            color = fn.random.normal(shape=[3], seed=run.draws.seed(operation, "color"))
            color = math.clamp(math.floor(color + 0.5), 0.0, 255.0) if form.whole else color
            return where(
                hidden,
                (image, start, part, color),
                lambda image, start, part, color: fn.erase(image, anchor=start, shape=part, fill_value=color),
            )
    # Noise is drawn for the part alone, and a single pixel of it where none is hidden.
    shape = fn.cat(math.max(part * hidden, 1.0), _constant([3]))
    noise = fn.random.normal(
        shape=fn.cast(shape, dtype=types.INT32),
        seed=run.draws.seed(operation, "pixels"),
        device="gpu" if run.gpu else "cpu",
    )
    noise = fn.reshape(fn.cast(noise, dtype=types.UINT8) if form.whole else noise, layout="HWC")

    def put(image: Node, noise: Node, start: Node, part: Node, sides: Node) -> Node:
        around = fn.slice(
            noise, start * -1.0, sides, axes=[0, 1], normalized_anchor=False, normalized_shape=False,
            out_of_bounds_policy="pad",
        )  # fmt: skip
        return fn.erase(image, anchor=start, shape=part) + around

    return where(hidden, (image, noise, start, part, sides), put)


def _part(operation: RandomErasing, sides: Node, run: Run) -> tuple[Node, Node]:
    """Return height and width of the first part drawn that fits, [2], and whether there is one: a bool."""
    count = operation.attempts
    area = _even(operation, "area", operation.area, (count, 1), run) * (sides[0] * sides[1])
    if operation.log_ratio:
        low, high = np.log(operation.ratio)
        ratio = math.exp(_even(operation, "ratio", (float(low), float(high)), (count, 1), run))
    else:
        ratio = _even(operation, "ratio", operation.ratio, (count, 1), run)
    parts = math.floor(math.sqrt(fn.cat(area * ratio, area / ratio, axis=1)) + 0.5)
    fits = fn.reductions.min(fn.cast(parts < sides, dtype=types.INT32), axes=1)
    # The first has the greatest number.
    best = fn.reductions.max(fits * types.Constant(np.arange(count, 0, -1, dtype=np.int32)))
    part = parts[math.min(count - best, count - 1)]
    return part, (best > 0) & (fn.reductions.min(part) > 0.0)


# Squares, grids, cells -----------------------------------------------------------------------------------------------


@apply.register
def _(operation: Cutout, image: Node, form: Form, run: Run) -> Node:
    sides, count = _sides(image), operation.holes
    middle = _whole(operation, "middle", sides, (count, 2), run)
    half = float(operation.length // 2)
    start, end = math.max(middle - half, 0.0), math.min(middle + half, sides)
    shape = end - start
    if operation.fill is not None:
        return fn.erase(
            image,
            anchor=fn.reshape(start, shape=[-1]),
            shape=fn.reshape(shape, shape=[-1]),
            fill_value=_fill(operation.fill, form),
        )
    colors = _whole(operation, "colors", _constant([256]), (count, 3), run)
    for hole in range(count):
        image = fn.erase(image, anchor=start[hole], shape=shape[hole], fill_value=colors[hole])
    return image


@apply.register
def _(operation: GridMask, image: Node, form: Form, run: Run) -> Node:
    low, high = operation.period
    period = run.draws.whole(operation, "period", high - low + 1) + low
    square = (period - math.floor(period * operation.ratio + 0.5)) / period
    shift = _whole(operation, "phase", fn.cast(period, dtype=types.FLOAT), (2,), run) - _OFF_EDGE
    degrees = run.draws.whole(operation, "angle", operation.angles)
    angle = degrees * (np.pi / 180)

    def hide(image: Node, period: Node, square: Node, shift: Node, angle: Node) -> Node:
        # DALI blackens squares; what it took away is what lies in them.
        masked = fn.grid_mask(image, tile=period, ratio=square, shift_y=shift[0], shift_x=shift[1], angle=angle)
        return masked if operation.hide == "squares" else image - masked

    nodes = (image, period, square, shift, angle)
    if operation.probability == 1:
        return hide(*nodes)
    return where(run.draws.coin(operation, "whether", operation.probability), nodes, hide)


@apply.register
def _(operation: HideAndSeek, image: Node, form: Form, run: Run) -> Node:
    sides = _sides(image)
    size = _constant(operation.sizes)[run.draws.whole(operation, "size", len(operation.sizes))]
    # A pixel for each cell of the finest grid, black where it is hidden; coarser grids leave some of them unused.
    finest = min(each for each in operation.sizes if each)
    counts = fn.cat(math.ceil(sides / float(finest)), _constant([1]))
    cells = fn.random.coin_flip(
        probability=1 - operation.probability,
        shape=fn.cast(counts, dtype=types.INT32),
        dtype=types.UINT8,
        seed=run.draws.seed(operation, "cells"),
    )
    matrix = _constant([[1, 0, 0], [0, 1, 0]]) / math.max(size, 1.0)

    def hide(image: Node, cells: Node, sides: Node, matrix: Node) -> Node:
        return image * fn.warp_affine(cells, matrix=matrix, size=sides, interp_type=types.INTERP_NN)

    return where(size > 0.0, (image, run.place(fn.reshape(cells, layout="HWC")), sides, matrix), hide)


#: Anchors and shapes of what lies above, below, left and right of a part, from its start, its shape and the image's.
_AROUND = np.array([
    [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0],
    [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [-1, 0, -1, 0, 1, 0], [0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, -1, 0, -1, 0, 1],
])  # fmt: skip


@apply.register
def _(operation: KeepPart, image: Node, form: Form, run: Run) -> Node:
    start, part = fn.random_crop_generator(
        image.shape(),
        random_area=list(operation.area),
        random_aspect_ratio=list(operation.ratio),
        num_attempts=10,
        seed=run.draws.seed(operation, "part"),
    )
    numbers = fn.cat(fn.cast(start, dtype=types.FLOAT), fn.cast(part, dtype=types.FLOAT), _sides(image))
    around = fn.reductions.sum(_constant(_AROUND) * numbers, axes=1)

    def fill(image: Node, around: Node) -> Node:
        return fn.erase(image, anchor=around[:8], shape=around[8:], fill_value=_fill([operation.fill], form))

    if operation.probability == 1:
        return fill(image, around)
    return where(run.draws.coin(operation, "whether", operation.probability), (image, around), fill)
