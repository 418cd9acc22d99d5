"""Compare images by their reduced pixels, in the eight rotations and reflections.

A hash is a matrix of 16 vertical by 16 horizontal frequencies. To mirror an image negates the odd
horizontal frequencies, which flips their signs; to flip it negates the odd vertical ones; to
transpose it transposes the matrix.

Small images are reduced to 32x32 pixels. The gradients of one image are correlated with the
gradients of the other at all small shifts, also with one of them enlarged a little.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dataprep.arrays import (
    AnyArray,
    BoolArray,
    Float32Array,
    Int64Array,
    IntegerArray,
    UInt8Array,
    UInt64Array,
)
from dataprep.images.perceptual_hash import SIDE

#: What turns one image into the other.
Symmetry = Literal[
    "identical",
    "mirrored",
    "flipped",
    "rotated 180",
    "transposed",
    "rotated 90",
    "rotated 270",
    "transverse",
]
SYMMETRIES: tuple[Symmetry, ...] = get_args(Symmetry)

#: The symmetry that undoes each one: positions in `SYMMETRIES`. Only a quarter turn is not its own.
INVERSES = np.array([0, 1, 2, 3, 4, 6, 5, 7], np.uint8)

#: Words of 64 bits in a hash.
WORDS = 4

#: For each symmetry: whether the pixels are transposed, and then mirrored horizontally, and flipped
#: vertically.
_STEPS: dict[Symmetry, tuple[bool, bool, bool]] = {
    "identical": (False, False, False),
    "mirrored": (False, True, False),
    "flipped": (False, False, True),
    "rotated 180": (False, True, True),
    "transposed": (True, False, False),
    "rotated 90": (True, True, False),
    "rotated 270": (True, False, True),
    "transverse": (True, True, True),
}


def transform_pixels(pixels: UInt8Array, symmetry: Symmetry) -> UInt8Array:
    """Apply a symmetry to square images, uint8 [..., N, N]; ``"rotated 90"`` is clockwise."""
    transposed, mirrored, flipped = _STEPS[symmetry]
    if transposed:
        pixels = pixels.swapaxes(-1, -2)
    if mirrored:
        pixels = pixels[..., ::-1]
    return pixels[..., ::-1, :] if flipped else pixels


def transform_hashes(hashes: UInt64Array, symmetry: Symmetry) -> UInt64Array:
    """Return the hashes that images have after a symmetry, uint64 [N, 4]."""
    transposed, mirrored, flipped = _STEPS[symmetry]
    if transposed:
        hashes = select_bits(hashes, np.arange(256).reshape(16, 16).T.ravel())
    odd = np.zeros((16, 16), np.bool_)
    if mirrored:
        odd[:, 1::2] ^= True
    if flipped:
        odd[1::2] ^= True
    return hashes ^ np.packbits(odd).view(np.uint64)


#: Hashes whose bits are selected at a time: each takes a byte.
_HASHES_AT_ONCE = 1 << 16


def select_bits(hashes: UInt64Array, places: IntegerArray) -> UInt64Array:
    """Return some bits of hashes, in this order, uint64 [N, bits / 64]."""
    out = np.empty((len(hashes), len(places) // 64), np.uint64)
    for start in range(0, len(hashes), _HASHES_AT_ONCE):
        part = np.ascontiguousarray(hashes[start : start + _HASHES_AT_ONCE])
        # `take` is much faster than an index.
        bits = np.unpackbits(part.view(np.uint8), axis=1).take(places, axis=1)
        out[start : start + _HASHES_AT_ONCE] = np.packbits(bits, axis=1).view(np.uint64)
    return out


def parse_hashes(digits: str) -> UInt64Array:
    """Return hashes that are written one after the other, 64 hex digits each, as uint64 [N, 4].

    Raises:
        ValueError: a digit is wrong, or some are missing.

    """
    return np.frombuffer(bytes.fromhex(digits), np.uint64).reshape(-1, WORDS)


# --- the pixels of small images -------------------------------------------------------------------


#: Least correlation of the gradients of two small images, as they are, and when they are aligned.
#: In CIFAR-10, almost all pairs above the second one show the same photograph; docs/duplicates.md
#: has the figures.
MIN_CORRELATION, MIN_ALIGNED = 0.2, 0.65

#: Pixels by which images are shifted at most, and the part of an image that is enlarged to all of
#: it.
_MAX_SHIFT, _ZOOM = 8, 0.95

#: At a shift, the images must have this share of their gradients in common.
_MIN_ENERGY = 0.25

#: Pairs that are compared at a time.
_PAIRS_AT_ONCE = 256

#: Sides of the gradients, and of their Fourier transforms: without overlap at the largest shift.
_GRADIENTS = SIDE - 1
_SIZE = _GRADIENTS + _MAX_SHIFT + 1

_SHIFTS = np.arange(-_MAX_SHIFT, _MAX_SHIFT + 1)


def show_the_same(a: UInt8Array, b: UInt8Array, first: Int64Array, second: Int64Array) -> BoolArray:
    """Return which pairs of images show the same, perhaps cropped.

    Args:
        a: reduced images, uint8 [N, 32, 32].
        b: others, uint8 [M, 32, 32].
        first: image of `a` in each pair, int64 [P]. It is fastest if they are in order.
        second: image of `b` in each pair, int64 [P].

    Returns:
        bool [P].

    """
    result = np.zeros(len(first), np.bool_)
    for start in range(0, len(first), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        ours, at_first = np.unique(first[part], return_inverse=True)
        others, at_second = np.unique(second[part], return_inverse=True)
        result[part] = _show_the_same(
            a[ours].astype(np.float32), b[others].astype(np.float32), at_first, at_second
        )
    return result


def _show_the_same(
    a: Float32Array,
    b: Float32Array,
    first: Int64Array,
    second: Int64Array,
) -> BoolArray:
    unmoved = correlation(a[first], b[second])
    result = unmoved >= MIN_ALIGNED
    left = np.flatnonzero((unmoved >= MIN_CORRELATION) & ~result)
    sides = (a, first), (b, second)
    plain = [_spectra(pixels, at[left]) for pixels, at in sides]
    # Compare the images as they are, then with the first or the second one enlarged.
    for enlarged in (None, 0, 1):
        if not len(left):
            break
        compared = plain.copy()
        if enlarged is not None:
            pixels, at = sides[enlarged]
            compared[enlarged] = _spectra(pixels, at[left], zoom=True)
        agree = aligned_correlation(*compared) >= MIN_ALIGNED
        result[left[agree]] = True
        left = left[~agree]
        plain = [each.take(~agree) for each in plain]
    return result


def _spectra(pixels: Float32Array, at: Int64Array, *, zoom: bool = False) -> Spectra:
    needed, inverse = np.unique(at, return_inverse=True)
    some = pixels[needed]
    return transform(enlarge(some) if zoom else some).take(inverse)


def correlation(a: Float32Array, b: Float32Array) -> Float32Array:
    """Return how similar the gradients of images are, float32 [N]: 1 for equal images.

    Unrelated images have about 0.

    Args:
        a: float32 [N, H, W].
        b: float32 [N, H, W].

    """
    (ax, ay), (bx, by) = _gradients(a), _gradients(b)
    product = _sums(ax, bx) + _sums(ay, by)
    energy = (_sums(ax, ax) + _sums(ay, ay)) * (_sums(bx, bx) + _sums(by, by))
    likeness: Float32Array = product / np.sqrt(energy.clip(min=1))
    return likeness


class Spectra(NamedTuple):
    """The gradients of images, prepared for `aligned_correlation`.

    Attributes:
        x: Fourier transform of the horizontal gradients, complex64 [N, _SIZE, _SIZE // 2 + 1].
        y: the same of the vertical gradients.
        inside: sum of their squares over the part that is inside another image at each shift,
            float32 [N, shifts, shifts].

    """

    x: NDArray[np.complex64]
    y: NDArray[np.complex64]
    inside: Float32Array

    def take(self, which: AnyArray) -> Spectra:
        """Return the gradients of some images."""
        return Spectra._make(part[which] for part in self)


def transform(pixels: Float32Array) -> Spectra:
    """Prepare images, float32 [N, 32, 32]."""
    x, y = _gradients(pixels)
    place = np.arange(_GRADIENTS)
    is_inside = (place >= _SHIFTS[:, None]) & (place < _GRADIENTS + _SHIFTS[:, None])
    weights = is_inside.astype(np.float32)
    return Spectra(
        x=_ROWS @ (x @ _COLUMNS).view(np.complex64),
        y=_ROWS @ (y @ _COLUMNS).view(np.complex64),
        inside=weights @ (x * x + y * y) @ weights.T,
    )


def aligned_correlation(a: Spectra, b: Spectra) -> Float32Array:
    """Return the largest `correlation` of the common part of images at any shift, float32 [N]."""
    product = a.x * b.x.conj() + a.y * b.y.conj()
    common = (_INVERSE_ROWS @ product).view(np.float32) @ _INVERSE_COLUMNS
    of_a, of_b = a.inside, b.inside[:, ::-1, ::-1]
    middle = slice(_MAX_SHIFT, _MAX_SHIFT + 1)  # without a shift, all is inside
    is_enough = of_a >= _MIN_ENERGY * a.inside[:, middle, middle]
    is_enough &= of_b >= _MIN_ENERGY * b.inside[:, middle, middle]
    likeness = np.where(is_enough, common / np.sqrt((of_a * of_b).clip(min=1)), 0)
    highest: Float32Array = likeness.max((1, 2), initial=0).astype(np.float32)
    return highest


def _waves(a: Int64Array, b: Int64Array) -> NDArray[np.complex128]:
    waves: NDArray[np.complex128] = np.exp(2j * np.pi * np.outer(a, b) / _SIZE)
    return waves


# Matrices of Fourier transforms are faster than FFTs of this size, and compute what is needed only.
_PLACE, _HALF = np.arange(_GRADIENTS), np.arange(_SIZE // 2 + 1)
#: Transforms the columns of real gradients, float32; the results are real and imaginary numbers in
#: turn.
_COLUMNS = _waves(-_PLACE, _HALF).astype(np.complex64).view(np.float32)
#: Transforms the rows of what `_COLUMNS` gives, complex64.
_ROWS = _waves(np.arange(_SIZE), -_PLACE).astype(np.complex64)
#: Transforms the rows back, to the shifts that are looked at, complex64.
_INVERSE_ROWS = (_waves(_SHIFTS, np.arange(_SIZE)) / _SIZE).astype(np.complex64)
#: Transforms real and imaginary numbers in turn back, to these shifts, float32.
_BACK = _waves(_HALF, _SHIFTS) / _SIZE
_BACK[1:-1] *= 2  # the other half of the frequencies is the same, conjugated
_INVERSE_COLUMNS = (
    np.stack([_BACK.real, -_BACK.imag], 1).reshape(-1, len(_SHIFTS)).astype(np.float32)
)


def _gradients(pixels: Float32Array) -> tuple[Float32Array, Float32Array]:
    return np.diff(pixels, axis=2)[:, :-1], np.diff(pixels, axis=1)[:, :, :-1]


def _sums(a: Float32Array, b: Float32Array) -> Float32Array:
    sums: Float32Array = np.einsum("nij,nij->n", a, b)
    return sums


def enlarge(pixels: Float32Array) -> Float32Array:
    """Enlarge the middle of images to their whole size, by linear interpolation."""
    weights = _zoom_weights()
    return np.asarray(weights @ pixels @ weights.T, np.float32)


def _zoom_weights() -> Float32Array:
    """Return the weight of each pixel in each pixel of the enlarged middle, float32 [32, 32]."""
    place = (np.arange(SIDE) + 0.5 - SIDE / 2) * _ZOOM + SIDE / 2 - 0.5
    low = np.floor(place).astype(np.int64)
    weights = np.zeros((SIDE, SIDE), np.float32)
    weights[np.arange(SIDE), low] = 1 - (place - low)
    weights[np.arange(SIDE), low + 1] = place - low
    return weights
