"""Records of `schema` as JSON objects and back. Pure functions; parsing is strict.

The ``*_from_json`` functions raise `KeyError`, `TypeError` or `ValueError` if a member is missing or wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from manifests.schema import (
    CREATORS,
    FORMAT_NAMES,
    STORES,
    Components,
    Conversion,
    Creator,
    File,
    Manifest,
    Shard,
    Split,
    TableMetadata,
)

_CHECKSUM = re.compile(r"crc32c:[0-9a-f]{8}")

#: Metadata of a table that `dataprep index` made.
_MADE_BY_INDEX = {"made_by": "dataprep index"}


def checksum_text(crc: int) -> str:
    """Format a CRC-32C as manifests store it: ``crc32c:`` and 8 hex digits."""
    return f"crc32c:{crc:08x}"


# --- manifest -----------------------------------------------------------------------------------


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """Return the members of ``manifest.json`` in the order in which they are written, without the checksum."""
    return {
        "schema_version": manifest.schema_version,
        "creator": manifest.creator,
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


def manifest_from_json(body: Mapping[str, Any]) -> Manifest:
    """Build the manifest from the members of ``manifest.json``."""
    components = body["components"]
    rejected = body["rejected"]
    return Manifest(
        format=_one_of(body["format"], FORMAT_NAMES),
        store=_one_of(body["store"], STORES),
        components=Components(
            image=_image_names(components["image"]),
            label=None if components["label"] is None else _typed(components["label"], str),
            label_offset=_typed(components["label_offset"], int),
        ),
        classes=tuple(_typed(name, str) for name in _typed(body["classes"], list)),
        splits=tuple(_split_from_json(name, split) for name, split in _typed(body["splits"], dict).items()),
        rejected=None if rejected is None else _file_from_json(rejected),
        options=_typed(body["options"], dict),
        pixels=_pixels(body),
        creator=_creator(body),
    )


def _creator(body: Mapping[str, Any]) -> Creator:
    if "creator" not in body:  # written before the member existed
        return "convert" if "plan" in _typed(body["options"], dict) else "index"
    creator: Creator = _one_of(body["creator"], CREATORS)
    return creator


def _pixels(body: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Read the shape of raw images. A manifest has it if and only if the store is ``"raw"``."""
    if (body["store"] == "raw") != ("pixels" in body):
        raise ValueError(f"store is {body['store']!r}, but pixels is {body.get('pixels')!r}")
    if "pixels" not in body:
        return None
    height, width, channels = (_count(side) for side in _typed(body["pixels"], list))
    if not height or not width or channels != 3:
        raise ValueError(f"pixels must be [height, width, 3], got {body['pixels']!r}")
    return height, width, channels


def _split_from_json(name: str, body: Mapping[str, Any]) -> Split:
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
        raise ValueError(f"split {name!r} has samples={body['samples']}, but its shards have {split.samples}")
    return split


def _file_from_json(body: Mapping[str, Any]) -> File:
    name, checksum = _typed(body["name"], str), body["checksum"]
    # A manifest from an untrusted source must not make a reader open files outside of the dataset folder.
    if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"file name {name!r} is empty or points outside of the dataset folder")
    if checksum is not None and not _CHECKSUM.fullmatch(_typed(checksum, str)):
        raise ValueError(f"checksum {checksum!r} is not valid")
    return File(name, _count(body["bytes"]), checksum)


# --- metadata of a sample table -----------------------------------------------------------------


def metadata_to_json(metadata: TableMetadata) -> dict[str, Any]:
    """Return the JSON object that a sample table stores in its Parquet schema."""
    conversion = metadata.conversion
    if conversion is None:
        return dict(_MADE_BY_INDEX)
    body = {
        "plan": conversion.plan,
        "samples": conversion.samples,
        "images": conversion.images,
        "bytes": conversion.bytes,
        "formats": list(conversion.formats),
        "shard": _file_to_json(conversion.shard),
        "index": _file_to_json(conversion.index),
        "rejected": [dict(row) for row in conversion.rejected],
    }
    if conversion.changes is not None:
        body["changes"] = {change: list(totals) for change, totals in conversion.changes.items()}
    return body


def metadata_from_json(body: Any) -> TableMetadata:
    """Build the metadata from the JSON object of a sample table."""
    if body == _MADE_BY_INDEX:
        return TableMetadata()
    changes = _typed(body, dict).get("changes", {})
    return TableMetadata(
        Conversion(
            plan=_typed(body["plan"], str),
            samples=_count(body["samples"]),
            images=_count(body["images"]),
            bytes=_count(body["bytes"]),
            formats=tuple(_typed(name, str) for name in _typed(body["formats"], list)),
            shard=_file_from_json(body["shard"]),
            index=_file_from_json(body["index"]),
            rejected=tuple(_rejected_row(row) for row in _typed(body["rejected"], list)),
            changes={name: _totals(totals) for name, totals in _typed(changes, dict).items()}
            if "changes" in body
            else None,
        )
    )


def _rejected_row(row: Any) -> dict[str, str]:
    return {name: _typed(_typed(row, dict)[name], str) for name in ("source", "reason", "detail")}


def _totals(totals: Any) -> tuple[int, int, int]:
    samples, before, after = (_count(total) for total in _typed(totals, list))
    return samples, before, after


# --- members ------------------------------------------------------------------------------------


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _image_names(value: Any) -> tuple[str, ...]:
    names = tuple(_typed(name, str) for name in _typed(value, list))
    if not names:
        raise ValueError("components.image is empty")
    return names


def _count(value: Any) -> int:
    if _typed(value, int) < 0:
        raise ValueError(f"count {value} is negative")
    return int(value)


def _one_of(value: Any, known: Sequence[Any]) -> Any:
    if value not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got {value!r}")
    return value
