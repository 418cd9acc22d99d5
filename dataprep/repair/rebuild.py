"""Find the damaged files of one shard, and rebuild its DALI index and sample table from the shard. Nothing is written."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.formats import FORMATS, ByteView, Record, ScanOptions, image_header
from dataprep.formats.example_proto import locate_features, read_lists
from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.perceptual_hash import hash_or_none
from dataprep.index.shard import IndexTask, ShardReader
from dataprep.labels.kinds import KINDS
from dataprep.options import HASH_COLUMN, HASH_RECIPE, IndexOptions
from dataprep.plan.assign import key_of
from dataprep.plan.splits import ORDER_STREAM, permutation
from dataprep.verify.check import manifest_of
from dataprep.verify.shard import differences
from manifests.dali_index import format_index
from manifests.errors import DamagedError, DatasetError, StoppedError, StorageError
from manifests.json_members import parse_json
from manifests.labels import arrow_type
from manifests.parquet import parquet_bytes
from manifests.rows import read_dataset
from manifests.schema import TABLE_COLUMNS, Conversion, File, Manifest, Shard
from manifests.serialization import checksum_text, parts
from manifests.tables import build_table

#: Bytes of a TFRecord record before and after its payload.
_PREFIX, _SUFFIX = 12, 4


def rebuild(folder: str, manifest: Manifest, shard: Shard, revision: int = 0) -> dict[str, bytes]:
    """Return the content of the index and of the table of an intact shard, by file name, as far as it is exact.

    A file is returned only if its content has the length and the checksum in the manifest.

    Args:
        folder: the dataset.
        manifest: its manifest, only with what one revision added; see
            `manifests.serialization.parts`.
        shard: the shard.
        revision: the number of this revision.

    Raises:
        DatasetError: the shard cannot be read, or its records are not what the manifest says.

    """
    rebuilt: dict[str, bytes] = {}
    contents = _indexed if manifest.creator == "index" else partial(_converted, revision=revision)
    wrong = (
        Rejected,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        struct.error,
        pa.ArrowException,
    )
    with suppress(*wrong):  # not as written
        for file, content in zip(
            (shard.index, shard.table), contents(folder, manifest, shard), strict=True
        ):
            if (len(content), checksum_text(crc32c(content))) == (file.bytes, file.checksum):
                rebuilt[file.name] = content
    return rebuilt


def _indexed(folder: str, manifest: Manifest, shard: Shard) -> Iterator[bytes]:
    """Do what ``dataprep index`` does, with the options in the manifest."""
    options = IndexOptions(
        label_key=manifest.options.get("label_key"),
        label_offset=manifest.components.label_offset,
        classes=manifest.classes,
        validate=manifest.options.get("validate", "none"),
        label_type=manifest.label_type,
    )
    scan = ScanOptions(
        manifest.components, options.label_key, caption=manifest.options.get("caption")
    )
    path = os.path.join(folder, shard.name)
    with storage.open_view(path, span=1 << 20) as (view, size):
        task = IndexTask(folder, (shard.name,), manifest.format, scan, options)
        reader = ShardReader(task, shard.name, view)
        for number, record in enumerate(FORMATS[manifest.format].scan(view, size, path, scan)):
            reader.add(number, record)
    yield format_index(manifest.format, reader.index_lines)
    yield parquet_bytes(reader.table())


def _converted(folder: str, manifest: Manifest, shard: Shard, *, revision: int) -> Iterator[bytes]:
    """Read what ``dataprep convert`` wrote into the records.

    The table also says how many images were rejected and how large the source images were. This is
    not in the shard, so the table is right only if no image was rejected or changed.
    """
    path = os.path.join(folder, shard.name)
    rows, extra, lines, formats, hashes = [], [], [], set(), []
    schema = _extra_schema(folder, manifest)
    with storage.open_view(path, span=1 << 20) as (view, size):
        for record in FORMATS[manifest.format].scan(
            view, size, path, ScanOptions(manifest.components)
        ):
            info = _info(manifest, view, record)
            formats.add(info.format)
            lines.append(record.index_line)
            data, start = view(record.offset, record.size)
            crc = crc32c(memoryview(data)[start : start + record.size])
            rows.append(
                (
                    record.key,
                    record.label,
                    record.offset,
                    record.size,
                    info.width,
                    info.height,
                    record.source,
                    crc,
                )
            )
            members = (
                _json_of(view, record)
                if manifest.format == "webdataset"
                else _features_of(view, record, schema)
            )
            if manifest.components.mask:
                members |= _mask_of(view, record, manifest.components.mask)
            extra.append(members)
            if manifest.options.get("hash") == HASH_RECIPE:
                hashes.append(
                    hash_or_none(bytes(memoryview(data)[start : start + record.size]), info)
                )
    yield format_index(manifest.format, lines)
    columns: dict[str, Any] = dict(
        zip(TABLE_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)
    )
    if not manifest.labels.is_class:
        del columns["label"]
    if manifest.format == "tfrecord":
        columns["key"] = _keys(manifest, shard, revision)
    kinds = manifest.labels.columns
    written = (*TABLE_COLUMNS, "class", KINDS[manifest.label_type].class_member)
    # The labels come after the columns of the source.
    found = dict.fromkeys(name for row in extra for name in row if name not in kinds)
    for name in schema.names if schema else (*found, *kinds):
        if name not in written:
            values = [row.get(name) for row in extra]
            column_type = (
                schema.field(name).type
                if schema
                else arrow_type(kinds[name])
                if name in kinds
                else None
            )
            columns[name] = pa.array(values, column_type)
    if hashes:  # which records in TFRecord do not have
        columns[HASH_COLUMN] = pa.array(hashes, pa.string())
    conversion = Conversion(
        plan=manifest.plans[0],
        samples=shard.samples,
        images=shard.samples,
        bytes=sum(columns["size"]),
        formats=tuple(sorted(formats)),
        shard=shard.file,
        index=shard.index,
        rejected=(),
    )
    yield parquet_bytes(build_table(columns, conversion))


def _info(manifest: Manifest, view: ByteView, record: Record) -> ImageInfo:
    if manifest.pixels:
        height, width, _ = manifest.pixels
        return ImageInfo("raw", width, height)
    return image_header(view, record.offset, record.size)


def _json_of(view: ByteView, record: Record) -> dict[str, Any]:
    """Return the members of the ``.json`` of a WebDataset sample.

    Its place is in the line of the index.
    """
    words = record.index_line.split(" ")
    at = words.index("json")
    offset, size = int(words[at + 1]), int(words[at + 2])
    data, start = view(offset, size)
    return dict(parse_json(bytes(data[start : start + size])).mapping())


#: TFRecord features of columns that have another name in the table.
_FEATURES = {"labels": "image/class/label", "values": "image/values", "caption": "image/caption"}


def _features_of(view: ByteView, record: Record, schema: pa.Schema | None) -> dict[str, Any]:
    """Return the columns of the source and the labels of a TFRecord sample, by the names in the schema."""
    names = [name for name in (schema.names if schema else _FEATURES) if name not in TABLE_COLUMNS]
    wanted = {_FEATURES.get(name, name).encode(): name for name in names}
    lists = read_lists(view, record.start + _PREFIX, record.end - _SUFFIX, wanted)
    members: dict[str, Any] = {}
    for feature, values in lists.items():
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        is_list = schema is not None and pa.types.is_list(schema.field(wanted[feature]).type)
        members[wanted[feature]] = (
            texts if is_list or wanted[feature] in ("labels", "values") else texts[0]
        )
    return members


def _mask_of(view: ByteView, record: Record, extension: str) -> dict[str, Any]:
    """Return the columns about the mask or depth map of a sample: where it is, and its checksum."""
    words = record.index_line.split(" ")
    if extension in words:  # WebDataset
        at = words.index(extension)
        offset, size = int(words[at + 1]), int(words[at + 2])
    else:
        name = extension.encode()
        _, offset, end = locate_features(
            view, record.start + _PREFIX, record.end - _SUFFIX, {name}
        )[name]
        size = end - offset
    data, start = view(offset, size)
    crc = crc32c(memoryview(data)[start : start + size])
    return {"mask_offset": offset, "mask_size": size, "mask_crc32c": crc}


def _keys(manifest: Manifest, shard: Shard, revision: int) -> Sequence[str]:
    """Return the keys of a shard's samples, which TFRecord does not store: rows of the source in the planned order.

    They are right if the source has the splits one after the other, no image was rejected, and the
    order was not made from the groups of a container.
    """
    base = 0
    for number, split in enumerate(manifest.splits):
        names = [other.name for other in split.shards]
        if shard.name in names:
            first = sum(other.samples for other in split.shards[: names.index(shard.name)])
            rows = np.arange(split.samples)
            if manifest.options.get("shuffle"):
                rows = permutation(
                    split.samples, int(manifest.options.get("seed", 0)), ORDER_STREAM, number
                )
            return [
                key_of(base + row, revision) for row in rows[first : first + shard.samples].tolist()
            ]
        base += split.samples
    return []


def _extra_schema(folder: str, manifest: Manifest) -> pa.Schema | None:
    """Return the names and types of the columns, from the first sample table that can be read.

    `None` if none can.
    """
    batches = read_dataset(folder, manifest=manifest, on_error=lambda *_: None)
    return next((batch.table.schema for batch in batches), None)


# --- damaged files, and what the shard determines ---------------------------------------------------


_SET_SRC = (
    "set --src to the source of the dataset to make the file again, or restore it from a copy"
)


class DamagedFile(NamedTuple):
    """A damaged or missing file, and what `repair_dataset` did about it.

    Attributes:
        file: path relative to the dataset folder.
        damage: what is wrong with it.
        repair: how it was repaired, or will be without `dry_run`; empty if it cannot be.
        reason: why it cannot be repaired.
        hint: what to do instead.

    """

    file: str
    damage: str
    repair: str = ""
    reason: str = ""
    hint: str = ""


class CheckTask(NamedTuple):
    """A shard to repair from its own bytes.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        dry_run: change nothing.
        check: looks whether the dataset is still the same; see `dataprep.storage.guarded`.
        revision: the revision that added the shard.

    """

    folder: str
    shard: Shard
    dry_run: bool
    check: storage.Check
    revision: int = 0


def check_shard(task: CheckTask) -> tuple[str, list[DamagedFile]]:
    """Check the files of one shard, and rebuild index and table if the shard is intact.

    Return what was found.
    """
    manifest, shard = manifest_of(task.folder), task.shard
    damages = {
        file.name: damage_of(task.folder, file) for file in (shard.file, shard.index, shard.table)
    }
    damages = {name: damage for name, damage in damages.items() if damage}
    is_intact = shard.name not in damages
    rebuilt: Mapping[str, bytes] = {}
    reason = "the shard itself is damaged"
    if damages and is_intact:
        reason = "what the shard contains does not determine its content"
        try:
            rebuilt = rebuild(task.folder, parts(manifest)[task.revision], shard, task.revision)
        except StoppedError:
            raise
        except DatasetError as error:
            reason = f"the shard cannot be read ({error.message})"
    hint = (
        _SET_SRC
        if manifest.creator == "convert"
        else "restore the file from a copy, or run `dataprep index` again"
    )
    files = []
    for name, damage in damages.items():
        if name in rebuilt:
            if not task.dry_run:
                with storage.guarded(task.folder, task.check):
                    storage.replace_file(os.path.join(task.folder, name), rebuilt[name])
            files.append(DamagedFile(name, damage, repair=f"rebuilt from {shard.name}"))
        elif name == shard.name:
            files.append(
                DamagedFile(
                    name, damage, reason="a shard can only be made from its source", hint=hint
                )
            )
        else:
            files.append(DamagedFile(name, damage, reason=reason, hint=hint))
    return shard.name, files


def damage_of(folder: str, file: File) -> str:
    """Return what is wrong with a file; empty if it is as the manifest says.

    Raises:
        StorageError: it exists, but cannot be read.

    """
    path = os.path.join(folder, file.name)
    try:
        actual = storage.describe(folder, file.name)
    except StorageError:
        if storage.file_length(path) >= 0:
            raise
        return "the file is missing"
    except DamagedError as error:
        return error.message
    return differences(actual, file)
