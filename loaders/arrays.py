"""Types of NumPy arrays, and arrays of lists. Docstrings give the shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Of any type: a column, the images of a batch.
Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
#: Content of a file, an encoded image, pixels.
Bytes: TypeAlias = NDArray[np.uint8]
#: Rows, labels, positions.
Ints: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
Float32s: TypeAlias = NDArray[np.float32]
#: Random bits, and integers that are packed into them.
Words: TypeAlias = NDArray[np.uint64]
#: Columns of sample tables, by name.
Columns: TypeAlias = Mapping[str, Array]


def bounds_of(counts: Ints) -> Ints:
    """Return where each of some lists begins that follow each other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts)])
