"""Crops and resizes: compute the region of an image to keep, cut it out, and resize it.

`decode_normalize` uses it to decode only that region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loaders.arrays import Float32s
from loaders.dali.combinators import select, where
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
from loaders.transforms.base import BUCKET, Filter, ImageSpec, Operation, Size
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    KeepSize,
    MultiCrop,
    RandomDownscale,
    RandomResizedCrop,
    Resize,
    ResizeKeepRatio,
    ResizeWithin,
    ScaleJitter,
)
from loaders.transforms.fuse import CropResize, PadCrop, ResizeCrop

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


def resize_target(
    operation: Resize, image: Node, spec: ImageSpec, context: GraphContext
) -> Node | Size:
    """Return the height and width that `operation` gives an image: a tuple if known, else float32 [2] per sample."""
    size = operation.output(spec).size
    return size if size is not None else resized_sides(operation, image_sides(image), context)


def resized_sides(operation: Resize, sides: Node, context: GraphContext) -> Node:
    """Return the height and width, float32 [2], that `operation` gives an image with these sides."""
    if operation.size is not None:
        return context.sides(operation.size)
    if isinstance(operation, ResizeKeepRatio):
        ratios = sides / context.sides(operation.target)
        choose = fn.reductions.min
        if operation.fits:
            choose = fn.reductions.max
        return math.max(round_half_even(sides / choose(ratios)), 1.0)
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
    return resize(operation, image, resize_target(operation, image, spec, context), context)


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

    def find_sides(sides: Float32s, scales: Float32s) -> list[Float32s]:
        factors = (np.array(operation.target[::-1], np.float32) / sides).min(1)
        exact = sides * (factors * scales)[:, None] + np.float32(_EPSILON)
        # An image has at least one pixel.
        return [np.maximum(np.floor(exact), 1)]

    scale = context.random.uniform(operation, "scale", *operation.scale)
    context.random.show(lambda scale: f"scaled by {scale:.2f}", lambda: (scale,))
    return compute(find_sides, sides, scale)[0]


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


#: Number of times that DALI tries to draw a region that fits inside the image; the same as in
#: torchvision.
ATTEMPTS = 10

#: Returns the shape of an image, [3] (height, width, channels), in the DALI dtype that it is called
#: with.
ShapeOf: TypeAlias = Callable[[Any], Node]


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of an image.

    Attributes:
        start: top and left, [2].
        shape: height and width, [2].
        normalized: `True` if `start` and `shape` are fractions of the image's height and width,
            which DALI rounds to pixels; `False` if they are pixels.

    """

    start: Node
    shape: Node
    normalized: bool = False

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of DALI's slice operators: the axes and units."""
        return {
            "axes": [0, 1],
            "normalized_anchor": self.normalized,
            "normalized_shape": self.normalized,
        }


@singledispatch
def find_region(crop: Operation, shape_of: ShapeOf, context: GraphContext) -> Region:
    """Return the region that a crop keeps of each image.

    Args:
        crop: the operation.
        shape_of: the image's shape, read from pixels or from the header of an encoded image.
        context: the source of random values.

    Raises:
        TypeError: the operation is no crop.

    """
    raise TypeError(f"{type(crop).__name__} keeps no region")


@find_region.register
def _(crop: RandomResizedCrop, shape_of: ShapeOf, context: GraphContext) -> Region:
    if crop.attempts:
        kwargs = attempt_kwargs(crop, context)
        region = Region(*fn.random_crop_generator(shape_of(types.INT64), **kwargs))
        if context.random.has_clips:
            region = _region_of_clip(region, shape_of(types.FLOAT)[:2], context)
        context.random.show(describe_pixels, lambda: (region.start, region.shape))
        return region
    drawn = context.random.from_numpy(
        crop, "region", context.batch_size, partial(_draw_bounded, crop), (0, 0, 1)
    )
    nodes = [shape_of(types.FLOAT), *drawn]
    if crop.size == BUCKET:
        nodes.append(context.sides(BUCKET))
    start, shape = compute(
        lambda shapes, *others: _bounded_region(crop, shapes, others[:3], *others[3:]),
        *nodes,
        count=2,
    )
    return _region_of_shares(start, shape, context)


def _region_of_shares(start: Node, shape: Node, context: GraphContext) -> Region:
    context.random.show(_describe_shares, lambda: (start, shape))
    return Region(start, shape, normalized=True)


def _region_of_clip(region: Region, sides: Node, context: GraphContext) -> Region:
    """Return the region of the first frame of each clip, in proportion if frames have other sizes."""
    ratio = sides / context.random.of_clips(sides)
    start = context.random.of_clips(fn.cast(region.start, dtype=types.FLOAT))
    shape = context.random.of_clips(fn.cast(region.shape, dtype=types.FLOAT))
    return Region(math.floor(start * ratio), math.max(math.floor(shape * ratio), 1.0))


@find_region.register
def _(crop: CropAtRatio, shape_of: ShapeOf, context: GraphContext) -> Region:
    sides = shape_of(types.FLOAT)[:2]
    side = math.max(math.floor(fn.reductions.min(sides, keep_dims=True) * crop.share), 1.0)
    kept = fn.cat(side, side)
    return Region(math.floor((sides - kept) * 0.5), kept)


@find_region.register
def _(crop: Crop, shape_of: ShapeOf, context: GraphContext) -> Region:
    start = _crop_start(crop, shape_of(types.FLOAT)[:2], context, fits=False)
    return Region(start, context.sides(crop.size))


def describe_pixels(start: NDArray[Any], shape: NDArray[Any], what: str = "crop") -> str:
    """Describe a region in pixels: its width and height, its left and its top."""
    return f"{what} {shape[1]:.0f} x {shape[0]:.0f} at {start[1]:.0f}, {start[0]:.0f}"


def _describe_shares(start: NDArray[Any], shape: NDArray[Any]) -> str:
    return f"crop {shape[1]:.0%} x {shape[0]:.0%} at {start[1]:.0%}, {start[0]:.0%}"


def attempt_kwargs(crop: Any, context: GraphContext) -> dict[str, Any]:
    """Return the keyword arguments of DALI's random crop operators."""
    return {
        "random_area": list(crop.area),
        "random_aspect_ratio": list(crop.ratio),
        "num_attempts": ATTEMPTS,
        "seed": context.random.seed(crop, "window"),
    }


def known_region(crop: Operation, context: GraphContext) -> Region | None:
    """Return what `find_region` does for encoded images, if their sizes are known without their headers.

    To read a header takes an operator, whose threads decode the batch before meanwhile.
    """
    if context.known is None or not isinstance(crop, RandomResizedCrop) or crop.attempts:
        return None

    def draw(
        rng: np.random.Generator, count: int, sides: Float32s, bucket: Float32s
    ) -> list[Float32s]:
        drawn = _draw_bounded(crop, rng, count)
        return _bounded_region(crop, sides, drawn, bucket if crop.size == BUCKET else None)

    start, shape = context.random.from_numpy(
        crop, "region", context.batch_size, draw, (1, 1), known=context.known
    )
    return _region_of_shares(start, shape, context)


def _draw_bounded(crop: RandomResizedCrop, rng: np.random.Generator, count: int) -> list[Float32s]:
    """Draw logarithms of the ratio and the places of the area in its range, [N], and places of the region, [N, 2]."""
    low, high = crop.ratio
    log_ratio = rng.uniform(np.log(low), np.log(high), count)
    if not crop.log_ratio:
        log_ratio = np.log(rng.uniform(low, high, count))
    shares = rng.random((count, 3), np.float32)
    return [log_ratio.astype(np.float32), shares[:, 0], shares[:, 1:]]


def _bounded_region(
    crop: RandomResizedCrop,
    shapes: Float32s,
    drawn: Sequence[Float32s],
    target: Float32s | None = None,
) -> list[Float32s]:
    """Return the starts and the shapes of regions as fractions of the images': [N, 2].

    This is PaddleClas's method. With t = ratio * height / width, the area is at most min(t, 1 / t).
    The region takes sqrt(area * t) of the width and sqrt(area / t) of the height.
    """
    log_ratio, share, place = drawn
    logs = np.log(shapes[:, :2])
    if target is not None:
        logs -= np.log(target)
    log_t = logs[:, 0] - logs[:, 1] + log_ratio
    t_and_inverse = np.exp(np.stack([-log_t, log_t], axis=1))
    largest = t_and_inverse.min(1)
    low_area, high_area = (np.minimum(largest, np.float32(area)) for area in crop.area)
    area = low_area + share * (high_area - low_area)
    # Keep at least one pixel of the smallest images.
    kept = np.clip(np.sqrt(t_and_inverse * area[:, None]), 1 / shapes[:, :2], 1)
    return [place * (1 - kept), kept]


def _crop_start(crop: Crop, sides: Node | Size, context: GraphContext, *, fits: bool) -> Node:
    """Return the top and left of a crop, float32 [2], of images with these sides: a tuple if known.

    They are negative where the image is smaller than the crop. Set `fits` if no image is smaller.
    """
    if crop.at == "random":
        start = _random_start(crop, sides, context)
        context.random.show(_describe_start, lambda: (start,))
        return start
    if isinstance(sides, tuple):
        if crop.size != BUCKET:
            room = np.subtract(sides, crop.size)
            if crop.rounding == "down":
                return constant(room // 2)
            return constant(np.maximum(np.round(room / 2), np.minimum(np.ceil(room / 2), 0)))
        sides = constant(sides)
    room = sides - context.sides(crop.size)
    half = room * 0.5
    if crop.rounding == "down":
        return math.floor(half)
    start = round_half_even(half)
    # If the padding of a small image is odd, torchvision adds the smaller half at the top and the
    # left.
    return start if fits else math.max(start, math.min(math.ceil(half), 0.0))


def _random_start(crop: Crop, sides: Node | Size, context: GraphContext) -> Node:
    def find_start(sides: ArrayLike, kept: ArrayLike, place: Float32s) -> list[Float32s]:
        room = np.subtract(sides, kept, dtype=np.float32)
        return [np.floor(place * (np.abs(room) + 1)) + np.minimum(room, 0)]

    known = isinstance(sides, tuple) and crop.size != BUCKET

    def draw(rng: np.random.Generator, count: int) -> list[Float32s]:
        place = rng.random((count, 2), np.float32)
        # With fewer operators: a small image takes little else.
        return find_start(sides, crop.size, place) if known else [place]

    (drawn,) = context.random.from_numpy(crop, "place", context.batch_size, draw, (1,))
    if known:
        return drawn
    if isinstance(sides, tuple):
        sides = constant(sides)
    return compute(find_start, sides, context.sides(crop.size), drawn)[0]


def _describe_start(start: NDArray[Any]) -> str:
    return f"crop at {start[1]:.0f}, {start[0]:.0f}"


def _cut(
    image: Node,
    region: Region,
    context: GraphContext,
    policy: str = "pad",
    color: Sequence[float] = (),
) -> Node:
    fill = {}
    if any(color) or context.mask_fill is not None:
        fill = {"fill_values": context.fill(color)}
    return fn.slice(
        image, region.start, region.shape, out_of_bounds_policy=policy, **fill, **region.kwargs
    )


@apply.register
def _(operation: Crop, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    # Of images that EXIF turns, the size is not checked before, and the tables may state a wrong size.
    stays_inside = operation.fits
    if spec.size is not None and operation.size != BUCKET:
        stays_inside |= bool(np.less_equal(operation.size, spec.size).all())
    policy = "error" if stays_inside else "pad"
    start = _crop_start(operation, spec.size or image_sides(image), context, fits=False)
    region = Region(start, context.sides(operation.size))
    return _cut(image, region, context, policy, operation.fill)


@apply.register
def _(operation: PadCrop, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    pad, crop = operation.pad, operation.crop
    sides: Node | Size | None = pad.output(spec).size
    if sides is None:
        sides = image_sides(image) + constant((pad.top + pad.bottom, pad.left + pad.right))
    start = _crop_start(crop, sides, context, fits=crop.fits) - constant((pad.top, pad.left))
    return _cut(image, Region(start, constant(crop.size)), context, color=pad.fill)


@apply.register
def _(operation: KeepSize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.slice(
        image, start=[0, 0], shape=list(operation.size), axes=[0, 1], out_of_bounds_policy="error"
    )


@apply.register
def _(operation: MultiCrop, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    images = [image]
    if operation.flip != "none":
        images.append(fn.flip(image, **{"horizontal": 0, "vertical": 0, operation.flip: 1}))
    sides = image.shape(dtype=types.FLOAT)[:2]
    center = _crop_start(Crop(operation.size), sides, context, fits=True)
    room = sides - constant(operation.size)
    starts = [room * constant(corner) for corner in ((0, 0), (0, 1), (1, 0), (1, 1))]
    region = Region(center, constant(operation.size))
    crops = [
        _cut(each, replace(region, start=start), context)
        for each in images
        for start in (*starts, center)
    ]
    return fn.reshape(fn.stack(*crops, axis=0), layout="FHWC")


@apply.register(RandomResizedCrop)
@apply.register(CropAtRatio)
def _(
    operation: RandomResizedCrop | CropAtRatio, image: Node, spec: ImageSpec, context: GraphContext
) -> Node:
    region = find_region(operation, lambda dtype: image.shape(dtype=dtype), context)
    return apply(operation.resize, _cut(image, region, context), spec, context)


@apply.register
def _(operation: CropResize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    crop = operation.crop
    interp_type = interpolation(crop, crop.filter, context)
    if context.random.has_clips:
        # The operator below draws for each frame.
        region = find_region(crop, lambda dtype: image.shape(dtype=dtype), context)
        end = region.start + region.shape
        roi = {"roi_start": region.start, "roi_end": end, "antialias": crop.antialias}
        return fn.resize(image, size=list(map(float, crop.size)), interp_type=interp_type, **roi)
    attempts = attempt_kwargs(crop, context)
    context.random.show(
        describe_pixels,
        lambda: fn.random_crop_generator(image.shape(dtype=types.INT64), **attempts),
    )
    return fn.random_resized_crop(
        image, size=list(crop.size), interp_type=interp_type, antialias=crop.antialias, **attempts
    )


@apply.register
def _(operation: ResizeCrop, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    # Resize only the region of the image that becomes the crop.
    crop = operation.crop
    target = resize_target(operation.resize, image, spec, context)
    start = _crop_start(crop, target, context, fits=True)
    if isinstance(target, tuple):
        target = constant(target)
    begin = start / target
    end = (start + constant(crop.size)) / target
    return resize(
        operation.resize, image, crop.size, context, roi_start=begin, roi_end=end, roi_relative=True
    )
