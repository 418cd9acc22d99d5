"""Write one shard: its records, its DALI index and its sample table, then publish the three files.

A shard does not depend on any other shard. Arrow is imported only when the table is built, so a
worker starts quickly.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.containers import SourceImages
from dataprep.engines.base import Pool
from dataprep.engines.local import InlinePool
from dataprep.formats import FORMATS, ScanOptions, components
from dataprep.labels.kinds import KINDS
from dataprep.options import HASH_COLUMN, Options
from dataprep.shards.segments import (
    COLUMNS,
    MAX_BATCH_BYTES,
    REMOTE_BATCH_BYTES,
    Batch,
    Segment,
    divide,
    write_segment,
)
from manifests.dali_index import format_index
from manifests.labels import LabelType, arrow_type
from manifests.schema import Conversion, File, Shard
from manifests.serialization import checksum_text, file_of
from manifests.tables import build_table, write_table

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything that a worker needs to write one shard.

    The lists have one element per image, in stored order.

    Attributes:
        out: the output folder.
        name: the shard's file name without extension.
        images: the source images.
        options: options of the conversion.
        fingerprint: fingerprint of the plan.
        keys: keys of the samples.
        labels: labels, from 0; `None` if they are not classes.
        class_names: the class name of each label that occurs, by label.
        extra: additional columns for the sample table, with the labels if they are not classes;
            `None` if there are none.
        divided: whether the processes of a pool share the work; see `divides`. Shards that are
            copied are written fastest by one process each, as long as there are enough of them for
            all processes.
        label_type: what the labels are.
        check: looks whether the run still owns the output folder; see `dataprep.storage.guarded`.

    """

    out: str
    name: str
    images: SourceImages
    options: Options
    fingerprint: str
    keys: list[str]
    labels: list[int] | None
    class_names: Mapping[int, str]
    extra: pa.Table | None
    divided: bool = True
    label_type: LabelType = "class"
    check: storage.Check | None = None


def divides(options: Options, shards_left: int, workers: int) -> bool:
    """Return the value of `ShardTask.divided` for a shard.

    Args:
        options: options of the conversion.
        shards_left: the number of shards from this one on.
        workers: processes of the engine.

    """
    return options.reads_pixels or shards_left < workers


#: A process takes as long to start as it takes to resize about this many images.
_IMAGES_PER_WORKER = 64


def useful_workers(shards: int, images: int) -> int:
    """Return the number of processes that shorten a run of this many shards and images."""
    return max(shards, -(-images // _IMAGES_PER_WORKER))


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that is written completely.

    Attributes:
        name: the shard's file name without extension.
        conversion: the metadata in its sample table.
        table: its sample table.
        resumed: whether an earlier run wrote the shard.

    """

    name: str
    conversion: Conversion
    table: File
    resumed: bool = False

    @property
    def shard(self) -> Shard | None:
        """The files of the shard; `None` if every image was rejected."""
        if not self.conversion.samples:
            return None
        return Shard(
            self.conversion.shard, self.conversion.samples, self.conversion.index, self.table
        )


def log_shard(log: logging.Logger, result: ShardResult) -> None:
    """Log what became of a shard."""
    conversion = result.conversion
    log.info(
        "%s: %s, %d images, %d bytes, %d rejected",
        result.name,
        "kept from an earlier run" if result.resumed else "written",
        conversion.samples,
        conversion.shard.bytes,
        len(conversion.rejected),
    )


def write_shard(task: ShardTask, pool: Pool | None = None) -> ShardResult:
    """Write one shard with its index and table, verify what was written, and publish the three files.

    If every image is rejected, only the table is published: DALI refuses an empty shard, and the
    table alone tells the next run that this shard is done.

    Args:
        task: the shard.
        pool: processes that share the work; `None` leaves it to this process. The bytes are the
            same.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.
        StorageError: the output cannot be written, or the disk does not return the bytes that were
            written.

    """
    if pool is not None and not task.divided:
        return pool.apply(write_shard, task)
    shard_path, index_path, table_path = paths = [
        os.path.join(task.out, task.name + suffix)
        for suffix in (FORMATS[task.options.fmt].SUFFIX, ".idx", ".parquet")
    ]
    try:
        conversion, table = write_files(
            task, pool or InlinePool(), shard_path, index_path, table_path
        )
        if not conversion.samples:
            storage.discard([shard_path, index_path])
            paths = [table_path]
        with storage.guarded(task.out, task.check):
            storage.publish(paths)  # the table last: it marks the shard as done
    except BaseException:
        # If the shard has its final name, its temporary table tells which run wrote it.
        if os.path.lexists(storage.partial_path(paths[0])):
            storage.discard(paths)
        raise
    return ShardResult(task.name, conversion, table)


def write_files(
    task: ShardTask, pool: Pool, shard_path: str, index_path: str, table_path: str
) -> tuple[Conversion, File]:
    """Write the three files under their temporary names, and return what the caller is to publish."""
    records = _write_records(task, pool, shard_path)
    shard = File(os.path.basename(shard_path), records.length, checksum_text(records.crc))
    if records.rows:
        _check_first_record(task, records, storage.partial_path(shard_path))
    index = format_index(task.options.fmt, records.index_lines)
    conversion = Conversion(
        plan=task.fingerprint,
        samples=len(records.rows),
        images=len(task.keys),
        bytes=sum(max(size, 0) for size in task.images.sizes),
        formats=tuple(sorted(records.formats)),
        shard=shard,
        index=file_of(os.path.basename(index_path), index),
        rejected=tuple(records.rejected),
        changes=_count_changes(task, records) if task.options.changes_images else None,
    )
    with (
        storage.translate_errors(index_path, "the file cannot be written"),
        open(storage.partial_path(index_path), "wb") as out,
    ):
        out.write(index)
    with storage.translate_errors(table_path, "the file cannot be written"):
        table = build_table(_table_columns(task, records), conversion)
        write_table(table, storage.partial_path(table_path))
    described = storage.describe(*os.path.split(storage.partial_path(table_path)))
    return conversion, replace(described, name=os.path.basename(table_path))


def _write_records(task: ShardTask, pool: Pool, path: str) -> Segment:
    """Write the temporary file of the shard, and return what it contains.

    The processes of the pool prepare segments. Each process returns the length of its segment,
    receives the offset, and writes the segment there.
    """
    end = FORMATS[task.options.fmt].END
    file = storage.PartialFile(path, storage.partial_path(path), create=True)
    try:
        parts, start = [], 0
        for part in pool.map(write_segment, _batches(task, path, file.partial)):
            part.reply(start)
            start += part.value
            parts.append(part)
        records = Segment()
        for part in parts:
            records.append(part.result())
        end_crc = crc32c(end)
        file.write([end], start, len(end), end_crc)
    finally:
        storage.close_file(file.partial)
        file.close()
    records.append(Segment(len(end), end_crc))
    return records


def _batches(task: ShardTask, path: str, partial: str) -> Iterator[Batch]:
    stored = math.prod(task.options.raw.pixels) if task.options.raw else None
    max_bytes = REMOTE_BATCH_BYTES if storage.has_latency(task.images.root) else MAX_BATCH_BYTES
    for first, stop in divide(task.images.sizes, stored, max_bytes):
        part = slice(first, stop)
        labels = None if task.labels is None else task.labels[part]
        extra = [{}] * (stop - first) if task.extra is None else task.extra[part].to_pylist()
        column = KINDS[task.label_type].class_lists
        used = {label for row in extra for label in row[column]} if column else {*(labels or ())}
        yield Batch(
            file=path,
            partial=partial,
            images=task.images.part(part),
            options=task.options,
            first=first,
            keys=task.keys[part],
            labels=labels,
            class_names={label: task.class_names[label] for label in used},
            extra=extra,
            label_type=task.label_type,
        )


def _check_first_record(task: ShardTask, records: Segment, path: str) -> None:
    """Read the first record with the format's own reader and compare it with what was written."""
    options = ScanOptions(components(task.options.fmt, task.options.store, task.label_type))
    with storage.open_view(path) as (view, size):
        record = next(FORMATS[task.options.fmt].scan(view, size, path, options))
    row, columns = records.rows[0], records.columns
    key, label = task.keys[row], task.labels[row] if task.labels is not None else None
    actual = (record.offset, record.size, record.index_line, record.label, record.key or key)
    if actual != (columns["offset"][0], columns["size"][0], records.index_lines[0], label, key):
        raise storage.not_as_written(path)


def _table_columns(task: ShardTask, records: Segment) -> dict[str, Any]:
    """Return the columns of the sample table, each in stored order."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "key": [task.keys[row] for row in records.rows],
        **({} if task.labels is None else {"label": [task.labels[row] for row in records.rows]}),
        "source": [task.images.paths[row] for row in records.rows],
        **{name: records.columns.get(name, []) for name in COLUMNS},
    }
    if task.extra is not None:
        extra = task.extra.take(pa.array(records.rows, pa.int64()))
        columns |= {name: extra[name] for name in extra.column_names}
    columns |= {name: records.columns.get(name, []) for name in task.options.added_columns}
    if task.options.hash:
        # The type is given, because the column may have no value at all.
        columns[HASH_COLUMN] = pa.array(columns[HASH_COLUMN], pa.string())
    for name, kind in KINDS[task.label_type].placed_columns.items():
        columns[name] = pa.array(records.columns.get(name, []), arrow_type(kind))
    return columns


def _count_changes(task: ShardTask, records: Segment) -> Mapping[str, tuple[int, int, int]]:
    """Return, for each value of ``change``, the number of samples and their total bytes in the source and as stored."""
    totals: dict[str, tuple[int, int, int]] = {}
    for row, change, size in zip(
        records.rows, records.columns["change"], records.columns["size"], strict=True
    ):
        samples, before, after = totals.get(change, (0, 0, 0))
        totals[change] = (samples + 1, before + task.images.sizes[row], after + size)
    return totals
