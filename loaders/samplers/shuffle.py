"""Random orders of a whole epoch, equal on every machine and with every NumPy release.

NumPy guarantees the raw output of its bit generators and of `SeedSequence`, but not that of
`Generator.permutation` or `Generator.random` (NEP 19,
https://numpy.org/neps/nep-0019-rng-policy.html). So this module uses the raw 64-bit words only.
Sorting 10 million of them takes 0.4 s, about as long as `Generator.permutation`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Indices, index_dtype
from loaders.samplers.groups import group, number_words


def random_words(count: int, *key: int) -> NDArray[np.uint64]:
    """Return `count` random 64-bit words, uint64 [count].

    Args:
        count: number of words.
        key: seed, epoch and purpose: integers from 0 to 2**64 - 1. Keys of the same length that
            differ in any number give independent words.

    """
    # Two words for each number, so that different keys of the same length always differ in a word.
    entropy = [part for number in key for part in (number & 0xFFFFFFFF, number >> 32)]
    words: NDArray[np.uint64] = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(count)
    return words


def uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) with 53 bits each, from random words."""
    numbers: NDArray[np.float64] = (words >> np.uint64(11)) * np.float64(2.0**-53)
    return numbers


def shuffled(count: int, *key: int) -> Indices:
    """Return 0 .. count - 1 in a random order, int32 or int64 [count].

    See `random_words` for the key.
    """
    # Sort random words whose lowest bits number them: all are different, so every sort gives the
    # same order. At least 33 bits stay random up to 2**31 samples; of 10 million, about 45 pairs
    # draw equal bits and keep their order.
    bits = max(1, (count - 1).bit_length())
    words = random_words(count, *key)
    words >>= np.uint64(bits)
    words <<= np.uint64(bits)
    number_words(words)
    words.sort()
    words &= np.uint64((1 << bits) - 1)
    return words.astype(index_dtype(count))


def shuffled_within(groups: Indices, *key: int) -> Indices:
    """Return the positions of an array of group numbers: group after group ascending, each in a random order."""
    order = shuffled(len(groups), *key)
    return order[group(groups[order]).members]
