"""Segments: consecutive records of a shard, which any process prepares and writes at their place.

A record does not depend on its place in the shard; only its line in the DALI index does. So workers
can prepare the segments of one shard at the same time, and no bytes of an image pass from one
process to another.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from awscrt.checksums import combine_crc32c, crc32c

from dataprep import storage
from dataprep.containers import SourceImages
from dataprep.formats import FORMATS, Envelope, PendingSample
from dataprep.images.base import Rejected
from dataprep.labels.kinds import KINDS
from dataprep.options import HASH_COLUMN, Options
from dataprep.progress import report_images
from dataprep.shards.source_image import (
    load_image,
    load_label_image,
    start_reading,
    start_reading_label_images,
)
from manifests.labels import LabelType

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

    from dataprep.images.downscale import Placement

#: Limits of a batch. A segment stays in the CPU's cache until it is written and read back, and no
#: process works long on it while the others wait.
MAX_BATCH_BYTES = 1 << 20
MAX_BATCH_IMAGES = 64

#: Images of a batch in an object store are read at the same time, and a request takes as long as
#: some megabytes do.
REMOTE_BATCH_BYTES = 8 << 20


def divide(
    sizes: list[int], stored: int | None, max_bytes: int = MAX_BATCH_BYTES
) -> Iterator[tuple[int, int]]:
    """Yield the first image of each batch and the one after its last.

    Args:
        sizes: sizes of the source images in bytes; negative if unknown.
        stored: bytes of each image as stored, if they do not depend on the image.
        max_bytes: total size of the images of a batch, at most.

    """
    first = total = 0
    smallest = stored or 0
    for number, size in enumerate(sizes):
        larger = size if size > smallest else smallest
        if number > first and (total + larger > max_bytes or number - first == MAX_BATCH_IMAGES):
            yield first, number
            first, total = number, 0
        total += larger
    if first < len(sizes):
        yield first, len(sizes)


@dataclass(frozen=True, slots=True)
class Batch:
    """The images of one segment. The lists have one element per image, in stored order.

    Attributes:
        file: path of the shard, for errors.
        partial: path of its temporary file, which exists.
        images: the source images.
        options: options of the conversion.
        first: index of the first image in the shard.
        keys: keys of the samples.
        labels: labels, from 0; `None` if they are not classes.
        class_names: the class name of each label, by label, for the labels of these images.
        extra: values of the additional columns, and of those with the labels if they are not
            classes.
        label_type: what the labels are.

    """

    file: str
    partial: str
    images: SourceImages
    options: Options
    first: int
    keys: list[str]
    labels: list[int] | None
    class_names: Mapping[int, str]
    extra: list[dict[str, Any]]
    label_type: LabelType = "class"


#: Columns of the sample table that are known when a record is written, with
#: `Options.added_columns`.
COLUMNS = ("offset", "size", "width", "height", "crc32c")


@dataclass(slots=True)
class Segment:
    """Records that are in the shard, in stored order.

    Attributes:
        length: bytes of the segment.
        crc: CRC-32C of these bytes, as they were read back.
        rows: index in the shard's task of the image of each record.
        columns: columns of the sample table: `COLUMNS`, `Options.added_columns`, and those of a
            label image.
        index_lines: lines of the DALI index.
        formats: formats of the images as stored.
        rejected: rows for ``rejected.jsonl``.

    """

    length: int = 0
    crc: int = 0
    rows: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    index_lines: list[str] = field(default_factory=list)
    formats: set[str] = field(default_factory=set)
    rejected: list[dict[str, str]] = field(default_factory=list)

    def append(self, other: Segment) -> None:
        """Add the records of the segment that follows in the shard."""
        self.crc = combine_crc32c(self.crc, other.crc, other.length)
        self.length += other.length
        self.rows += other.rows
        for name, values in other.columns.items():
            self.columns.setdefault(name, []).extend(values)
        self.index_lines += other.index_lines
        self.formats |= other.formats
        self.rejected += other.rejected


def write_segment(batch: Batch) -> Generator[int, int, Segment]:
    """Prepare a segment, yield its length, receive the offset in the shard where it begins, and write it there.

    An engine runs this in two steps: `dataprep.engines.base.TaskPart`.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.
        StorageError: the shard cannot be written, or the disk does not return the bytes that were
            written.

    """
    prepared = _prepare(batch)
    report_images(os.path.splitext(os.path.basename(batch.file))[0], len(batch.keys))
    start = yield prepared.length
    if prepared.samples:
        storage.write_to(
            batch.file,
            batch.partial,
            prepared.buffers,
            start,
            length=prepared.length,
            crc=prepared.crc,
        )
    return _describe(batch, prepared, start)


@dataclass(slots=True)
class _Prepared:
    """A segment in memory: its length, its CRC-32C, and a list of each part of its records.

    Attributes:
        rows: index of each record's image in the shard's task.
        samples: the sample in each record.
        envelopes: the bytes around each image.
        starts: first byte of each record in the segment.
        buffers: the bytes to write.
        rejected: rows for ``rejected.jsonl``.

    """

    length: int = 0
    crc: int = 0
    rows: list[int] = field(default_factory=list)
    samples: list[PendingSample] = field(default_factory=list)
    envelopes: list[Envelope] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)
    rejected: list[dict[str, str]] = field(default_factory=list)


# This loop runs for each image, and reads, checks and wraps at 20,000 images a second and CPU: a
# call that it makes for each image is seen in the speed. tests/dataprep/shards/test_work.py counts.
def _prepare(batch: Batch) -> _Prepared:
    make_envelope = FORMATS[batch.options.fmt].envelope
    labels, class_names, kind = batch.labels, batch.class_names, KINDS[batch.label_type]
    is_placed, class_lists = kind.is_placed, kind.class_lists
    out = _Prepared()
    length = crc = 0
    root, paths, sizes, locations = batch.images
    label_images: Iterator[Future[Buffer] | None] = repeat(None)
    if kind.has_image:
        label_images = start_reading_label_images(root, batch.extra, locations)
    label: int | None = None
    class_name, mask = "", b""
    several_names: tuple[str, ...] = ()
    for row, pending in enumerate(start_reading(batch.images)):
        source, extra = paths[row], batch.extra[row]
        label_image = next(label_images)
        try:
            loaded = load_image(
                root,
                source,
                sizes[row],
                batch.options,
                locations[row],
                pending=pending,
                known_hash=extra.get(HASH_COLUMN),
                placed=is_placed,
            )
            data, info, changes, placement = loaded
            if changes:
                extra = {**extra, **changes}
            if placement is not None:
                boxes, mask = _placed_labels(batch, row, placement, label_image)
                extra = {**extra, **boxes}
        except Rejected as error:
            out.rejected.append({"source": source, "reason": error.reason, "detail": error.detail})
            continue
        if labels is not None:
            label = labels[row]
            class_name = class_names[label]
        elif class_lists is not None:
            several_names = tuple([class_names[each] for each in extra[class_lists]])
        image_crc, size = crc32c(data), len(data)
        sample = PendingSample(
            key=batch.keys[row],
            label=label,
            class_name=class_name,
            info=info,
            size=size,
            crc32c=image_crc,
            source=source,
            extra=extra,
            labels=kind,
            class_names=several_names,
            mask=mask,
        )
        envelope = make_envelope(sample)
        head, tail = envelope.head, envelope.tail
        out.rows.append(batch.first + row)
        out.samples.append(sample)
        out.envelopes.append(envelope)
        out.starts.append(length)
        out.buffers += (head, data, tail)
        length += len(head) + size + len(tail)
        # Combining the checksums of the three parts avoids a second pass over the image.
        crc = crc32c(tail, combine_crc32c(crc32c(head, crc), image_crc, size))
    out.length, out.crc = length, crc
    return out


def _placed_labels(
    batch: Batch, row: int, placement: Placement, label_image: Future[Buffer] | None
) -> tuple[dict[str, Any], bytes]:
    """Return the columns of the boxes of an image, and its mask or depth.

    Both empty if it has other labels.
    """
    extra, labels = batch.extra[row], KINDS[batch.label_type]
    if not labels.has_image:
        return labels.place(extra, placement), b""
    mask = load_label_image(
        batch.images.root,
        extra,
        placement,
        batch.options,
        batch.images.locations[row],
        label_type=batch.label_type,
        pending=label_image,
    )
    return {}, mask


def _describe(batch: Batch, prepared: _Prepared, start: int) -> Segment:
    """Return what the sample table and the index contain about the records, now that their place is known."""
    index_line = FORMATS[batch.options.fmt].index_line
    samples, envelopes = prepared.samples, prepared.envelopes
    starts = [start + at for at in prepared.starts]
    columns: dict[str, list[Any]] = {
        "offset": [at + len(envelope.head) for at, envelope in zip(starts, envelopes, strict=True)],
        "size": [sample.size for sample in samples],
        "width": [sample.info.width for sample in samples],
        "height": [sample.info.height for sample in samples],
        "crc32c": [sample.crc32c for sample in samples],
    }
    added, labels = batch.options.added_columns, KINDS[batch.label_type]
    if not labels.has_image:
        added += tuple(labels.placed_columns)
    for name in added:
        columns[name] = [sample.extra[name] for sample in samples]
    if labels.has_image:
        columns["mask_offset"] = [
            at + envelope.mask_start for at, envelope in zip(starts, envelopes, strict=True)
        ]
        columns["mask_size"] = [len(sample.mask) for sample in samples]
        columns["mask_crc32c"] = [crc32c(sample.mask) for sample in samples]
    return Segment(
        length=prepared.length,
        crc=prepared.crc,
        rows=prepared.rows,
        columns=columns,
        index_lines=list(map(index_line, starts, samples, envelopes)),
        formats={sample.info.format for sample in samples},
        rejected=prepared.rejected,
    )
