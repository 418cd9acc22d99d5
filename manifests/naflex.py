"""The size that NaFlex gives an image: timm's rule for a budget of patches. Pure.

timm searches for the largest ratio of the resize with at most so many patches, by halving a range
until it is shorter than 1e-5 (``timm.data.naflex_transforms.get_image_size_for_seq``). So its
result is one of equally spaced ratios, and this finds the same one without a search.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The range in which timm searches, and the length at which it ends.
_LEAST, MOST_RATIO, _PRECISION = 1e-6, 100.0, 1e-5

#: The ratios that timm can find: `_LEAST` and up to `_MOST_STEPS` steps of `_STEP` more.
_HALVINGS = math.ceil(math.log2((MOST_RATIO - _LEAST) / _PRECISION))
_STEP = (MOST_RATIO - _LEAST) / 2**_HALVINGS
_MOST_STEPS = 2**_HALVINGS - 1

#: Images that are computed at once: a few megabytes for usual budgets.
_BLOCK = 1024


def token_grids(
    sides: NDArray[np.integer[Any]], patch: int, budget: int, most_ratio: float = MOST_RATIO
) -> NDArray[np.int64]:
    """Return rows and columns of patches of images, int64 [n, 2].

    Args:
        sides: heights and widths in pixels, at least 1, [n, 2].
        patch: side of a patch in pixels.
        budget: most patches of an image.
        most_ratio: largest ratio of a resize; 1 never enlarges an image.

    """
    import numpy as np  # the modules of manifests load no array library by themselves

    rows = np.arange(1, budget + 1)
    columns = budget // rows
    # A ratio is possible if some number of rows has room for the height, and leaves enough columns.
    largest = np.zeros(len(sides))
    for start in range(0, len(sides), _BLOCK):
        heights, widths = sides[start : start + _BLOCK].T[:, :, None]
        possible = np.minimum(rows * patch / heights, columns * patch / widths)
        largest[start : start + _BLOCK] = possible.max(1)
    steps = np.clip(np.floor((largest - _LEAST) / _STEP), 0, _MOST_STEPS)
    ratios = np.minimum(_LEAST + steps * _STEP, most_ratio)
    grids: NDArray[np.int64] = np.ceil(sides * ratios[:, None] / patch).astype(np.int64)
    return np.maximum(grids, 1)
