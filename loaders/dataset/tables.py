"""Columns of a split's sample tables, by row. NumPy only; it must never know torch or DALI.

A row's number counts through all shards of the split, in order.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.split import OpenSplit
from manifests.errors import CallError, TableError
from manifests.store import read_table

if TYPE_CHECKING:
    import pyarrow as pa

VERIFY = "run `dataprep verify` to see where"

#: Stands for a checksum that a table does not state; one image in four thousand millions has it too.
NO_CHECKSUM = 0


def read_columns(
    split: OpenSplit, names: Sequence[str], *, asked_by: str, besides: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Read columns of all the split's tables.

    Args:
        split: whose tables.
        names: of the columns.
        asked_by: what asks for them, as an error begins: ``fields``, say.
        besides: what else it may ask for.

    Returns:
        Each an array [samples]: numbers where no row lacks one and all shards have one kind, else objects;
        ``crc32c`` with `NO_CHECKSUM`.

    Raises:
        CallError: there is no such column.
        DamagedError: a table is missing or damaged.

    """
    if not names:
        return {}
    _check_known(split, names, asked_by, besides)
    tables = [_shard_table(split.path(shard.table), names, shard.samples) for shard in split.shards]
    return {name: _column(split, name, [table[name] for table in tables]) for name in names}


def _check_known(split: OpenSplit, names: Sequence[str], asked_by: str, besides: Sequence[str]) -> None:
    columns = read_table(split.path(split.shards[0].table)).column_names
    known = [*besides, *columns]
    for name in names:
        if name not in columns:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise CallError(f"{asked_by} has {name!r}, which is no column of the sample tables", hint=hint)


def _shard_table(path: str, columns: Sequence[str], samples: int) -> pa.Table:
    table = read_table(path, list(columns))
    if table.num_rows != samples:
        raise TableError(f"has {table.num_rows} rows, and its shard {samples} samples", file=path, hint=VERIFY)
    return table


def _column(split: OpenSplit, name: str, parts: Sequence[Any]) -> NDArray[Any]:
    """Join a column's parts: numbers of one kind without gaps stay numbers, anything else becomes objects."""
    if name in ("label", "offset", "size"):
        for shard, part in zip(split.shards, parts, strict=True):
            if part.null_count:
                raise TableError(f"has rows without {name}", file=split.path(shard.table), hint=VERIFY)
    if name == "crc32c":
        parts = [part.fill_null(NO_CHECKSUM) for part in parts]
    arrays = [part.to_numpy() if not part.null_count else _objects(part) for part in parts]
    # Whole numbers and others have no type in common that holds all of them.
    if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.kind not in "iufb":
        arrays = [array if array.dtype == object else array.astype(object) for array in arrays]
    return np.concatenate(arrays)


def _objects(part: Any) -> NDArray[Any]:
    found = np.empty(len(part), object)
    found[:] = part.to_pylist()
    return found
