"""What the steps of a policy do to an image, as Pillow does it. It must never know how they are chosen.

Images are HWC, uint8, three channels, of any size. What a step needs to know is a vector on the processor, its
settings, which mean another thing in each family of steps. DALI runs each operator of an expression by itself, and
each costs time in every batch, so there are as few as can be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.graph.base import Node, Run, fn, math, types
from loaders.transforms.policies import Color, Step

#: What a step does: image and settings -> image.
Branch: TypeAlias = Callable[[Node, Node], Node]

#: How many numbers the settings have; where a cutout is comes after them, down and right, as shares of the image.
SETTINGS = 12

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


def settings(step: Step) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the step's settings where its argument is 0, and by how much they change with it."""
    base, change = np.zeros(SETTINGS), np.zeros(SETTINGS)
    name = step.name
    if _FAMILIES.get(name) == "move":
        change[("shear_x", "shear_y", "translate_x", "translate_y", "rotate").index(name)] = 1
        base[-3:] = step.fill
    elif name == "color":
        gray = np.tile(_GRAY, 3)
        base[:9], change[:9] = gray, np.eye(3).ravel() - gray
    elif name == "brightness":
        change[:9] = np.eye(3).ravel()
    elif name == "sharpness":
        lost = np.pad([[1.0]], 1) - _SMOOTH
        base[:9], change[:9] = -lost.ravel(), lost.ravel()
    elif _FAMILIES.get(name) == "bytes":
        # The least value that is inverted, and how many bits are kept.
        base[:2] = (0, 8) if name != "posterize" else (256, 0)
        change[:2] = {"posterize": (0, 1), "solarize": (1, 0), "invert": (0, 0)}[name]
    else:
        change[0] = 1
    return base, change


def branch(key: tuple[Any, ...], run: Run) -> Branch:
    """Return what does the steps of a `family`."""
    name, *details = key
    return partial(_BRANCHES[name], run, *details)


def _identity(_: Run, image: Node, _settings: Node) -> Node:
    return image


def _move(run: Run, filter_: str, fill: Color, image: Node, given: Node) -> Node:
    move = partial(fn.warp_affine, matrix=_matrix(image, given))
    if filter_ == "nearest" and fill[0] == fill[1] == fill[2]:
        return move(image, interp_type=types.INTERP_NN, fill_value=fill[0])
    # Pillow mixes nothing of what comes in from outside into the outermost pixels: so a mask is moved alike.
    moved = move(image, interp_type=types.INTERP_NN if filter_ == "nearest" else types.INTERP_LINEAR)
    outside = move(image[:, :, 0:1] & _byte(0), interp_type=types.INTERP_NN, fill_value=255)
    color = run.place(fn.cast(given[SETTINGS - 3 : SETTINGS], dtype=types.UINT8))
    return moved ^ ((moved ^ color) & outside)


def _matrix(image: Node, given: Node) -> Node:
    """From a pixel of the result to the image's: shears about the top left corner, turns about the centre."""
    shape = image.shape(dtype=types.FLOAT)
    turned = fn.transforms.rotation(angle=given[4], center=fn.stack(shape[1], shape[0]) * 0.5)
    sheared = fn.transforms.shear(turned, shear=given[0:2])
    return fn.transforms.translation(sheared, offset=given[2:4])


def _mix_channels(_: Run, image: Node, given: Node) -> Node:
    matrix = fn.reshape(given[0:9], shape=[3, 3])
    return fn.coord_transform(image, M=matrix, T=_DOWN, dtype=types.UINT8)


def _contrast(run: Run, image: Node, given: Node) -> Node:
    factor = run.place(given[0])
    gray = fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)
    center = math.floor(fn.reductions.mean(gray, axes=[0, 1], keep_dims=True) + 0.5)
    return fn.cast(image * factor + (center * (1 - factor) + _DOWN), dtype=types.UINT8)


def _sharpness(run: Run, image: Node, given: Node) -> Node:
    kernel = run.place(fn.reshape(given[0:9], shape=[3, 3]))
    gained = fn.filter(image, kernel, mode="valid", dtype=types.FLOAT)
    # The outermost pixels stay.
    shape = image.shape(dtype=types.INT32)[0:2]
    gained = fn.slice(gained, start=[-1, -1], shape=shape, axes=[0, 1], out_of_bounds_policy="pad")
    return fn.cast(image + gained + _DOWN, dtype=types.UINT8)


def _bytes(run: Run, image: Node, given: Node) -> Node:
    """Invert from a threshold on, and keep the first bits."""
    least = run.place(fn.cast(given[0] - _DOWN, dtype=types.INT16))
    mask = run.place(fn.cast(256 - math.pow(2.0, 8 - given[1]), dtype=types.UINT8))
    return (image ^ ((image >= least) * _byte(255))) & mask


def _solarize_add(run: Run, image: Node, given: Node) -> Node:
    more = run.place(fn.cast(given[0], dtype=types.INT16))
    return fn.cast(image + (image < 128) * more, dtype=types.UINT8)


def _autocontrast(_: Run, image: Node, _settings: Node) -> Node:
    low = fn.reductions.min(image, axes=[0, 1], keep_dims=True)
    high = fn.reductions.max(image, axes=[0, 1], keep_dims=True)
    # A channel of one value stays: it is 0 times itself, and itself.
    flat = low == high
    scale = (high > low) * 255.0 / (high - low + flat)
    return fn.cast(image * scale + (low * (flat - scale) + _DOWN), dtype=types.UINT8)


def _equalize(_: Run, image: Node, _settings: Node) -> Node:
    # DALI counts the pixels up to a value, Pillow those below it: the same once the values are turned around.
    return fn.equalize(image ^ _byte(255)) ^ _byte(255)


def _cutout(_: Run, fill: Color, image: Node, given: Node) -> Node:
    sides = image.shape(dtype=types.FLOAT)[0:2]
    half = given[0]
    corner = math.floor(given[SETTINGS : SETTINGS + 2] * (sides + 1)) - half
    square = sides * 0 + half * 2
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
