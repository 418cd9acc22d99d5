"""Pure: pixels -> as many as are wanted, as good as from all of them. It must never know where they come from.

A large image is first brought, fast, to at least twice the size that is wanted, each pixel the mean of several, and
then by the filter to that size. Means blur; a last step gives back what they took. The box filter alone is given all
pixels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

#: Times the target that an image must have, on each side, for the filter to go on with without visible loss.
GAP = 2.0


def enough(size: tuple[int, int], resampling: Image.Resampling) -> tuple[int, int]:
    """Give the width and height from which on an image does as well as any larger one.

    A box takes whole pixels, two or three of an image twice as large, so that it needs all there are.
    """
    width, height = (round(min(_gap(resampling) * side, _MOST)) for side in size)
    return width, height


def _gap(resampling: Image.Resampling) -> float:
    return math.inf if resampling is Image.Resampling.BOX else GAP


#: More than a side ever has.
_MOST = 1 << 20


def resample(
    image: Image.Image,
    size: tuple[int, int],
    resampling: Image.Resampling,
    *,
    box: tuple[float, float, float, float] | None = None,
    mean_of: float = 1.0,
) -> NDArray[np.uint8]:
    """Resize an image, or a box of it, as if the filter alone had done it; give uint8 [H, W] or [H, W, 3].

    Args:
        image: mode L or RGB.
        size: width and height wanted.
        resampling: the filter.
        box: left, top, right, bottom.
        mean_of: of how many pixels a side each of its own is the mean already.

    """
    left, top, right, bottom = box or (0, 0, *image.size)
    ratio = min((right - left) / size[0], (bottom - top) / size[1])
    gap = _gap(resampling)
    averaged = mean_of * max(1, int(ratio / gap))  # as Pillow does by `reducing_gap`
    resized = np.asarray(image.resize(size, resampling, box=box, reducing_gap=gap))
    return resized if averaged == 1 else sharpened(resized, _strength(averaged, ratio * mean_of))


def _strength(averaged: float, ratio: float) -> float:
    """Give the strength that makes good for means of so many pixels a side, where all becomes `ratio` times less.

    A mean of n samples leaves sin(n pi f) / (n sin(pi f)) of what has f cycles a sample; the kernel gives just that
    back to a quarter of a cycle a pixel of the result, half of the finest that it can show.
    """
    angle = math.pi / 4 / ratio
    kept = math.sin(averaged * angle) / (averaged * math.sin(angle))
    return min((1 / kept - 1) / 2, _STRONGEST)


#: More is asked for only where an image of a few pixels was scaled by whole blocks of a JPEG.
_STRONGEST = 0.015


#: Rows that are worked on at a time, so that they stay in a processor's cache.
_ROWS = 64
_BITS = 11


def sharpened(pixels: NDArray[np.uint8], strength: float) -> NDArray[np.uint8]:
    """Add to each pixel `strength`, 0 to 0.015, times its difference from each of its four neighbours.

    Pixels at the border, which have fewer, stay as they are.

    Args:
        pixels: uint8 [H, W] or [H, W, C].
        strength: a share of a difference.

    """
    height, depth = len(pixels), pixels.shape[2] if pixels.ndim > 2 else 1
    rows = pixels.reshape(height, -1)
    out: NDArray[np.uint8] = rows.copy()
    step = round(strength * (1 << _BITS))
    for top in range(1, height - 1, _ROWS):
        near = rows[top - 1 : min(top + _ROWS, height - 1) + 1].astype(np.int16)
        middle = near[1:-1, depth:-depth]
        change = middle << 2
        change -= near[:-2, depth:-depth]
        change -= near[2:, depth:-depth]
        change -= near[1:-1, : -2 * depth]
        change -= near[1:-1, 2 * depth :]
        change *= step
        change += 1 << (_BITS - 1)
        change >>= _BITS
        change += middle
        np.clip(change, 0, 255, out=change)
        out[top : top + len(change), depth:-depth] = change
    return out.reshape(pixels.shape)
