"""Segments: consecutive records of a shard, which any process prepares and writes at their place.

A record does not depend on its place in the shard; only its line in the DALI index does. So workers
can prepare the segments of one shard at the same time, and no bytes of an image pass from one
process to another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from awscrt.checksums import combine_crc32c, crc32c

from dataprep import storage
from dataprep.containers import SourceImages
from dataprep.formats import FORMATS, PendingSample
from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.validate import check_image
from dataprep.labels.kinds import KINDS
from dataprep.options import HASH_COLUMN, Options
from dataprep.progress import report_images
from dataprep.shards.source_image import (
    load_image,
    load_label_image,
    read_image,
    start_reading,
    start_reading_label_images,
)
from manifests.labels import LabelType

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa
    from typing_extensions import Buffer

#: Limits of a batch. A segment stays in the CPU's cache until it is written and read back, and no
#: process works long on it while the others wait.
MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_IMAGES = 64

#: Images of a batch in an object store are read at the same time, and a request takes as long as
#: some megabytes do.
REMOTE_BATCH_BYTES = 8 << 20


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
        divided: whether the processes of a pool share the work; see `write.divides`. Shards that
            are copied are written fastest by one process each, as long as there are enough of them
            for all processes.
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


class Batch(NamedTuple):
    """The images of one segment. The lists have one element per image.

    Attributes:
        task: the task of the shard, without its lists.
        file: path of the shard, for errors.
        partial: path of its temporary file, which exists.
        first: index of the first image in the shard.
        images: the source images.
        keys: keys of the samples.
        labels: labels, from 0; `None` if they are not classes.
        class_names: the class name of each label that occurs, by label.
        extra: values of the columns of `ShardTask.extra`.

    """

    task: ShardTask
    file: str
    partial: str
    first: int
    images: SourceImages
    keys: list[str]
    labels: list[int] | None
    class_names: Mapping[int, str]
    extra: list[dict[str, Any]]


#: What is known about an image when its record is written: its index in the task of the shard, the
#: `STORED_COLUMNS`, and its `Options.added_columns` and `LabelKind.placed_columns` by name. A plain
#: tuple: there is one for each image.
StoredRecord = tuple[int, int, int, int, int, int, Mapping[str, Any]]

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

    """

    length: int = 0
    crc: int = 0
    records: list[StoredRecord] = field(default_factory=list)
    index_lines: list[str] = field(default_factory=list)
    formats: set[str] = field(default_factory=set)
    rejected: list[dict[str, str]] = field(default_factory=list)

    def append(self, other: Segment) -> None:
        """Add the records of the segment that follows in the shard."""
        self.crc = combine_crc32c(self.crc, other.crc, other.length)
        self.length += other.length
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
    record_format = FORMATS[task.options.fmt]
    pending, buffers = [], list[bytes]()
    length = crc = 0
    for row, data, sample, values in _samples(batch, segment.rejected):
        envelope = record_format.envelope(sample)
        head, tail, _, _ = envelope
        pending.append((row, length, sample, envelope, values))
        buffers += (head, data, tail)
        length += len(head) + sample.size + len(tail)
        # Combining the checksums of the three parts avoids a second pass over the image.
        crc = crc32c(tail, combine_crc32c(crc32c(head, crc), sample.crc32c, sample.size))
    segment.length, segment.crc = length, crc
    report_images(task.name, len(batch.keys))
    # The engine replies when the segments before this one have their place.
    start = yield length
    if buffers:
        storage.write_to(batch.file, batch.partial, buffers, start, length=length, crc=crc)
    # Only now are the positions in the shard known.
    for row, at, sample, envelope, values in pending:
        begin, size, (image_format, width, height) = start + at, sample.size, sample.info
        if sample.mask:
            values["mask_offset"] = begin + envelope.mask_start
            values["mask_size"], values["mask_crc32c"] = len(sample.mask), crc32c(sample.mask)
        offset = begin + len(envelope.head)
        segment.records.append((row, offset, size, width, height, sample.crc32c, values))
        segment.index_lines.append(record_format.index_line(begin, sample, envelope))
        segment.formats.add(image_format)
    return segment


def _samples(
    batch: Batch, rejected: list[dict[str, str]]
) -> Iterator[tuple[int, bytes, PendingSample, dict[str, Any]]]:
    """Read the images of a batch; yield the number, the bytes and the sample of each.

    The last element has the columns that the image got when it was prepared. Images that must not
    go into the shard are added to `rejected`.
    """
    options, class_names, kind = batch.task.options, batch.class_names, KINDS[batch.task.label_type]
    class_lists = kind.class_lists
    # Most images are copied, and each call for them shows in the speed.
    is_copied = not (options.changes_images or options.hash or kind.is_placed)
    root, paths, sizes, locations = batch.images
    label_images: Iterable[Future[Buffer] | None] = repeat(None, len(paths))
    if kind.pixels:
        label_images = start_reading_label_images(root, batch.extra, locations)
    labels = batch.labels or repeat(None, len(paths))
    columns = (batch.keys, labels, paths, sizes, locations, batch.extra)
    every: Mapping[str, Any]
    class_name, mask = "", b""
    several_names: tuple[str, ...] = ()
    for row, (key, label, source, size, location, extra, pending, label_image) in enumerate(
        zip(*columns, start_reading(batch.images), label_images, strict=True), batch.first
    ):
        values: dict[str, Any] = {}
        try:
            if is_copied:
                data = read_image(root, source, size, location, pending)
                info, every = check_image(data, options.validate, options.max_pixels), extra
            else:
                data, info, values, mask = _prepare(batch, row - batch.first, pending, label_image)
                every = extra | values
        except Rejected as error:
            rejected.append({"source": source, "reason": error.reason, "detail": error.detail})
            continue
        # Class names are stored beside the numbers, so that a record needs no manifest.
        if label is not None:
            class_name = class_names[label]
        elif class_lists is not None:
            several_names = tuple([class_names[each] for each in every[class_lists]])
        # Not by keyword, which takes three times as long.
        sample = PendingSample(
            key,
            label,
            class_name,
            info,
            len(data),
            crc32c(data),
            source,
            every,
            kind,
            several_names,
            mask,
        )
        yield row, data, sample, values


def _prepare(
    batch: Batch, number: int, pending: Future[Buffer] | None, label_image: Future[Buffer] | None
) -> tuple[bytes, ImageInfo, dict[str, Any], bytes]:
    """Return an image that is not just copied, the columns that this gives it, and its label image."""
    options, kind, mask = batch.task.options, KINDS[batch.task.label_type], b""
    root, paths, sizes, locations = batch.images
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
    if placement is not None and kind.pixels:
        mask = load_label_image(
            root,
            extra,
            placement,
            options,
            location,
            label_type=kind.name,
            pending=label_image,
        )
    elif placement is not None:
        values |= kind.place(extra, placement)
    # Pixels of a prepared dataset are carried over with the columns that say how they were made.
    for name in options.added_columns:
        if name not in values:
            values[name] = extra[name]
    return data, info, values, mask
