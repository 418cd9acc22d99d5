"""Write one shard: its records, its DALI index and its sample table, then publish the three files.

A shard does not depend on any other shard. Arrow is imported only when the table is built, so a worker starts quickly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from awscrt.checksums import combine_crc32c, crc32c

from dataprep import storage
from dataprep.containers import Location
from dataprep.formats import FORMATS, PendingSample, ScanOptions, components
from dataprep.images.base import Rejected
from dataprep.options import CHANGE_COLUMNS, Options
from dataprep.source_image import load_image
from manifests.dali_index import format_index
from manifests.errors import StorageError
from manifests.schema import Conversion, File, Shard, TableMetadata
from manifests.store import checksum_text
from manifests.tables import build_table, write_table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Everything that a worker needs to write one shard. The lists have one element per image, in stored order.

    Attributes:
        out: the output folder.
        name: the shard's file name without extension.
        root: folder that relative `paths` start from.
        options: options of the conversion.
        fingerprint: fingerprint of the plan.
        keys: keys of the samples.
        paths: paths of the source images.
        sizes: sizes of the source images in bytes, when the source was scanned.
        labels: labels, from 0.
        class_names: the class name of each label.
        extra: additional columns for the sample table; `None` if the source has none.
        locations: where the images are inside containers; `None` if every image is a file of its own.

    """

    out: str
    name: str
    root: str
    options: Options
    fingerprint: str
    keys: list[str]
    paths: list[str]
    sizes: list[int]
    labels: list[int]
    class_names: list[str]
    extra: pa.Table | None
    locations: list[Location | None] | None = None


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
        return Shard(self.conversion.shard, self.conversion.samples, self.conversion.index, self.table)


def write_shard(task: ShardTask) -> ShardResult:
    """Write one shard with its index and table, verify what was written, and publish the three files.

    If every image is rejected, only the table is published: DALI refuses an empty shard, and the table alone tells
    the next run that this shard is done.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.
        StorageError: the output cannot be written, or the disk does not return the bytes that were written.

    """
    shard_path, index_path, table_path = paths = [
        os.path.join(task.out, task.name + suffix) for suffix in (FORMATS[task.options.fmt].SUFFIX, ".idx", ".parquet")
    ]
    try:
        conversion, table = _write_files(task, shard_path, index_path, table_path)
        if conversion.samples:
            storage.publish(paths)  # the table last: it marks the shard as done
        else:
            storage.discard([shard_path, index_path])
            storage.publish([table_path])
    except BaseException:
        storage.discard(paths)
        raise
    return ShardResult(task.name, conversion, table)


def _write_files(task: ShardTask, shard_path: str, index_path: str, table_path: str) -> tuple[Conversion, File]:
    """Write the three files under their temporary names."""
    file = _ShardFile(shard_path)
    try:
        records, rejected = _write_records(task, file)
        shard = file.finish(FORMATS[task.options.fmt].END)
    finally:
        file.close()
    if records:
        _check_first_record(task, records[0], storage.partial_path(shard_path))
    index = format_index(task.options.fmt, [record.index_line for record in records])
    conversion = Conversion(
        plan=task.fingerprint,
        samples=len(records),
        images=len(task.keys),
        bytes=sum(max(size, 0) for size in task.sizes),
        formats=tuple(sorted({record.sample.info.format for record in records})),
        shard=shard,
        index=File(os.path.basename(index_path), len(index), checksum_text(crc32c(index))),
        rejected=tuple(rejected),
        changes=_count_changes(task, records) if task.options.changes_images else None,
    )
    with (
        storage.translate_errors(index_path, "the file cannot be written"),
        open(storage.partial_path(index_path), "wb") as out,
    ):
        out.write(index)
    with storage.translate_errors(table_path, "the file cannot be written"):
        table = build_table(_table_columns(task, records), TableMetadata(conversion))
        write_table(table, storage.partial_path(table_path))
    described = storage.describe(*os.path.split(storage.partial_path(table_path)))
    return conversion, replace(described, name=os.path.basename(table_path))


class _WrittenRecord(NamedTuple):
    """A record in the shard, with the values for its table row and its index line.

    Attributes:
        row: index of the image in the lists of the task.
        sample: the sample in the record.
        offset: where the image begins in the shard, in bytes.
        index_line: line of the DALI index.

    """

    row: int
    sample: PendingSample
    offset: int
    index_line: str


def _write_records(task: ShardTask, file: _ShardFile) -> tuple[list[_WrittenRecord], list[dict[str, str]]]:
    """Append every valid image to the file; return the records, and rows for ``rejected.jsonl``."""
    record_format = FORMATS[task.options.fmt]
    extras: list[dict[str, Any]] = [{}] * len(task.keys) if task.extra is None else task.extra.to_pylist()
    locations = task.locations or [None] * len(task.keys)
    records, rejected = [], []
    for row, (source, size) in enumerate(zip(task.paths, task.sizes, strict=True)):
        try:
            data, info, changes = load_image(task.root, source, size, task.options, locations[row])
        except Rejected as error:
            rejected.append({"source": source, "reason": error.reason, "detail": error.detail})
            continue
        crc = crc32c(data)
        extra = {**extras[row], **changes} if changes else extras[row]
        sample = PendingSample(
            task.keys[row], task.labels[row], task.class_names[row], info, len(data), crc, source, extra
        )
        head, tail = frame = record_format.frame(sample)
        start = file.append(head, data, crc, tail)
        line = record_format.index_line(start, sample, frame)
        records.append(_WrittenRecord(row, sample, start + len(head), line))
    return records, rejected


#: The file is read back each time this many bytes are written, while the CPU caches still contain the last of them.
READ_BACK = 1 << 20


class _ShardFile:
    """A shard under its temporary name. Everything that is appended is read back and compared by checksum."""

    def __init__(self, path: str) -> None:
        self._path = path
        with storage.translate_errors(path, "the file cannot be written"):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._handle = os.open(storage.partial_path(path), flags, 0o666)
        self._reader = storage.ReadBack(self._handle)
        self._length = 0
        self._crc = 0

    def append(self, head: bytes, image: bytes, image_crc: int, tail: bytes) -> int:
        """Append one record; return the byte where it begins."""
        start = self._length
        self._write((head, image, tail))
        # Combining the checksums of the three parts avoids a second pass over the image.
        self._crc = crc32c(tail, combine_crc32c(crc32c(head, self._crc), image_crc, len(image)))
        if self._length - self._reader.position > READ_BACK:
            self._read_back()
        return start

    def finish(self, end: bytes) -> File:
        """Append the end marker of the format, and verify the rest of the file.

        Raises:
            StorageError: the disk returns other bytes than were written.

        """
        self._write((end,))
        self._crc = crc32c(end, self._crc)
        self._read_back()
        if self._reader.crc != self._crc:
            raise _not_as_written(self._path)
        return File(os.path.basename(self._path), self._length, checksum_text(self._crc))

    def close(self) -> None:
        os.close(self._handle)

    def _write(self, buffers: tuple[bytes, ...]) -> None:
        try:
            self._length += storage.write_all(self._handle, buffers)
        except OSError:  # enter the context manager only on failure: this runs once per image
            with storage.translate_errors(self._path, "the file cannot be written"):
                raise

    def _read_back(self) -> None:
        with storage.translate_errors(self._path, "the file cannot be read"):
            self._reader.advance(self._length)


def _check_first_record(task: ShardTask, written: _WrittenRecord, path: str) -> None:
    """Read the first record with the format's own reader and compare it with what was written."""
    options = ScanOptions(components(task.options.fmt, task.options.store))
    with storage.open_view(path) as (view, size):
        record = next(FORMATS[task.options.fmt].scan(view, size, path, options))
    sample = written.sample
    actual = (record.offset, record.size, record.index_line, record.label, record.key or sample.key)
    if actual != (written.offset, sample.size, written.index_line, sample.label, sample.key):
        raise _not_as_written(path)


def _not_as_written(path: str) -> StorageError:
    return StorageError(
        "the file does not contain the bytes that were written",
        file=path,
        hint="check the disk and the memory of this machine",
    )


def _table_columns(task: ShardTask, records: list[_WrittenRecord]) -> dict[str, Any]:
    """Return the columns of the sample table, each in stored order."""
    samples = [record.sample for record in records]
    columns: dict[str, Any] = {
        "key": [sample.key for sample in samples],
        "label": [sample.label for sample in samples],
        "offset": [record.offset for record in records],
        "size": [sample.size for sample in samples],
        "width": [sample.info.width for sample in samples],
        "height": [sample.info.height for sample in samples],
        "source": [sample.source for sample in samples],
        "crc32c": [sample.crc32c for sample in samples],
    }
    if task.extra is not None:
        extra = task.extra.take([record.row for record in records])
        columns |= {name: extra[name] for name in extra.column_names}
    if task.options.changes_images:
        columns |= {name: [sample.extra[name] for sample in samples] for name in CHANGE_COLUMNS}
    return columns


def _count_changes(task: ShardTask, records: list[_WrittenRecord]) -> Mapping[str, tuple[int, int, int]]:
    """Return, for each value of ``change``, the number of samples and their total bytes in the source and as stored."""
    totals: dict[str, tuple[int, int, int]] = {}
    for record in records:
        change = record.sample.extra["change"]
        samples, before, after = totals.get(change, (0, 0, 0))
        totals[change] = (samples + 1, before + task.sizes[record.row], after + record.sample.size)
    return totals
