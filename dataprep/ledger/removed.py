"""The list of removed samples of a dataset, which keeps an append from adding them again."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from manifests.errors import ManifestError
from manifests.files import REMOVED, ParquetError, read_file, reading
from manifests.parquet import BoundedParquet, parquet_bytes
from manifests.schema import File, Manifest
from manifests.serialization import file_of, numbered
from manifests.store import REMOVED_NAME
from manifests.tables import ROWS_PER_BYTE

#: What identifies a stored image, as in ``dataprep diff``.
DIGEST_COLUMNS = ("crc32c", "size", "width", "height")

_SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "crc32c": pa.uint32(),
        "size": pa.int64(),
        "width": pa.int32(),
        "height": pa.int32(),
        "revision": pa.int32(),
        "reason": pa.string(),
    }
)


def restore_hint(manifest: Manifest, file: File) -> str:
    """Return how a list of removed samples that is missing or damaged comes back."""
    hint = "restore it from a copy"
    for number in manifest.removals:
        # A revision that scrubbed samples, and what is older, cannot be reverted.
        if number > manifest.oldest and file.name == numbered(REMOVED_NAME, number):
            hint = f"run `dataprep revert` and the same `dataprep remove` again, or {hint}"
    return hint


def read_removed(out: str, manifest: Manifest) -> pa.Table:
    """Read the list of removed samples: one row each, the oldest removal first.

    Raises:
        ManifestError: it is missing or damaged.

    """
    file = manifest.removed
    if file is None:
        return _SCHEMA.empty_table()
    path, hint = os.path.join(out, file.name), restore_hint(manifest, file)
    with reading("the list of removed samples", path, ManifestError, hint):
        data = read_file(path, REMOVED)
        if file_of(file.name, data) != file:
            raise ManifestError(
                "the list of removed samples does not have the checksum in the manifest",
                file=path,
                hint=hint,
            )
        table = BoundedParquet(data, rows_per_byte=ROWS_PER_BYTE).read(_SCHEMA.names)
        if table.schema.remove_metadata() != _SCHEMA:
            raise ParquetError("its columns are of other types")
    return table


def removed_bytes(before: pa.Table, rows: pa.Table, revision: int, reason: str | None) -> bytes:
    """Serialize the list with more rows, which have the columns `DIGEST_COLUMNS` and ``key``."""
    count = len(rows)
    rows = rows.append_column("revision", pa.array([revision] * count, pa.int32()))
    rows = rows.append_column("reason", pa.array([reason] * count, pa.string()))
    rows = rows.select(_SCHEMA.names).replace_schema_metadata(None).cast(_SCHEMA)
    return parquet_bytes(pa.concat_tables([before.replace_schema_metadata(None), rows]))


def digests(table: pa.Table) -> Sequence[tuple[int, ...]]:
    """Return the digest of each row."""
    columns = [table[name].to_pylist() for name in DIGEST_COLUMNS]
    return list(zip(*columns, strict=True))
