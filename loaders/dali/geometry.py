"""Decoding, resizing, cropping, flipping, turning and padding in DALI.

Shapes are computed as float32 vectors of a height and a width: each operator on the processor costs about a
microsecond a sample, whatever it computes, so that few and wide ones are best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from loaders.dali.base import Node, Run, apply, constant, fn, math, select, types, where
from loaders.transforms.base import Filter, ImageSpec, Size
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.fuse import CropResize, DecodeCrop, ResizeCrop
from loaders.transforms.geometry import (
    Crop,
    CropAtRatio,
    Flip,
    Pad,
    PadTo,
    RandomDownscale,
    RandomResizedCrop,
    RandomRightAngle,
    Resize,
    Rotate,
)

#: What DALI does at most to find a part that fits; as torchvision.
ATTEMPTS = 10

#: Adding it and taking it away leaves a float32 rounded to whole, a half to the even.
_ROUND_EVEN = 1.5 * 2**23

_INTERPOLATION = {
    "nearest": types.INTERP_NN,
    "linear": types.INTERP_LINEAR,
    "cubic": types.INTERP_CUBIC,
    "triangular": types.INTERP_TRIANGULAR,
    "lanczos": types.INTERP_LANCZOS3,
}


def decode(encoded: Node, operation: Decode | DecodeCrop | Unpack, run: Run, hardware_load: float) -> Node:
    """Decode images, or a part of each, or take pixels as they are: uint8 [bytes] -> uint8 HWC."""
    if isinstance(operation, Unpack):
        pixels = run.place(fn.reshape(encoded, shape=[*operation.size, 3], layout="HWC"))
        if operation.space == "RGB":
            return pixels
        return fn.color_space_conversion(pixels, image_type=types.RGB, output_type=types.BGR)
    whole = operation.decode if isinstance(operation, DecodeCrop) else operation
    options: dict[str, Any] = {
        "device": "mixed" if run.gpu else "cpu",
        "output_type": types.RGB if whole.space == "RGB" else types.BGR,
    }
    if run.gpu:
        options["hw_decoder_load"] = hardware_load
    if isinstance(operation, DecodeCrop) and _drawn_by_dali(operation.crop):
        # Its window is that of `fn.random_crop_generator` with the same seed, a twentieth cheaper on the processor.
        return fn.decoders.image_random_crop(encoded, **_attempts(operation.crop, run), **options)
    if isinstance(operation, DecodeCrop):
        window = _window(operation.crop, lambda dtype: fn.peek_image_shape(encoded, dtype=dtype), run)
        return fn.decoders.image_slice(encoded, window.start, window.shape, **window.units, **options)
    if run.gpu:
        # As the processor interpolates chroma; whole images are what evaluations decode.
        options["jpeg_fancy_upsampling"] = True
    return fn.decoders.image(encoded, **options)


#: Gives the shape of an image in a type: [3], height, width and channels.
ShapeOf: TypeAlias = Callable[[Any], Node]


@dataclass(frozen=True, slots=True)
class Window:
    """Part of an image: where it begins and its height and width, [2] each.

    In pixels, or in shares of the height and width, which DALI rounds to pixels.
    """

    start: Node
    shape: Node
    in_shares: bool = False

    @property
    def units(self) -> dict[str, Any]:
        """Arguments of DALI's slices that say so."""
        return {"axes": [0, 1], "normalized_anchor": self.in_shares, "normalized_shape": self.in_shares}


def _shape_of(image: Node) -> ShapeOf:
    return lambda dtype: image.shape(dtype=dtype)


def _window(part: Crop | RandomResizedCrop | CropAtRatio, shape_of: ShapeOf, run: Run) -> Window:
    match part:
        case RandomResizedCrop() if _drawn_by_dali(part):
            return Window(*fn.random_crop_generator(shape_of(types.INT64), **_attempts(part, run)))
        case RandomResizedCrop():
            shape = _bounded_shape(part, shape_of(types.FLOAT), run)
            draw = fn.random.uniform(range=[0.0, 1.0], shape=[2], seed=run.draws.seed(part, "place"))
            return Window(draw * (1.0 - shape), shape, in_shares=True)
        case CropAtRatio():
            sides = shape_of(types.FLOAT)[:2]
            side = math.floor(fn.reductions.min(sides, keep_dims=True) * part.share)
            kept = fn.cat(side, side)
            return Window(math.floor((sides - kept) * 0.5), kept)
        case Crop():
            return Window(_crop_start(part, shape_of(types.FLOAT)[:2], run, fits=False), constant(part.size))


def _drawn_by_dali(part: RandomResizedCrop | CropAtRatio) -> TypeGuard[RandomResizedCrop]:
    return isinstance(part, RandomResizedCrop) and part.sampling == "attempts"


def _attempts(part: RandomResizedCrop, run: Run) -> dict[str, Any]:
    return {
        "random_area": list(part.area),
        "random_aspect_ratio": list(part.ratio),
        "num_attempts": ATTEMPTS,
        "seed": run.draws.seed(part, "window"),
    }


def _bounded_shape(part: RandomResizedCrop, shape: Node, run: Run) -> Node:
    # PaddleClas' way: with t = ratio * height / width, the area is at most min(t, 1 / t), and the part's
    # share of the width is sqrt(area * t), of the height sqrt(area / t).
    low, high = part.ratio
    if part.log_ratio:
        log_ratio = run.draws.uniform(part, "ratio", float(np.log(low)), float(np.log(high)))
    else:
        log_ratio = math.log(run.draws.uniform(part, "ratio", low, high))
    # The sum over log height, log width and log channels: one operator for the difference of two.
    log_t = fn.reductions.sum(math.log(shape) * constant((1.0, -1.0, 0.0))) + log_ratio
    both = math.exp(log_t * constant((-1.0, 1.0)))
    fits = fn.reductions.min(both)
    least = math.min(fits, part.area[0])
    most = math.min(fits, part.area[1]) if part.area[1] < 1 else fits
    area = least + run.draws.uniform(part, "area", 0.0, 1.0) * (most - least)
    # Of the smallest images at least a pixel.
    return math.clamp(math.sqrt(both * area), 1.0 / shape[:2], 1.0)


def _crop_start(crop: Crop, sides: Node, run: Run, *, fits: bool) -> Node:
    """Return where a crop begins, below 0 where an image is smaller, which `fits` rules out."""
    room = sides - constant(crop.size)
    if crop.at == "random":
        draw = fn.random.uniform(range=[0.0, 1.0], shape=[2], seed=run.draws.seed(crop, "place"))
        if fits:
            return math.floor(draw * (room + 1.0))
        return math.floor(draw * (math.abs(room) + 1.0)) + math.min(room, 0.0)
    half = room * 0.5
    if crop.rounding == "down":
        return math.floor(half)
    start = (half + _ROUND_EVEN) - _ROUND_EVEN
    # Of what a smaller image lacks, torchvision adds the lesser half at the top and the left.
    return start if fits else math.max(start, math.min(math.ceil(half), 0.0))


@apply.register
def _(operation: Resize, image: Node, form: ImageSpec, run: Run) -> Node:
    return _resized(operation, image, _target(operation, image, form), run)


def _sides(image: Node) -> Node:
    return image.shape(dtype=types.FLOAT)[:2]


def _target(operation: Resize, image: Node, form: ImageSpec) -> Node | Size:
    """Return the height and width that an image gets: numbers, or float32 [2] a sample."""
    size = operation.output(form).size
    if size is not None:
        return size
    sides = _sides(image)
    exact = sides * float(operation.shorter or 1) / fn.reductions.min(sides)
    if operation.rounding == "down":
        return math.floor(exact)
    return (exact + _ROUND_EVEN) - _ROUND_EVEN


def _resized(operation: Resize, image: Node, target: Node | Size, run: Run, **region: Node) -> Node:
    size = list(map(float, target)) if isinstance(target, tuple) else target
    return fn.resize(
        image,
        size=size,
        interp_type=_interpolation(operation, operation.filter, run),
        antialias=operation.antialias,
        **region,
    )


def _interpolation(owner: Any, name: Filter, run: Run) -> Any:
    if name != "random":
        return _INTERPOLATION[name]
    coin = run.draws.coin(owner, "filter", 0.5)
    names = [int(types.INTERP_LINEAR), int(types.INTERP_CUBIC)]
    return fn.reinterpret(fn.cast(coin, dtype=types.INT32) * (names[1] - names[0]) + names[0], dtype=types.INTERP_TYPE)


@apply.register
def _(operation: ResizeCrop, image: Node, form: ImageSpec, run: Run) -> Node:
    # The part of the image that becomes the crop, in the image's own coordinates.
    resize, crop = operation.resize, operation.crop
    target = _target(resize, image, form)
    if isinstance(target, tuple):
        target = constant(target)
    start = _crop_start(crop, target, run, fits=True)
    begin = start / target
    end = (start + constant(crop.size)) / target
    return _resized(resize, image, crop.size, run, roi_start=begin, roi_end=end, roi_relative=True)


@apply.register
def _(operation: Crop, image: Node, form: ImageSpec, run: Run) -> Node:
    return _cut(image, _window(operation, _shape_of(image), run))


@apply.register
def _(operation: RandomResizedCrop, image: Node, form: ImageSpec, run: Run) -> Node:
    part = _cut(image, _window(operation, _shape_of(image), run))
    resize = Resize(operation.size, filter=operation.filter, antialias=operation.antialias)
    return _resized(resize, part, operation.size, run)


@apply.register
def _(operation: CropResize, image: Node, form: ImageSpec, run: Run) -> Node:
    window = operation.crop
    return fn.random_resized_crop(
        image,
        size=list(window.size),
        interp_type=_interpolation(window, window.filter, run),
        antialias=window.antialias,
        **_attempts(window, run),
    )


@apply.register
def _(operation: CropAtRatio, image: Node, form: ImageSpec, run: Run) -> Node:
    part = _cut(image, _window(operation, _shape_of(image), run))
    size = (operation.size, operation.size)
    return _resized(Resize(size, filter=operation.filter, antialias=False), part, size, run)


def _cut(image: Node, window: Window) -> Node:
    return fn.slice(image, window.start, window.shape, out_of_bounds_policy="pad", **window.units)


@apply.register
def _(operation: Flip, image: Node, form: ImageSpec, run: Run) -> Node:
    coin = flip_coin(operation, run)
    return fn.flip(
        image,
        horizontal=coin if operation.axis != "vertical" else 0,
        vertical=coin if operation.axis != "horizontal" else 0,
    )


def flip_coin(operation: Flip, run: Run) -> Node:
    """Return an int32 a sample: 1 to mirror, 0 not to."""
    return fn.random.coin_flip(probability=operation.probability, seed=run.draws.seed(operation, "coin"))


@apply.register
def _(operation: Rotate, image: Node, form: ImageSpec, run: Run) -> Node:
    angle = run.draws.uniform(operation, "angle", *operation.degrees)
    kind = _INTERPOLATION[operation.filter]

    def turned(image: Node, angle: Node) -> Node:
        return fn.rotate(image, angle=angle, keep_size=True, fill_value=operation.fill, interp_type=kind)

    if operation.probability == 1:
        return turned(image, angle)
    return where(run.draws.coin(operation, "coin", operation.probability), [image, angle], turned)


@apply.register
def _(operation: RandomRightAngle, image: Node, form: ImageSpec, run: Run) -> Node:
    def quarter(image: Node) -> Node:
        return fn.flip(fn.transpose(image, perm=[1, 0, 2], transpose_layout=False), horizontal=0, vertical=1)

    def three_quarters(image: Node) -> Node:
        return fn.flip(fn.transpose(image, perm=[1, 0, 2], transpose_layout=False), horizontal=1, vertical=0)

    branches = [
        lambda image: image,
        quarter,
        lambda image: fn.flip(image, horizontal=1, vertical=1),
        three_quarters,
    ]
    return select(run.draws.whole(operation, "turns", 4), [image], branches)


@apply.register
def _(operation: Pad, image: Node, form: ImageSpec, run: Run) -> Node:
    if operation.mode != "constant":
        return _continued(image, operation)
    added = constant((operation.top + operation.bottom, operation.left + operation.right))
    return _placed(image, constant((-operation.top, -operation.left)), _sides(image) + added, operation.fill)


def _placed(image: Node, start: Node, shape: Node, fill: tuple[float, ...]) -> Node:
    return fn.slice(
        image, start, shape, axes=[0, 1], normalized_anchor=False, normalized_shape=False,
        out_of_bounds_policy="pad", fill_values=list(fill),
    )  # fmt: skip


def _continued(image: Node, operation: Pad) -> Node:
    # DALI pads with constants alone: the borders are cut out, mirrored and put beside.
    sides = image.shape(dtype=types.INT32)
    for axis, before, after in ((0, operation.top, operation.bottom), (1, operation.left, operation.right)):
        image = fn.cat(
            *(_border(image, None, before, axis, operation.mode) if before else ()),
            image,
            *(_border(image, sides[axis : axis + 1], after, axis, operation.mode) if after else ()),
            axis=axis,
        )
    return image


def _border(image: Node, end: Node | None, count: int, axis: int, mode: str) -> list[Node]:
    """Return so many rows or columns to put before an image or, given the length of its axis, at its end."""
    length, skip = (1, 0) if mode == "edge" else (count, int(mode == "reflect"))
    start = [skip] if end is None else end - (length + skip)
    # More than there is to mirror is an error.
    inner = fn.slice(image, start=start, shape=[length], axes=[axis])
    return [inner] * count if mode == "edge" else [fn.flip(inner, vertical=int(axis == 0), horizontal=int(axis == 1))]


@apply.register
def _(operation: PadTo, image: Node, form: ImageSpec, run: Run) -> Node:
    sides = _sides(image)
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
    fill = operation.fill
    return _placed(image, start, target + start * 0.0, fill)


@apply.register
def _(operation: RandomDownscale, image: Node, form: ImageSpec, run: Run) -> Node:
    share = run.draws.uniform(operation, "share", *operation.share)
    sides = _sides(image)
    kinds = [_INTERPOLATION[name] for name in ("nearest", "linear", "cubic", "lanczos")]

    side = math.floor(sides[0] * share)
    small = fn.stack(side, side)
    first, second = run.draws.whole(operation, "down", len(kinds)), run.draws.whole(operation, "up", len(kinds))
    branches = [
        lambda image, size, kind=kind: fn.resize(image, size=size, interp_type=kind, antialias=False) for kind in kinds
    ]

    def degraded(image: Node, small: Node, sides: Node, first: Node, second: Node) -> Node:
        return select(second, [select(first, [image, small], branches), sides], branches)

    return where(
        run.draws.coin(operation, "coin", operation.probability), [image, small, sides, first, second], degraded
    )
