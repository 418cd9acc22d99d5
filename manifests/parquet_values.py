"""Values of a column that Arrow has read: their size, and their conversion to the type of the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manifests.parquet_lists import coded_values, with_values
from manifests.process.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

#: Text that is decoded in one step, approximately.
_DECODED_BYTES = 64 << 20


def shorten_type(arrow_type: pa.DataType) -> str:
    """Return the name of an Arrow type for a message. Names of nested types can be very long."""
    text = printable(str(arrow_type))
    return text if len(text) <= 60 else f"{text[:60]}..."


def text_bytes(column: pa.ChunkedArray) -> int:
    """Return the number of bytes of all values of a dictionary-encoded column of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = 0
    column = column if pa.types.is_dictionary(column.type) else coded_values(column)
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return total


def as_type(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Convert a column to the type that the schema states, and check all of its values."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(arrow_type):
        parts = [_decode(chunk) for chunk in column.chunks]
        column = pa.chunked_array(parts, column.type.value_type)
    elif pa.types.is_list(column.type) and pa.types.is_dictionary(column.type.value_type):
        parts = [with_values(chunk, _decode(chunk.values)) for chunk in column.chunks]
        column = pa.chunked_array(parts, pa.list_(column.type.value_type.value_type))
    if column.type != arrow_type:
        column = column.cast(arrow_type)
    column.validate(full=True)
    return column


def _decode(column: pa.DictionaryArray) -> pa.Array:
    """Decode in steps: Arrow reserves the mean length of the dictionary's texts for each row, also for null."""
    import pyarrow as pa

    mean = column.dictionary.nbytes // max(1, len(column.dictionary)) + 1
    step = max(1, _DECODED_BYTES // mean)
    if len(column) <= step:
        return column.dictionary_decode()
    return pa.concat_arrays(
        column.slice(at, step).dictionary_decode() for at in range(0, len(column), step)
    )
