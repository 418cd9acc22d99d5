"""The steps of an augmentation policy, which change images as Pillow does.

Images are uint8 HWC with three channels. A step's strength is in its settings, nine numbers whose
meaning depends on the family of the step. NumPy prepares them for a whole batch at once, because in
DALI each arithmetic operation is a separate operator that takes time in every batch. A branch of
the graph gets them as float32 [3, 3] on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.dali.graph import GraphContext, Node, compute, fn, math, types
from loaders.transforms.base import Color, Size
from loaders.transforms.policies import Step

#: A branch of the graph: takes the image, and the settings if any step has them, and returns the
#: image.
Branch: TypeAlias = Callable[..., Node]

#: An array whose first axes are the steps and the images of a batch.
Numbers: TypeAlias = NDArray[np.float64]

#: Number of settings of a step.
SETTINGS = 9

#: The families that have no settings.
WITHOUT_SETTINGS = ("identity", "autocontrast", "equalize")

#: The families with more than one step. Every other step is a family of its own.
_FAMILIES = {
    "shear_x": "move",
    "shear_y": "move",
    "translate_x": "move",
    "translate_y": "move",
    "rotate": "move",
    "color": "mix_channels",
    "brightness": "mix_channels",
    "posterize": "bytes",
    "solarize": "bytes",
    "invert": "bytes",
}

#: Positions in the settings of family `"move"`: two shears, two shifts and an angle. If the image
#: size is unknown, also two shifts as fractions of the sides, their common sign, and what is added
#: to them before rounding down.
_SHEAR, _SHIFT, _ANGLE, _SHARE, _SIGN, _ROUNDING = 0, 2, 4, 5, 7, 8

#: Means "not rounded" in place of the number that is added before rounding down.
NOT_ROUNDED = -1.0

#: Pillow's weights of red, green and blue in gray (ITU-R BT.601).
_GRAY = np.array([0.299, 0.587, 0.114])

#: The kernel of Pillow's `ImageFilter.SMOOTH`.
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13

#: Multiplies values before a cast that clips them, so that only 0 and 255 are left.
_STEEP = 1000.0

#: Divides a number to leave nothing of it.
_HUGE = 1e9

#: Added before a cast that rounds to nearest, to round down instead. It is above -0.5 because
#: float32 results may be slightly below the integer that they represent.
ROUND_DOWN = -0.498


def family(step: Step) -> tuple[Any, ...]:
    """Return the family of a step: a name and the options of the branch.

    Steps of one family share a branch.
    """
    name = _FAMILIES.get(step.name, step.name)
    if name == "move":
        return name, step.filter, step.fill
    return (name, step.fill) if name == "cutout" else (name,)


def settings(step: Step) -> tuple[Numbers, Numbers]:
    """Return the step's settings at argument 0, and their change per unit of the argument: float64 [9] each."""
    base, change = np.zeros(SETTINGS), np.zeros(SETTINGS)
    name = step.name
    if _FAMILIES.get(name) == "move":
        change[("shear_x", "shear_y", "translate_x", "translate_y", "rotate").index(name)] = 1
    elif name == "color":
        gray = np.tile(_GRAY, 3)
        base[:], change[:] = gray, np.eye(3).ravel() - gray
    elif name == "brightness":
        change[:] = np.eye(3).ravel()
    elif name == "contrast":
        # The shares of the image and of its mean.
        base[:2], change[:2] = (0, 1), (1, -1)
    elif name == "sharpness":
        detail = np.pad([[1.0]], 1) - _SMOOTH
        base[:], change[:] = -detail.ravel(), detail.ravel()
    elif _FAMILIES.get(name) == "bytes":
        # The smallest value that is inverted, and the number of bits to keep.
        base[:2] = (0, 8) if name != "posterize" else (256, 0)
        change[:2] = {"posterize": (0, 1), "solarize": (1, 0), "invert": (0, 0)}[name]
    else:
        change[0] = 1
    return base, change


def share_of_side(vertical: Numbers, share: Numbers, sign: Numbers, rounding: Numbers) -> Numbers:
    """Return the settings of a shift by a fraction of a side, to add to the other settings of the step.

    Used if only the graph knows the size of the image.

    Args:
        vertical: 1 for a vertical shift, 0 for a horizontal one.
        share: the shift as a fraction of the side.
        sign: 1 or -1.
        rounding: the number to add before rounding down, or `NOT_ROUNDED`.

    """
    added: Numbers = np.zeros((*share.shape, SETTINGS))
    added[..., _SHARE], added[..., _SHARE + 1] = share * (1 - vertical), share * vertical
    added[..., _SIGN], added[..., _ROUNDING] = sign, rounding
    return added


def prepare(key: tuple[Any, ...], values: Numbers, center: Numbers, size: Size | None) -> Numbers:
    """Convert the settings of K images with steps of one family to the input of the branch: [K, 3, 3].

    Args:
        key: the family.
        values: settings: [K, 9].
        center: the center of a cutout, down and right, as fractions of the image: [K, 2].
        size: height and width of the images; `None` if they differ.

    """
    ready: Numbers = values.copy()
    if key[0] == "move" and size is not None:
        ready[:, :6] = _matrices(values, size)
    elif key[0] == "bytes":
        # From the first inverted integer on, `_STEEP` times the distance to the middle between it and
        # the one before it is above 255. float32 drops errors of the argument.
        ready[:, 0] = (0.5 - np.ceil(values[:, 0].astype(np.float32))) * _STEEP
        ready[:, 1] = 256 - 2.0 ** (8 - np.floor(values[:, 1]))
    elif key[0] == "cutout" and size is not None:
        half = values[:, :1]
        ready[:, 0:2] = np.floor(center * (np.array(size) + 1)) - half
        ready[:, 3:5] = 2 * half
    elif key[0] == "cutout":
        ready[:, 3:5] = center
    return ready.reshape(-1, 3, 3)


def _matrices(values: Numbers, size: Size) -> Numbers:
    """Return affine matrices, [K, 6], that map a pixel of the result to one of the image.

    They rotate around the center, shear from the top left corner, and shift.
    """
    across, down = values[:, _SHEAR], values[:, _SHEAR + 1]
    x, y = size[1] / 2, size[0] / 2
    angle = np.deg2rad(values[:, _ANGLE])
    cos, sin = np.cos(angle), np.sin(angle)
    rotated: Numbers = np.stack(
        [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y], axis=1
    )
    sheared: Numbers = rotated.copy()
    sheared[:, :3] += across[:, None] * rotated[:, 3:]
    sheared[:, 3:] += down[:, None] * rotated[:, :3]
    sheared[:, (2, 5)] += values[:, _SHIFT : _SHIFT + 2]
    return sheared


def branch(key: tuple[Any, ...], size: Size | None, context: GraphContext) -> Branch:
    """Return the branch that applies the steps of a family to images of this size, or of any size if `None`."""
    name, *details = key
    return partial(_BRANCHES[name], context, size, *details)


def _identity(_: GraphContext, _size: Size | None, image: Node, _values: Node = None) -> Node:
    return image


def _move(
    _: GraphContext, size: Size | None, filter_: str, fill: Color, image: Node, values: Node
) -> Node:
    move = partial(fn.warp_affine, matrix=_matrix(image, values) if size is None else values[0:2])
    if filter_ == "nearest" and fill[0] == fill[1] == fill[2]:
        return move(image, interp_type=types.INTERP_NN, fill_value=fill[0])
    # Pillow doesn't interpolate between the image and the fill color, so a mask of the image moves
    # with it.
    moved = move(
        image, interp_type=types.INTERP_NN if filter_ == "nearest" else types.INTERP_LINEAR
    )
    inside = move(image[:, :, 0:1] | _byte(255), interp_type=types.INTERP_NN, fill_value=0)
    # Map 255 to 0, and 0 to the fill color.
    color = np.round(fill)
    outside = fn.coord_transform(
        inside, M=(-color / 255).tolist(), T=color.tolist(), dtype=types.UINT8
    )
    return (moved & inside) | outside


def _matrix(image: Node, values: Node) -> Node:
    """Compute the same as `_matrices` for images of any size, and round shifts that are fractions of a side."""
    numbers = fn.reshape(values, shape=[SETTINGS])
    shape = image.shape(dtype=types.FLOAT)
    sides = fn.stack(shape[1], shape[0])
    shift, rounding = numbers[_SHARE : _SHARE + 2] * sides, numbers[_ROUNDING]
    shift = shift + (rounding >= 0) * (math.floor(shift + rounding) - shift)
    rotated = fn.transforms.rotation(angle=numbers[_ANGLE], center=sides * 0.5)
    sheared = fn.transforms.shear(rotated, shear=numbers[_SHEAR : _SHEAR + 2])
    return fn.transforms.translation(
        sheared, offset=numbers[_SHIFT : _SHIFT + 2] + numbers[_SIGN] * shift
    )


def _mix_channels(_: GraphContext, _size: Size | None, image: Node, values: Node) -> Node:
    return fn.coord_transform(image, M=values, T=ROUND_DOWN, dtype=types.UINT8)


def _contrast(_: GraphContext, _size: Size | None, image: Node, values: Node) -> Node:
    gray = fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)
    # The cast rounds to an integer, as Pillow does.
    mean = fn.cast(fn.reductions.mean(gray, axes=[0, 1], keep_dims=True), dtype=types.UINT8)
    factor, rest = compute(lambda values: [values[:, 0, 0], values[:, 0, 1]], values, count=2)
    other = fn.coord_transform(mean, M=rest, T=ROUND_DOWN)
    return fn.cast(fn.coord_transform(image, M=factor) + other, dtype=types.UINT8)


def _sharpness(context: GraphContext, size: Size | None, image: Node, values: Node) -> Node:
    # Pillow does not change the pixels at the border, which a side of two pixels consists of.
    if size is not None and min(size) < 3:
        return image
    shape = image.shape(dtype=types.INT32)[0:2] if size is None else list(size)
    inner = image
    if size is None:
        # DALI raises for images that are smaller than the kernel.
        inner = fn.slice(image, start=[0, 0], shape=math.max(shape, 3), axes=[0, 1],
                         out_of_bounds_policy="pad")  # fmt: skip
    change = fn.filter(inner, context.to_device(values), mode="valid", dtype=types.FLOAT)
    change = fn.slice(change, start=[-1, -1], shape=shape, axes=[0, 1], out_of_bounds_policy="pad")
    if size is None:
        extends = context.to_device(fn.reductions.min(shape)) > 2
        change = change * fn.cast(extends, dtype=types.FLOAT)
    return fn.cast(image + change + ROUND_DOWN, dtype=types.UINT8)


def _bytes(context: GraphContext, _size: Size | None, image: Node, values: Node) -> Node:
    """Invert values at or above a threshold, and keep only the highest bits."""
    threshold, mask = compute(
        lambda values: [values[:, 0, 0], values[:, 0, 1].astype(np.uint8)], values, count=2
    )
    inverted = fn.coord_transform(image, M=_STEEP, T=threshold, dtype=types.UINT8)
    return (image ^ inverted) & context.to_device(mask)


def _solarize_add(context: GraphContext, _size: Size | None, image: Node, values: Node) -> Node:
    increase = fn.cast(context.to_device(values)[0, 0], dtype=types.INT16)
    return fn.cast(image + (image < 128) * increase, dtype=types.UINT8)


def _autocontrast(_: GraphContext, _size: Size | None, image: Node, _values: Node = None) -> Node:
    low = fn.reductions.min(image, axes=[0, 1], keep_dims=True)
    high = fn.reductions.max(image, axes=[0, 1], keep_dims=True)
    # A channel with a single value keeps it: nothing is left of it to scale, and the value is added.
    scale = 255.0 / math.max(high - low, 1)
    kept = low * (low == high) + ROUND_DOWN
    return fn.cast((image - low) * scale + kept, dtype=types.UINT8)


def _equalize(_: GraphContext, _size: Size | None, image: Node, _values: Node = None) -> Node:
    # DALI counts the pixels up to and including a value, Pillow the pixels below it. On inverted
    # values both agree.
    spread = fn.equalize(image ^ _byte(255)) ^ _byte(255)
    highest = fn.reductions.max(image, axes=[0, 1], keep_dims=True)
    lower = fn.cast(image < highest, dtype=types.UINT8)
    # One value has `pixels` pixels. Pillow rounds that number down, which changes images of
    # few pixels most; where it is 0, Pillow leaves the channel as it is.
    pixels = fn.reductions.sum(lower, axes=[0, 1], keep_dims=True, dtype=types.FLOAT) / 255.0
    step = math.floor(pixels)
    unchanged = step == 0
    ratio = pixels / (step + unchanged * _HUGE)
    return fn.cast(spread * ratio + image * unchanged, dtype=types.UINT8)


def _cutout(_: GraphContext, size: Size | None, fill: Color, image: Node, values: Node) -> Node:
    if size is None:
        sides = image.shape(dtype=types.FLOAT)[0:2]
        half = values[0, 0]
        corner, square = math.floor(values[1, 0:2] * (sides + 1)) - half, sides * 0 + half * 2
    else:
        corner, square = values[0, 0:2], values[1, 0:2]
    return fn.erase(image, anchor=corner, shape=square, axes=[0, 1], fill_value=list(fill))


def _byte(value: int) -> Node:
    return types.Constant(value).uint8()


_BRANCHES: dict[str, Callable[..., Node]] = {
    "identity": _identity,
    "move": _move,
    "mix_channels": _mix_channels,
    "contrast": _contrast,
    "sharpness": _sharpness,
    "bytes": _bytes,
    "solarize_add": _solarize_add,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "cutout": _cutout,
}
