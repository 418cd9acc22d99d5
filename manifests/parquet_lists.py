"""Columns of lists in a Parquet file: which there are, and their values.

Only lists of numbers or text, and lists of lists of numbers, are read: one leaf, whose values have
no names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

#: Memory that a value of a list takes besides its own bytes: its levels, and the offset of its
#: list.
BYTES_PER_VALUE = 16


def list_leaves(schema: pa.Schema, footer: Any) -> dict[str, int]:
    """Return the number of the leaf of each column of lists, by the name of the column.

    Args:
        schema: Arrow names and types of the columns.
        footer: the file's metadata.

    """
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    leaves = {}
    for field in schema:
        found = [
            at
            for at, path in enumerate(paths)
            if path == field.name or path.startswith(f"{field.name}.")
        ]
        if is_list(field.type) and len(found) == 1 and paths[found[0]] != field.name:
            leaves[field.name] = found[0]
    return leaves


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether a column has lists of numbers or text, or lists of lists of numbers."""
    import pyarrow as pa

    types = pa.types
    if not _is_any_list(arrow_type):
        return False
    item = arrow_type.value_type
    if _is_any_list(item):
        return bool(types.is_floating(item.value_type) or types.is_integer(item.value_type))
    return bool(
        types.is_integer(item)
        or types.is_floating(item)
        or types.is_string(item)
        or types.is_large_string(item)
    )


def _is_any_list(arrow_type: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    )


def coded_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary-encoded values of all lists of a column that was read with dictionaries."""
    import pyarrow as pa

    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)


def with_values(chunk: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Return the lists of a chunk with other values, as many as before: `chunk.values` in another type."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(
        chunk.offsets, values, mask=chunk.is_null() if chunk.null_count else None
    )
