"""Find the damaged files of one shard, and rebuild its DALI index and sample table from the shard. Nothing is written."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.formats import FORMATS, ByteView, Record, ScanOptions, image_header, read_bytes
from dataprep.formats.example_proto import locate_features, read_lists
from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.perceptual_hash import hash_or_none
from dataprep.index.shard import FoundShards, IndexTask, read_records
from dataprep.labels.kinds import KINDS
from dataprep.ledger.fence import replace_files
from dataprep.options import HASH_COLUMN, HASH_RECIPE, IndexOptions
from dataprep.plan.assign import key_of
from dataprep.plan.splits import ORDER_STREAM, permutation
from dataprep.verify.shard import differences, manifest_of
from manifests.dali_index import format_index
from manifests.errors import DamagedError, DatasetError, StoppedError, StorageError
from manifests.json_members import parse_json
from manifests.labels import arrow_type
from manifests.parquet import parquet_bytes
from manifests.schema import TABLE_COLUMNS, Conversion, File, Manifest, Shard
from manifests.serialization import file_of, parts
from manifests.store import read_dataset
from manifests.tables import build_table

#: Bytes of a TFRecord record before and after its payload.
_PREFIX, _SUFFIX = 12, 4

#: Raised for a record that is not as the manifest says.
_NOT_AS_WRITTEN = (
    Rejected,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    struct.error,
    pa.ArrowException,
)


def rebuild(folder: str, manifest: Manifest, shard: Shard, revision: int) -> dict[str, bytes]:
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
    rebuilt = {}
    # Both yield the index, then the table, so that an index is kept if the table is not exact.
    if manifest.creator == "index":
        contents = _indexed(folder, manifest, shard)
    else:
        contents = _converted(folder, manifest, shard, revision)
    with suppress(*_NOT_AS_WRITTEN):
        for file, content in zip((shard.index, shard.table), contents, strict=True):
            if file_of(file.name, content) == file:
                rebuilt[file.name] = content
    return rebuilt


def _indexed(folder: str, manifest: Manifest, shard: Shard) -> Iterator[bytes]:
    """Do what ``dataprep index`` does, with the options in the manifest."""
    stored = manifest.options
    options = IndexOptions(
        label_key=stored.get("label_key"),
        label_offset=manifest.components.label_offset,
        classes=manifest.classes,
        validate=stored.get("validate", "none"),
        label_type=manifest.label_type,
    )
    scan = ScanOptions(manifest.components, options.label_key, caption=stored.get("caption"))
    shards = FoundShards(folder, (shard.name,), manifest.format)
    reader = read_records(IndexTask(shards, scan, options), shard.name)
    yield format_index(manifest.format, reader.index_lines)
    yield parquet_bytes(reader.table())


def _converted(folder: str, manifest: Manifest, shard: Shard, revision: int) -> Iterator[bytes]:
    """Read what ``dataprep convert`` wrote into the records.

    The table also says how many images were rejected and how large the source images were. This is
    not in the shard, so the table is right only if no image was rejected or changed.
    """
    path = os.path.join(folder, shard.name)
    # The first sample table that can be read has the names and types of the columns.
    batch = next(read_dataset(folder, manifest=manifest, on_error=lambda *_: None), None)
    schema = batch and batch.table.schema
    rows, extra, lines, formats, hashes = [], [], [], set(), []
    with storage.open_view(path, span=1 << 20) as (view, size):
        records = FORMATS[manifest.format].scan(view, size, path, ScanOptions(manifest.components))
        for record in records:
            image = read_bytes(view, record.offset, record.size)
            info = _info(manifest, view, record)
            # The columns of `TABLE_COLUMNS` in their order.
            place = (record.key, record.label, record.offset, record.size, info.width, info.height)
            rows.append((*place, record.source, crc32c(image)))
            extra.append(_members_of(manifest, view, record, schema))
            lines.append(record.index_line)
            formats.add(info.format)
            if manifest.options.get("hash") == HASH_RECIPE:
                hashes.append(hash_or_none(image, info))
    yield format_index(manifest.format, lines)
    columns: dict[str, Any] = dict(zip(TABLE_COLUMNS, zip(*rows, strict=True), strict=True))
    kinds = KINDS[manifest.label_type].columns
    if "label" not in kinds:
        del columns["label"]
    # WebDataset samples are named by their key; TFRecord has none.
    if manifest.format == "tfrecord":
        columns["key"] = _keys(manifest, shard, revision)
    written = (*TABLE_COLUMNS, "class", KINDS[manifest.label_type].class_member)
    for name, column_type in _types(schema, extra, kinds):
        if name not in written:
            columns[name] = pa.array([row.get(name) for row in extra], column_type)
    if hashes:  # which records in TFRecord do not have
        columns[HASH_COLUMN] = pa.array(hashes, pa.string())
    # As a conversion that rejected and changed no image.
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


def _types(
    schema: pa.Schema | None, rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, Any]
) -> Iterator[tuple[str, pa.DataType | None]]:
    """Yield the name and the type of each column; `None` for the type that its values have."""
    if schema:
        yield from zip(schema.names, schema.types, strict=True)
        return
    for name in dict.fromkeys(chain.from_iterable(rows)):
        if name not in kinds:
            yield name, None
    # The labels come after the columns of the source.
    for name, kind in kinds.items():
        yield name, arrow_type(kind)


def _info(manifest: Manifest, view: ByteView, record: Record) -> ImageInfo:
    if manifest.pixels:
        height, width, _ = manifest.pixels
        return ImageInfo("raw", width, height)
    return image_header(view, record.offset, record.size)


def _members_of(
    manifest: Manifest, view: ByteView, record: Record, schema: pa.Schema | None
) -> dict[str, Any]:
    """Return the columns of the source and of the label of a sample."""
    mask, place = manifest.components.mask, None
    if manifest.format == "webdataset":
        members = dict(parse_json(read_bytes(view, *_file_in(record, "json"))).mapping())
        if mask:
            place = _file_in(record, mask)
    else:
        payload = (record.start + _PREFIX, record.end - _SUFFIX)
        members = _features_of(view, payload, schema)
        if mask:
            name = mask.encode()
            _, start, end = locate_features(view, *payload, {name})[name]
            place = (start, end - start)
    if place:
        crc = crc32c(read_bytes(view, *place))
        members |= {"mask_offset": place[0], "mask_size": place[1], "mask_crc32c": crc}
    return members


def _file_in(record: Record, extension: str) -> tuple[int, int]:
    """Return the first byte and the size of a file of a WebDataset sample, as the line of the index says."""
    words = record.index_line.split(" ")
    at = words.index(extension)
    return int(words[at + 1]), int(words[at + 2])


#: TFRecord features of columns that have another name in the table.
_FEATURES = {"labels": "image/class/label", "values": "image/values", "caption": "image/caption"}


def _features_of(
    view: ByteView, payload: tuple[int, int], schema: pa.Schema | None
) -> dict[str, Any]:
    """Return the columns of the source and the labels of a TFRecord sample, by the names in the schema."""
    columns = {}
    for name in schema.names if schema else _FEATURES:
        if name not in TABLE_COLUMNS:
            columns[_FEATURES.get(name, name).encode()] = name
    members: dict[str, Any] = {}
    for feature, values in read_lists(view, *payload, columns).items():
        # Features are lists; columns of one value are not.
        name = columns[feature]
        members[name] = [value.decode() if isinstance(value, bytes) else value for value in values]
        is_list = schema is not None and pa.types.is_list(schema.field(name).type)
        if not is_list and name not in ("labels", "values"):
            members[name] = members[name][0]
    return members


def _keys(manifest: Manifest, shard: Shard, revision: int) -> Sequence[str]:
    """Return the keys of a shard's samples, which TFRecord does not store: rows of the source in the planned order.

    They are right if the source has the splits one after the other, no image was rejected, and the
    order was not made from the groups of a container.
    """
    # Splits of a source follow each other, so rows count over all of them.
    base = 0
    for number, split in enumerate(manifest.splits):
        first = 0
        for other in split.shards:
            if other.name != shard.name:
                first += other.samples
                continue
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


def check_shard(task: CheckTask) -> tuple[Shard, list[DamagedFile]]:
    """Check the files of one shard, and rebuild index and table if the shard is intact.

    Return what was found.
    """
    manifest, shard, folder = manifest_of(task.folder), task.shard, task.folder
    damages = {file.name: damage_of(folder, file) for file in shard.files}
    rebuilt = {}
    reason = "what the shard contains does not determine its content"
    if damages[shard.name]:
        reason = "the shard itself is damaged"
    # Only an intact shard can tell what its index and table were.
    elif any(damages.values()):
        try:
            rebuilt = rebuild(folder, parts(manifest)[task.revision], shard, task.revision)
        except StoppedError:
            raise
        except DatasetError as error:
            reason = f"the shard cannot be read ({error.message})"
    reasons = {shard.name: "a shard can only be made from its source"}
    hint = "restore the file from a copy, or run `dataprep index` again"
    if manifest.creator == "convert":
        hint = _SET_SRC
    # What was rebuilt has the checksum in the manifest.
    files, remade = [], []
    for name, damage in damages.items():
        if damage and name in rebuilt:
            remade.append((name, rebuilt[name]))
            files.append(DamagedFile(name, damage, repair=f"rebuilt from {shard.name}"))
        elif damage:
            files.append(DamagedFile(name, damage, reason=reasons.get(name, reason), hint=hint))
    if not task.dry_run:
        with storage.guarded(folder, task.check):
            replace_files(folder, remade)
    return shard, files


def damage_of(folder: str, file: File) -> str:
    """Return what is wrong with a file; empty if it is as the manifest says.

    Raises:
        StorageError: it exists, but cannot be read.

    """
    path = os.path.join(folder, file.name)
    try:
        actual = storage.describe(folder, file.name)
    # A file that is there and cannot be read is no damage that a repair may hide.
    except StorageError:
        if storage.file_length(path) >= 0:
            raise
        return "the file is missing"
    except DamagedError as error:
        return error.message
    return differences(actual, file)
