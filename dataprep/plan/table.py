"""The source table of a plan: Parquet files with one row group for each shard, so that a worker reads only its rows.

A file has at most `SHARDS_PER_FILE` row groups. A worker reads the footer of one file and one row
group of it, so its memory does not grow with the dataset. The plan has checksums of footers and row
groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataprep import storage
from dataprep.containers.base import location_schema
from dataprep.plan.assign import ShardPlan, key_of
from dataprep.sources import Source
from dataprep.sources.base import MAX_COLUMN_NAME, RESERVED_COLUMNS, sample_table
from manifests.errors import PlanError, raise_machine_fault
from manifests.files import PLAN_TABLE, open_file
from manifests.json_members import shorten
from manifests.parquet import BoundedParquet, ParquetError

#: Row groups of a file, at most.
SHARDS_PER_FILE = 1000

#: Columns that every file has, with their Arrow types. The columns of containers and those of the
#: source follow.
_COLUMNS = {
    "shard": pa.string(),
    "key": pa.string(),
    "label": pa.int32(),
    "size": pa.int64(),
    "source": pa.large_string(),
}

#: Text of generated paths and sorted keys, compressed by Zstandard, needs at least this many bytes
#: for each row.
_ROWS_PER_BYTE = 2.0


@dataclass(frozen=True, slots=True)
class PlanTable:
    """A file of the source table.

    Attributes:
        name: name of the file.
        bytes: its length.
        footer: CRC-32C of its footer, 8 hex digits.
        groups: CRC-32C of each row group, 8 hex digits each.

    """

    name: str
    bytes: int
    footer: str
    groups: str


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """The samples of one shard, in stored order.

    Attributes:
        keys: their keys.
        source: a source of only these samples.

    """

    keys: list[str]
    source: Source


def table_name(number: int) -> str:
    """Return the name of a file of the source table."""
    return f"source-{number:05d}.parquet"


# --- write ----------------------------------------------------------------------------------------


def file_parts(shards: Sequence[ShardPlan]) -> Iterator[tuple[str, Sequence[ShardPlan]]]:
    """Yield the name of each file and the shards in it."""
    for number, start in enumerate(range(0, len(shards), SHARDS_PER_FILE)):
        yield table_name(number), shards[start : start + SHARDS_PER_FILE]


def write_plan_table(
    path: str, name: str, source: Source, shards: Sequence[ShardPlan], revision: int = 0
) -> PlanTable:
    """Write the rows of some shards, new in `revision`, to `path`.

    The same samples give the same bytes.
    """
    schema = plan_schema(
        source.extra.schema if source.extra.num_columns else None, source.location is not None
    )
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for shard in shards:
            table = _rows_of(source, shard, schema, revision)
            writer.write_table(table, row_group_size=max(1, len(table)))
    with open(path, "rb") as file:
        parquet = BoundedParquet(file, rows_per_byte=1e9)
        groups = "".join(map(parquet.group_checksum, range(parquet.groups)))
        return PlanTable(name, parquet.length, parquet.footer_checksum(), groups)


def plan_schema(extra: pa.Schema | None, has_locations: bool) -> pa.Schema:
    """Return the columns of the source table.

    Fixed names that the source also uses get an underscore.
    """
    extra = extra or pa.schema([])
    fixed = [*_COLUMNS.items(), *(_plain_locations() if has_locations else ())]
    fields: list[pa.Field] = []
    taken = {*extra.names}
    for name, column_type in fixed:
        while name in taken:
            name += "_"  # noqa: PLW2901
        taken.add(name)
        fields.append(pa.field(name, column_type))
    return pa.schema([*fields, *(pa.field(field.name, field.type) for field in extra)])


def _plain_locations() -> list[tuple[str, pa.DataType]]:
    """Return the columns of containers with plain text: Parquet itself encodes repeated values as a dictionary."""
    return [
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in location_schema()
    ]


def _rows_of(source: Source, shard: ShardPlan, schema: pa.Schema, revision: int) -> pa.Table:
    rows = shard.rows
    columns = [
        pa.repeat(pa.scalar(shard.name), len(rows)),
        pa.array([key_of(row, revision) for row in rows.tolist()], pa.string()),
        pa.array(source.label[rows], pa.int32()),
        pa.array(source.size[rows], pa.int64()),
        source.path.take(pa.array(rows)).cast(pa.large_string()),
    ]
    if source.location is not None:
        columns += [
            source.location[name].take(pa.array(rows)).cast(plain)
            for name, plain in _plain_locations()
        ]
    if source.extra.num_columns:
        columns += source.extra.take(rows).columns
    return pa.Table.from_arrays(columns, schema=schema)


# --- read -----------------------------------------------------------------------------------------


def read_planned_rows(
    folder: str,
    table: PlanTable,
    group: int,
    shard: str,
    *,
    template: Source,
    extra: Sequence[str],
    has_locations: bool,
) -> PlannedRows:
    """Read the samples of one shard.

    Args:
        folder: folder of the plan.
        table: the file that contains them.
        group: their row group.
        shard: name of the shard.
        template: a source without samples: its root and classes.
        extra: names of the extra columns.
        has_locations: whether the images are inside containers.

    Raises:
        PlanError: the file is missing, damaged or was changed after it was written.

    """
    path = os.path.join(folder, table.name)
    with open_planned_file(folder, table) as parquet:
        if parquet.group_checksum(group) != table.groups[8 * group : 8 * group + 8]:
            raise _changed(path)
        rows = parquet.read(parquet.names, group)
        return _planned_rows(rows, path, shard, template, extra, has_locations=has_locations)


@contextmanager
def open_planned_file(folder: str, table: PlanTable) -> Iterator[BoundedParquet]:
    """Open a file of the source table, and translate the errors of reading it.

    Raises:
        PlanError: the file is missing, damaged or was changed after it was written.

    """
    path = os.path.join(folder, table.name)
    try:
        with _open(path, table.footer) as file:
            parquet = BoundedParquet(file, rows_per_byte=_ROWS_PER_BYTE)
            if (parquet.length, parquet.footer_checksum()) != (table.bytes, table.footer):
                raise _changed(path)
            yield parquet
    except (OSError, ParquetError) as error:
        raise_machine_fault(error)
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanError(
            f"the source table cannot be read ({reason})", file=path, hint=PLAN_TABLE.hint
        ) from None


def _open(path: str, footer: str) -> BinaryIO:
    """Open a file of the source table.

    One in an object store is read once for all of its shards.
    """
    if not storage.has_latency(path):
        return open_file(path, PLAN_TABLE)
    return open(f"/proc/self/fd/{_downloaded(path, footer).fileno()}", "rb")


@lru_cache(maxsize=2)
def _downloaded(path: str, footer: str) -> BinaryIO:
    del footer  # a part of the key: of another plan, the file has other content
    return open_file(path, PLAN_TABLE)


def _planned_rows(
    table: pa.Table,
    path: str,
    shard: str,
    template: Source,
    extra: Sequence[str],
    *,
    has_locations: bool,
) -> PlannedRows:
    """Check every value: the plan may come from anybody."""
    fixed = len(table.column_names) - len(extra)
    extra_table = table.select(range(fixed, len(table.column_names)))
    expected = plan_schema(extra_table.schema, has_locations)
    if (
        tuple(extra_table.column_names) != tuple(extra)
        or table.schema.remove_metadata() != expected
    ):
        raise PlanError(
            f"the columns are {shorten(str(table.schema))}, not those of the plan",
            file=path,
            hint=PLAN_TABLE.hint,
        )
    shards, keys, label, size, paths = (
        column.combine_chunks() for column in table.columns[: len(_COLUMNS)]
    )
    checks = {
        "shard": pc.equal(shards, shard),
        "key": pc.match_substring_regex(keys, "^([1-9][0-9]{0,8}-)?[0-9]{8,19}$"),
        "label": pc.and_(pc.greater_equal(label, 0), pc.less(label, _end_of_labels(template))),
        "size": pc.greater_equal(size, -1),
        "source": pc.invert(pc.match_substring(paths, "\0")),
    }
    for name, check in checks.items():
        if check.null_count or not pc.all(check).as_py():
            raise PlanError(
                f"column {name!r} of shard {shard} has a wrong value",
                file=path,
                hint=PLAN_TABLE.hint,
            )
    for name in extra:
        if name in RESERVED_COLUMNS or not 0 < len(os.fsencode(name)) <= MAX_COLUMN_NAME:
            raise PlanError(
                f"an extra column has the name {shorten(name)}", file=path, hint=PLAN_TABLE.hint
            )
    wrong = template.labels.find_wrong_column(extra_table, len(template.classes), f"shard {shard}")
    if wrong is not None:
        raise PlanError(wrong, file=path, hint=PLAN_TABLE.hint)
    location = None
    if has_locations:
        plain = table.select(range(len(_COLUMNS), fixed)).rename_columns(location_schema().names)
        columns = [
            (
                plain[field.name].dictionary_encode()
                if pa.types.is_dictionary(field.type)
                else plain[field.name]
            )
            for field in location_schema()
        ]
        location = pa.table(columns, names=plain.column_names)
    samples = sample_table(paths, label=label, size=size, location=location, extra=extra_table)
    return PlannedRows(keys.to_pylist(), replace(template, table=samples))


def _end_of_labels(template: Source) -> int:
    """Return the number that labels are less than. They are zeros if they are not classes."""
    return len(template.classes) if template.labels.is_class else 1


def _changed(path: str) -> PlanError:
    return PlanError(
        "the file was changed after `dataprep plan` wrote it", file=path, hint=PLAN_TABLE.hint
    )
