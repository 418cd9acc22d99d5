"""``manifest.json`` and the sample tables on disk: written one way, read strictly.

It must never know a shard's bytes. Tables are Parquet; what Arrow makes of a damaged one is
answered as a `TableError`. Arrow is imported by the functions that need it: reading a manifest is quick.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from awscrt.checksums import crc32c

from manifests.errors import CallError, ManifestError, TableError
from manifests.schema import (
    FORMATS,
    SCHEMA_VERSION,
    STORES,
    TABLE_COLUMNS,
    Components,
    File,
    Manifest,
    Sample,
    Shard,
    Split,
)

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_NAME = "manifest.json"
REJECTED_NAME = "rejected.jsonl"

#: Longest manifest that is read. A thousand shards take about 0.5 MB.
MAX_MANIFEST_BYTES = 1 << 29

_CHECKSUM = re.compile(r"crc32c:[0-9a-f]{8}")
_ANEW = "run `dataprep verify` to see what else is wrong, then make the dataset anew or restore a copy"

#: Types of the columns that every table has, by their names in Arrow.
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


def checksum_text(crc: int) -> str:
    """Write a CRC-32C as manifests carry it."""
    return f"crc32c:{crc:08x}"


def manifest_bytes(manifest: Manifest) -> bytes:
    """Serialise a manifest: UTF-8 JSON whose last member is a checksum over all that precedes it."""
    body = _to_json(manifest)
    body["checksum"] = checksum_text(crc32c(_dump(body)))
    return _dump(body)


def parse_manifest(data: bytes, file: str = MANIFEST_NAME) -> Manifest:
    """Read a manifest strictly: every byte must be as `manifest_bytes` would write it.

    Raises:
        ManifestError: it is damaged, or of a version that is not known here.

    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"is not JSON ({error})", file=file, hint=_ANEW) from None
    if not isinstance(body, dict):
        raise ManifestError("is not a JSON object", file=file, hint=_ANEW)
    version = body.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ManifestError(
            f"has schema_version {version!r}, and this release reads {SCHEMA_VERSION}",
            file=file,
            hint="read it with the release that wrote it" if isinstance(version, int) else _ANEW,
        )
    stated = body.pop("checksum", None)
    if stated != checksum_text(crc32c(_dump(body))):
        raise ManifestError("does not match its own checksum", file=file, hint=_ANEW)
    if _dump({**body, "checksum": stated}) != data:
        raise ManifestError("was edited or damaged: its layout is not the written one", file=file, hint=_ANEW)
    try:
        return _from_json(body)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(f"lacks or misstates a member ({error})", file=file, hint=_ANEW) from None


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """Read ``folder/manifest.json``.

    Raises:
        CallError: there is no such folder.
        ManifestError: there is none (the dataset is not whole), or it is damaged.

    """
    path = Path(folder, MANIFEST_NAME)
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ManifestError(f"is longer than {MAX_MANIFEST_BYTES} bytes", file=str(path), hint=_ANEW)
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(folder):
            raise CallError(
                f"{folder}: there is no such folder", hint="name the folder of a prepared dataset"
            ) from None
        hint = "run the same `dataprep convert` again to finish it, or `dataprep index` for shards made elsewhere"
        raise ManifestError("is missing, so the dataset is not whole", file=str(path), hint=hint) from None
    except ValueError:
        raise CallError(f"{os.fspath(folder)!r} cannot be the name of a folder") from None
    except OSError as error:
        raise ManifestError(f"cannot be read ({error.strerror})", file=str(path)) from None
    return parse_manifest(data, str(path))


def has_no_other_manifest(folder: str | os.PathLike[str]) -> bool:
    """Tell whether a folder's ``manifest.json``, if any, is one of these, damaged perhaps, and not another tool's.

    Raises:
        CallError: what has that name cannot be read.

    """
    path = Path(folder, MANIFEST_NAME)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise CallError(f"{path} cannot be read ({error.strerror})", hint="move it away") from None
    return not data or b'"schema_version"' in data


def rejected_bytes(rows: Sequence[Mapping[str, str]]) -> bytes:
    """Serialise ``rejected.jsonl``: one line a source image that was not written."""
    names = ("source", "reason", "detail")  # in this order, wherever the rows have been meanwhile
    return "".join(json.dumps({name: row[name] for name in names}, ensure_ascii=False) + "\n" for row in rows).encode()


def build_table(columns: Mapping[str, Any], metadata: Mapping[str, Any]) -> pa.Table:
    """Make a sample table from columns in stored order.

    Args:
        columns: the eight columns of `TABLE_COLUMNS`, then extras; sequences of one length.
        metadata: JSON that travels in the Parquet schema under ``dataprep``.

    """
    import pyarrow as pa

    arrays = [pa.array(columns[name], type=pa.type_for_alias(kind)) for name, kind in _COLUMN_TYPES.items()]
    extras = [name for name in columns if name not in TABLE_COLUMNS]
    for name in extras:
        column = columns[name]
        arrays.append(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else pa.array(column))
    table = pa.table(arrays, names=[*TABLE_COLUMNS, *extras])
    return table.replace_schema_metadata({"dataprep": json.dumps(dict(metadata), sort_keys=True)})


def write_table(table: pa.Table, path: str) -> None:
    """Write a sample table as Parquet, the same bytes for the same table."""
    with open(path, "wb") as file:
        file.write(_table_bytes(table))


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pa.Table:
    """Read a sample table, or only some of its columns, strictly.

    Raises:
        TableError: it is missing or damaged, or lacks a column.

    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # One thread: tables are small, and worker processes already take every core.
        with open(path, "rb") as file:
            table = pq.ParquetFile(file, page_checksum_verification=True).read(columns, use_threads=False)
    except FileNotFoundError:
        raise TableError("is missing", file=os.fspath(path), hint=_ANEW) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"cannot be read ({_first_line(error)})", file=os.fspath(path), hint=_ANEW) from None
    for name in columns or TABLE_COLUMNS:
        if name not in table.column_names:
            raise TableError(f"has no column {name!r}", file=os.fspath(path), hint=_ANEW)
        kind = str(table.schema.field(name).type)
        if kind != _COLUMN_TYPES.get(name, kind):
            raise TableError(f"column {name!r} has the type {kind}", file=os.fspath(path))
    return table


def read_table_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON that `build_table` put into the schema; empty if there is none.

    Raises:
        TableError: the file is missing or damaged.

    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open(path, "rb") as file:
            metadata = pq.read_schema(file).metadata or {}
        return cast("dict[str, Any]", json.loads(metadata.get(b"dataprep", b"{}")))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"cannot be read ({_first_line(error)})", file=os.fspath(path), hint=_ANEW) from None


def is_as_written(path: str | os.PathLike[str]) -> bool:
    """Tell whether a table's bytes are just those that this release writes for what is in it."""
    try:
        table = read_table(path)
        with open(path, "rb") as file:
            data = file.read()
    except (TableError, OSError):
        return False
    return data == _table_bytes(table)


def _table_bytes(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def samples(table: pa.Table) -> Iterator[Sample]:
    """Yield the rows of a sample table in stored order."""
    extras = [name for name in table.column_names if name not in TABLE_COLUMNS]
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            extra = {name: row.pop(name) for name in extras}
            yield Sample(**row, extra=extra)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _dump(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "schema_version": manifest.schema_version,
        "format": manifest.format,
        "store": manifest.store,
        **({"pixels": list(manifest.pixels)} if manifest.pixels else {}),
        "components": {
            "image": list(manifest.components.image),
            "label": manifest.components.label,
            "label_offset": manifest.components.label_offset,
        },
        "options": dict(manifest.options),
        "splits": {
            split.name: {
                "samples": split.samples,
                "shards": [_shard_to_json(shard) for shard in split.shards],
            }
            for split in manifest.splits
        },
        "rejected": _file_to_json(manifest.rejected) if manifest.rejected else None,
        "classes": list(manifest.classes),
    }


def _shard_to_json(shard: Shard) -> dict[str, Any]:
    return {
        "name": shard.file.name,
        "samples": shard.samples,
        "bytes": shard.file.bytes,
        "checksum": shard.file.checksum,
        "index": _file_to_json(shard.index),
        "table": _file_to_json(shard.table),
    }


def _file_to_json(file: File) -> dict[str, Any]:
    return {"name": file.name, "bytes": file.bytes, "checksum": file.checksum}


def _from_json(body: dict[str, Any]) -> Manifest:
    components = body["components"]
    rejected = body["rejected"]
    return Manifest(
        format=_one_of(body["format"], FORMATS),
        store=_one_of(body["store"], STORES),
        components=Components(
            image=_names(components["image"]),
            label=None if components["label"] is None else _typed(components["label"], str),
            label_offset=_typed(components["label_offset"], int),
        ),
        classes=tuple(_typed(name, str) for name in _typed(body["classes"], list)),
        splits=tuple(_split_from_json(name, split) for name, split in _typed(body["splits"], dict).items()),
        rejected=None if rejected is None else _file_from_json(rejected),
        options=_typed(body["options"], dict),
        pixels=_pixels(body),
    )


def _pixels(body: dict[str, Any]) -> tuple[int, int, int] | None:
    """Read the size of raw images, which a manifest states just where it says that they are raw."""
    if (body["store"] == "raw") != ("pixels" in body):
        raise ValueError(f"store {body['store']!r} with pixels {body.get('pixels')!r}")
    if "pixels" not in body:
        return None
    height, width, channels = (_count(side) for side in _typed(body["pixels"], list))
    if not height or not width or channels != 3:
        raise ValueError(f"pixels {body['pixels']!r}")
    return height, width, channels


def _split_from_json(name: str, body: dict[str, Any]) -> Split:
    shards = tuple(
        Shard(
            file=_file_from_json(shard),
            samples=_count(shard["samples"]),
            index=_file_from_json(shard["index"]),
            table=_file_from_json(shard["table"]),
        )
        for shard in _typed(body["shards"], list)
    )
    split = Split(name, shards)
    if split.samples != body["samples"]:
        raise ValueError(f"split {name!r} states {body['samples']} samples, its shards {split.samples}")
    return split


def _file_from_json(body: dict[str, Any]) -> File:
    name, checksum = _typed(body["name"], str), body["checksum"]
    # A manifest from elsewhere must not lead a reader out of the dataset's folder.
    if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"file name {name!r} leads out of the folder")
    if checksum is not None and not _CHECKSUM.fullmatch(_typed(checksum, str)):
        raise ValueError(f"checksum {checksum!r}")
    return File(name, _count(body["bytes"]), checksum)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} where {kind.__name__} was expected")
    return value


def _names(value: Any) -> tuple[str, ...]:
    names = tuple(_typed(name, str) for name in _typed(value, list))
    if not names:
        raise ValueError("no name where an image lies")
    return names


def _count(value: Any) -> int:
    if _typed(value, int) < 0:
        raise ValueError(f"negative count {value}")
    return int(value)


def _one_of(value: Any, known: Sequence[Any]) -> Any:
    if value not in known:
        raise ValueError(f"{value!r}, known are {', '.join(known)}")
    return value
