"""Colours and blurs in DALI. Factors are computed on the processor, for operators take their arguments there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.conditional import where
from loaders.dali.graph import GraphContext, Node, apply, constant, fn, math, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    PCALighting,
    RandomGrayscale,
)

#: Shares of red, green and blue in gray (ITU-R BT.601), as in Pillow, OpenCV and torchvision.
_LUMA = np.array([0.299, 0.587, 0.114])

#: What rounding adds at most, and a little less: taking it off first rounds down, as blending does in Pillow.
_DOWN = 0.499

#: Principal components of ImageNet's colours (rows are red, green, blue), each times its standard deviation.
_COMPONENTS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]) * np.array(
    [0.2175, 0.0188, 0.0045]
)

#: JPEG's Y, Cb and Cr (rows) of red, green and blue.
_YCBCR = np.array([_LUMA, [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])

#: CIE X, Y and Z (rows) of linear red, green and blue, over those of the white point D65.
_XYZ = (
    np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
    / np.array([[0.950456], [1.0], [1.088754]])
)  # fmt: skip

#: Where red, green and blue lie on the circle of hues, in sixths; it begins at 10, so that no hue is below 0.
_SIXTHS = np.array([10.0, 12.0, 14.0])


def _by_channel(values: NDArray[np.float64], spec: ImageSpec, axis: int = -1) -> NDArray[np.float64]:
    """Return what is given for red, green and blue in the order of the image's channels."""
    return np.flip(values, axis) if spec.color_space == "BGR" else values


def _linear(image: Node, matrix: Node | NDArray[np.float64], shift: Node = None, **options: object) -> Node:
    """Multiply each pixel by a matrix and add a shift; arrays are the same for all samples, as a branch needs them."""
    if isinstance(matrix, np.ndarray):
        matrix = matrix.ravel().tolist()
    if shift is not None:
        options["T"] = shift
    return fn.coord_transform(image, M=matrix, **options)


# Jitter --------------------------------------------------------------------------------------------------------------

#: Changes that multiply a pixel by a matrix.
_BLENDS = ("brightness", "saturation")


@apply.register
def _(operation: ColorJitter, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    names = [name for name in ("brightness", "contrast", "saturation") if getattr(operation, name) != (1, 1)]
    names += ["hue"] if operation.hue != (0, 0) else []
    if not names:
        return image
    row, plans = jitter_plans(names)
    # On a GPU, a blend that changes nothing costs less than choosing.
    chosen = [
        not ((context.gpu and name != "hue") or (always and operation.probability == 1))
        for name, always in zip(row, plans.min(axis=0) > 0, strict=True)
    ]
    changes: dict[str, Callable[..., Node]] = {
        "blend": _blended,
        "contrast": partial(_contrasted, spec, context),
        "hue": partial(_turned, spec),
    }

    def draw(rng: np.random.Generator, batch_size: int) -> list[NDArray[Any]]:
        plan = plans[rng.integers(len(plans), size=batch_size)]
        plan *= rng.random((batch_size, 1)) < operation.probability
        amounts = _amounts(operation, names, spec, batch_size, rng)
        drawn: list[NDArray[Any]] = []
        for name, made, choice in zip(row, plan.T, chosen, strict=True):
            drawn += [amounts[name][made, np.arange(batch_size)].astype(np.float32), *([made > 0] if choice else [])]
        return drawn

    ranks = {"blend": [2], "contrast": [0], "hue": [1]}
    drawn = iter(context.random.from_numpy(
        operation, "changes", context.batch_size, draw,
        [rank for name, choice in zip(row, chosen, strict=True) for rank in ranks[name] + [0] * choice],
    ))  # fmt: skip
    sixths = context.to_device(_sixths(spec))
    for name, choice in zip(row, chosen, strict=True):
        nodes = (image, next(drawn), *([sixths] if name == "hue" else []))
        image = where(next(drawn), nodes, changes[name]) if choice else changes[name](*nodes)
    return image


def jitter_plans(names: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Return a row of changes in which every order of `names` is found, and where: int32 [orders, places].

    Blends have places for all of them everywhere, and a number there says which is made, from 1; 0 is none. Contrast
    has a place on either side of hue, if there are both; 1 says that it is made.
    """
    blends = [name for name in names if name in _BLENDS]
    others = [name for name in names if name not in _BLENDS]
    row = ["blend"] * len(blends)
    for name in (*others, *others[:-1]):
        row += [name, *["blend"] * len(blends)]
    orders = list(permutations(names))
    plans = np.zeros((len(orders), len(row)), np.int32)
    for order, plan in zip(orders, plans, strict=True):
        place = -1
        for name in order:
            place = row.index("blend" if name in blends else name, place + 1)
            plan[place] = blends.index(name) + 1 if name in blends else 1
    return row, plans


def _amounts(
    operation: ColorJitter, names: Sequence[str], spec: ImageSpec, batch_size: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Draw what each change takes, for each number in a plan: [numbers, N, ...]; of number 0 nothing changes."""
    factors = {}
    for name in (*_BLENDS, "contrast", "hue"):
        low, high = getattr(operation, name)
        factors[name] = rng.uniform(low, high, batch_size)
    # Saturation blends with the gray: its rows have the shares of gray. Brightness blends with black.
    other = {"saturation": np.tile(_by_channel(_LUMA, spec), (3, 1)), "brightness": np.zeros((3, 3))}
    matrices = [np.broadcast_to(np.eye(3), (batch_size, 3, 3))] + [
        other[name] + factors[name][:, None, None] * (np.eye(3) - other[name]) for name in names if name in _BLENDS
    ]
    turns = np.stack([np.zeros(batch_size), factors["hue"]])[..., None] * (2 * np.pi)
    return {
        "blend": np.stack(matrices),
        "contrast": np.stack([np.ones(batch_size), factors["contrast"]]),
        # What `_turned` adds to a hue for each channel.
        "hue": turns - _by_channel(_SIXTHS, spec) * (np.pi / 3),
    }


def _blended(image: Node, matrix: Node) -> Node:
    return _linear(image, matrix, [-_DOWN] * 3, dtype=types.UINT8)


def _contrasted(spec: ImageSpec, context: GraphContext, image: Node, factor: Node) -> Node:
    # Pillow's mean is whole.
    mean = math.floor(fn.reductions.mean(_linear(image, _by_channel(_LUMA, spec), [0.5])))
    scaled = fn.coord_transform(image, M=factor, T=-_DOWN)
    return fn.cast(scaled + mean * context.to_device(1.0 - factor), dtype=types.UINT8)


def _sixths(spec: ImageSpec) -> Node:
    return constant(_by_channel(_SIXTHS, spec))


def _hue(image: Node, sixths: Node, spec: ImageSpec) -> tuple[Node, Node, Node]:
    """Return HSV's value and chroma, uint8 [H, W, 1], and the hue: float32, sixths of the circle, from 9 to 15."""
    value = fn.reductions.max(image, axes=2, keep_dims=True)
    chroma = value - fn.reductions.min(image, axes=2, keep_dims=True)
    # What comes after a channel on the circle, less what comes before it.
    differences = np.array([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]])
    from_channel = _linear(image, -differences if spec.color_space == "BGR" else differences) / math.max(chroma, 1)
    # The greatest channel counts; of two that are equally great, the last on the circle, which is the same hue.
    return value, chroma, fn.reductions.max((from_channel + sixths) * (image == value), axes=2, keep_dims=True)


def _turned(spec: ImageSpec, image: Node, shift: Node, sixths: Node) -> Node:
    value, chroma, hue = _hue(image, sixths, spec)
    # A channel has the value up to 60 degrees from it, the value less the chroma from 120 on, between them a line.
    distance = math.acos(math.cos(_linear(hue, np.full(3, np.pi / 3), shift)))
    top = fn.cast(value, dtype=types.FLOAT) + chroma
    return fn.cast(top - chroma * (3 / np.pi) * math.clamp(distance, np.pi / 3, 2 * np.pi / 3), dtype=types.UINT8)


# Gray, lighting, spaces ----------------------------------------------------------------------------------------------


def _gray(image: Node, spec: ImageSpec) -> Node:
    return _linear(image, np.tile(_by_channel(_LUMA, spec), 3), dtype=types.UINT8)


@apply.register
def _(operation: RandomGrayscale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    coin = context.random.coin(operation, "whether", operation.probability)
    return where(coin, (image,), lambda image: _gray(image, spec))


@apply.register
def _(operation: PCALighting, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    components = _by_channel(_COMPONENTS, spec, axis=0) * (255.0 if spec.is_uint8 else 1.0)

    def draw(rng: np.random.Generator, batch_size: int) -> list[NDArray[np.float32]]:
        return [(rng.normal(0, operation.std, (batch_size, 3)) @ components.T).astype(np.float32)]

    (shift,) = context.random.from_numpy(operation, "shift", context.batch_size, draw, (1,))
    return _linear(image, np.eye(3), shift, dtype=types.UINT8 if spec.is_uint8 else types.FLOAT)


@apply.register
def _(operation: ConvertColor, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    match operation.space:
        case space if space == spec.color_space or (spec.color_space == "GRAY" and space in ("RGB", "BGR")):
            return image
        case "RGB" | "BGR":
            return _linear(image, np.eye(3)[::-1], dtype=types.UINT8)
        case "GRAY":
            return _gray(image, spec)
        case "YCbCr":
            return _linear(image, _by_channel(_YCBCR, spec), [0, 128, 128], dtype=types.UINT8)
        case "HSV":
            return _hsv(image, spec, context)
    return _lab(image, spec)


def _hsv(image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    value, chroma, hue = _hue(image, context.to_device(_sixths(spec)), spec)
    turn = (hue - 10.0) * math.min(chroma, 1) * (256 / 6)
    # From -43 to 213; as a byte the circle closes.
    hue = fn.cast(math.floor(turn + 0.5), dtype=types.INT32) & 255
    saturation = chroma * 255.0 / math.max(value, 1)
    return fn.cat(*(fn.cast(each, dtype=types.UINT8) for each in (hue, saturation, value)), axis=2)


def _lab(image: Node, spec: ImageSpec) -> Node:
    # Tables: bytes to linear light, and light to the cube root with its linear foot, both over 0 to 65535.
    light = np.arange(256) / 255
    light = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
    t = np.arange(65536) / 65535
    root = np.where(t > 216 / 24389, np.cbrt(t), t * (841 / 108) + 16 / 116)
    linear = _table(image, light * 65535, types.UINT16)
    xyz = _linear(linear, _by_channel(_XYZ, spec), dtype=types.UINT16)
    matrix = np.array([[0, 116 * 2.55, 0], [500, -500, 0], [0, 200, -200]])
    return fn.cast(
        _linear(_table(xyz, root, types.FLOAT), matrix, [-16 * 2.55, 128, 128]),
        dtype=types.UINT8,
    )


def _table(image: Node, values: NDArray[np.float64], dtype: object) -> Node:
    return fn.lookup_table(image, keys=list(range(len(values))), values=values.tolist(), dtype=dtype)
