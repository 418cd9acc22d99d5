"""The file `HASHES_NAME` in a prepared dataset: hashes that `dataprep duplicates` computed, to read images only once.

Sample tables keep their bytes, so their hashes are in this file of its own. A row counts as long as
the sample table has an image with the same checksum at the same place. A damaged file, or one of
another recipe, counts as missing.
"""

from __future__ import annotations

import io
import json
import logging
import os
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dataprep import storage
from dataprep.duplicates.symmetries import WORDS
from dataprep.options import HASH_RECIPE, HASHES_NAME
from dataprep.sources import Source
from manifests.errors import DamagedError
from manifests.files import TABLE, open_file
from manifests.json_members import parse_json
from manifests.parquet import BoundedParquet
from manifests.parquet_errors import ParquetError

_log = logging.getLogger(__name__)

_METADATA_KEY = b"dataprep"
_COLUMNS = {
    "shard": pa.string(),
    "offset": pa.int64(),
    "crc32c": pa.uint32(),
    "hash": pa.binary(8 * WORDS),
    "problem": pa.string(),
}

#: A row needs at least the four bytes of its checksum.
_ROWS_PER_BYTE = 0.25

#: Shards and offsets that fit into one number together: 16 million shards of a terabyte.
_MAX_SHARDS, _OFFSET_BITS = 1 << 24, 40


class Stored(NamedTuple):
    """What the file states about some samples.

    Attributes:
        rows: rows of the source, int64 [N].
        hashes: uint64 [N, 4]; zeros without a hash.
        has_hash: whether each image has a hash: one that is flat or does not decode has none.
        problems: why images do not decode, by row of the source.

    """

    rows: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    has_hash: NDArray[np.bool_]
    problems: dict[int, str]


_NOTHING = Stored(np.zeros(0, np.int64), np.zeros((0, WORDS), np.uint64), np.zeros(0, np.bool_), {})


def read_hashes(source: Source) -> Stored:
    """Return the hashes in the file of a prepared dataset, of those samples that are as they were."""
    path = os.path.join(source.root, HASHES_NAME)
    if source.location is None or not storage.is_file(path):
        return _NOTHING
    try:
        table = _read(path)
    except (OSError, ParquetError, DamagedError, ValueError) as error:
        _log.warning("%s: not used, because it cannot be read (%s)", path, error)
        return _NOTHING
    if table is None:
        return _NOTHING
    names = pc.unique(table["shard"].combine_chunks())
    own = _places(
        source.location["container"].cast(pa.string()), source.location["position"], names
    )
    stored = _places(table["shard"], table["offset"], names)
    order = np.argsort(stored, kind="stable")
    at = np.searchsorted(stored[order], own).clip(max=max(len(order) - 1, 0))
    rows = np.flatnonzero(own >= 0) if len(order) else np.zeros(0, np.int64)
    match = order[at[rows]] if len(order) else rows
    crc, own_crc = np.asarray(table["crc32c"]), source.location["crc32c"]
    same = (stored[match] == own[rows]) & np.asarray(pc.is_valid(own_crc))[rows]
    same &= crc[match] == np.asarray(pc.fill_null(own_crc, 0))[rows]
    rows, match = rows[same], match[same]
    found = table.take(pa.array(match))
    has_hash = np.asarray(pc.is_valid(found["hash"]))
    hashes = np.zeros((len(rows), WORDS), np.uint64)
    hashes[has_hash] = _words(found["hash"].drop_null())
    problems = dict(zip(rows.tolist(), found["problem"].to_pylist(), strict=True))
    return Stored(rows, hashes, has_hash, {row: why for row, why in problems.items() if why})


def write_hashes(
    source: Source,
    rows: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    has_hash: NDArray[np.bool_],
    problems: dict[int, str],
) -> None:
    """Write the file of a prepared dataset, with some of its samples, and replace the one that is there.

    Args:
        source: the samples.
        rows: those to write, int64 [N]. Those without a checksum in the sample table are left out.
        hashes: their hashes, uint64 [N, 4].
        has_hash: whether each has one, bool [N].
        problems: why images do not decode, by row of the source.

    Raises:
        StorageError: the dataset cannot be written to, or the disk is full.

    """
    location = source.location
    if location is None:
        return
    has_checksum = np.asarray(pc.is_valid(location["crc32c"]))[rows]
    rows, hashes, has_hash = rows[has_checksum], hashes[has_checksum], has_hash[has_checksum]
    taken = location.take(pa.array(rows))
    binary = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8 * WORDS), len(rows), [None, pa.py_buffer(np.ascontiguousarray(hashes))]
    )
    table = pa.table({
        "shard": taken["container"].cast(pa.string()),
        "offset": taken["position"].cast(pa.int64()),
        "crc32c": taken["crc32c"],
        "hash": pc.if_else(pa.array(has_hash), binary, pa.scalar(None, binary.type)),
        "problem": pa.array([problems.get(row) for row in rows.tolist()], pa.string()),
    })  # fmt: skip
    note = {"recipe": HASH_RECIPE, "note": "written by `dataprep duplicates`; it can be removed"}
    out = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({_METADATA_KEY: json.dumps(note)}),
        out,
        compression="zstd",
        use_dictionary=["shard", "problem"],
        write_page_checksum=True,
    )
    with storage.partials([source.root], is_locked=False):
        storage.replace_file(os.path.join(source.root, HASHES_NAME), out.getvalue())


def _read(path: str) -> pa.Table | None:
    """Read the file; `None` if it has another recipe.

    Raises:
        ParquetError, ValueError: it is damaged.

    """
    with open_file(path, TABLE) as file:
        parquet = BoundedParquet(file, rows_per_byte=_ROWS_PER_BYTE)
        recipe = parse_json(parquet.metadata.get(_METADATA_KEY, b"{}")).get("recipe")
        if recipe is None or recipe.value != HASH_RECIPE:
            return None
        table = parquet.read([*_COLUMNS])
    for name, kind in _COLUMNS.items():
        if table.schema.field(name).type != kind:
            raise ParquetError(f"column {name} has the type {table.schema.field(name).type}")
        if table[name].null_count and name not in ("hash", "problem"):
            raise ParquetError(f"column {name} has rows without a value")
    return table


def _places(shard: pa.ChunkedArray, offset: pa.ChunkedArray, names: pa.Array) -> NDArray[np.int64]:
    """Return a number for each place in one of the named shards, int64 [N].

    -1 for one that is not in them.
    """
    code = np.asarray(pc.fill_null(pc.index_in(shard, value_set=names), -1)).astype(np.int64)
    at = np.asarray(offset).astype(np.int64)
    is_valid = (code >= 0) & (code < _MAX_SHARDS) & (at >= 0) & (at < 1 << _OFFSET_BITS)
    return np.where(is_valid, (code << _OFFSET_BITS) | at, -1)


def _words(hashes: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return hashes without nulls as uint64 [N, 4]."""
    parts = []
    for chunk in hashes.chunks:
        data = (
            np.frombuffer(chunk.buffers()[1], np.uint64) if len(chunk) else np.zeros(0, np.uint64)
        )
        parts.append(data.reshape(-1, WORDS)[chunk.offset : chunk.offset + len(chunk)])
    return np.concatenate([np.zeros((0, WORDS), np.uint64), *parts])
