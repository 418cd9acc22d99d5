"""Read and write the tables of a dataset: sample tables, and the list of shards.

Tables are Parquet files; reading is strict.

The functions that need Arrow import it themselves, so importing this module is fast.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from awscrt.checksums import crc32c

from manifests.errors import TableError
from manifests.files import TABLE, StrPath, open_file, read_file, reading
from manifests.json_members import MAX_INTEGER, parse_json
from manifests.labels import (
    MAX_LABEL,
    LabelType,
    arrow_type,
    find_wrong_value,
    place_columns,
    schema_of,
)
from manifests.parquet import BoundedParquet, is_list, parquet_bytes, shorten_type
from manifests.process.text import plural
from manifests.schema import COLUMN_TYPES, TABLE_COLUMNS, File, Sample, Shard, Split, TableMetadata
from manifests.serialization import (
    check_file_name,
    checksum_text,
    metadata_from_json,
    metadata_to_json,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

#: Key of the table metadata in the Parquet schema.
METADATA_KEY = b"dataprep"

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

    arrays = {}
    for name, alias in COLUMN_TYPES.items():
        if name in columns or name != "label":
            arrays[name] = pa.array(columns[name], alias)
    for name, column in columns.items():
        if name in COLUMN_TYPES:
            continue
        if isinstance(column, pa.ChunkedArray):
            arrays[name] = column.combine_chunks()
        else:
            arrays[name] = pa.array(column)
    table = pa.table(arrays)
    if metadata is None:
        return table
    return table.replace_schema_metadata(
        {METADATA_KEY: json.dumps(metadata_to_json(metadata), sort_keys=True)}
    )


def write_table(table: pa.Table, path: str) -> None:
    """Write a sample table as Parquet. The same table gives the same bytes."""
    with open(path, "wb") as file:
        file.write(parquet_bytes(table))


def read_table(
    path: StrPath,
    columns: Sequence[str] | None = None,
    label_type: LabelType = "class",
    images: tuple[str, ...] = (),
) -> pa.Table:
    """Read a sample table strictly; see `SampleTable.read`.

    Args:
        path: the Parquet file.
        columns: names of the columns to read. `None` reads all.
        label_type: label type of the dataset.
        images: names of the images of each sample, if there are several.

    Raises:
        TableError: the file is missing or damaged, or a column is missing or has another type.

    """
    return SampleTable(path, label_type=label_type, images=images).read(columns)


class SampleTable:
    """A sample table that is read into memory once, so that its columns can be read in several steps.

    Every value is checked: numbers are in range, text is valid, and only ``crc32c`` and extra
    columns have rows without a value. With its shard, every row also places its image inside the
    shard, and its classes have names.

    Attributes:
        path: the file.
        column_names: names of all columns.
        content: the bytes of the file.

    """

    def __init__(
        self,
        path: StrPath,
        shard: Shard | None = None,
        *,
        label_type: LabelType = "class",
        images: tuple[str, ...] = (),
        classes: int = 0,
        checksum: bool = False,
    ) -> None:
        """Read the file.

        Args:
            path: the sample table.
            shard: what the manifest states about the shard.
            label_type: label type of the dataset, which decides about the columns that hold labels.
            images: names of the images of each sample, if there are several.
            classes: number of classes of the dataset; 0 if they have no names.
            checksum: compare the checksum of the file with the manifest.

        Raises:
            TableError: the file is missing or damaged, or does not belong to the shard.

        """
        self.path = path
        self._shard = shard
        self._labels = schema_of(label_type, images)
        self._kinds = self._labels.stored_columns
        self._classes = classes or MAX_LABEL + 1
        with _reading_table(path):
            self.content = read_file(path, TABLE)
            self._parquet = BoundedParquet(self.content, rows_per_byte=ROWS_PER_BYTE)
        self.column_names: tuple[str, ...] = self._parquet.names
        if shard is None:
            return
        if checksum and shard.table.checksum not in (None, checksum_text(crc32c(self.content))):
            raise self._error("the sample table does not have the checksum in the manifest")
        if self._parquet.rows != shard.samples:
            raise self._error(
                f"the table has {plural(self._parquet.rows, 'row')}, but its shard has"
                f" {plural(shard.samples, 'sample')}"
            )

    def read(
        self, columns: Sequence[str] | None = None, group: int | None = None, first: int = 0
    ) -> pa.Table:
        """Read columns of all rows, or of a row group.

        Args:
            columns: names of the columns. `None` reads all of them; the columns that the format
                defines must be there.
            group: number of the row group; `None` reads all.
            first: number of the row group's first row.

        Raises:
            TableError: the file is damaged, a column is missing or has another type, or a value is
                out of its range.

        """
        names = self._choose(columns)
        with _reading_table(self.path):
            table = self._parquet.read(names, group)
        kinds = self._kinds
        for name in names:
            if name in COLUMN_TYPES:
                self._check_values(name, table[name], first)
            elif name in kinds:
                wrong = find_wrong_value(table[name], kinds[name])
                if wrong:
                    raise self._error(f"column {name!r} {wrong.message}", first + wrong.row)
        if self._shard is not None and len(table):
            self._check_places(table, first, self._shard.file.bytes)
            self._check_classes(table, first)
        return table

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        return self._parquet.schema

    @property
    def metadata(self) -> TableMetadata | None:
        """What is stored beside the rows; see `read_table_metadata`."""
        return _metadata(self.path, self._parquet)

    def batches(
        self, columns: Sequence[str] | None = None, optional: Sequence[str] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """Read columns by row group: yield the number of the first row and the columns; see `read`.

        Args:
            columns: names of the columns.
            optional: names of columns to read only if the table has them.

        """
        if columns is not None:
            columns = [*columns, *(name for name in optional if name in self.column_names)]
        first = 0
        groups: Sequence[int | None] = range(self._parquet.groups)
        if len(groups) < 2:
            groups = [None]
        for group in groups:
            table = self.read(columns, group, first)
            yield first, table
            first += len(table)

    def _choose(self, columns: Sequence[str] | None) -> Sequence[str]:
        """Return the names of the columns to read, each of which exists and has its type."""
        defined = [name for name in TABLE_COLUMNS if name != "label"]
        for name in columns or (*defined, *self._kinds):
            if name not in self.column_names:
                raise self._error(f"the sample table has no column {name!r}")
        names = self.column_names
        if columns is not None:
            names = tuple(dict.fromkeys(columns))
        for name in names:
            self._check_type(name)
        return names

    def _check_type(self, name: str) -> None:
        import pyarrow as pa

        types = pa.types
        actual = required = self._parquet.schema.field(name).type
        if name in COLUMN_TYPES:
            required = pa.type_for_alias(COLUMN_TYPES[name])
        elif name in self._kinds:
            required = arrow_type(self._kinds[name])
        if actual != required:
            raise self._error(
                f"column {name!r} has the type {shorten_type(actual)}, but"
                f" {shorten_type(required)} is required"
            )
        numbers = (types.is_integer, types.is_floating, types.is_boolean)
        known = (*numbers, types.is_string, types.is_large_string, types.is_null, is_list)
        if not any(is_kind(actual) for is_kind in known):
            raise self._error(
                f"column {name!r} has the type {shorten_type(actual)}, which is not text, a number,"
                " a boolean or a list"
            )

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
        values = numbers(column)
        low, high = int(values.min()), int(values.max())
        limit = MAX_INTEGER
        if name == "label":
            limit = MAX_LABEL
        wrong = high
        if low < 0:
            wrong = low
        if not 0 <= wrong <= limit:
            record = first + int((values == wrong).argmax())
            raise self._error(
                f"column {name!r} contains {wrong}, which is out of the range 0 to {limit}", record
            )

    def _check_places(self, table: pa.Table, first: int, length: int) -> None:
        """Check that images are inside the shard, of `length` bytes."""
        import numpy as np

        names = table.column_names
        for image in ("", *self._labels.others):
            places = [name for name in place_columns(image)[:2] if name in names]
            if not places:
                continue
            ends = np.zeros(len(table), np.uint64)
            for name in places:
                # Negative numbers are the largest ones here. Their sum must not wrap around.
                values = numbers(table[name]).astype(np.uint64)
                ends += np.minimum(values, np.uint64(length + 1))
            outside = np.flatnonzero(ends > length)
            if len(outside):
                raise outside_error(self.path, first + int(outside[0]))

    def _check_classes(self, table: pa.Table, first: int) -> None:
        import pyarrow.compute as pc

        column = self._labels.class_column
        if column not in table.column_names:
            return
        labels, is_list = table[column], column == self._labels.class_lists
        if is_list:
            labels = pc.list_flatten(labels)
        values = numbers(labels)
        largest = int(values.max(initial=0))
        if largest >= self._classes:
            record = int(values.argmax())
            if is_list:
                record = pc.list_parent_indices(table[column])[record].as_py()
            raise self._error(
                f"the table has the label {largest}, but labels go from 0 to {self._classes - 1}",
                first + record,
            )

    def _error(self, message: str, record: int | None = None) -> TableError:
        return TableError(message, file=self.path, record=record, hint=DAMAGED_HINT)


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return the numbers of a column without missing values. The array is read-only.

    `to_numpy` would import pandas.
    """
    import numpy as np

    return np.from_dlpack(column.combine_chunks())


def outside_error(path: StrPath, record: int) -> TableError:
    """Return the error for an image whose bytes are not in its shard."""
    return TableError(
        "the table places an image outside its shard", file=path, record=record, hint=DAMAGED_HINT
    )


def read_table_metadata(path: StrPath) -> TableMetadata | None:
    """Read the metadata of a sample table. `None` if another tool wrote the Parquet file.

    Raises:
        TableError: the file is missing or damaged, or its metadata is not what `build_table`
            writes.

    """
    with _reading_table(path), open_file(path, TABLE) as file:
        parquet = BoundedParquet(file, rows_per_byte=ROWS_PER_BYTE)
    return _metadata(path, parquet)


def _metadata(path: StrPath, parquet: BoundedParquet) -> TableMetadata | None:
    metadata = parquet.metadata.get(METADATA_KEY)
    if metadata is None:
        return None
    try:
        return metadata_from_json(parse_json(metadata))
    except ValueError as error:
        message = f"a member of the table's metadata is missing or wrong ({error})"
        raise TableError(message, file=path, hint=DAMAGED_HINT) from None


def has_canonical_bytes(path: StrPath) -> bool:
    """Return whether a table's bytes are exactly those that this release writes for its content."""
    try:
        table = SampleTable(path)
        return table.content == parquet_bytes(table.read(table.column_names))
    except TableError:
        return False


def samples(table: pa.Table) -> Iterator[Sample]:
    """Iterate over the rows of a sample table in stored order."""
    extras = [name for name in table.column_names if name not in TABLE_COLUMNS]
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            extra = {name: row.pop(name) for name in extras}
            yield Sample(**{"label": None, **row}, extra=extra)


@contextmanager
def _reading_table(path: StrPath) -> Iterator[None]:
    """Raise what goes wrong in this block as an error about a sample table."""
    with reading("the sample table", path, TableError, DAMAGED_HINT):
        try:
            yield
        except FileNotFoundError:
            raise TableError("the sample table is missing", file=path, hint=DAMAGED_HINT) from None


# --- the list of shards, for datasets with too many shards for manifest.json ----------------------
#
# A manifest of JSON takes 60 us and 4.5 kB of memory for each shard to read, this list 5 us and
# 1 kB.

SHARD_LIST_NAME = "manifest.shards.parquet"

#: A dataset with more shards has a list of shards as a file of its own.
MAX_SHARDS_IN_JSON = 10_000

#: A row takes more than 12 bytes, because checksums differ; without them, more than 2.
_ROWS_PER_BYTE = 0.5


#: Arrow types of the columns of a file of a shard. Checksums are numbers.
_FILE_COLUMNS = {"name": "string", "bytes": "int64", "crc32c": "uint32"}


def _prefixes(arrays: int) -> list[str]:
    """Return the prefixes of the columns of the files of a shard, in the order of `Shard.files`."""
    return ["", "index_", "table_", *(f"array{number}_" for number in range(arrays))]


def _columns(arrays: int) -> dict[str, str]:
    """Return the columns and their Arrow types: the split, then the members of a shard in ``manifest.json``."""
    columns = {"split": "string", "name": "string", "samples": "int64"}
    for prefix in _prefixes(arrays):
        for name, kind in _FILE_COLUMNS.items():
            columns[prefix + name] = kind
    return columns


def shard_list_bytes(splits: Sequence[Split]) -> bytes:
    """Serialize the shards of all splits. The same shards give the same bytes."""
    import pyarrow as pa

    arrays = 0
    for split in splits:
        for shard in split.shards[:1]:
            arrays = len(shard.arrays)
    types, prefixes = _columns(arrays), _prefixes(arrays)
    columns: dict[str, list[Any]] = {name: [] for name in types}
    for split in splits:
        for shard in split.shards:
            columns["split"].append(split.name)
            columns["samples"].append(shard.samples)
            for prefix, file in zip(prefixes, shard.files, strict=True):
                crc = file.checksum and int(file.checksum[-8:], 16)
                columns[f"{prefix}name"].append(file.name)
                columns[f"{prefix}bytes"].append(file.bytes)
                columns[f"{prefix}crc32c"].append(crc)
    table = pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})
    return parquet_bytes(table)


def parse_shard_list(data: bytes, counts: Mapping[str, int]) -> tuple[Split, ...]:
    """Parse a list of shards strictly.

    Args:
        data: content of the file.
        counts: number of shards of each split, in the order of the manifest.

    Raises:
        ValueError: the list is damaged, or contradicts the manifest.

    """
    table = _read_shard_list(data)
    if table["split"].to_pylist() != list(Counter(counts).elements()):
        raise ValueError("its splits, or their numbers of shards, are not those of the manifest")
    # The search for cycles in a million new objects without any takes as long as the work itself.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        files = []
        for prefix in _prefixes(_count_arrays(table.column_names)):
            columns = [table[prefix + name].to_pylist() for name in _FILE_COLUMNS]
            files.append(map(_file, *columns))
        arrays: Iterable[tuple[File, ...]] = repeat(())
        if files[3:]:
            arrays = zip(*files[3:], strict=True)
        shards = map(Shard, files[0], table["samples"].to_pylist(), files[1], files[2], arrays)
        return tuple(Split(name, tuple(islice(shards, count))) for name, count in counts.items())
    finally:
        if is_collecting:
            gc.enable()


def _file(name: str, length: int, checksum: int | None) -> File:
    check_file_name(name)
    if checksum is None:
        return File(name, length, None)
    return File(name, length, checksum_text(checksum))


def _count_arrays(names: Sequence[str]) -> int:
    """Return how many array files each shard of a list has; the other columns are of three files."""
    return max(0, len(names) - len(_columns(0))) // len(_FILE_COLUMNS)


def _read_shard_list(data: bytes) -> pa.Table:
    import pyarrow.compute as pc

    parquet = BoundedParquet(data, rows_per_byte=_ROWS_PER_BYTE)
    types = _columns(_count_arrays(parquet.names))
    if parquet.names != tuple(types):
        raise ValueError(f"its columns must be {', '.join(types)}")
    for name, kind in types.items():
        actual = shorten_type(parquet.schema.field(name).type)
        if actual != kind:
            raise ValueError(f"column {name!r} has the type {actual}, but {kind} is required")
    table = parquet.read(parquet.names)
    for name, kind in types.items():
        if kind != "uint32" and table[name].null_count:
            raise ValueError(f"column {name!r} has rows without a value")
        if kind == "int64" and len(table) and pc.min(table[name]).as_py() < 0:
            raise ValueError(f"column {name!r} contains a negative number")
    return table
