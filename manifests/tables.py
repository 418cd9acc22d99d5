"""Read and write the tables of a dataset: sample tables, and the list of shards. Filter rows.

Tables are Parquet files; reading is strict.

The functions that need Arrow import it themselves, so importing this module is fast.
"""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from manifests.errors import CallError, TableError, raise_machine_fault
from manifests.files import TABLE, open_file, read_file
from manifests.json_members import MAX_INTEGER, parse_json
from manifests.labels import LABELS, MAX_LABEL, LabelType, arrow_type, find_wrong_value
from manifests.parquet import BoundedParquet, ParquetError, is_list, parquet_bytes, shorten_type
from manifests.process.text import printable, suggest
from manifests.schema import TABLE_COLUMNS, File, Sample, Shard, Split, TableMetadata
from manifests.serialization import (
    check_file_name,
    checksum_text,
    metadata_from_json,
    metadata_to_json,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

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


# --- the list of shards, for datasets with too many shards for manifest.json ----------------------
#
# A manifest of JSON takes 60 us and 4.5 kB of memory for each shard to read, this list 5 us and
# 1 kB.

SHARD_LIST_NAME = "manifest.shards.parquet"

#: A dataset with more shards has a list of shards as a file of its own.
MAX_SHARDS_IN_JSON = 10_000

#: Columns and their Arrow types: the split, then the members of a shard in ``manifest.json``.
#: Checksums are numbers.
_COLUMNS = {
    "split": "string",
    "name": "string",
    "samples": "int64",
    "bytes": "int64",
    "crc32c": "uint32",
    "index_name": "string",
    "index_bytes": "int64",
    "index_crc32c": "uint32",
    "table_name": "string",
    "table_bytes": "int64",
    "table_crc32c": "uint32",
}

#: A row takes more than 12 bytes, because checksums differ; without them, more than 2.
_ROWS_PER_BYTE = 0.5


def shard_list_bytes(splits: Sequence[Split]) -> bytes:
    """Serialize the shards of all splits. The same shards give the same bytes."""
    import pyarrow as pa

    shards = [shard for split in splits for shard in split.shards]
    columns: dict[str, list[Any]] = {
        "split": [split.name for split in splits for _ in split.shards],
        "samples": [shard.samples for shard in shards],
    }
    for prefix, files in _files(shards).items():
        columns[f"{prefix}name"] = [file.name for file in files]
        columns[f"{prefix}bytes"] = [file.bytes for file in files]
        columns[f"{prefix}crc32c"] = [_checksum_number(file.checksum) for file in files]
    table = pa.table({name: pa.array(columns[name], kind) for name, kind in _COLUMNS.items()})
    return parquet_bytes(table)


def parse_shard_list(data: bytes, counts: Mapping[str, int]) -> tuple[Split, ...]:
    """Parse a list of shards strictly.

    Args:
        data: content of the file.
        counts: number of shards of each split, in the order of the manifest.

    Raises:
        ValueError: the list is damaged, or its splits are not those of the manifest.

    """
    table = _read(data)
    if table["split"].to_pylist() != [name for name, count in counts.items() for _ in range(count)]:
        raise ValueError("its splits, or their numbers of shards, are not those of the manifest")
    with _no_garbage_collection():
        files = [
            map(
                _file,
                *(table[f"{prefix}{name}"].to_pylist() for name in ("name", "bytes", "crc32c")),
            )
            for prefix in ("", "index_", "table_")
        ]
        shards = map(Shard, files[0], table["samples"].to_pylist(), files[1], files[2])
        return tuple(Split(name, tuple(islice(shards, count))) for name, count in counts.items())


def _files(shards: Sequence[Shard]) -> dict[str, list[File]]:
    return {
        "": [shard.file for shard in shards],
        "index_": [shard.index for shard in shards],
        "table_": [shard.table for shard in shards],
    }


def _checksum_number(checksum: str | None) -> int | None:
    return None if checksum is None else int(checksum.removeprefix("crc32c:"), 16)


def _file(name: str, length: int, checksum: int | None) -> File:
    check_file_name(name)
    return File(name, length, None if checksum is None else checksum_text(checksum))


def _read(data: bytes) -> pa.Table:
    import pyarrow.compute as pc

    parquet = BoundedParquet(data, rows_per_byte=_ROWS_PER_BYTE)
    if parquet.names != tuple(_COLUMNS):
        raise ValueError(f"its columns must be {', '.join(_COLUMNS)}")
    for name, kind in _COLUMNS.items():
        actual = parquet.schema.field(name).type
        if str(actual) != kind:
            raise ValueError(
                f"column {name!r} has the type {shorten_type(actual)}, but {kind} is required"
            )
    table = parquet.read(tuple(_COLUMNS))
    for name, kind in _COLUMNS.items():
        if kind != "uint32" and table[name].null_count:
            raise ValueError(f"column {name!r} has rows without a value")
        if kind == "int64" and len(table) and pc.min(table[name]).as_py() < 0:
            raise ValueError(f"column {name!r} contains a negative number")
    return table


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause the search for cycles: a million new objects without any make it take as long as the work itself."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- filters: the condition of a SQL WHERE clause, which DuckDB evaluates -------------------------

#: Longest filter, in characters.
MAX_FILTER = 10_000

#: What a filter may consist of, as DuckDB names the parts of an expression: no queries, windows,
#: lambdas or parameters.
_PARTS = frozenset(
    (
        "COLUMN_REF",
        "CONSTANT",
        "COMPARISON",
        "CONJUNCTION",
        "OPERATOR",
        "BETWEEN",
        "CASE",
        "CAST",
        "TYPE",
        "COLLATE",
    )
)

#: Functions of a filter. They give the same result in every run, and one in proportion to their
#: arguments: without the list, ``range(1000000000)`` takes all memory, and ``random()`` makes
#: another plan each time.
_FUNCTION_NAMES = """
+ - * / // % ** ^ @ & | ~ << >> || ~~ !~~ ~~* !~~* ~~~ !~~~ ^@ ~ !~ !
like_escape not_like_escape ilike_escape not_ilike_escape regexp_matches regexp_full_match regexp_extract
concat contains starts_with ends_with prefix suffix length len strlen lower lcase upper ucase trim ltrim rtrim left
right substring substr position strpos instr split_part ascii reverse strip_accents hash md5
abs round floor ceil ceiling trunc sqrt ln log log2 log10 exp pow power mod fmod sign greatest least isnan isinf
isfinite even if ifnull nullif coalesce
list_value list_contains array_contains list_has array_has list_has_any array_has_any list_has_all array_has_all
list_position array_length list_min list_max list_sum list_extract array_extract struct_extract
date_part datepart date_trunc datetrunc year month day hour minute second epoch dayofweek strptime
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())

EXAMPLE = 'write a condition over columns, for example "width >= 64 and label != 3"'


def filter_columns(where: str) -> tuple[str, ...]:
    """Return the names of the columns that a filter uses, as it writes them.

    Args:
        where: the condition, for example ``"width >= 64 and label in (1, 2)"``.

    Raises:
        CallError: the text is not a condition, contains a subquery, or DuckDB is not installed.

    """
    if not isinstance(where, str) or not where.strip() or len(where) > MAX_FILTER:
        raise CallError(f"where must be a text of 1 to {MAX_FILTER:,} characters", hint=EXAMPLE)
    query = f"SELECT 1 FROM samples WHERE ({where}\n)"  # noqa: S608
    answer = json.loads(
        _connect().execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0][0]
    )
    if answer["error"] or len(answer["statements"]) != 1:
        raise _wrong(where, answer.get("error_message") or "more than one statement")
    nodes = list(_nodes(answer["statements"]))
    for node in nodes:
        _check_part(where, node)
    names = (node["column_names"][-1] for node in nodes if node.get("class") == "COLUMN_REF")
    return tuple(dict.fromkeys(names))


def _check_part(where: str, node: Mapping[str, Any]) -> None:
    part = node.get("class")
    if part is None or part in _PARTS:
        return
    if part != "FUNCTION":
        kind = "a query" if part == "SUBQUERY" else f"a {part.lower()} expression"
        raise _wrong(where, f"a filter cannot contain {kind}")
    name = node["function_name"]
    if name == "random":
        hint = (
            "hash(COLUMN) % 10 = 0 takes a tenth of the values of a column, the same in every run"
        )
        raise CallError(
            f"the filter {printable(where)!r} cannot be used (it is another one in each run)",
            hint=hint,
        )
    if name not in _FUNCTIONS:
        raise CallError(
            f"the filter {printable(where)!r} cannot be used (it contains the function"
            f" {printable(name)})",
            hint=suggest(name, sorted(filter(str.isidentifier, _FUNCTIONS))),
        )


def matching_rows(where: str, columns: pa.Table) -> NDArray[np.bool_]:
    """Return which rows match a filter, bool [rows].

    A row for which the condition is NULL does not match.

    Args:
        where: the condition; see `filter_columns`.
        columns: the columns that it uses, and at least one.

    Raises:
        CallError: the condition does not fit the columns, for example in their types.

    """
    import duckdb
    import numpy as np

    alike = Counter(name.lower() for name in columns.column_names).most_common(1)[0]
    if alike[1] > 1:
        raise _wrong(
            where, f"it uses {alike[1]} columns whose names differ only in case: {alike[0]}"
        )
    connection = _connect(_MEMORY + _BYTES_PER_ROW * len(columns))
    connection.register("samples", columns)
    try:
        query = f"SELECT coalesce(CAST(({where}\n) AS BOOLEAN), false) FROM samples"  # noqa: S608
        answer = connection.execute(query)
        return np.concatenate([np.zeros(0, bool), *answer.fetchnumpy().values()]).astype(bool)
    except duckdb.Error as error:
        raise _wrong(where, str(error).splitlines()[0]) from None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for child in (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    ):
        yield from _nodes(child)


#: Memory of DuckDB in bytes, and in addition for each row.
_MEMORY, _BYTES_PER_ROW = 1 << 30, 16


def _connect(memory: int = _MEMORY) -> Any:
    try:
        import duckdb
    except ImportError:
        raise CallError(
            "a filter needs DuckDB, which is not installed",
            hint="run `pip install 'dataprep-loaders[sql]'`",
        ) from None
    # A filter computes with the given columns. It reads no files and loads no extensions.
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "threads": "1",
        "memory_limit": f"{memory >> 20}MiB",
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET lock_configuration = true")
    return connection


def _wrong(where: str, reason: str) -> CallError:
    return CallError(f"the filter {printable(where)!r} cannot be used ({reason})", hint=EXAMPLE)
