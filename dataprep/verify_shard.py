"""One shard checked: its bytes, its index and its table, each against the others and their checksums.

Where a header is damaged, the index says where the next record begins, so that one fault does not hide another.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from awscrt.checksums import crc32c

from dataprep import formats, storage
from dataprep.images.base import MAX_BYTES, ImageInfo, Rejected
from dataprep.images.validate import inspect, parse_header
from manifests.dali_index import format_index, record_starts
from manifests.errors import DamagedError, DatasetError, ShardError, TableError
from manifests.schema import File, Manifest, Sample, Shard
from manifests.store import checksum_text, read_manifest, read_table, samples


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        file: which file, relative to the dataset.
        message: what is wrong.
        record: number of the record in the shard, from 0.
        byte: where in the file.
        hint: what to do.

    """

    file: str
    message: str
    record: int | None = None
    byte: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        return str(DamagedError(self.message, file=self.file, record=self.record, byte=self.byte, hint=self.hint))


class CheckTask(NamedTuple):
    """A shard to check: the dataset's folder, and what its manifest says of the shard."""

    folder: str
    shard: Shard
    decode: bool


class Checked(NamedTuple):
    """A shard that was checked: its name, samples and bytes, and what is wrong with it."""

    name: str
    samples: int
    bytes: int
    faults: tuple[Fault, ...]
    unread: bool


def check_shard(task: CheckTask) -> Checked:
    """Check one shard with its index and table."""
    checker = _ShardCheck(task)
    checker.check()
    return Checked(
        task.shard.name,
        task.shard.samples,
        task.shard.file.bytes,
        tuple(checker.faults),
        task.shard.file.checksum is None,
    )


@lru_cache(maxsize=1)
def manifest_of(folder: str) -> Manifest:
    """Read the manifest once a worker, rather than send its classes with every task."""
    return read_manifest(folder)


class _ShardCheck:
    """What is known of one shard while it is checked."""

    def __init__(self, task: CheckTask) -> None:
        self.task = task
        self.manifest = manifest_of(task.folder)
        self.shard = task.shard
        self.name = task.shard.name
        self.format = formats.FORMATS[self.manifest.format]
        self.faults: list[Fault] = []
        #: Records of which something was said.
        self.damaged: set[int] = set()
        #: Made by `dataprep convert`, so that every byte around an image follows from its table row.
        self.ours = self.manifest.creator == "convert"
        again = "remove {} and run the same `dataprep convert` again, which makes this shard anew"
        self.hint = (
            again.format(task.shard.table.name) if self.ours else "restore the shard from a copy, or make it anew"
        )
        self.reindex = self.hint if self.ours else "run `dataprep index --overwrite` again"

    def add(self, message: str, *, record: int | None = None, byte: int | None = None, file: str = "") -> None:
        self.faults.append(Fault(file or self.name, message, record, byte, self.reindex if file else self.hint))
        if record is not None:
            self.damaged.add(record)

    def check(self) -> None:
        folder = self.task.folder
        index_faults = list(check_file(folder, self.shard.index, self.reindex))
        table_faults = list(check_file(folder, self.shard.table, self.reindex))
        self.faults += index_faults + table_faults
        rows = self._rows() if not table_faults else []
        try:
            with storage.open_view(os.path.join(folder, self.name), span=1 << 20) as (view, size):
                if size != self.shard.file.bytes:
                    self.add(
                        f"has {size} bytes, the manifest states {self.shard.file.bytes}",
                        byte=min(size, self.shard.file.bytes),
                    )
                lines, end = self._check_records(view, size, rows)
                if end and len(rows) - 1 not in self.damaged:
                    self._check_end(view, size, end)
                whole = self._checksum(view, size)
        except DatasetError as error:
            self.add(error.message)
            return
        self._check_index(lines, quiet=bool(self.faults))
        if self.shard.file.checksum not in (None, whole) and not any(f.file == self.name for f in self.faults):
            self.add("does not match its checksum, though every record in it is sound")

    def _rows(self) -> list[Sample]:
        try:
            table = read_table(os.path.join(self.task.folder, self.shard.table.name))
        except TableError as error:
            self.add(error.message, file=self.shard.table.name)
            return []
        if len(table) != self.shard.samples:
            self.add(f"has {len(table)} rows, the manifest states {self.shard.samples}", file=self.shard.table.name)
        return list(samples(table))

    # --- records ---

    def _check_records(self, view: formats.View, size: int, rows: list[Sample]) -> tuple[list[str], int]:
        """Walk all records beside the table's rows; give their index lines, and where the last one ends."""
        lines: list[str] = []
        end = 0
        row_at = {row.offset: number for number, row in enumerate(rows)}
        for number, record in enumerate(self._records(view, size)):
            end = record.end
            row = row_at.pop(record.offset, None)
            if row is not None:
                self._check_record(view, record, rows[row], row)
                lines.append(record.index_line)
            elif rows and self.manifest.rejected is None:
                self.add("is a record that the table does not know", record=number, byte=record.start)
            self._check_format(view, record, number if row is None else row)
        for offset, row in row_at.items():
            if row not in self.damaged:
                self.add("is missing, though the table has a row for it", record=row, byte=min(offset, size))
        return lines, end

    def _records(self, view: formats.View, size: int) -> Iterator[formats.Record]:
        """Scan; after a damaged record, go on where the index says that the next one begins."""
        want = formats.ScanOptions(self.manifest.components, self.manifest.options.get("label_key"), texts=False)
        starts = self._starts()
        base = 0
        while base < size:
            try:
                yield from self._scan_from(base, view, size, want)
            except ShardError as error:
                byte = base + (error.byte or 0)
                later = bisect_right(starts, byte)
                self.add(error.message, record=max(later - 1, 0) if starts else error.record, byte=byte)
                if later >= len(starts):
                    return
                base = starts[later]
            else:
                return

    def _scan_from(
        self, base: int, view: formats.View, size: int, want: formats.ScanOptions
    ) -> Iterator[formats.Record]:
        def shifted(at: int, n: int) -> tuple[Any, int]:
            return view(at + base, n)

        for record in self.format.scan(shifted, size - base, self.name, want):
            yield record._replace(start=record.start + base, end=record.end + base, offset=record.offset + base)

    def _starts(self) -> list[int]:
        """Where each record begins, by the index; nothing where that is damaged."""
        try:
            return record_starts(self.manifest.format, self._index())
        except DatasetError:
            return []

    def _index(self) -> bytes:
        path = os.path.join(self.task.folder, self.shard.index.name)
        with storage.translate_errors(path, "read"), open(path, "rb") as file:
            return file.read()

    def _label_known(self, row: Sample) -> bool:
        return 0 <= row.label < len(self.manifest.classes)

    def _frame(self, row: Sample, kind: str | None = None) -> tuple[bytes, bytes]:
        return self.format.frame(
            formats.PendingSample(
                row.key, row.label, self.manifest.classes[row.label],
                ImageInfo(kind or "jpeg", row.width, row.height), row.size, row.crc32c or 0, row.source, row.extra,
            )
        )  # fmt: skip

    def _check_record(self, view: formats.View, record: formats.Record, row: Sample, number: int) -> None:
        if not self._label_known(row):
            self.add(f"label {row.label} is out of range", record=number, file=self.shard.table.name)
            return
        if record.size != row.size:
            self.add(
                f"the image has {record.size} bytes, the table states {row.size}",
                record=number,
                byte=record.offset,
            )
            return
        offset = self.manifest.components.label_offset
        if record.label is not None and record.label + offset != row.label:
            self.add(
                f"has the label {record.label + offset}, the table states {row.label}",
                record=number,
                byte=record.start,
            )
        if record.size > MAX_BYTES:
            self.add(
                f"the image has {record.size} bytes, the limit is {MAX_BYTES}",
                record=number,
                byte=record.offset,
            )
            return
        data, i = view(record.offset, record.size)
        self._check_image(bytes(data[i : i + record.size]), view, record, row, number)

    def _check_image(self, image: bytes, view: formats.View, record: formats.Record, row: Sample, number: int) -> None:
        if row.crc32c is not None and crc32c(image) != row.crc32c:
            self.add(
                f"the image in bytes {record.offset} to {record.offset + record.size - 1} does not match its checksum",
                record=number, byte=record.offset,
            )  # fmt: skip
            return
        try:
            info = self._info(image)
        except Rejected as error:
            self.add(f"the image is {error.reason}: {error.detail}", record=number, byte=record.offset)
            return
        if (info.width, info.height) != (row.width, row.height):
            self.add(
                f"row {number} states {row.width}x{row.height} pixels, the image has {info.width}x{info.height}",
                file=self.shard.table.name,
            )
        elif self.ours:
            self._check_frame(view, record, row, (number, info.format))

    def _info(self, image: bytes) -> ImageInfo:
        if self.manifest.pixels is None:
            return inspect(image, "decode") if self.task.decode else parse_header(image)
        if len(image) != math.prod(self.manifest.pixels):
            size = "x".join(map(str, self.manifest.pixels))
            raise Rejected("corrupt", f"{len(image)} bytes, and {size} take {math.prod(self.manifest.pixels)}")
        height, width, _ = self.manifest.pixels
        return ImageInfo("raw", width, height)

    def _check_frame(self, view: formats.View, record: formats.Record, row: Sample, known: tuple[int, str]) -> None:
        """Compare all bytes around the image with those that the table row gives."""
        number, kind = known
        head, tail = self._frame(row, kind)
        for start, expected in ((record.offset - len(head), head), (record.offset + record.size, tail)):
            data, i = view(max(start, 0), len(expected))
            got = data[i : i + len(expected)]
            if got != expected:
                at = next(
                    (n for n, pair in enumerate(zip(got, expected, strict=False)) if pair[0] != pair[1]),
                    len(got),
                )
                self.add("a byte around the image is not what was written", record=number, byte=start + at)
                return

    def _check_format(self, view: formats.View, record: formats.Record, number: int) -> None:
        if number in self.damaged:
            return  # what is wrong with it was said
        try:
            fault = self.format.find_damage(view, record, self.name)
        except ShardError as error:
            fault = formats.RecordDamage(error.message, error.byte or record.start)
        if fault is not None:
            self.add(fault.message, record=number, byte=fault.byte)

    # --- what is left ---

    def _check_end(self, view: formats.View, size: int, end: int) -> None:
        try:
            end = self.format.find_end(view, end, size, self.name)
        except ShardError as error:
            self.add(error.message, byte=end + (error.byte or 0))
            return
        while end < size:
            data, i = view(end, min(1 << 20, size - end))
            rest = data[i:size]
            if any(rest):
                at = next(n for n, byte in enumerate(rest) if byte)
                self.add("bytes after the last record are not zeros", byte=end + at)
                return
            end += len(rest)

    def _checksum(self, view: formats.View, size: int) -> str | None:
        if self.shard.file.checksum is None:
            return None
        crc = at = 0
        while at < size:
            data, i = view(at, min(1 << 20, size - at))
            crc = crc32c(data[i:], crc)
            at += len(data) - i
        return checksum_text(crc)

    def _check_index(self, lines: list[str], *, quiet: bool) -> None:
        if quiet or not lines:
            return
        index, expected = self._index(), format_index(self.manifest.format, lines)
        if index != expected:
            at = next(
                (n for n, pair in enumerate(zip(index, expected, strict=False)) if pair[0] != pair[1]),
                len(expected),
            )
            self.add("does not fit the shard", byte=at, file=self.shard.index.name)


def check_file(folder: str, file: File, hint: str) -> Iterator[Fault]:
    """Compare a whole file with what the manifest states of it."""
    try:
        found = storage.describe(folder, file.name)
    except DatasetError as error:
        yield Fault(file.name, error.message, hint=hint)
        return
    if found.bytes != file.bytes:
        yield Fault(file.name, f"has {found.bytes} bytes, the manifest states {file.bytes}", hint=hint)
    elif file.checksum is not None and found.checksum != file.checksum:
        yield Fault(file.name, "does not match its checksum", hint=hint)
