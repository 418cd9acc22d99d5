"""Random orders that stay the same with every release of NumPy.

All random numbers come from the raw 64-bit output of PCG64, which NumPy guarantees not to change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Second number of the seed of each kind of order, so they use separate random streams.
SPLIT_STREAM, ORDER_STREAM = 1, 2


def permutation(count: int, *stream: int) -> NDArray[np.int64]:
    """Return a random order of `count` elements, int64 [count].

    The seed and the stream determine it.
    """
    draws = np.random.PCG64(np.random.SeedSequence(stream)).random_raw(count)
    return np.argsort(np.asarray(draws, np.uint64).reshape(-1), kind="stable")
