"""Read and write sample tables, which are Parquet files. Reading is strict.

The functions that need Arrow import it themselves, so importing this module is fast.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from manifests.errors import TableError
from manifests.files import TABLE, open_file, read_file
from manifests.schema import TABLE_COLUMNS, Sample, TableMetadata
from manifests.serialization import metadata_from_json, metadata_to_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "TableFile",
    "build_table",
    "has_canonical_bytes",
    "read_table",
    "read_table_metadata",
    "samples",
    "write_table",
]

#: Key of the table metadata in the Parquet schema.
_METADATA_KEY = b"dataprep"

#: Arrow types of `TABLE_COLUMNS`.
_COLUMN_TYPES = {
    "key": "string",
    "label": "int64",
    "offset": "int64",
    "size": "int64",
    "width": "int32",
    "height": "int32",
    "source": "string",
    "crc32c": "uint32",
}

_DAMAGED_HINT = "run `dataprep verify` to find other damage, then make the dataset again or restore a copy"


def build_table(columns: Mapping[str, Any], metadata: TableMetadata | None = None) -> pa.Table:
    """Build a sample table.

    Args:
        columns: the columns of `TABLE_COLUMNS`, then the extra columns: sequences of equal length, in stored order.
        metadata: stored as JSON in the Parquet schema under the key ``dataprep``.

    """
    import pyarrow as pa

    arrays = [pa.array(columns[name], type=pa.type_for_alias(arrow_type)) for name, arrow_type in _COLUMN_TYPES.items()]
    extras = [name for name in columns if name not in TABLE_COLUMNS]
    for name in extras:
        column = columns[name]
        arrays.append(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else pa.array(column))
    table = pa.table(arrays, names=[*TABLE_COLUMNS, *extras])
    if metadata is None:
        return table
    return table.replace_schema_metadata({_METADATA_KEY: json.dumps(metadata_to_json(metadata), sort_keys=True)})


def write_table(table: pa.Table, path: str) -> None:
    """Write a sample table as Parquet. The same table gives the same bytes."""
    with open(path, "wb") as file:
        file.write(_table_bytes(table))


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pa.Table:
    """Read a sample table strictly.

    Args:
        path: the Parquet file.
        columns: names of the columns to read. `None` reads all.

    Raises:
        TableError: the file is missing or damaged, or a column is missing or has another type.

    """
    try:
        with open_file(path, TABLE) as file:
            return _read_columns(_open_parquet(file, path), path, columns)
    except OSError as error:
        raise _unreadable_table(path, error) from None


class TableFile:
    """A sample table that is read into memory once, so that its columns can be read in several steps.

    Attributes:
        column_names: names of all columns.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file.

        Raises:
            TableError: the file is missing or damaged.

        """
        import pyarrow as pa

        self._path = path
        try:
            content = read_file(path, TABLE)
        except OSError as error:
            raise _unreadable_table(path, error) from None
        self._parquet = _open_parquet(pa.BufferReader(content), path)
        self.column_names: tuple[str, ...] = tuple(self._parquet.schema_arrow.names)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read columns by name.

        Raises:
            TableError: the file is damaged, or a column is missing or has another type.

        """
        return _read_columns(self._parquet, self._path, columns)


def _open_parquet(source: Any, path: str | os.PathLike[str]) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable_table(path, error) from None


def _read_columns(parquet: pq.ParquetFile, path: str | os.PathLike[str], columns: Sequence[str] | None) -> pa.Table:
    import pyarrow as pa

    try:
        # One thread: tables are small, and worker processes already use every core.
        table = parquet.read(columns, use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable_table(path, error) from None
    for name in columns or TABLE_COLUMNS:
        if name not in table.column_names:
            raise TableError(f"the sample table has no column {name!r}", file=os.fspath(path), hint=_DAMAGED_HINT)
        arrow_type = str(table.schema.field(name).type)
        if arrow_type != _COLUMN_TYPES.get(name, arrow_type):
            message = f"column {name!r} has the type {arrow_type}, but {_COLUMN_TYPES[name]} is required"
            raise TableError(message, file=os.fspath(path), hint=_DAMAGED_HINT)
    return table


def read_table_metadata(path: str | os.PathLike[str]) -> TableMetadata | None:
    """Read the metadata of a sample table. `None` if another tool wrote the Parquet file.

    Raises:
        TableError: the file is missing or damaged, or its metadata is not what `build_table` writes.

    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_file(path, TABLE) as file:
            metadata = (pq.read_schema(file).metadata or {}).get(_METADATA_KEY)
        return None if metadata is None else metadata_from_json(json.loads(metadata))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable_table(path, error) from None
    except (KeyError, TypeError, RecursionError) as error:
        message = f"a member of the table's metadata is missing or wrong ({error})"
        raise TableError(message, file=os.fspath(path), hint=_DAMAGED_HINT) from None


def has_canonical_bytes(path: str | os.PathLike[str]) -> bool:
    """Return whether a table's bytes are exactly those that this release writes for its content."""
    try:
        table = read_table(path)
        data = read_file(path, TABLE)
    except (TableError, OSError):
        return False
    return data == _table_bytes(table)


def samples(table: pa.Table) -> Iterator[Sample]:
    """Iterate over the rows of a sample table in stored order."""
    extras = [name for name in table.column_names if name not in TABLE_COLUMNS]
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            extra = {name: row.pop(name) for name in extras}
            yield Sample(**row, extra=extra)


def _table_bytes(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _unreadable_table(path: str | os.PathLike[str], error: Exception) -> TableError:
    if isinstance(error, FileNotFoundError):
        return TableError("the sample table is missing", file=os.fspath(path), hint=_DAMAGED_HINT)
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return TableError(f"the sample table cannot be read ({reason})", file=os.fspath(path), hint=_DAMAGED_HINT)
