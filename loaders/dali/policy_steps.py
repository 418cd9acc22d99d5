"""What the steps of a policy do to an image, as Pillow does it. It must never know how they are chosen.

Images are HWC, uint8, three channels. What a step needs to know of its strength are nine numbers, its settings, which
mean another thing in each family of steps. NumPy prepares them for all images of a batch at once, since DALI runs each
operator of an expression by itself, and each costs time in every batch: what a branch gets is 3 x 3 numbers on the
processor, and there is as little as can be left to do with them.
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

#: What a step does: image and prepared settings, if any step needs them, -> image.
Branch: TypeAlias = Callable[..., Node]

#: Of many images; the image is the first axis.
Numbers: TypeAlias = NDArray[np.float64]

#: How many numbers the settings have.
SETTINGS = 9

#: Families that need no settings.
PLAIN = ("identity", "autocontrast", "equalize")

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

#: Where the settings of what moves begin: two shears, two shifts and an angle; then, where the size of images is not
#: known yet, two shifts as shares of the sides, their common sign, and what is added before they are rounded down.
_SHEAR, _SHIFT, _ANGLE, _SHARE, _SIGN, _HALF = 0, 2, 4, 5, 7, 8

#: In place of what is added before a rounding, where there is none.
NOT_ROUNDED = -1.0

#: Pillow's gray, which is that of ITU-R 601.
_GRAY = np.array([0.299, 0.587, 0.114])
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13

#: Added before a rounding to the nearest that shall be one down; what should be whole may lie a little below.
_DOWN = -0.498


def family(step: Step) -> tuple[Any, ...]:
    """Return what steps have in common that one branch of the graph does."""
    name = _FAMILIES.get(step.name, step.name)
    if name == "move":
        return name, step.filter, step.fill
    return (name, step.fill) if name == "cutout" else (name,)


def settings(step: Step) -> tuple[Numbers, Numbers]:
    """Return the step's settings where its argument is 0, and by how much they change with it."""
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
        # The least value that is inverted, and how many bits are kept.
        base[:2] = (0, 8) if name != "posterize" else (256, 0)
        change[:2] = {"posterize": (0, 1), "solarize": (1, 0), "invert": (0, 0)}[name]
    else:
        change[0] = 1
    return base, change


def share_of_side(upright: Numbers, share: Numbers, sign: Numbers, half: Numbers) -> Numbers:
    """Return the settings, to be added, of a shift by a share of a side whose length is not known yet."""
    found: Numbers = np.zeros((*share.shape, SETTINGS))
    found[..., _SHARE], found[..., _SHARE + 1] = share * (1 - upright), share * upright
    found[..., _SIGN], found[..., _HALF] = sign, half
    return found


def prepare(key: tuple[Any, ...], given: Numbers, centre: Numbers, size: Size | None) -> Numbers:
    """From the settings of images whose steps are of one `family` to the 3 x 3 numbers that its branch gets.

    Args:
        key: the family.
        given: settings.
        centre: of a cutout, down and right, as shares of the image.
        size: of the images, where it is known.

    """
    ready: Numbers = given.copy()
    if key[0] == "move" and size is not None:
        ready[:, :6] = _matrices(given, size)
    elif key[0] == "bytes":
        ready[:, 1] = 256 - 2.0 ** (8 - np.floor(given[:, 1]))
    elif key[0] == "cutout" and size is not None:
        half = given[:, :1]
        ready[:, 0:2] = np.floor(centre * (np.array(size) + 1)) - half
        ready[:, 3:5] = 2 * half
    elif key[0] == "cutout":
        ready[:, 3:5] = centre
    return ready.reshape(-1, 3, 3)


def _matrices(given: Numbers, size: Size) -> Numbers:
    """From a pixel of the result to the image's: turns about the centre, shears about the top left corner, shifts."""
    across, down = given[:, _SHEAR], given[:, _SHEAR + 1]
    x, y = size[1] / 2, size[0] / 2
    angle = np.deg2rad(given[:, _ANGLE])
    cos, sin = np.cos(angle), np.sin(angle)
    turned: Numbers = np.stack([cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y], axis=1)
    sheared: Numbers = turned.copy()
    sheared[:, :3] += across[:, None] * turned[:, 3:]
    sheared[:, 3:] += down[:, None] * turned[:, :3]
    sheared[:, (2, 5)] += given[:, _SHIFT : _SHIFT + 2]
    return sheared


def branch(key: tuple[Any, ...], size: Size | None, context: GraphContext) -> Branch:
    """Return what does the steps of a `family` to images of this size, or of any."""
    name, *details = key
    return partial(_BRANCHES[name], context, size, *details)


def _identity(_: GraphContext, _size: Size | None, image: Node, _given: Node = None) -> Node:
    return image


def _move(_: GraphContext, size: Size | None, filter_: str, fill: Color, image: Node, given: Node) -> Node:
    move = partial(fn.warp_affine, matrix=_matrix(image, given) if size is None else given[0:2])
    if filter_ == "nearest" and fill[0] == fill[1] == fill[2]:
        return move(image, interp_type=types.INTERP_NN, fill_value=fill[0])
    # Pillow mixes nothing of what comes in from outside into the outermost pixels: so a mask is moved alike.
    moved = move(image, interp_type=types.INTERP_NN if filter_ == "nearest" else types.INTERP_LINEAR)
    inside = move(image[:, :, 0:1] | _byte(255), interp_type=types.INTERP_NN, fill_value=0)
    # From 255 to nothing, and from 0 to the colour.
    color = np.round(fill)
    outside = fn.coord_transform(inside, M=(-color / 255).tolist(), T=color.tolist(), dtype=types.UINT8)
    return (moved & inside) | outside


def _matrix(image: Node, given: Node) -> Node:
    """Do what `_matrices` does, and the rounding of shares of the sides, for images of any size."""
    numbers = fn.reshape(given, shape=[SETTINGS])
    shape = image.shape(dtype=types.FLOAT)
    ends = fn.stack(shape[1], shape[0])
    shift, half = numbers[_SHARE : _SHARE + 2] * ends, numbers[_HALF]
    shift = shift + (half >= 0) * (math.floor(shift + half) - shift)
    turned = fn.transforms.rotation(angle=numbers[_ANGLE], center=ends * 0.5)
    sheared = fn.transforms.shear(turned, shear=numbers[_SHEAR : _SHEAR + 2])
    return fn.transforms.translation(sheared, offset=numbers[_SHIFT : _SHIFT + 2] + numbers[_SIGN] * shift)


def _mix_channels(_: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    return fn.coord_transform(image, M=given, T=_DOWN, dtype=types.UINT8)


def _contrast(context: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    factor = context.to_device(given)[0, 0]
    gray = fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)
    center = math.floor(fn.reductions.mean(gray, axes=[0, 1], keep_dims=True) + 0.5)
    return fn.cast(image * factor + (center * (1 - factor) + _DOWN), dtype=types.UINT8)


def _sharpness(context: GraphContext, size: Size | None, image: Node, given: Node) -> Node:
    gained = fn.filter(image, context.to_device(given), mode="valid", dtype=types.FLOAT)
    # The outermost pixels stay.
    shape = image.shape(dtype=types.INT32)[0:2] if size is None else list(size)
    gained = fn.slice(gained, start=[-1, -1], shape=shape, axes=[0, 1], out_of_bounds_policy="pad")
    return fn.cast(image + gained + _DOWN, dtype=types.UINT8)


def _bytes(context: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    """Invert from a threshold on, and keep the first bits."""
    placed = context.to_device(given)
    mask = fn.cast(placed[0, 1], dtype=types.UINT8)
    return (image ^ ((image >= placed[0, 0]) * _byte(255))) & mask


def _solarize_add(context: GraphContext, _size: Size | None, image: Node, given: Node) -> Node:
    more = fn.cast(context.to_device(given)[0, 0], dtype=types.INT16)
    return fn.cast(image + (image < 128) * more, dtype=types.UINT8)


def _autocontrast(_: GraphContext, _size: Size | None, image: Node, _given: Node = None) -> Node:
    low = fn.reductions.min(image, axes=[0, 1], keep_dims=True)
    high = fn.reductions.max(image, axes=[0, 1], keep_dims=True)
    # A channel of one value stays: it is 0 times itself, and itself.
    flat = low == high
    scale = (high > low) * 255.0 / (high - low + flat)
    return fn.cast(image * scale + (low * (flat - scale) + _DOWN), dtype=types.UINT8)


def _equalize(_: GraphContext, _size: Size | None, image: Node, _given: Node = None) -> Node:
    # DALI counts the pixels up to a value, Pillow those below it: the same once the values are turned around.
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
