"""Divide an epoch among classes or samples by weight.

Shares are integers, so sums and rounding are exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Rows
from loaders.samplers.shuffle import random_words

#: A quota counts units of 2**-24 sample.
QUOTA_BITS = 24


def quota_ends(weights: NDArray[np.float64], length: int) -> Rows:
    """Return the boundaries of the shares of an epoch, int64 [weights + 1], in units of 2**-24 sample.

    Share i is from ``ends[i]`` to ``ends[i + 1]``; all shares together are `length` samples.

    Args:
        weights: at least 0, with a positive sum, [weights].
        length: samples in an epoch.

    """
    quotas = np.rint(weights * (length / weights.sum()) * 2**QUOTA_BITS).astype(np.int64)
    quotas[quotas.argmax()] += (length << QUOTA_BITS) - quotas.sum()
    return np.concatenate([[0], np.cumsum(quotas)])


def round_quotas(ends: Rows, *key: int) -> Rows:
    """Round each share up or down to whole samples, at random, so that they add up to the epoch: int64 [shares].

    Systematic sampling: shift all boundaries by one random fraction of a sample, then round down.
    So each share gets its quota on average.

    Args:
        ends: what `quota_ends` returned.
        key: key of the draw; see `random_words`.

    """
    shift = int(random_words(1, *key)[0]) >> (64 - QUOTA_BITS)
    return np.diff((ends + shift) >> QUOTA_BITS)


def draw_by_quota(ends: Rows, draws: NDArray[np.float64]) -> Rows:
    """Return the share that each draw falls into, int64 [draws].

    Args:
        ends: what `quota_ends` returned.
        draws: uniform numbers in [0, 1), [draws].

    """
    shares: Rows = np.searchsorted(ends[1:], (draws * ends[-1]).astype(np.int64), side="right")
    return shares
