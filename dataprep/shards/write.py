"""Write one shard: its records, its DALI index and its sample table, then publish the three files.

A shard does not depend on any other shard. Arrow is imported only when the table is built, so a
worker starts quickly.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, groupby, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from awscrt.checksums import combine_crc32c, crc32c

from dataprep import storage
from dataprep.containers import Location, SourceImages
from dataprep.engines.base import Pool
from dataprep.engines.local import InlinePool
from dataprep.formats import FORMATS, Envelope, PendingSample, ScanOptions
from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.validate import check_image, turns_on_side
from dataprep.labels.base import LabelKind, OtherImage
from dataprep.labels.kinds import kind_with
from dataprep.options import GEO_COLUMNS, HASH_COLUMN, STATISTICS_COLUMNS, Options
from dataprep.progress import report_images
from dataprep.shards.source_image import (
    load_image,
    load_others,
    read_image,
    start_reading,
    start_reading_others,
)
from manifests.arrays import array_file_name, arrays_of
from manifests.dali_index import format_index
from manifests.labels import LabelType, arrow_type, place_columns
from manifests.records import record
from manifests.schema import Conversion, File, Format, Shard
from manifests.serialization import checksum_text, file_of
from manifests.tables import build_table, write_table

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa
    from typing_extensions import Buffer


class ShardTask(NamedTuple):
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
        arrays: the array columns; `None` if there are none.
        divided: whether the processes of a pool share the work; see `divides`. Shards that
            are copied are written fastest by one process each, as long as there are enough of them
            for all processes.
        label_type: what the labels are.
        image_names: names of the images of each sample, if there are several.
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
    arrays: pa.Table | None = None
    divided: bool = True
    label_type: LabelType = "class"
    image_names: tuple[str, ...] = ()
    check: storage.Check | None = None

    @property
    def kind(self) -> LabelKind:
        """What the stages ask about the labels and the other images."""
        return kind_with(self.label_type, self.image_names)


def divides(options: Options, shards_left: int, shards: int, workers: int) -> bool:
    """Return the value of `ShardTask.divided` for a shard.

    Each process first copies as many whole shards as every process can. The main process hands over
    each batch of the others, which limits the speed of many processes, so only what is left is
    divided, but enough for processes that are early to wait for none.

    Args:
        options: options of the conversion.
        shards_left: the number of shards from this one on.
        shards: the number of all shards.
        workers: processes of the engine.

    """
    return options.reads_pixels or shards_left <= max(shards % workers, workers // 2)


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
            self.conversion.shard,
            self.conversion.samples,
            self.conversion.index,
            self.table,
            self.conversion.arrays or (),
        )


def names_of_shard(fmt: Format, shard: str, arrays: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the files of a shard: itself, its index, its array files and its table.

    The table is the last one: it marks the shard as written.
    """
    files = [array_file_name(shard, name) for name in arrays]
    return (shard + FORMATS[fmt].SUFFIX, f"{shard}.idx", *files, f"{shard}.parquet")


def write_shard(task: ShardTask, pool: Pool | None = None) -> ShardResult:
    """Write one shard with its index, arrays and table, verify what was written, and publish the files.

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
    names = names_of_shard(task.options.fmt, task.name, arrays_of(task.arrays))
    paths = [os.path.join(task.out, name) for name in names]
    shard_path, index_path, *array_paths, table_path = paths
    try:
        conversion, table = write_files(
            task, pool or InlinePool(), shard_path, index_path, table_path, *array_paths
        )
        if not conversion.samples:
            storage.discard(paths[:-1])
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
    task: ShardTask,
    pool: Pool,
    shard_path: str,
    index_path: str,
    table_path: str,
    *array_paths: str,
) -> tuple[Conversion, File]:
    """Write the files under their temporary names, and return what the caller is to publish."""
    # The shard comes first: its index and its table describe what was written.
    written = _write_records(task, pool, shard_path)
    shard = File(os.path.basename(shard_path), written.length, checksum_text(written.crc))
    if written.records:
        _check_first_record(task, written, storage.partial_path(shard_path))
    index = format_index(task.options.fmt, written.index_lines)
    arrays = _write_arrays(task, written, array_paths)
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
        turned=tuple(written.turned) or None,
        arrays=arrays or None,
    )
    with (
        storage.translate_errors(index_path, "the file cannot be written"),
        open(storage.partial_path(index_path), "wb") as out,
    ):
        out.write(index)
    with storage.translate_errors(table_path, "the file cannot be written"):
        table = build_table(_table_columns(task, written.records), conversion)
        write_table(table, storage.partial_path(table_path))
    return conversion, _describe(table_path)


def _describe(path: str) -> File:
    """Return a file under its temporary name: what the disk returns is what the manifest will state."""
    described = storage.describe(*os.path.split(storage.partial_path(path)))
    return replace(described, name=os.path.basename(path))


def _write_arrays(task: ShardTask, written: Segment, paths: Sequence[str]) -> tuple[File, ...]:
    """Write the temporary files of the array columns, without the images that were rejected."""
    files: list[File] = []
    if task.arrays is None:
        return ()
    from dataprep.spool import parts_of

    rows = np.array([row for row, *_ in written.records], np.int64)
    for path, column, kind in zip(
        paths, task.arrays.columns, arrays_of(task.arrays).values(), strict=True
    ):
        with (
            storage.translate_errors(path, "the file cannot be written"),
            open(storage.partial_path(path), "wb") as out,
        ):
            out.write(kind.header(len(rows)))
            for part in parts_of(column, rows):
                out.write(part)
        files.append(_describe(path))
    return tuple(files)


def _write_records(task: ShardTask, pool: Pool, path: str) -> Segment:
    """Write the temporary file of the shard, and return what it contains.

    The processes of the pool prepare segments. Each process returns the length of its segment,
    receives the offset, and writes the segment there.
    """
    end = FORMATS[task.options.fmt].END
    partial = storage.partial_path(path)
    storage.write_partial(path, b"")
    try:
        # A part gets its place as soon as its length is known; its result may come later.
        parts, start = [], 0
        for part in pool.map(write_segment, _batches(task, path, partial)):
            part.reply(start)
            start += part.value
            parts.append(part)
        written = Segment()
        for part in parts:
            written.append(part.result())
        end_crc = crc32c(end)
        storage.write_to(path, partial, [end], start, length=len(end), crc=end_crc)
    finally:
        storage.close_file(partial)
    written.append(Segment(len(end), end_crc))
    return written


def _batches(task: ShardTask, path: str, partial: str) -> Iterator[Batch]:
    root, paths, sizes, locations = task.images
    stored, max_bytes = task.options.raw_bytes or None, MAX_BATCH_BYTES
    if not task.options.reads_pixels:
        # Each batch has a cost of its own, and the main process hands over a divided one twice.
        max_bytes = 2 * MAX_BATCH_BYTES
    if storage.has_latency(root):
        max_bytes = REMOTE_BATCH_BYTES
    column = task.kind.class_lists
    class_names = task.class_names
    bounds = divide(sizes, stored, max_bytes)
    if "video" in {place.reader for place in locations if place is not None}:
        bounds = divide_videos(sizes, locations)
    # The lists of each batch are parts of the lists of the task.
    for first, stop in bounds:
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
        own = task._replace(
            images=SourceImages(root, paths[chosen], sizes[chosen], locations[chosen]),
            keys=task.keys[chosen],
            labels=labels,
            class_names=class_names,
            extra=None,
            arrays=None,
        )
        yield Batch(own, path, partial, first, extra)


def _check_first_record(task: ShardTask, written: Segment, path: str) -> None:
    """Read the first record with the format's own reader and compare it with what was written."""
    record_format = FORMATS[task.options.fmt]
    options = ScanOptions(record_format.components(task.options.store, task.kind))
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
    types |= computed_types(task.options)
    for name, kind in task.kind.placed_columns.items():
        types[name] = arrow_type(kind)
    for name, arrow in types.items():
        columns[name] = pa.array([each[name] for each in values], arrow)
    return columns


def computed_types(options: Options) -> dict[str, pa.DataType]:
    """Return the types of columns that are computed from images, which may have no value at all."""
    import pyarrow as pa  # a worker needs it only for its tables

    types = dict.fromkeys(options.measured_columns, pa.float64())
    if options.hash:
        types[HASH_COLUMN] = pa.string()
    numbers = pa.list_(pa.field("element", pa.float64()))
    if options.statistics:
        types |= dict.fromkeys(STATISTICS_COLUMNS, numbers)
    if options.georeference:
        types |= {**dict.fromkeys(GEO_COLUMNS, numbers), GEO_COLUMNS[0]: pa.int64()}
    return types


def _count_changes(task: ShardTask, written: Segment) -> Mapping[str, tuple[int, int, int]]:
    """Return, for each value of ``change``, the samples and their bytes in the source and as stored."""
    totals: dict[str, tuple[int, int, int]] = {}
    for row, _, size, *_, values in written.records:
        samples, before, after = totals.get(values["change"], (0, 0, 0))
        totals[values["change"]] = (samples + 1, before + task.images.sizes[row], after + size)
    return totals


# --- segments: consecutive records of a shard -----------------------------------------------------


#: Limits of a batch, twice as many bytes for copied images. A segment stays in the CPU's cache until
#: it is written and read back, and no process works long on it while the others wait.
MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_IMAGES = 64

# glibc gives memory at the end of its heap back to the system, so each batch would take new pages,
# until a larger block was freed once: from then on, it keeps twice the length of that block. No page
# of this one is touched.
np.empty(16 * MAX_BATCH_BYTES, np.uint8)

#: Images of a batch in an object store are read at the same time, and a request takes as long as
#: some megabytes do.
REMOTE_BATCH_BYTES = 8 << 20


class Batch(NamedTuple):
    """The images of one segment.

    Attributes:
        task: the task of the shard, with only these images, and without `extra`.
        file: path of the shard, for errors.
        partial: path of its temporary file, which exists.
        first: index of the first image in the shard.
        extra: values of the columns of `ShardTask.extra` for each image.

    """

    task: ShardTask
    file: str
    partial: str
    first: int
    extra: list[dict[str, Any]]


#: What is known about an image when its record is written: its index in the task of the shard, the
#: `STORED_COLUMNS`, and its `Options.added_columns` and `LabelKind.placed_columns` by name. A plain
#: tuple: there is one for each image.
StoredRecord = tuple[int, int, int, int, int, int, Mapping[str, Any]]

#: A record before its segment has a place: the index of the image, the first byte in the segment, the
#: sample, its envelope, and what `StoredRecord` has last.
_Pending = tuple[int, int, PendingSample, Envelope, dict[str, Any]]

#: Columns of the sample table: the place of the image in the shard, its sides, and its checksum.
STORED_COLUMNS = ("offset", "size", "width", "height", "crc32c")


@dataclass(slots=True)
class Segment:
    """Records that are in the shard, in stored order.

    Attributes:
        length: bytes of the segment.
        crc: CRC-32C of these bytes.
        records: where the images are, and what is known about them.
        index_lines: lines of the DALI index.
        formats: formats of the images as stored.
        rejected: rows for ``rejected.jsonl``.
        turned: numbers of the records whose image decoders turn on its side.

    """

    length: int = 0
    crc: int = 0
    records: list[StoredRecord] = field(default_factory=list)
    index_lines: list[str] = field(default_factory=list)
    formats: set[str] = field(default_factory=set)
    rejected: list[dict[str, str]] = field(default_factory=list)
    turned: list[int] = field(default_factory=list)

    def append(self, other: Segment) -> None:
        """Add the records of the segment that follows in the shard."""
        self.crc = combine_crc32c(self.crc, other.crc, other.length)
        self.length += other.length
        self.turned += map(len(self.records).__add__, other.turned)
        self.records += other.records
        self.index_lines += other.index_lines
        self.formats |= other.formats
        self.rejected += other.rejected


def divide(
    sizes: list[int], stored: int | None, max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[tuple[int, int]]:
    """Yield the first image of each batch and the one after its last.

    Args:
        sizes: sizes of the source images in bytes; negative if unknown.
        stored: bytes of each image as stored, if they do not depend on the image.
        max_bytes: total size of the images of a batch, at most.

    """
    ends = [*accumulate(map(max, sizes, repeat(stored or 0)))]
    first = before = 0
    while first < len(ends):
        last = min(first + MAX_BATCH_IMAGES, len(ends))
        stop = max(bisect_right(ends, before + max_bytes, first, last), first + 1)
        yield first, stop
        first, before = stop, ends[stop - 1]


#: Limits of a batch of frames. A worker decodes them in order, beginning some frames before.
MAX_VIDEO_BYTES, MAX_VIDEO_FRAMES = 64 << 20, 512


def divide_videos(
    sizes: list[int], locations: Sequence[Location | None]
) -> Iterator[tuple[int, int]]:
    """Yield the bounds of batches as `divide` does; a batch has frames of one video."""
    first = 0
    for container, group in groupby(locations, lambda place: place and place.container):
        stop = first + sum(1 for _ in group)
        limit = MAX_VIDEO_FRAMES if container else MAX_BATCH_IMAGES
        while first < stop:
            last, total = first, 0
            while last < min(stop, first + limit) and (last == first or total < MAX_VIDEO_BYTES):
                total += max(sizes[last], 0)
                last += 1
            yield first, last
            first = last


# This function runs for each image, and reads, checks and wraps at 20,000 images a second and CPU:
# a call that it makes for each image is seen in the speed. tests/dataprep/shards/test_work.py
# counts them.
def write_segment(batch: Batch) -> Generator[int, int, Segment]:
    """Prepare a segment, yield its length, receive the offset in the shard where it begins, and write it there.

    An engine runs this in two steps: `dataprep.engines.base.TaskPart`.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.
        StorageError: the shard cannot be written, or the disk does not return the bytes that were
            written.

    """
    task, segment = batch.task, Segment()
    pending, buffers = _prepare_records(batch, segment)
    report_images(task.name, len(task.keys))
    # The engine replies when the segments before this one have their place.
    start = yield segment.length
    if pending:
        storage.write_to(
            batch.file, batch.partial, buffers, start, length=segment.length, crc=segment.crc
        )
    # Only now are the positions in the shard known.
    index_line = FORMATS[task.options.fmt].index_line
    records, lines = segment.records, segment.index_lines
    for row, at, sample, envelope, values in pending:
        begin, size, (image_format, width, height, *_) = start + at, sample.size, sample.info
        if sample.others:
            for other, place in zip(sample.others, envelope.others, strict=True):
                values |= {place_columns(other.name)[0]: begin + place, **other.columns}
        offset = begin + len(envelope.head)
        records.append((row, offset, size, width, height, sample.crc32c, values))
        lines.append(index_line(begin, sample, envelope))
        segment.formats.add(image_format)
    return segment


def _prepare_records(batch: Batch, segment: Segment) -> tuple[list[_Pending], list[bytes]]:
    """Read the images of a batch; return what is known of each record, and the bytes of all.

    Length, checksum and rejected images are stored in the segment.
    """
    task = batch.task
    options, class_names, kind = task.options, task.class_names, task.kind
    make_envelope, pixels = FORMATS[options.fmt].envelope, options.pixels
    class_lists = kind.class_lists
    # Most images are copied, and each call for them shows in the speed.
    is_copied = not (options.adds_columns or kind.is_placed or kind.others)
    root, paths, sizes, locations = task.images
    count = len(paths)
    ahead: Iterable[Sequence[Future[Buffer] | None]] = repeat((), count)
    if kind.others:
        ahead = start_reading_others(root, batch.extra, locations, kind)
    labels = task.labels or repeat(None, count)
    started = start_reading(task.images)
    columns = (task.keys, labels, paths, sizes, locations, batch.extra, started, ahead)
    every: Mapping[str, Any]
    class_name, others = "", list[OtherImage]()
    several_names: tuple[str, ...] = ()
    records, buffers, tail = list[_Pending](), list[bytes](), b""
    length = crc = 0
    for row, key, label, source, size, location, extra, pending, started_others in zip(
        range(batch.first, batch.first + count), *columns, strict=True
    ):
        values: dict[str, Any] = {}
        try:
            if is_copied:
                data = read_image(root, source, size, location, pending)
                info = check_image(data, options.validate, options.max_pixels, pixels)
                every = extra
            else:
                data, info, values, others = _prepare(
                    batch, row - batch.first, pending, started_others
                )
                every = extra | values
        except Rejected as error:
            row_of_list = {"source": source, "reason": error.reason, "detail": error.detail}
            segment.rejected.append(row_of_list)
            continue
        # Class names are stored beside the numbers, so that a record needs no manifest.
        if label is not None:
            class_name = class_names[label]
        elif class_lists is not None:
            several_names = tuple([class_names[each] for each in every[class_lists]])
        stored, checksum = len(data), crc32c(data)
        # Not by keyword, which takes three times as long.
        sample = PendingSample(
            key,
            label,
            class_name,
            info,
            stored,
            checksum,
            source,
            every,
            kind,
            several_names,
            others,
        )
        envelope = make_envelope(sample)
        # The bytes between two images are one buffer. Combining its checksum with the checksum of the
        # image avoids a second pass over the image.
        between = tail + envelope.head
        if info.may_turn and turns_on_side(data, info):
            segment.turned.append(len(records))
        records.append((row, length + len(tail), sample, envelope, values))
        buffers += (between, data)
        length += len(between) + stored
        crc = combine_crc32c(crc32c(between, crc), checksum, stored)
        tail = envelope.tail
    buffers.append(tail)
    segment.length, segment.crc = length + len(tail), crc32c(tail, crc)
    return records, buffers


def _prepare(
    batch: Batch,
    number: int,
    pending: Future[Buffer] | None,
    started: Sequence[Future[Buffer] | None],
) -> tuple[bytes, ImageInfo, dict[str, Any], list[OtherImage]]:
    """Return an image that is not just copied, the columns that this gives it, and the other images."""
    options, kind = batch.task.options, batch.task.kind
    root, paths, sizes, locations = batch.task.images
    source, size, location = paths[number], sizes[number], locations[number]
    extra = batch.extra[number]
    data, info, values, placement = load_image(
        root,
        source,
        size,
        options,
        location,
        pending=pending,
        known_hash=extra.get(HASH_COLUMN),
        placed=kind.is_placed,
    )
    others = load_others(root, extra, placement, options, location, kind=kind, started=started)
    if placement is not None and not kind.pixels:
        values |= kind.place(extra, placement)
    # An image that a sample does not have is at byte 0, of length 0.
    values |= dict.fromkeys(kind.image_columns, 0)
    # Pixels of a prepared dataset are carried over with the columns that say how they were made.
    for name in options.added_columns:
        if name not in values:
            values[name] = extra.get(name)
    return data, info, values, others
