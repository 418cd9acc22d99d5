"""Random numbers and orders that are computed where they are asked for. NumPy only; it must never know a sample.

Everything here is a function of its arguments, on whole arrays: no state, and nothing as long as a split.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Keys: TypeAlias = NDArray[np.uint64]
Rows: TypeAlias = NDArray[np.int64]

# SplitMix64 (Steele, Lea and Flood 2014): the step of its state, and the numbers of its finaliser.
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32, _11 = (np.uint64(bits) for bits in (30, 27, 31, 32, 11))

#: Up to here an order is the ranks of hashes: every order alike, and quicker than the network.
_FEW = 32
#: Of the network. With 8, chi-square over the pairs of a million orders of 20 finds it out; with 12, neither over pairs
#: nor over triples of three million orders of 33 and more.
_ROUNDS = 12


def stream(*numbers: int) -> Keys:
    """Return a key, uint64 [1], for a seed and what it is used for: numbers from 0 to 2**64 - 1.

    Calls with as many numbers, any of them different, give unrelated keys (`numpy.random.SeedSequence`).
    """
    # Each number takes two words whatever its size, so that no two lists of numbers read the same.
    words = [part for number in numbers for part in (number & 0xFFFFFFFF, number >> 32)]
    return np.random.SeedSequence(words).generate_state(1, np.uint64).astype(np.uint64, copy=False)


def hashed(keys: Keys, numbers: NDArray[Any] | int) -> Keys:
    """Return 64 random bits for each key and each number from 0, broadcast: SplitMix64's stream from that key."""
    return _mixed(np.multiply(np.asarray(numbers, np.uint64), _STEP) + (keys + _STEP))


def _mixed(state: Keys) -> Keys:
    mixed: Keys = state ^ (state >> _30)
    mixed *= _FIRST
    mixed ^= mixed >> _27
    mixed *= _SECOND
    mixed ^= mixed >> _31
    return mixed


def uniform(bits: Keys) -> NDArray[np.float64]:
    """Return numbers from 0 to below 1, of 53 bits each, from random bits."""
    numbers: NDArray[np.float64] = (bits >> _11) * np.float64(2.0**-53)
    return numbers


def permute(positions: ArrayLike, sizes: ArrayLike, keys: Keys) -> Rows:
    """Return what stands at some positions of random orders of 0 .. size - 1, one order for each size and key.

    Positions, sizes and keys are broadcast to one shape, that of the result. Sizes up to 2**50; each position from
    0 to below its size. Over all positions of one size and key the results are all different.

    Small sizes take the rank of the position's hash among all of its order. Larger ones go through a Feistel
    network over a rectangle of about size cells, and again as long as they come out beyond the size: Black and
    Rogaway 2002, "Ciphers with Arbitrary Finite Domains". A rectangle holds at most one row too many; over powers
    of two, as in Mitchell, Stokes, Frank and Holmes 2021, "Bandwidth-Optimal Random Shuffling for GPUs", up to
    half or three quarters of the cells lie beyond, and each walk costs a batch another round of array operations.
    """
    place, size, key = np.broadcast_arrays(np.asarray(positions, np.int64), np.asarray(sizes, np.int64), keys)
    shape = place.shape
    place, size, key = place.ravel(), size.ravel(), key.ravel()
    few = size <= _FEW
    if few.all():
        found = _rank(place, size, key)
    elif not few.any():
        found = _walk(place, size, key)
    else:
        found = np.empty(place.shape, np.int64)
        found[few] = _rank(place[few], size[few], key[few])
        found[~few] = _walk(place[~few], size[~few], key[~few])
    return found.reshape(shape)


def _rank(place: Rows, size: Rows, key: Keys) -> Rows:
    others = np.arange(size.max(initial=1))
    bits = hashed(key[:, None], others[None, :])
    # The lowest bits number the hashes, so that no two are equal.
    bits &= ~np.uint64(_FEW - 1)
    bits |= others.astype(np.uint64)
    own = np.take_along_axis(bits, place[:, None], 1)
    ranks: Rows = np.count_nonzero((bits < own) & (others < size[:, None]), axis=1)
    return ranks


def _walk(place: Rows, size: Rows, key: Keys) -> Rows:
    size = size.astype(np.uint64)
    width = np.ceil(np.sqrt(size)).astype(np.uint64)
    height: Keys = np.floor_divide(size + width - np.uint64(1), width, dtype=np.uint64)
    found = _network(place.astype(np.uint64), width, height, key)
    beyond = np.flatnonzero(found >= size)
    while beyond.size:
        again = _network(found[beyond], width[beyond], height[beyond], key[beyond])
        found[beyond] = again
        beyond = beyond[again >= size[beyond]]
    return found.astype(np.int64)


def _network(place: Keys, width: Keys, height: Keys, key: Keys) -> Keys:
    down = place // width
    along = place - down * width
    # Round r of value v takes number v * rounds + r of the key's stream.
    stride = np.uint64(_ROUNDS * int(_STEP) % 2**64)
    for _ in range(0, _ROUNDS, 2):
        key = key + _STEP
        along = (along + _below(width, _mixed(key + down * stride))) % width
        key = key + _STEP
        down = (down + _below(height, _mixed(key + along * stride))) % height
    return down * width + along


def _below(limit: Keys, bits: Keys) -> Keys:
    """Return a number from 0 to below each limit, which is at most 2**32, by the upper half of the bits."""
    numbers: Keys = ((bits >> _32) * limit) >> _32
    return numbers
