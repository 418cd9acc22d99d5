"""Write one shard: its records, its DALI index and its sample table, then publish the three files.

A shard does not depend on any other shard. Arrow is imported only when the table is built, so a
worker starts quickly.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.containers import SourceImages
from dataprep.engines.base import Pool
from dataprep.engines.local import InlinePool
from dataprep.formats import FORMATS, ScanOptions
from dataprep.labels.kinds import KINDS
from dataprep.options import HASH_COLUMN, Options
from dataprep.shards.segments import (
    MAX_BATCH_BYTES,
    REMOTE_BATCH_BYTES,
    STORED_COLUMNS,
    Batch,
    Segment,
    ShardTask,
    StoredRecord,
    divide,
    write_segment,
)
from manifests.dali_index import format_index
from manifests.labels import arrow_type
from manifests.records import record
from manifests.schema import Conversion, File, Shard
from manifests.serialization import checksum_text, file_of
from manifests.tables import build_table, write_table


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


@record
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
    # The shard comes first: its index and its table describe what was written.
    written = _write_records(task, pool, shard_path)
    shard = File(os.path.basename(shard_path), written.length, checksum_text(written.crc))
    if written.records:
        _check_first_record(task, written, storage.partial_path(shard_path))
    index = format_index(task.options.fmt, written.index_lines)
    conversion = Conversion(
        plan=task.fingerprint,
        samples=len(written.records),
        images=len(task.keys),
        bytes=sum(map(max, task.images.sizes, repeat(0))),
        formats=tuple(sorted(written.formats)),
        shard=shard,
        index=file_of(os.path.basename(index_path), index),
        rejected=tuple(written.rejected),
        changes=_count_changes(task, written) if task.options.changes_images else None,
    )
    with (
        storage.translate_errors(index_path, "the file cannot be written"),
        open(storage.partial_path(index_path), "wb") as out,
    ):
        out.write(index)
    with storage.translate_errors(table_path, "the file cannot be written"):
        table = build_table(_table_columns(task, written.records), conversion)
        write_table(table, storage.partial_path(table_path))
    # What the disk returns is what the manifest will state.
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
        # A part gets its place as soon as its length is known; its result may come later.
        parts, start = [], 0
        for part in pool.map(write_segment, _batches(task, path, file.partial)):
            part.reply(start)
            start += part.value
            parts.append(part)
        written = Segment()
        for part in parts:
            written.append(part.result())
        end_crc = crc32c(end)
        file.write([end], start, len(end), end_crc)
    finally:
        storage.close_file(file.partial)
        file.close()
    written.append(Segment(len(end), end_crc))
    return written


def _batches(task: ShardTask, path: str, partial: str) -> Iterator[Batch]:
    root, paths, sizes, locations = task.images
    stored, max_bytes = None, MAX_BATCH_BYTES
    if task.options.raw:
        stored = math.prod(task.options.raw.pixels)
    if storage.has_latency(root):
        max_bytes = REMOTE_BATCH_BYTES
    column = KINDS[task.label_type].class_lists
    common = task._replace(
        images=SourceImages(root, [], [], []), keys=[], labels=None, class_names={}, extra=None
    )
    class_names = task.class_names
    # The lists of each batch are parts of the lists of the task.
    for first, stop in divide(sizes, stored, max_bytes):
        chosen = slice(first, stop)
        labels = task.labels and task.labels[chosen]
        extra: list[dict[str, Any]] = [{}] * (stop - first)
        if task.extra is not None:
            extra = task.extra[chosen].to_pylist()
        # Another process may get the batch: it gets only the names of these labels.
        if task.divided:
            used: Iterable[int] = labels or ()
            if column:
                used = chain.from_iterable(row[column] for row in extra)
            class_names = {label: task.class_names[label] for label in {*used}}
        yield Batch(
            task=common,
            file=path,
            partial=partial,
            first=first,
            images=SourceImages(root, paths[chosen], sizes[chosen], locations[chosen]),
            keys=task.keys[chosen],
            labels=labels,
            class_names=class_names,
            extra=extra,
        )


def _check_first_record(task: ShardTask, written: Segment, path: str) -> None:
    """Read the first record with the format's own reader and compare it with what was written."""
    record_format = FORMATS[task.options.fmt]
    options = ScanOptions(record_format.components(task.options.store, KINDS[task.label_type]))
    with storage.open_view(path) as (view, size):
        found = next(record_format.scan(view, size, path, options))
    row, offset, size, *_ = written.records[0]
    key, label = task.keys[row], task.labels[row] if task.labels else None
    actual = (found.offset, found.size, found.index_line, found.label, found.key or key)
    if actual != (offset, size, written.index_lines[0], label, key):
        raise storage.not_as_written(path)


def _table_columns(task: ShardTask, records: Sequence[StoredRecord]) -> dict[str, Any]:
    """Return the columns of the sample table, each in stored order."""
    import pyarrow as pa

    # A tuple for each column.
    members = [*zip(*records, strict=True)] or [()] * (len(STORED_COLUMNS) + 2)
    rows, *stored, values = members
    columns: dict[str, Any] = {"key": [*map(task.keys.__getitem__, rows)]}
    if task.labels is not None:
        columns["label"] = [*map(task.labels.__getitem__, rows)]
    columns["source"] = [*map(task.images.paths.__getitem__, rows)]
    columns |= zip(STORED_COLUMNS, stored, strict=True)
    # The columns of the source, without the images that were rejected.
    if task.extra is not None:
        extra = task.extra.take(pa.array(rows, pa.int64()))
        columns |= zip(extra.column_names, extra.columns, strict=True)
    types: dict[str, pa.DataType | None] = dict.fromkeys(task.options.added_columns)
    labels = KINDS[task.label_type]
    if labels.is_placed:
        for name, kind in labels.placed_columns.items():
            types[name] = arrow_type(kind)
    if task.options.hash:
        types[HASH_COLUMN] = pa.string()  # the column may have no value at all
    for name, arrow in types.items():
        columns[name] = pa.array([each[name] for each in values], arrow)
    return columns


def _count_changes(task: ShardTask, written: Segment) -> Mapping[str, tuple[int, int, int]]:
    """Return, for each value of ``change``, the samples and their bytes in the source and as stored."""
    totals: dict[str, tuple[int, int, int]] = {}
    for row, _, size, *_, values in written.records:
        samples, before, after = totals.get(values["change"], (0, 0, 0))
        totals[values["change"]] = (samples + 1, before + task.images.sizes[row], after + size)
    return totals
