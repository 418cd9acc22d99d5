"""Check that values are scaled from 0-255 to 0-1 exactly once. No side effects."""

from __future__ import annotations

from enum import Enum

from loaders.transforms.base import Operation
from loaders.transforms.decode_normalize import Normalize, Rescale
from manifests.errors import CallError


class Values(Enum):
    """What the values of an image are at some point of a list."""

    BYTES = "from 0 to 255"
    UNIT = "from 0 to 1"
    NORMALIZED = "normalized"


def values_after(operation: Operation, values: Values) -> Values:
    """Return what the values are after an operation.

    Raises:
        CallError: the operation scales values that are already scaled, or normalizes with a mean
            and a standard deviation for values from 0 to 1 although the values are from 0 to 255,
            or the other way round.

    """
    if isinstance(operation, Rescale):
        return Values.UNIT
    if not isinstance(operation, Normalize):
        return values
    if values is not Values.BYTES and abs(operation.scale) < _SCALES:
        raise CallError(
            f"the values are already {values.value} at this point, and are scaled by"
            f" {operation.scale:.4g} again",
            hint="remove ToTensor before it, or use Normalize, which does not scale",
        )
    if values is Values.BYTES and operation.scale == 1 and _are_for_unit(operation):
        raise CallError(
            f"the mean {operation.mean} and std {operation.std} are for values from 0 to 1, but the"
            " values are from 0 to 255",
            hint="put ToTensor before it, or use NormalizeImage, which scales by 1/255",
        )
    if (
        values is Values.UNIT
        and operation.scale == 1
        and min(operation.mean) > 1
        and min(operation.std) > 1
    ):
        raise CallError(
            f"the mean {operation.mean} and std {operation.std} are for values from 0 to 255, but"
            " the values are from 0 to 1",
            hint="divide mean and std by 255, or remove ToTensor before it",
        )
    return Values.NORMALIZED


#: A smaller factor scales values from 0-255. PaddleClas's configs use 1/255 and 0.00392157.
_SCALES = 0.02


def _are_for_unit(operation: Normalize) -> bool:
    changes = any(operation.mean) or operation.std != (1, 1, 1)
    return changes and max(map(abs, operation.mean)) <= 1 and max(map(abs, operation.std)) <= 1
