"""Resize images fast, with a result close to a filter over all pixels.

A large image is first reduced, by averaging blocks of pixels, to at least twice the target size.
The filter then resizes it to the target. Averaging blurs, so a final step sharpens by the same
amount. The box filter is applied to all pixels instead.

The filters of Pillow are computed by the library fast_image_resize with integers: the same
bytes on every CPU.
"""

from __future__ import annotations

import math
import threading

import numpy as np
from cykooz_resizer import (
    CropBox,
    FilterType,
    ImageData,
    PixelType,
    ResizeAlg,
    ResizeOptions,
    Resizer,
)
from numpy.typing import NDArray
from PIL import Image

from dataprep.options import Filter

#: The averaged image has at least this many times the target's pixels per side, so that no loss is
#: visible.
REDUCING_GAP = 2.0


def sufficient_size(size: tuple[int, int], resampling: Filter) -> tuple[int, int]:
    """Return the (width, height) above which a larger decoded image does not improve the result.

    Args:
        size: target width and height.
        resampling: the filter. ``"box"`` needs all pixels: from an image of twice the target size,
            a box would take two or three whole pixels per side.

    """
    width, height = (round(min(_gap(resampling) * side, _LARGEST_SIDE)) for side in size)
    return width, height


def _gap(resampling: Filter) -> float:
    """Return how many times the target's pixels per side the averaged image has at least."""
    if resampling == "box":
        return math.inf
    return REDUCING_GAP


#: Longer than the side of any image.
_LARGEST_SIDE = 1 << 20


def resample(
    image: Image.Image | NDArray[np.uint8],
    size: tuple[int, int],
    resampling: Filter,
    *,
    box: tuple[float, float, float, float] | None = None,
    averaging: float = 1.0,
) -> NDArray[np.uint8]:
    """Resize an image, or a box of it, with a result close to the filter over all pixels.

    Args:
        image: mode ``"L"`` or ``"RGB"``; or uint8 [H, W] or [H, W, 3].
        size: target width and height.
        resampling: the filter.
        box: left, top, right, bottom; `None` is the whole image.
        averaging: pixels per side that were already averaged: each pixel of `image` is the mean of
            `averaging` x `averaging` pixels.

    Returns:
        uint8 [H, W] or [H, W, 3].

    """
    box = box or (0, 0, *size_of(image))
    left, top, right, bottom = box
    ratios = (right - left) / size[0], (bottom - top) / size[1]
    x, y = (max(1, int(ratio / _gap(resampling))) for ratio in ratios)
    if x > 1 or y > 1:
        image = as_image(image).reduce((x, y))
        box = left / x, top / y, right / x, bottom / y
    resized = _filter(np.asarray(image), size, resampling, box)
    averaged = averaging * min(x, y)
    if averaged == 1:
        return resized
    return sharpen(resized, _strength(averaged, min(ratios) * averaging))


def size_of(image: Image.Image | NDArray[np.uint8]) -> tuple[int, int]:
    """Return width and height."""
    return image.size if isinstance(image, Image.Image) else (image.shape[1], image.shape[0])


def as_image(image: Image.Image | NDArray[np.uint8]) -> Image.Image:
    """Return an array as an image of Pillow."""
    return image if isinstance(image, Image.Image) else Image.fromarray(image)


# --- the filter over all pixels -------------------------------------------------------------------

_FILTERS = {
    "lanczos": FilterType.lanczos3,
    "bicubic": FilterType.catmull_rom,
    "bilinear": FilterType.bilinear,
    "box": FilterType.box,
}


class _Kept(threading.local):
    """The resizer of a thread: its buffers save half of the time for a small image."""

    def __init__(self) -> None:
        self.resizer = Resizer()


_kept = _Kept()
#: The buffers for larger images are not worth their memory.
_MAX_KEPT_PIXELS = 1 << 22


def _filter(
    pixels: NDArray[np.uint8],
    size: tuple[int, int],
    resampling: Filter,
    box: tuple[float, float, float, float],
) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    pixel_type = PixelType.U8 if pixels.ndim == 2 else PixelType.U8x3
    source = ImageData(width, height, pixel_type, pixels.tobytes())
    target = ImageData(*size, pixel_type)
    options = ResizeOptions(ResizeAlg.convolution(_FILTERS[resampling]))
    if box != (0, 0, width, height):
        left, top, right, bottom = box
        options.crop_box = CropBox(left, top, min(right, width) - left, min(bottom, height) - top)
    resizer = _kept.resizer
    if width * height > _MAX_KEPT_PIXELS:
        resizer = Resizer()
    resizer.resize(source, target, options)
    return np.frombuffer(target.get_buffer(), np.uint8).reshape(size[1], size[0], *pixels.shape[2:])


# --- sharpening -----------------------------------------------------------------------------------


def _strength(averaged: float, ratio: float) -> float:
    """Return the sharpening that compensates for averaging `averaged` pixels per side.

    The image is reduced by `ratio`.

    The mean of n samples scales a frequency of f cycles per sample by sin(n pi f) / (n sin(pi f)).
    The kernel restores that loss exactly at a quarter of a cycle per pixel of the result, half of
    the highest frequency it can show.
    """
    angle = math.pi / 4 / ratio
    kept = math.sin(averaged * angle) / (averaged * math.sin(angle))
    return min((1 / kept - 1) / 2, _MAX_STRENGTH)


#: Only images a few pixels wide, scaled by whole blocks of a JPEG, would need a larger strength.
_MAX_STRENGTH = 0.015


#: Rows to process at a time, so that they stay in the CPU's cache.
_ROWS = 64
_BITS = 11


def sharpen(pixels: NDArray[np.uint8], strength: float) -> NDArray[np.uint8]:
    """Add to each pixel `strength` times the sum of its differences from its four neighbors.

    Border pixels do not have four neighbors and do not change.

    Args:
        pixels: uint8 [H, W] or [H, W, C].
        strength: 0 to 0.015.

    """
    height, depth = len(pixels), math.prod(pixels.shape[2:])
    rows = pixels.reshape(height, -1)
    out = rows.copy()
    step = round(strength * (1 << _BITS))
    for top in range(1, height - 1, _ROWS):
        near = rows[top - 1 : min(top + _ROWS, height - 1) + 1].astype(np.int16)
        middle = near[1:-1, depth:-depth]
        change = middle << 2
        change -= near[:-2, depth:-depth]  # above
        change -= near[2:, depth:-depth]  # below
        change -= near[1:-1, : -2 * depth]  # to the left
        change -= near[1:-1, 2 * depth :]  # to the right
        change *= step
        change += 1 << (_BITS - 1)
        change >>= _BITS
        change += middle
        np.clip(change, 0, 255, out=change)
        out[top : top + len(change), depth:-depth] = change
    return out.reshape(pixels.shape)
