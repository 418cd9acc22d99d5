"""Color: jitter, grayscale, PCA lighting, conversion between color spaces, and blur.

Factors and matrices are computed on the CPU, because DALI's operators take their arguments there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.combinators import select, where
from loaders.dali.graph import GraphContext, Node, apply, fn, math, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)

#: Weights of red, green and blue in gray (ITU-R BT.601), as in Pillow, OpenCV and torchvision.
_LUMA = np.array([0.299, 0.587, 0.114])

#: Subtracted before a cast that rounds to nearest, to round down as Pillow's blending does. It is
#: below 0.5 because float32 results may be slightly below the integer that they represent.
_DOWN = 0.499

#: Principal components of ImageNet's colors (rows: red, green, blue), each times its standard
#: deviation.
_COMPONENTS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
) * np.array([0.2175, 0.0188, 0.0045])

#: JPEG's Y, Cb and Cr (rows) from red, green and blue (columns).
_YCBCR = np.array([_LUMA, [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])

#: CIE X, Y and Z (rows) from linear red, green and blue (columns), relative to the white point D65.
_XYZ = (
    np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
    / np.array([[0.950456], [1.0], [1.088754]])
)  # fmt: skip

#: Appends a channel of zeros.
_WIDEN = np.eye(4, 3)

#: Positions of red, green and blue on the hue circle, in sixths of the circle. They start at 10 to
#: avoid negative hues.
_SIXTHS = np.array([10.0, 12.0, 14.0])


def _by_channel(
    values: NDArray[np.float64], spec: ImageSpec, axis: int = -1
) -> NDArray[np.float64]:
    """Return values for red, green and blue in the order of the image's channels."""
    return np.flip(values, axis) if spec.color_space == "BGR" else values


def _transform_channels(
    image: Node, matrix: Node | NDArray[np.float64], shift: Node = None, **options: object
) -> Node:
    """Multiply each pixel by a matrix and add a shift.

    An array applies to all samples. It becomes a list, because a constant node cannot be used
    inside a branch.
    """
    if isinstance(matrix, np.ndarray):
        matrix = matrix.ravel().tolist()
    if shift is not None:
        options["T"] = shift
    return fn.coord_transform(image, M=matrix, **options)


# Jitter
# --------------------------------------------------------------------------------------------------

#: The adjustments that multiply each pixel by a matrix.
_BLENDS = ("brightness", "saturation")


@apply.register
def _(operation: ColorJitter, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    names = [
        name
        for name in ("brightness", "contrast", "saturation")
        if getattr(operation, name) != (1, 1)
    ]
    names += ["hue"] if operation.hue != (0, 0) else []
    if not names:
        return image
    slots, plans = jitter_plans(names)
    branched: list[bool] = []
    widens: list[bool] = []
    for name, is_always_used in zip(slots, plans.min(axis=0) > 0, strict=True):
        # On a GPU, a blend that changes nothing takes less time than a branch.
        is_unbranched = context.gpu and name != "hue"
        is_unbranched |= bool(is_always_used) and operation.probability == 1
        if name == "contrast" and slots[: len(widens)][-1:] == ["blend"]:
            # The blend before it also appends the channel for the mean.
            widens[-1] = is_unbranched and not branched[-1]
        branched.append(not is_unbranched)
        widens.append(False)

    def draw(rng: np.random.Generator, batch_size: int) -> list[NDArray[Any]]:
        plan, factors = draw_jitter(operation, plans, rng, batch_size)
        amounts = _amounts(factors, names, spec, batch_size)
        outputs: list[NDArray[Any]] = []
        for name, used, branch, widen in zip(slots, plan.T, branched, widens, strict=True):
            matrices = amounts[name][used, np.arange(batch_size)].astype(np.float32)
            if widen:
                matrices = _WIDEN.astype(np.float32) @ matrices
            outputs += [matrices, *([used > 0] if branch else [])]
        return outputs

    ndims = [each for branch in branched for each in [2] + [0] * branch]
    drawn = iter(context.random.from_numpy(operation, "changes", context.batch_size, draw, ndims))
    context.random.show_drawn(
        lambda rng, count: _describe_jitter(names, *draw_jitter(operation, plans, rng, count))
    )
    adjust: dict[str, Callable[..., Node]] = {
        "blend": _blend,
        "contrast": partial(blend_with_mean, spec),
        "hue": _adjust_hue,
    }
    is_wide = False
    for name, branch, widen in zip(slots, branched, widens, strict=True):
        nodes = (image, next(drawn))
        change = partial(adjust[name], is_wide=True) if is_wide else adjust[name]
        image = where(next(drawn), nodes, change) if branch else change(*nodes)
        is_wide = widen
    return image


def jitter_plans(names: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Return a sequence of slots that contains every order of the adjustments `names`.

    The graph is one fixed sequence of operators, and each sample uses some of its slots.

    Returns:
        The slots, each `"blend"`, `"contrast"` or `"hue"`; and int32 [orders, slots], one row for
        each order of `names`. In a row, 0 stands for an unused slot and 1 for a used one; a used
        blend slot has the number of its blend, from 1, in the order of `names`. Between all other
        slots there are slots for all blends. If contrast and hue are both in `names`, contrast has
        a slot before hue and one after it.

    """
    blends = [name for name in names if name in _BLENDS]
    others = [name for name in names if name not in _BLENDS]
    slots = ["blend"] * len(blends)
    for name in (*others, *others[:-1]):
        slots += [name, *["blend"] * len(blends)]
    orders = list(permutations(names))
    plans = np.zeros((len(orders), len(slots)), np.int32)
    for order, plan in zip(orders, plans, strict=True):
        slot = -1
        for name in order:
            slot = slots.index("blend" if name in blends else name, slot + 1)
            plan[slot] = blends.index(name) + 1 if name in blends else 1
    return slots, plans


def draw_jitter(
    operation: ColorJitter, plans: NDArray[np.int32], rng: np.random.Generator, batch_size: int
) -> tuple[NDArray[np.int32], dict[str, NDArray[np.float64]]]:
    """Draw the plan of each image and the factors of its steps.

    If an image does not change, all its slots are unused.

    Returns:
        The plans, int32 [N, slots], and for each name of an adjustment float64 [N] factors; for hue
        shifts in circles.

    """
    plan = plans[rng.integers(len(plans), size=batch_size)]
    plan *= rng.random((batch_size, 1)) < operation.probability
    factors = {}
    for name in (*_BLENDS, "contrast", "hue"):
        low, high = getattr(operation, name)
        factors[name] = rng.uniform(low, high, batch_size)
    return plan, factors


def _describe_jitter(
    names: Sequence[str], plan: NDArray[np.int32], factors: dict[str, NDArray[np.float64]]
) -> list[str]:
    texts = [
        ", ".join(f"{name} {factors[name][at]:.2f}" for name in names) for at in range(len(plan))
    ]
    return [text if used.any() else "" for text, used in zip(texts, plan, strict=True)]


def _amounts(
    factors: dict[str, NDArray[np.float64]], names: Sequence[str], spec: ImageSpec, batch_size: int
) -> dict[str, NDArray[np.float64]]:
    """Return the arguments of each kind of slot, for each number in a plan: [numbers, N, ...].

    The arguments of number 0 change nothing.
    """
    # Saturation blends with gray, so its rows are the weights of gray. Brightness blends with
    # black.
    identity = np.eye(3)
    other = {
        "saturation": np.tile(_by_channel(_LUMA, spec), (3, 1)),
        "brightness": np.zeros((3, 3)),
    }
    blends = [np.broadcast_to(identity, (batch_size, 3, 3))] + [
        other[name] + factors[name][:, None, None] * (identity - other[name])
        for name in names
        if name in _BLENDS
    ]
    contrast = np.stack([np.ones(batch_size), factors["contrast"]])[..., None, None]
    shares = np.broadcast_to(1 - contrast, (2, batch_size, 3, 1))
    hue = np.stack([np.zeros(batch_size), factors["hue"]])
    return {
        "blend": np.stack(blends),
        "contrast": np.concatenate([contrast * identity, shares], axis=3),
        "hue": _hue_matrices(hue, spec),
    }


def _hue_matrices(shift: NDArray[np.float64], spec: ImageSpec) -> NDArray[np.float64]:
    """Return the matrices that shift the hue: [..., 3, 5].

    They multiply the three channels, the largest channel V and the smallest channel m of a pixel.
    The result must be clamped to m and V, which a shift of the hue keeps.

    Around the circle of hues, each channel is V for a third, m for a third, and linear between
    them. A shift by a sixth replaces a channel by V + m minus the next one, a shift by two sixths
    by the previous one. A shift by a part t of a sixth moves the slopes. If a is the channel and b
    and c follow it, the slopes are at a - b + (2t - 1)c + (1 - t)(V + m). Elsewhere this is at
    least V or at most m.

    Args:
        shift: shifts as fractions of the circle.
        spec: the order of the channels.

    """
    sixths = np.floor(shift * 6)
    part = (shift * 6 - sixths)[..., None]
    is_odd = (sixths % 2)[..., None]
    first = (np.arange(3) - (sixths[..., None] - is_odd) / 2 + is_odd) % 3
    sign = 1 - 2 * is_odd
    matrices = np.zeros((*shift.shape, 3, 5))
    for step, share in enumerate((sign, -sign, sign * (2 * part - 1))):
        channel = ((first + step) % 3).astype(int)[..., None]
        np.put_along_axis(matrices, channel, np.broadcast_to(share, first.shape)[..., None], -1)
    matrices[..., 3:] = np.where(sign > 0, 1 - part, part)[..., None]
    if spec.color_space == "BGR":
        matrices[..., :3] = matrices[..., ::-1, 2::-1]
    return matrices


def _blend(image: Node, matrix: Node) -> Node:
    return fn.coord_transform(image, M=matrix, T=-_DOWN, dtype=types.UINT8)


def blend_with_mean(spec: ImageSpec, image: Node, matrix: Node, *, is_wide: bool = False) -> Node:
    """Multiply each pixel, and the mean of the image in gray, by a matrix, and round down.

    Args:
        spec: the image's color space.
        image: uint8 [H, W, 3]; if it is wide, [H, W, 4] with a channel of zeros.
        matrix: float32 [3, 4], on the CPU.
        is_wide: whether the image is wide.

    """
    if not is_wide:
        image = _transform_channels(image, _WIDEN, dtype=types.UINT8)
    weights = np.zeros((4, 4))
    weights[3, :3] = _by_channel(_LUMA, spec)
    mean = fn.reductions.mean(image, axes=[0, 1], keep_dims=True)
    # Pillow rounds the mean to an integer, as the cast does.
    mean = fn.cast(_transform_channels(mean, weights), dtype=types.UINT8)
    return fn.coord_transform(math.max(image, mean), M=matrix, T=-_DOWN, dtype=types.UINT8)


def _adjust_hue(image: Node, matrix: Node) -> Node:
    """Change the hue of uint8 HWC images by a matrix of `_hue_matrices`."""
    least, value = _range(image)
    changed = fn.coord_transform(fn.cat(image, value, least, axis=2), M=matrix, dtype=types.UINT8)
    return math.clamp(changed, least, value)


def _range(image: Node) -> tuple[Node, Node]:
    """Return the smallest and the largest channel of each pixel: uint8 [H, W, 1]."""
    least = fn.reductions.min(image, axes=2, keep_dims=True)
    return least, fn.reductions.max(image, axes=2, keep_dims=True)


def _value_chroma_hue(image: Node, spec: ImageSpec) -> tuple[Node, Node, Node]:
    """Return the largest channel and the chroma, uint8 [H, W, 1], and the hue.

    The hue is float32 in sixths of the circle, from 9 to 15.
    """
    least, value = _range(image)
    chroma = value - least
    # For each channel: the next channel on the circle minus the previous one.
    differences = np.array([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]])
    matrix = -differences if spec.color_space == "BGR" else differences
    positions = _by_channel(_SIXTHS, spec).tolist()
    from_channel = _transform_channels(image / math.max(chroma, 1), matrix, positions)
    # The largest channel determines the hue. If two are equal, both give the same hue, and the last
    # one is used.
    hue = fn.reductions.max(from_channel * (image == value), axes=2, keep_dims=True)
    return value, chroma, hue


# Grayscale, lighting, color spaces
# ------------------------------------------------------------------------------------


def _gray(image: Node, spec: ImageSpec) -> Node:
    return _transform_channels(image, np.tile(_by_channel(_LUMA, spec), 3), dtype=types.UINT8)


@apply.register
def _(operation: RandomGrayscale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    coin = context.random.coin(operation, "whether", operation.probability)
    context.random.show(lambda coin: "gray" if coin else "", lambda: (coin,))
    return where(coin, (image,), lambda image: _gray(image, spec))


@apply.register
def _(operation: PCALighting, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    components = _by_channel(_COMPONENTS, spec, axis=0) * (255.0 if spec.is_uint8 else 1.0)

    def draw(rng: np.random.Generator, batch_size: int) -> list[NDArray[np.float32]]:
        return [(rng.normal(0, operation.std, (batch_size, 3)) @ components.T).astype(np.float32)]

    (shift,) = context.random.from_numpy(operation, "shift", context.batch_size, draw, (1,))
    unit = 1.0 if spec.is_uint8 else 255.0
    context.random.show(
        lambda shift: f"colors {' '.join(f'{unit * each:+.0f}' for each in shift)}",
        lambda: (shift,),
    )
    return _transform_channels(
        image, np.eye(3), shift, dtype=types.UINT8 if spec.is_uint8 else types.FLOAT
    )


@apply.register
def _(operation: ConvertColor, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    match operation.space:
        case space if space == spec.color_space or (
            spec.color_space == "GRAY" and space in ("RGB", "BGR")
        ):
            return image
        case "RGB" | "BGR":
            return _transform_channels(image, np.eye(3)[::-1], dtype=types.UINT8)
        case "GRAY":
            return _gray(image, spec)
        case "YCbCr":
            return _transform_channels(
                image, _by_channel(_YCBCR, spec), [0, 128, 128], dtype=types.UINT8
            )
        case "HSV":
            return _hsv(image, spec)
    return _lab(image, spec)


def _hsv(image: Node, spec: ImageSpec) -> Node:
    value, chroma, hue = _value_chroma_hue(image, spec)
    hue = (hue - 10.0) * math.min(chroma, 1) * (256 / 6)
    # The range is -43 to 213. Modulo 256 it covers the circle.
    hue = fn.cast(math.floor(hue + 0.5), dtype=types.INT32) & 255
    saturation = chroma * 255.0 / math.max(value, 1)
    return fn.cat(*(fn.cast(each, dtype=types.UINT8) for each in (hue, saturation, value)), axis=2)


def _lab(image: Node, spec: ImageSpec) -> Node:
    # Two lookup tables: from sRGB bytes to linear light (0 to 65535), and from light to the cube
    # root, which is linear near 0, as CIE Lab defines it.
    light = np.arange(256) / 255
    light = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
    t = np.arange(65536) / 65535
    root = np.where(t > 216 / 24389, np.cbrt(t), t * (841 / 108) + 16 / 116)
    linear = _lookup(image, light * 65535, types.UINT16)
    xyz = _transform_channels(linear, _by_channel(_XYZ, spec), dtype=types.UINT16)
    matrix = np.array([[0, 116 * 2.55, 0], [500, -500, 0], [0, 200, -200]])
    return fn.cast(
        _transform_channels(_lookup(xyz, root, types.FLOAT), matrix, [-16 * 2.55, 128, 128]),
        dtype=types.UINT8,
    )


def _lookup(image: Node, values: NDArray[np.float64], dtype: object) -> Node:
    return fn.lookup_table(
        image, keys=list(range(len(values))), values=values.tolist(), dtype=dtype
    )


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
    draw = context.random.of_clips(draw)
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
