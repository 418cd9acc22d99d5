"""Real photographs from scikit-image, decoded once per test process."""

from __future__ import annotations

from functools import cache

import numpy as np
from skimage import data


@cache
def photograph(name: str) -> np.ndarray:
    """Return ``"astronaut"``, ``"chelsea"`` or ``"coffee"``: uint8 RGB, HWC, read-only."""
    image: np.ndarray = getattr(data, name)()
    image.flags.writeable = False
    return image
