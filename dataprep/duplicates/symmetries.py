"""The eight rotations and reflections of an image, applied to its perceptual hash.

Pure functions over arrays.

A hash is a matrix of 16 vertical by 16 horizontal frequencies. To mirror an image negates the odd
horizontal frequencies, which flips their signs; to flip it negates the odd vertical ones; to
transpose it transposes the matrix.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

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


def transform_pixels(pixels: NDArray[np.uint8], symmetry: Symmetry) -> NDArray[np.uint8]:
    """Apply a symmetry to square images, uint8 [..., N, N]; ``"rotated 90"`` is clockwise."""
    transposed, mirrored, flipped = _STEPS[symmetry]
    if transposed:
        pixels = pixels.swapaxes(-1, -2)
    if mirrored:
        pixels = pixels[..., ::-1]
    return pixels[..., ::-1, :] if flipped else pixels


def transform_hashes(hashes: NDArray[np.uint64], symmetry: Symmetry) -> NDArray[np.uint64]:
    """Return the hashes of the transformed images, uint64 [N, 4], from those of the images."""
    transposed, mirrored, flipped = _STEPS[symmetry]
    if transposed:
        hashes = _transpose(hashes)
    odd = np.zeros((16, 16), np.bool_)
    if mirrored:
        odd[:, 1::2] ^= True
    if flipped:
        odd[1::2] ^= True
    result: NDArray[np.uint64] = hashes ^ np.packbits(odd).view(np.uint64)
    return result


#: Hashes that are transposed at a time: their bits take a byte each.
_PART = 1 << 16


def _transpose(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    out = np.empty_like(hashes)
    for start in range(0, len(hashes), _PART):
        part = np.ascontiguousarray(hashes[start : start + _PART])
        bits = np.unpackbits(part.view(np.uint8), axis=1).reshape(-1, 16, 16)
        out[start : start + _PART] = np.packbits(bits.swapaxes(1, 2).reshape(-1, 256), axis=1).view(
            np.uint64
        )
    return out


def parse_hashes(digits: bytes) -> NDArray[np.uint64]:
    """Return hashes that are written one after the other, 64 hex digits each, as uint64 [N, 4].

    Raises:
        ValueError: a digit is wrong, or some are missing.

    """
    data = bytes.fromhex(digits.decode("ascii"))
    return np.frombuffer(data, np.uint64).reshape(-1, WORDS).copy()
