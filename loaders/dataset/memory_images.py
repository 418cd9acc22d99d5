"""A few encoded images in memory that take the place of all images of a split.

Never imports DALI.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class MemoryImages:
    """Images by row; `loaders.dataset.records.Records` for images that are in memory.

    Row i is image i modulo n.
    """

    def __init__(self, images: Sequence[NDArray[np.uint8]]) -> None:
        self._images = images

    def images(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        """Return encoded images, uint8 [bytes]; `rows` is int64 [B]."""
        return [self._images[row] for row in (rows % len(self._images)).tolist()]

    def prefetch(self, rows: NDArray[np.int64]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
