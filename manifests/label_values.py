"""Check the values of columns that hold labels: multi-label, regression, captions, boxes.

Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from manifests.process.text import plural
from manifests.schema import MAX_LABEL

if TYPE_CHECKING:
    import pyarrow as pa


class WrongValue(NamedTuple):
    """A value that cannot be a label: what is wrong, as the end of a sentence about the column, and the row."""

    message: str
    row: int


def find_wrong_value(
    column: pa.Array | pa.ChunkedArray, kind: str, *, classes: int = MAX_LABEL + 1
) -> WrongValue | None:
    """Return the first value of a column that cannot be a label; `None` if all can.

    Args:
        column: the column, of the type `manifests.labels.arrow_type` of the kind.
        kind: kind of its values, from `manifests.labels.LABEL_COLUMNS`.
        classes: labels must be less than this.

    """
    import pyarrow.compute as pc

    if column.null_count:
        return WrongValue("has a row without a value", pc.index(pc.is_null(column), True).as_py())
    if kind not in ("integers", "floats", "boxes") or not len(column):
        return None
    rows, values = pc.list_parent_indices(column), pc.list_flatten(column)
    if kind == "integers":
        return _outside(rows, values, classes)
    if kind == "boxes":
        return _wrong_box(rows, values)
    return _wrong_numbers(column, rows, values)


def _outside(rows: Any, values: Any, classes: int) -> WrongValue | None:
    import pyarrow.compute as pc

    wrong = pc.or_(
        pc.is_null(values), pc.or_kleene(pc.less(values, 0), pc.greater_equal(values, classes))
    )
    at = pc.index(wrong, True).as_py()
    if at < 0:
        return None
    return WrongValue(
        f"contains {values[at]}, which is out of the range 0 to {classes - 1}", rows[at].as_py()
    )


def _wrong_numbers(column: Any, rows: Any, values: Any) -> WrongValue | None:
    import pyarrow.compute as pc

    wrong = pc.invert(pc.fill_null(pc.is_finite(values), False))
    if (at := pc.index(wrong, True).as_py()) >= 0:
        return WrongValue(f"contains {values[at]}, which is not a finite number", rows[at].as_py())
    lengths = pc.list_value_length(column)
    first = lengths[0].as_py()
    at = pc.index(pc.not_equal(lengths, first), True).as_py()
    if at >= 0:
        return WrongValue(
            f"has {plural(lengths[at].as_py(), 'value')} in a row, but {first} in the first one", at
        )
    return WrongValue("has a row without a value", 0) if first == 0 else None


def _wrong_box(rows: Any, boxes: Any) -> WrongValue | None:
    import numpy as np
    import pyarrow.compute as pc

    if boxes.null_count:
        return WrongValue(
            "has a box without a value", rows[pc.index(pc.is_null(boxes), True).as_py()].as_py()
        )
    corners = np.asarray(pc.fill_null(pc.list_flatten(boxes), float("nan"))).reshape(-1, 4)
    wrong = ~(
        np.isfinite(corners).all(1)
        & (corners >= 0).all(1)
        & (corners[:, :2] <= corners[:, 2:]).all(1)
    )
    if not wrong.any():
        return None
    at = int(wrong.argmax())
    shown = ", ".join(f"{value:g}" for value in corners[at].tolist())
    return WrongValue(f"has the box {shown}, which is not x1, y1, x2, y2", rows[at].as_py())
