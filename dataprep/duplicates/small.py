"""Near copies of small images, which have few details: a coarse search by their hashes, then their pixels decide.

Small images are often other crops of one photograph, which changes most bits of fine detail. So candidates need only
have similar low frequencies, which many different images have too. Then the gradients of one image are correlated with
those of the other at all small shifts, also with one of them enlarged a little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection
from dataprep.duplicates.content import map_images, reduced
from dataprep.duplicates.near import search_hashes
from dataprep.duplicates.search import Pairs, distances, low_frequencies
from dataprep.duplicates.symmetries import SYMMETRIES, transform_hashes, transform_pixels
from dataprep.images.perceptual_hash import SIDE
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress

#: Images whose shorter side has fewer pixels are small.
SMALL = 64

#: Of 64 low frequencies, so many may have another sign at the default distance, and at the largest one.
_COARSE_DISTANCE, _MAX_COARSE_DISTANCE = 11, 15

#: Least correlation of the gradients of two small images, as they are, and when they are aligned. In CIFAR-10, almost
#: all pairs above the second one show the same photograph; docs/duplicates.md has the figures.
_MIN_CORRELATION, _MIN_ALIGNED = 0.2, 0.65

#: Pixels by which images are shifted at most, and the part of an image that is enlarged to all of it.
_MAX_SHIFT, _ZOOM = 8, 0.95

#: At a shift, the images must have this share of their gradients in common.
_MIN_ENERGY = 0.25

#: Pairs that are compared at a time.
_PART = 1024


def search_small(
    images: Collection,
    rows: NDArray[np.int64],
    small: NDArray[np.int64],
    distance: int,
    side: NDArray[np.int8] | None,
    *,
    workers: int | None,
    progress: Progress | None,
) -> tuple[Pairs, NDArray[np.uint8]]:
    """Find pairs of small images with similar low frequencies.

    Args:
        images: the collection.
        rows: images that are compared, int64 [N].
        small: positions of the small ones in `rows`.
        distance: number of different bits of 256, which is converted to one of 64.
        side: [N]. If given, only images with different values are compared.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in images.

    Returns:
        Pairs of positions in `rows`, with the number of all 256 bits that differ, and their symmetries.

    Raises:
        CallError: there are too many pairs.

    """
    hashes = images.hashes[rows[small]]
    coarse = min(_MAX_COARSE_DISTANCE, distance * _COARSE_DISTANCE // DEFAULT_DISTANCE)
    side = None if side is None else side[small]
    pairs, symmetry = search_hashes(hashes, coarse, side, bits=low_frequencies, workers=workers, progress=progress)
    bits = np.zeros(len(symmetry), np.uint8)
    for number, name in enumerate(SYMMETRIES):
        some = symmetry == number
        turned = transform_hashes(hashes[pairs.second[some]], name)
        bits[some] = distances(hashes[pairs.first[some]], turned).clip(max=255)
    return Pairs(small[pairs.first].astype(np.int32), small[pairs.second].astype(np.int32), bits), symmetry


def pixels_agree(
    images: Collection,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    symmetry: NDArray[np.uint8],
    workers: int | None,
) -> NDArray[np.bool_]:
    """Return which pairs of images show the same, bool [N].

    Args:
        images: the collection.
        first: an image of each pair, int64 [N].
        second: the other one.
        symmetry: what turns the second into the first: positions in `SYMMETRIES`.
        workers: number of processes; `None` means one per CPU.

    """
    result = np.zeros(len(first), np.bool_)
    needed = np.unique(np.concatenate([first, second]))
    pixels = _reduced_pixels(images, needed, workers)
    at_first, at_second = np.searchsorted(needed, first), np.searchsorted(needed, second)
    for number, name in enumerate(SYMMETRIES):
        some = np.flatnonzero(symmetry == number)
        for start in range(0, len(some), _PART):
            part = some[start : start + _PART]
            turned = transform_pixels(pixels[at_second[part]], name)
            result[part] = show_the_same(pixels[at_first[part]], turned)
    return result


def _reduced_pixels(images: Collection, needed: NDArray[np.int64], workers: int | None) -> NDArray[np.uint8]:
    """Return the reduced pixels of some images in ascending order; zeros for one that cannot be read any more."""
    pixels = np.zeros((len(needed), SIDE, SIDE), np.uint8)
    for number, source in enumerate(images.sources):
        start = int(images.starts[number])
        inside = needed[(needed >= start) & (needed < images.starts[number + 1])] - start
        if len(inside):
            for row, value in map_images(source, inside, reduced, workers=workers).items():
                if isinstance(value, np.ndarray):
                    pixels[np.searchsorted(needed, start + row)] = value
    return pixels


# --- compare pixels -------------------------------------------------------------------------------


def show_the_same(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which pairs of reduced images, uint8 [N, 32, 32] each, show the same, perhaps cropped, bool [N]."""
    one, other = a.astype(np.float32), b.astype(np.float32)
    result = np.zeros(len(one), np.bool_)
    left = np.flatnonzero(correlation(one, other) >= _MIN_CORRELATION)
    for zoom_one, zoom_other in ((False, False), (True, False), (False, True)):
        parts = (_enlarge(x[left]) if zoom else x[left] for x, zoom in ((one, zoom_one), (other, zoom_other)))
        agree = aligned_correlation(*parts) >= _MIN_ALIGNED
        result[left[agree]] = True
        left = left[~agree]
    return result


def correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return how similar the gradients of images are, float32 [N]: 1 for equal images, about 0 for unrelated ones.

    Args:
        a: float32 [N, H, W].
        b: float32 [N, H, W].

    """
    (ax, ay), (bx, by) = _gradients(a), _gradients(b)
    product = (ax * bx).sum((1, 2)) + (ay * by).sum((1, 2))
    energy = (ax * ax + ay * ay).sum((1, 2)) * (bx * bx + by * by).sum((1, 2))
    result: NDArray[np.float32] = product / np.sqrt(energy.clip(min=1))
    return result


def aligned_correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest `correlation` of what images have in common when one of them is shifted, float32 [N]."""
    (ax, ay), (bx, by) = _gradients(a), _gradients(b)
    energy_a, energy_b = ax * ax + ay * ay, bx * bx + by * by
    size = ax.shape[-1] + _MAX_SHIFT + 1  # without overlap at the largest shift
    shape = (size, size)

    def spectrum(x: NDArray[np.float32]) -> NDArray[np.complexfloating]:
        return np.fft.rfft2(x, shape)

    everywhere = spectrum(np.ones((1, *ax.shape[1:]), np.float32))
    shifts = np.r_[0 : _MAX_SHIFT + 1, -_MAX_SHIFT:0]

    def at_shifts(product: NDArray[np.complexfloating]) -> NDArray[np.floating]:
        return np.fft.irfft2(product, shape)[:, shifts][:, :, shifts]

    common = at_shifts(spectrum(ax) * spectrum(bx).conj() + spectrum(ay) * spectrum(by).conj())
    of_a = at_shifts(spectrum(energy_a) * everywhere.conj())
    of_b = at_shifts(everywhere * spectrum(energy_b).conj())
    is_enough = (of_a >= _MIN_ENERGY * energy_a.sum((1, 2))[:, None, None]) & (
        of_b >= _MIN_ENERGY * energy_b.sum((1, 2))[:, None, None]
    )
    likeness = np.where(is_enough, common / np.sqrt((of_a * of_b).clip(min=1)), 0)
    result: NDArray[np.float32] = likeness.max((1, 2), initial=0).astype(np.float32)
    return result


def _gradients(pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return np.diff(pixels, axis=2)[:, :-1], np.diff(pixels, axis=1)[:, :, :-1]


def _enlarge(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Enlarge the middle of images to their whole size, by linear interpolation."""
    weights = _zoom_weights()
    return np.asarray(weights @ pixels @ weights.T, np.float32)


def _zoom_weights() -> NDArray[np.float32]:
    """Return how much each pixel contributes to each pixel of the enlarged middle, float32 [32, 32]."""
    place = (np.arange(SIDE) + 0.5 - SIDE / 2) * _ZOOM + SIDE / 2 - 0.5
    low = np.floor(place).astype(np.int64)
    weights = np.zeros((SIDE, SIDE), np.float32)
    weights[np.arange(SIDE), low] = 1 - (place - low)
    weights[np.arange(SIDE), low + 1] = place - low
    return weights
