"""What each step of an augmentation policy does to an image, as Pillow does it.

Images are uint8 HWC with three channels. A step's strength is in its settings, nine numbers whose meaning depends on
the family of the step. NumPy prepares them for a whole batch at once, because in DALI each arithmetic operation is an
operator of its own that takes time in every batch. A branch of the graph gets them as float32 [3, 3] on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.dali.graph import GraphContext, Node, fn, math, types
from loaders.transforms.base import Size
from loaders.transforms.policies import Color, Step

#: A branch of the graph: takes the image, and the settings if any step has them, and returns the image.
Branch: TypeAlias = Callable[..., Node]

#: An array whose first axes are the steps and the images of a batch.
Numbers: TypeAlias = NDArray[np.float64]

#: How many numbers a step's settings have.
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

#: Positions in the settings of family `"move"`: two shears, two shifts and an angle. If the image size is unknown,
#: also two shifts as fractions of the sides, their common sign, and what is added to them before rounding down.
_SHEAR, _SHIFT, _ANGLE, _SHARE, _SIGN, _HALF = 0, 2, 4, 5, 7, 8

#: Stands for "not rounded" where the settings say what is added before rounding down.
NOT_ROUNDED = -1.0

#: Pillow's weights of red, green and blue in gray (ITU-R BT.601).
_GRAY = np.array([0.299, 0.587, 0.114])

#: The kernel of Pillow's `ImageFilter.SMOOTH`.
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13

#: Added before a cast that rounds to nearest, to round down instead. It is above -0.5 because float32 results may be
#: slightly below the integer that they stand for.
ROUND_DOWN = -0.498


def family(step: Step) -> tuple[Any, ...]:
    """Return what steps that share a branch have in common: a name, and the options that the branch needs."""
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
    elif name == "sharpness":
        lost = np.pad([[1.0]], 1) - _SMOOTH
        base[:], change[:] = -lost.ravel(), lost.ravel()
    elif _FAMILIES.get(name) == "bytes":
        # The smallest value that is inverted, and how many bits are kept.
        base[:2] = (0, 8) if name != "posterize" else (256, 0)
        change[:2] = {"posterize": (0, 1), "solarize": (1, 0), "invert": (0, 0)}[name]
    else:
        change[0] = 1
    return base, change


def share_of_side(upright: Numbers, share: Numbers, sign: Numbers, half: Numbers) -> Numbers:
    """Return settings, to be added, of a shift by a fraction of a side whose length only the graph knows.

    Args:
        upright: 1 for a vertical shift, 0 for a horizontal one.
        share: the shift as a fraction of the side.
        sign: 1 or -1.
        half: what to add before rounding down, or `NOT_ROUNDED`.

    """
    found: Numbers = np.zeros((*share.shape, SETTINGS))
    found[..., _SHARE], found[..., _SHARE + 1] = share * (1 - upright), share * upright
    found[..., _SIGN], found[..., _HALF] = sign, half
    return found


def prepare(key: tuple[Any, ...], given: Numbers, center: Numbers, size: Size | None) -> Numbers:
    """Convert the settings of K images whose steps are of one family to what its branch takes: [K, 3, 3].

    Args:
        key: the family.
        given: settings: [K, 9].
        center: the center of a cutout, down and right, as fractions of the image: [K, 2].
        size: height and width of the images; `None` if they differ.

    """
    ready: Numbers = given.copy()
    if key[0] == "move" and size is not None:
        ready[:, :6] = _matrices(given, size)
    elif key[0] == "bytes":
        ready[:, 1] = 256 - 2.0 ** (8 - np.floor(given[:, 1]))
    elif key[0] == "cutout" and size is not None:
        half = given[:, :1]
        ready[:, 0:2] = np.floor(center * (np.array(size) + 1)) - half
        ready[:, 3:5] = 2 * half
    elif key[0] == "cutout":
        ready[:, 3:5] = center
    return ready.reshape(-1, 3, 3)


def _matrices(given: Numbers, size: Size) -> Numbers:
    """Return affine matrices, [K, 6], that map a pixel of the result to one of the image.

    They rotate about the center, shear about the top left corner, and shift.
    """
    across, down = given[:, _SHEAR], given[:, _SHEAR + 1]
    x, y = size[1] / 2, size[0] / 2
    angle = np.deg2rad(given[:, _ANGLE])
    cos, sin = np.cos(angle), np.sin(angle)
    rotated: Numbers = np.stack([cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y], axis=1)
    sheared: Numbers = rotated.copy()
    sheared[:, :3] += across[:, None] * rotated[:, 3:]
    sheared[:, 3:] += down[:, None] * rotated[:, :3]
    sheared[:, (2, 5)] += given[:, _SHIFT : _SHIFT + 2]
    return sheared


def branch(key: tuple[Any, ...], size: Size | None, context: GraphContext) -> Branch:
    """Return the branch that applies the steps of a family to images of this size, or of any size if `None`."""
    name, *details = key
    return partial(_BRANCHES[name], context, size, *details)


def _identity(_: GraphContext, _size: Size | None, image: Node, _given: Node = None) -> Node:
    return image


def _move(_: GraphContext, size: Size | None, filter_: str, fill: Color, image: Node, given: Node) -> Node:
    move = partial(fn.warp_affine, matrix=_matrix(image, given) if size is None else given[0:2])
    if filter_ == "nearest" and fill[0] == fill[1] == fill[2]:
        return move(image, interp_type=types.INTERP_NN, fill_value=fill[0])
    # Pillow doesn't interpolate between the image and the fill color, so a mask of the image moves with it.
    moved = move(image, interp_type=types.INTERP_NN if filter_ == "nearest" else types.INTERP_LINEAR)
    inside = move(image[:, :, 0:1] | _byte(255), interp_type=types.INTERP_NN, fill_value=0)
    # Map 255 to 0, and 0 to the fill color.
    color = np.round(fill)
    outside = fn.coord_transform(inside, M=(-color / 255).tolist(), T=color.tolist(), dtype=types.UINT8)
    return (moved & inside) | outside


def _matrix(image: Node, given: Node) -> Node:
    """Do what `_matrices` does, and round shifts that are fractions of a side, for images of any size."""
    numbers = fn.reshape(given, shape=[SETTINGS])
    shape = image.shape(dtype=types.FLOAT)
    sides = fn.stack(shape[1], shape[0])
    shift, half = numbers[_SHARE : _SHARE + 2] * sides, numbers[_HALF]
    shift = shift + (half >= 0) * (math.floor(shift + half) - shift)
    rotated = fn.transforms.rotation(angle=numbers[_ANGLE], center=sides * 0.5)
    sheared = fn.transforms.shear(rotated, shear=numbers[_SHEAR : _SHEAR + 2])
    return fn.transforms.translation(sheared, offset=numbers[_SHIFT : _SHIFT + 2] + numbers[_SIGN] * shift)


def _mix_channels(_: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    return fn.coord_transform(image, M=given, T=ROUND_DOWN, dtype=types.UINT8)


def _contrast(context: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    factor = context.to_device(given)[0, 0]
    gray = fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)
    mean = math.floor(fn.reductions.mean(gray, axes=[0, 1], keep_dims=True) + 0.5)
    return fn.cast(image * factor + (mean * (1 - factor) + ROUND_DOWN), dtype=types.UINT8)


def _sharpness(context: GraphContext, size: Size | None, image: Node, given: Node) -> Node:
    gained = fn.filter(image, context.to_device(given), mode="valid", dtype=types.FLOAT)
    # Pillow leaves the pixels at the border as they are.
    shape = image.shape(dtype=types.INT32)[0:2] if size is None else list(size)
    gained = fn.slice(gained, start=[-1, -1], shape=shape, axes=[0, 1], out_of_bounds_policy="pad")
    return fn.cast(image + gained + ROUND_DOWN, dtype=types.UINT8)


def _bytes(context: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    """Invert values from a threshold up, and keep only the highest bits."""
    placed = context.to_device(given)
    mask = fn.cast(placed[0, 1], dtype=types.UINT8)
    return (image ^ ((image >= placed[0, 0]) * _byte(255))) & mask


def _solarize_add(context: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    more = fn.cast(context.to_device(given)[0, 0], dtype=types.INT16)
    return fn.cast(image + (image < 128) * more, dtype=types.UINT8)


def _autocontrast(_: GraphContext, _size: Size | None, image: Node, _given: Node = None) -> Node:
    low = fn.reductions.min(image, axes=[0, 1], keep_dims=True)
    high = fn.reductions.max(image, axes=[0, 1], keep_dims=True)
    # A channel with a single value keeps it: its scale is 0, and the value is added.
    flat = low == high
    scale = (high > low) * 255.0 / (high - low + flat)
    return fn.cast(image * scale + (low * (flat - scale) + ROUND_DOWN), dtype=types.UINT8)


def _equalize(_: GraphContext, _size: Size | None, image: Node, _given: Node = None) -> Node:
    # DALI counts the pixels up to and including a value, Pillow those below it. On inverted values both agree.
    return fn.equalize(image ^ _byte(255)) ^ _byte(255)


def _cutout(_: GraphContext, size: Size | None, fill: Color, image: Node, given: Node) -> Node:
    if size is None:
        sides = image.shape(dtype=types.FLOAT)[0:2]
        half = given[0, 0]
        corner, square = math.floor(given[1, 0:2] * (sides + 1)) - half, sides * 0 + half * 2
    else:
        corner, square = given[0, 0:2], given[1, 0:2]
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
