"""The source table of a plan: Parquet files with one row group for each shard, so that a worker reads only its rows.

A file has at most `SHARDS_PER_FILE` row groups. A worker reads the footer of one file and one row
group of it, so its memory does not grow with the dataset. The plan has checksums of footers and row
groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dataprep import storage
from dataprep.plan.assign import ShardPlan, key_of
from dataprep.sources import Source
from dataprep.spool import release_pages
from manifests.errors import PlanError
from manifests.files import PLAN_TABLE, open_file, reading
from manifests.json_members import shorten
from manifests.parquet import BoundedParquet
from manifests.records import record

#: Row groups of a file, at most.
SHARDS_PER_FILE = 1000

#: Arrow types of the columns that are not the source's, named like the columns of `Source.table`. Text
#: is plain: Parquet itself encodes repeated values as a dictionary.
_TYPES = {
    "shard": pa.string(),
    "key": pa.string(),
    "label": pa.int32(),
    "size": pa.int64(),
    "path": pa.large_string(),
    "location:container": pa.large_string(),
    "location:reader": pa.large_string(),
    "location:position": pa.int64(),
    "location:length": pa.int64(),
    "location:key": pa.binary(),
    "location:crc32c": pa.uint32(),
}

#: Text of generated paths and sorted keys, compressed by Zstandard, needs at least this many bytes
#: for each row.
_ROWS_PER_BYTE = 2.0


@record
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
    footer: Annotated[str, r"[0-9a-f]{8}", "8 hex digits"]
    groups: Annotated[str, r"([0-9a-f]{8}){1,1000}", "checksums of 8 hex digits"]


def table_name(number: int) -> str:
    """Return the name of a file of the source table."""
    return f"source-{number:05d}.parquet"


def _names(extra: Sequence[str], *, has_locations: bool) -> dict[str, str]:
    """Return the name of each column in the files, by its name in `Source.table`.

    Fixed names that the source also uses get an underscore.
    """
    taken, names = {*extra}, {}
    for column in _TYPES:
        if column.startswith("location:") and not has_locations:
            continue
        name = column.removeprefix("location:")
        if name == "path":
            name = "source"
        while name in taken:
            name += "_"
        taken.add(name)
        names[column] = name
    for name in extra:
        names[f"extra:{name}"] = name
    return names


# --- write ----------------------------------------------------------------------------------------


def write_plan_table(
    path: str, name: str, source: Source, shards: Sequence[ShardPlan], revision: int
) -> PlanTable:
    """Write the rows of some shards, new in `revision`, to `path`.

    The same samples give the same bytes.
    """
    names = _names(source.extra.column_names, has_locations=source.location is not None)
    shard_name, key, *others = names
    samples = source.table.select(others)
    types = dict(zip(samples.schema.names, samples.schema.types, strict=True)) | _TYPES
    schema = pa.schema([(names[column], types[column]) for column in names])
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for shard in shards:
            rows = samples.take(pa.array(shard.rows))
            keys = [key_of(row, revision) for row in shard.rows.tolist()]
            rows = rows.add_column(0, key, pa.array(keys, pa.string()))
            rows = rows.add_column(0, shard_name, pa.repeat(shard.name, len(keys)))
            # Dictionaries become plain text: Parquet would store all values of each for every shard.
            table = rows.rename_columns(schema.names).cast(schema)
            writer.write_table(table, row_group_size=max(1, len(table)))
            release_pages()
    with open(path, "rb") as file:
        parquet = BoundedParquet(file, rows_per_byte=1e9)
        groups = "".join(map(parquet.group_checksum, range(parquet.groups)))
        return PlanTable(name, parquet.length, parquet.footer_checksum(), groups)


# --- read -----------------------------------------------------------------------------------------


def read_plan_table(
    folder: str, table: PlanTable, group: int, extra: Sequence[str], *, has_locations: bool
) -> pa.Table:
    """Read a row group, with the columns named like the columns of `Source.table`.

    Args:
        folder: folder of the plan.
        table: the file.
        group: number of the row group.
        extra: names of the extra columns.
        has_locations: whether the images are inside containers.

    Raises:
        PlanError: the file is missing, damaged or was changed after it was written.

    """
    names = _names(extra, has_locations=has_locations)
    path = os.path.join(folder, table.name)
    with open_plan_table(folder, table) as parquet:
        if parquet.group_checksum(group) != table.groups[8 * group : 8 * group + 8]:
            raise _changed(path)
        rows = parquet.read(parquet.names, group)
    if rows.column_names != [*names.values()] or any(
        field.type != _TYPES.get(column, field.type)
        for column, field in zip(names, rows.schema, strict=True)
    ):
        raise PlanError(
            f"the columns are {shorten(str(rows.schema))}, not the columns of the plan",
            file=path,
            hint=PLAN_TABLE.hint,
        )
    return rows.rename_columns([*names])


@contextmanager
def open_plan_table(folder: str, table: PlanTable) -> Iterator[BoundedParquet]:
    """Open a file of the source table, and translate the errors of reading it.

    Raises:
        PlanError: the file is missing, damaged or was changed after it was written.

    """
    path = os.path.join(folder, table.name)
    with (
        reading("the source table", path, PlanError, PLAN_TABLE.hint),
        _open(path, table.footer) as file,
    ):
        parquet = BoundedParquet(file, rows_per_byte=_ROWS_PER_BYTE)
        if (parquet.length, parquet.footer_checksum()) != (table.bytes, table.footer):
            raise _changed(path)
        yield parquet


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


def _changed(path: str) -> PlanError:
    return PlanError(
        "the file was changed after `dataprep plan` wrote it", file=path, hint=PLAN_TABLE.hint
    )
