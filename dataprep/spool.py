"""Arrays of a source while it is converted: rows in a temporary file, which is mapped into memory.

So memory has only the rows that are in use, however many samples there are. The file has no name,
and disappears with the column.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.arrays import Int64Array
from manifests.arrays import ArrayType
from manifests.errors import StoppedError
from manifests.parquet import BoundedParquet

#: NumPy's names of the types that arrays can have.
TYPES = get_args(ArrayType)

#: A column that takes fewer bytes is kept in memory.
LEAST = 1 << 26
#: Bytes of the rows that are handled in one step.
STEP = 1 << 22
#: Rows in any order that are read in one step: Linux maps up to a megabyte around each.
RANDOM = 64

_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def is_numeric_list(column_type: pa.DataType, *, fixed: bool) -> bool:
    """Return whether a column has lists of numbers, and whether their length is fixed if `fixed`."""
    types = pa.types
    if types.is_fixed_size_list(column_type) or (
        not fixed and (types.is_list(column_type) or types.is_large_list(column_type))
    ):
        return dtype_of(column_type.value_type) in TYPES
    return False


def dtype_of(item: pa.DataType) -> str:
    """Return the name that NumPy has for a type of numbers."""
    names = {"halffloat": "float16", "float": "float32", "double": "float64"}
    return names.get(str(item), str(item))


def spooled(parts: Iterable[Any], length: int) -> pa.FixedSizeListArray:
    """Return a column with the rows of NumPy arrays [rows, length] of one type, one after the other.

    Raises:
        StoppedError: the temporary file cannot be written.

    """
    with tempfile.TemporaryFile(buffering=0) as file:
        item = pa.float32()
        for part in parts:
            item = pa.from_numpy_dtype(part.dtype)
            _write(file, np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        size = file.tell()
        if not size:
            return pa.FixedSizeListArray.from_arrays(pa.array([], item), length)
        mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    _mapped.add(mapping)
    buffers = [None, pa.py_buffer(mapping)]
    values = pa.Array.from_buffers(item, size * 8 // item.bit_width, buffers)
    release_pages()
    return pa.FixedSizeListArray.from_arrays(values, length)


def _write(file: BinaryIO, data: memoryview) -> None:
    """Write all bytes. The errors of reading the source are not among the errors of this function."""
    try:
        while len(data):
            data = data[file.write(data) :]
    except OSError as error:
        raise StoppedError(
            f"the temporary file for arrays cannot be written ({error.strerror})",
            file=tempfile.gettempdir(),
            hint="set TMPDIR to a folder that has room for all arrays, and run the command again",
        ) from None


def release_pages() -> None:
    """Let the system take back the memory of all rows; a row that is needed again is read again."""
    for mapping in [*_mapped]:
        mapping.madvise(mmap.MADV_DONTNEED)


def parts_of(column: pa.Array | pa.ChunkedArray, rows: Int64Array | None = None) -> Iterator[Any]:
    """Yield the rows of a column of arrays without nulls, or some of them, as NumPy arrays [k, length]."""
    length = column.type.list_size
    step = max(1, STEP // (length * column.type.value_type.bit_width // 8))
    count = len(column)
    if rows is not None:
        count, step = len(rows), min(step, RANDOM)
    for start in range(0, count, step):
        if rows is None:
            part = column.slice(start, step)
        else:
            part = column.take(pa.array(rows[start : start + step]))
        chunks = part.chunks if isinstance(part, pa.ChunkedArray) else [part]
        for chunk in chunks:
            yield flat_values(chunk).to_numpy().reshape(-1, length)
        release_pages()


def flat_values(column: pa.Array) -> pa.Array:
    """Return the items of all lists, one row after the other; of lists of a fixed length, without a copy."""
    if not pa.types.is_fixed_size_list(column.type) or column.null_count:
        return pc.list_flatten(column)
    length = column.type.list_size
    return column.values.slice(column.offset * length, len(column) * length)


def is_large(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether a column has arrays that take more memory than is free for them."""
    if not pa.types.is_fixed_size_list(column.type) or column.null_count:
        return False
    item = column.type.value_type
    if not pa.types.is_primitive(item) or item.bit_width < 8:
        return False
    return bool(len(column) * column.type.list_size * item.bit_width // 8 >= LEAST)


def take(table: pa.Table, rows: Int64Array) -> pa.Table:
    """Return rows of a table, whose large arrays are on disk."""
    indices, columns = pa.array(rows), {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if is_large(column):
            columns[name] = spooled(parts_of(column, rows), column.type.list_size)
        else:
            columns[name] = column.take(indices)
    return pa.table(columns)


def combine(table: pa.Table) -> pa.Table:
    """Return a table with one chunk for each column, whose large arrays are on disk."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns[name] = column
        if column.num_chunks > 1:
            if is_large(column):
                columns[name] = spooled(parts_of(column), column.type.list_size)
            else:
                columns[name] = column.combine_chunks()
    return pa.table(columns)


def read_columns(
    parquet: BoundedParquet, names: Sequence[str], *, varying: bool, spools: bool = True
) -> pa.Table:
    """Return columns of a Parquet file, whose large arrays are on disk.

    Args:
        parquet: the file.
        names: the columns.
        varying: whether lists whose type states no length are arrays too if all have one length.
        spools: whether any array is on disk.

    """
    found = {}
    for name in names:
        if spools and is_numeric_list(parquet.schema.field(name).type, fixed=not varying):
            column = _read_arrays(parquet, name)
            if column is not None:
                found[name] = column
    others = parquet.read([name for name in names if name not in found])
    columns = {}
    for name in names:
        columns[name] = found[name] if name in found else others[name]
    return pa.table(columns, metadata=others.schema.metadata)


def _read_arrays(parquet: BoundedParquet, name: str) -> pa.FixedSizeListArray | None:
    """Return a column of lists of one length; `None` if it is small, or has nulls or other lengths."""
    item = parquet.schema.field(name).type.value_type
    values = parquet.count_values(name)
    length = values // max(parquet.rows, 1)
    is_even = length > 0 and length * parquet.rows == values
    if not is_even or values * item.bit_width // 8 < LEAST:
        return None
    try:
        batches = parquet.batches(name, max(1, STEP * 8 // (length * item.bit_width)))
        return spooled(map(partial(_matrix, length), batches), length)
    except _NoArrayError:
        return None


class _NoArrayError(Exception):
    """Lists have nulls, or not one length."""


def _matrix(length: int, column: pa.Array) -> Any:
    values = flat_values(column)
    lengths = pc.list_value_length(column)
    if column.null_count or values.null_count or not pc.all(pc.equal(lengths, length)).as_py():
        raise _NoArrayError
    return values.to_numpy().reshape(-1, length)
