"""Types of NumPy arrays, by the type of their elements; docstrings say what their shapes are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
BoolArray = NDArray[np.bool_]
UInt8Array = NDArray[np.uint8]
Int16Array = NDArray[np.int16]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

#: Integers of any size.
IntegerArray = NDArray[np.integer]
