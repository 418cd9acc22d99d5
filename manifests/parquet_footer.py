"""What the footer of a Parquet file states about its row groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from manifests.parquet_errors import ParquetError, translated_errors
from manifests.process.text import plural


class GroupSize(NamedTuple):
    """The size of a column in one row group.

    Attributes:
        rows: number of rows.
        bytes: length in bytes after it is unpacked, as the footer states.
        nulls: number of rows without a value; `None` if the footer does not tell.

    """

    rows: int
    bytes: int
    nulls: int | None


def count_rows(footer: Any, length: int, limit: int) -> int:
    """Return the number of rows of a file of `length` bytes.

    Raises:
        ParquetError: they are more than `limit`, or contradict the row groups.

    """
    with translated_errors():
        groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        rows: int = footer.num_rows
    if min(groups, default=0) < 0 or rows != sum(groups):
        raise ParquetError("the number of rows contradicts the row groups")
    if rows > limit:
        raise ParquetError(f"{plural(rows, 'row')} in {plural(length, 'byte')} are not plausible")
    return rows


def binary_leaves(footer: Any, leaves: Mapping[str, int]) -> dict[str, list[GroupSize]]:
    """Return the columns of bytes, nested in structs or not, by their path such as ``image.bytes``.

    Each has the rows and bytes of its row groups, as the footer states them.
    """
    found = {}
    with translated_errors():
        for path, at in leaves.items():
            column = footer.schema.column(at)
            if column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0:
                found[path] = [
                    _group_size(footer, number, at) for number in range(footer.num_row_groups)
                ]
    return found


def _group_size(footer: Any, number: int, at: int) -> GroupSize:
    group = footer.row_group(number)
    chunk = group.column(at)
    statistics = chunk.statistics
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
    return GroupSize(group.num_rows, max(0, chunk.total_uncompressed_size), nulls)


def group_range(footer: Any, group: int, length: int) -> tuple[int, int]:
    """Return the first byte of a row group in the file, and the one after its last.

    Raises:
        ParquetError: the footer is damaged.

    """
    with translated_errors():
        row_group = footer.row_group(group)
        chunks = [row_group.column(number) for number in range(footer.num_columns)]
        ranges = [column_range(chunk) for chunk in chunks]
    start, stop = min(start for start, _ in ranges), max(stop for _, stop in ranges)
    if not 0 <= start <= stop <= length:
        raise ParquetError("the footer is damaged")
    return start, stop


def column_range(chunk: Any) -> tuple[int, int]:
    """Return the first byte of a column in a row group, and the one after its last."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size
