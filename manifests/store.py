"""Read and write ``manifest.json``, ``rejected.jsonl`` and the sample tables. Reading is strict.

Sample tables are Parquet. The functions that need Arrow import it themselves, so reading a manifest is fast.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from awscrt.checksums import crc32c

from manifests.errors import CallError, ManifestError, TableError
from manifests.schema import SCHEMA_VERSION, TABLE_COLUMNS, Manifest, Sample, TableMetadata
from manifests.serialization import (
    checksum_text,
    manifest_from_json,
    manifest_to_json,
    metadata_from_json,
    metadata_to_json,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "MANIFEST_NAME",
    "MAX_MANIFEST_BYTES",
    "REJECTED_NAME",
    "TableFile",
    "build_table",
    "checksum_text",
    "has_canonical_bytes",
    "manifest_bytes",
    "may_replace_manifest",
    "parse_manifest",
    "read_manifest",
    "read_table",
    "read_table_metadata",
    "rejected_bytes",
    "samples",
    "write_table",
]

MANIFEST_NAME = "manifest.json"
REJECTED_NAME = "rejected.jsonl"

#: A longer manifest is refused. A thousand shards take about 0.5 MB.
MAX_MANIFEST_BYTES = 1 << 29

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

#: `dataprep verify` cannot check a dataset without its manifest, so this does not recommend it.
_MANIFEST_HINT = "restore the manifest from a copy, or make the dataset again"
_DAMAGED_HINT = "run `dataprep verify` to find other damage, then make the dataset again or restore a copy"


# --- manifest.json ------------------------------------------------------------------------------


def manifest_bytes(manifest: Manifest) -> bytes:
    """Serialize a manifest as UTF-8 JSON. The last member is a CRC-32C of everything before it."""
    body = manifest_to_json(manifest)
    body["checksum"] = checksum_text(crc32c(_dump(body)))
    return _dump(body)


def parse_manifest(data: bytes, file: str = MANIFEST_NAME) -> Manifest:
    """Parse a manifest strictly: every byte must be as `manifest_bytes` writes it.

    Args:
        data: content of ``manifest.json``.
        file: path to name in errors.

    Raises:
        ManifestError: the manifest is damaged, or its schema version is unknown.

    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"the manifest is not JSON ({error})", file=file, hint=_MANIFEST_HINT) from None
    if not isinstance(body, dict):
        raise ManifestError("the manifest is not a JSON object", file=file, hint=_MANIFEST_HINT)
    version = body.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ManifestError(
            f"the manifest has schema_version {version!r}, but this release reads {SCHEMA_VERSION}",
            file=file,
            hint="read it with the release that wrote it" if isinstance(version, int) else _MANIFEST_HINT,
        )
    checksum = body.pop("checksum", None)
    if checksum != checksum_text(crc32c(_dump(body))):
        raise ManifestError("the manifest does not match its own checksum", file=file, hint=_MANIFEST_HINT)
    if _dump({**body, "checksum": checksum}) != data:
        raise ManifestError(
            "the manifest was edited or damaged: its JSON layout has changed", file=file, hint=_MANIFEST_HINT
        )
    try:
        return manifest_from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        message = f"a member of the manifest is missing or wrong ({error})"
        raise ManifestError(message, file=file, hint=_MANIFEST_HINT) from None


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """Read ``folder/manifest.json``.

    Raises:
        CallError: the folder does not exist.
        ManifestError: the manifest is missing (the dataset is incomplete) or damaged.

    """
    path = Path(folder, MANIFEST_NAME)
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ManifestError(f"the manifest exceeds {MAX_MANIFEST_BYTES} bytes", file=str(path), hint=_MANIFEST_HINT)
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(folder):
            raise CallError(
                f"the folder {folder} does not exist", hint="give the folder of a prepared dataset"
            ) from None
        hint = "run the same `dataprep convert` again to finish it, or `dataprep index` for shards made by another tool"
        raise ManifestError(
            "the manifest is missing, so the dataset is incomplete", file=str(path), hint=hint
        ) from None
    except ValueError:
        raise CallError(f"{os.fspath(folder)!r} cannot be the name of a folder") from None
    except OSError as error:
        raise ManifestError(
            f"the manifest cannot be read ({error.strerror})",
            file=str(path),
            hint="check its permissions",
        ) from None
    return parse_manifest(data, str(path))


def may_replace_manifest(folder: str | os.PathLike[str]) -> bool:
    """Return whether ``folder/manifest.json`` may be replaced: it is missing, empty, or written by this project.

    A damaged manifest of this project counts, a file of another tool does not.

    Raises:
        CallError: the file cannot be read.

    """
    path = Path(folder, MANIFEST_NAME)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise CallError(f"{path} cannot be read ({error.strerror})", hint="move the file away") from None
    return not data or b'"schema_version"' in data


def rejected_bytes(rows: Sequence[Mapping[str, str]]) -> bytes:
    """Serialize ``rejected.jsonl``: one line per source image that was not written."""
    names = ("source", "reason", "detail")  # a fixed order: the same rows give the same bytes
    return "".join(json.dumps({name: row[name] for name in names}, ensure_ascii=False) + "\n" for row in rows).encode()


def _dump(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


# --- sample tables ------------------------------------------------------------------------------


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
        with open(path, "rb") as file:
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
            with open(path, "rb") as file:
                content = file.read()
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
        with open(path, "rb") as file:
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
        with open(path, "rb") as file:
            data = file.read()
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
