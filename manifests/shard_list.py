"""The list of shards as Parquet, `SHARD_LIST_NAME`, for datasets with too many shards for ``manifest.json``.

A manifest of JSON takes 60 us and 4.5 kB of memory for each shard to read, this list 5 us and 1 kB.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from manifests.json_members import shorten
from manifests.parquet import BoundedParquet, ParquetError, parquet_bytes, shorten_type
from manifests.schema import File, Shard, Split
from manifests.serialization import checksum_text, is_file_name

if TYPE_CHECKING:
    import pyarrow as pa

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


class ShardListError(ValueError):
    """The list of shards is damaged, or contradicts the manifest."""


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
        ShardListError: the list is damaged, or its splits are not those of the manifest.

    """
    try:
        table = _read(data)
    except ParquetError as error:
        raise ShardListError(str(error)) from None
    if table["split"].to_pylist() != [name for name, count in counts.items() for _ in range(count)]:
        raise ShardListError(
            "its splits, or their numbers of shards, are not those of the manifest"
        )
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
    if not is_file_name(name):
        raise ShardListError(
            f"the name {shorten(name)} is empty or points outside of the dataset folder"
        )
    return File(name, length, None if checksum is None else checksum_text(checksum))


def _read(data: bytes) -> pa.Table:
    import pyarrow.compute as pc

    parquet = BoundedParquet(data, rows_per_byte=_ROWS_PER_BYTE)
    if parquet.names != tuple(_COLUMNS):
        raise ShardListError(f"its columns must be {', '.join(_COLUMNS)}")
    for name, kind in _COLUMNS.items():
        actual = parquet.schema.field(name).type
        if str(actual) != kind:
            raise ShardListError(
                f"column {name!r} has the type {shorten_type(actual)}, but {kind} is required"
            )
    table = parquet.read(tuple(_COLUMNS))
    for name, kind in _COLUMNS.items():
        if kind != "uint32" and table[name].null_count:
            raise ShardListError(f"column {name!r} has rows without a value")
        if kind == "int64" and len(table) and pc.min(table[name]).as_py() < 0:
            raise ShardListError(f"column {name!r} contains a negative number")
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
