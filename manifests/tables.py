"""Read and write sample tables, which are Parquet files. Reading is strict.

The functions that need Arrow import it themselves, so importing this module is fast.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from manifests.errors import TableError
from manifests.files import TABLE, open_file, read_file
from manifests.json_members import MAX_INTEGER, parse_json
from manifests.labels import LABELS, MAX_LABEL, LabelType, arrow_type, find_wrong_value
from manifests.parquet import BoundedParquet, ParquetError, is_list, parquet_bytes, shorten_type
from manifests.process.unexpected_errors import raise_machine_fault
from manifests.schema import TABLE_COLUMNS, Sample, TableMetadata
from manifests.serialization import metadata_from_json, metadata_to_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DAMAGED_HINT",
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

#: A table needs more than three bytes for each row: keys, offsets and checksums differ.
ROWS_PER_BYTE = 0.5

DAMAGED_HINT = (
    "run `dataprep verify` to find other damage, then `dataprep repair`, or restore a copy"
)


def build_table(columns: Mapping[str, Any], metadata: TableMetadata | None = None) -> pa.Table:
    """Build a sample table.

    Args:
        columns: the columns of `TABLE_COLUMNS`, perhaps without ``label``, then the extra columns:
            sequences of equal length, in stored order.
        metadata: stored as JSON in the Parquet schema under the key ``dataprep``.

    """
    import pyarrow as pa

    defined = {
        name: alias for name, alias in _COLUMN_TYPES.items() if name in columns or name != "label"
    }
    arrays = [
        pa.array(columns[name], type=pa.type_for_alias(alias)) for name, alias in defined.items()
    ]
    extras = [name for name in columns if name not in TABLE_COLUMNS]
    for name in extras:
        column = columns[name]
        arrays.append(
            column.combine_chunks() if isinstance(column, pa.ChunkedArray) else pa.array(column)
        )
    table = pa.table(arrays, names=[*defined, *extras])
    if metadata is None:
        return table
    return table.replace_schema_metadata(
        {_METADATA_KEY: json.dumps(metadata_to_json(metadata), sort_keys=True)}
    )


def write_table(table: pa.Table, path: str) -> None:
    """Write a sample table as Parquet. The same table gives the same bytes."""
    with open(path, "wb") as file:
        file.write(parquet_bytes(table))


def read_table(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    label_type: LabelType = "class",
) -> pa.Table:
    """Read a sample table strictly; see `TableFile.read`.

    Args:
        path: the Parquet file.
        columns: names of the columns to read. `None` reads all.
        label_type: label type of the dataset.

    Raises:
        TableError: the file is missing or damaged, or a column is missing or has another type.

    """
    return TableFile(path).read(columns, label_type)


class TableFile:
    """A sample table that is read into memory once, so that its columns can be read in several steps.

    Attributes:
        column_names: names of all columns.
        rows: number of rows.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file.

        Raises:
            TableError: the file is missing or damaged.

        """
        self._path = path
        try:
            self.content = read_file(path, TABLE)
            self._parquet = BoundedParquet(self.content, rows_per_byte=ROWS_PER_BYTE)
        except (OSError, ParquetError) as error:
            raise _unreadable_table(path, error) from None
        self.column_names: tuple[str, ...] = self._parquet.names
        self.rows: int = self._parquet.rows

    def read(
        self, columns: Sequence[str] | None = None, label_type: LabelType = "class"
    ) -> pa.Table:
        """Read columns by name.

        `None` reads all of them; the columns that the format defines must be there.

        Every value is checked: numbers are in range, text is valid, and only ``crc32c`` and extra
        columns have rows without a value.

        Args:
            columns: names of the columns.
            label_type: label type of the dataset, which decides about the columns that hold labels.

        Raises:
            TableError: the file is damaged, or a column is missing or has another type.

        """
        return self._read(self._check_columns(columns, label_type), label_type, None)

    def groups(
        self, columns: Sequence[str] | None = None, label_type: LabelType = "class"
    ) -> Iterator[pa.Table]:
        """Read columns by name as `read` does, one row group after the other."""
        names = self._check_columns(columns, label_type)
        if self._parquet.groups <= 1:
            yield self._read(names, label_type, None)
        else:
            for group in range(self._parquet.groups):
                yield self._read(names, label_type, group)

    def _check_columns(
        self, columns: Sequence[str] | None, label_type: LabelType
    ) -> tuple[str, ...]:
        """Return the names of the columns to read, each of which exists and has its type."""
        kinds = LABELS[label_type].columns
        for name in columns or (*(name for name in TABLE_COLUMNS if name != "label"), *kinds):
            if name not in self.column_names:
                raise self._error(f"the sample table has no column {name!r}")
        names = self.column_names if columns is None else tuple(dict.fromkeys(columns))
        for name in names:
            self._check_type(name, kinds.get(name))
        return names

    def _read(self, names: Sequence[str], label_type: LabelType, group: int | None) -> pa.Table:
        kinds = LABELS[label_type].columns
        first = sum(map(self._parquet.group_rows, range(group or 0)))
        try:
            table = self._parquet.read(names, group)
        except (OSError, ParquetError) as error:
            raise _unreadable_table(self._path, error) from None
        for name in names:
            if name in _COLUMN_TYPES:
                self._check_values(name, table[name], first)
            elif name in kinds:
                wrong = find_wrong_value(table[name], kinds[name])
                if wrong:
                    raise self._error(f"column {name!r} {wrong.message}", first + wrong.row)
        return table

    def _check_type(self, name: str, kind: str | None) -> None:
        import pyarrow as pa

        actual = self._parquet.schema.field(name).type
        required = _COLUMN_TYPES.get(name)
        if required is None and kind is not None and actual != arrow_type(kind):
            required = shorten_type(arrow_type(kind))
        if required and str(actual) != required:
            raise self._error(
                f"column {name!r} has the type {shorten_type(actual)}, but {required} is required"
            )
        types = pa.types
        is_number = (
            types.is_integer(actual) or types.is_floating(actual) or types.is_boolean(actual)
        )
        is_text = types.is_string(actual) or types.is_large_string(actual)
        if not (is_number or is_text or types.is_null(actual) or is_list(actual)):
            message = (
                f"column {name!r} has the type {shorten_type(actual)}, which is not text, a number,"
                " a boolean or a list"
            )
            raise self._error(message)

    def _check_values(self, name: str, column: pa.ChunkedArray, first: int) -> None:
        """Check a column that the format defines; `first` is the number of its first row in the table."""
        import pyarrow.compute as pc

        if name == "crc32c":
            return
        if column.null_count:
            record = first + pc.index(pc.is_null(column), True).as_py()
            raise self._error(f"the table has rows without a value in column {name!r}", record)
        if name in ("key", "source") or not len(column):
            return
        low, high = pc.min_max(column).as_py().values()
        limit = MAX_LABEL if name == "label" else MAX_INTEGER
        if low < 0 or high > limit:
            wrong = low if low < 0 else high
            record = first + pc.index(column, wrong).as_py()
            raise self._error(
                f"column {name!r} contains {wrong}, which is out of the range 0 to {limit}", record
            )

    def _error(self, message: str, record: int | None = None) -> TableError:
        return TableError(message, file=os.fspath(self._path), record=record, hint=DAMAGED_HINT)


def read_table_metadata(path: str | os.PathLike[str]) -> TableMetadata | None:
    """Read the metadata of a sample table. `None` if another tool wrote the Parquet file.

    Raises:
        TableError: the file is missing or damaged, or its metadata is not what `build_table`
            writes.

    """
    try:
        with open_file(path, TABLE) as file:
            metadata = BoundedParquet(file, rows_per_byte=ROWS_PER_BYTE).metadata.get(_METADATA_KEY)
    except (OSError, ParquetError) as error:
        raise _unreadable_table(path, error) from None
    try:
        return None if metadata is None else metadata_from_json(parse_json(metadata))
    except ValueError as error:
        message = f"a member of the table's metadata is missing or wrong ({error})"
        raise TableError(message, file=os.fspath(path), hint=DAMAGED_HINT) from None


def has_canonical_bytes(path: str | os.PathLike[str]) -> bool:
    """Return whether a table's bytes are exactly those that this release writes for its content."""
    try:
        file = TableFile(path)
        return file.content == parquet_bytes(file.read(file.column_names))
    except TableError:
        return False


def samples(table: pa.Table) -> Iterator[Sample]:
    """Iterate over the rows of a sample table in stored order."""
    extras = [name for name in table.column_names if name not in TABLE_COLUMNS]
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            extra = {name: row.pop(name) for name in extras}
            yield Sample(**{"label": None, **row}, extra=extra)


def _unreadable_table(path: str | os.PathLike[str], error: Exception) -> TableError:
    if isinstance(error, FileNotFoundError):
        return TableError("the sample table is missing", file=os.fspath(path), hint=DAMAGED_HINT)
    raise_machine_fault(error)
    reason = error.strerror if isinstance(error, OSError) else error
    return TableError(
        f"the sample table cannot be read ({reason})", file=os.fspath(path), hint=DAMAGED_HINT
    )
