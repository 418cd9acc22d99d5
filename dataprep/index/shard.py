"""Index one shard that another tool wrote: make its DALI index and its sample table.

Without validation, only headers are read: one or two 4 KiB pages of a 110 KB record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.formats import FORMATS, Record, ScanOptions, View, image_header
from dataprep.images.base import MAX_BYTES, ImageInfo, Rejected
from dataprep.images.validate import inspect
from dataprep.index.discover import exists, shard_stem, table_name
from dataprep.options import IndexOptions
from dataprep.progress import REPORTED_IMAGES, report_images
from manifests.dali_index import format_index
from manifests.errors import CallError, DamagedError, ShardError
from manifests.files import INDEX, file_length, read_file
from manifests.schema import MAX_LABEL, File, Format, Shard, TableMetadata
from manifests.serialization import checksum_text
from manifests.tables import build_table, write_table

#: Shards that one process indexes at the same time if they are not in the page cache: while one
#: thread waits for the disk, another parses.
THREADS = 16

_HEADER_SPAN, _FULL_SPAN = 4096, 1 << 20


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Shards that one process indexes together.

    Attributes:
        folder: folder of the dataset.
        names: paths of the shards, relative to `folder`.
        format: their record format.
        scan: where a record stores its image and label.
        options: the user's options.

    """

    folder: str
    names: tuple[str, ...]
    format: Format
    scan: ScanOptions
    options: IndexOptions


@dataclass(frozen=True, slots=True)
class IndexedShard:
    """A shard whose index and table are written, under temporary names.

    Attributes:
        name: path of the shard, relative to the dataset's folder.
        shard: its entry in the manifest.
        image_components: features or extensions in which images were found.
        class_names: class name of each label, if the records have class names.
        max_label: the largest label.
        rejected: rows for ``rejected.jsonl``.
        pending: temporary and final path of the index and of the table.

    """

    name: str
    shard: Shard
    image_components: frozenset[str]
    class_names: Mapping[int, str]
    max_label: int
    rejected: tuple[dict[str, str], ...]
    pending: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FailedShard:
    """A shard that cannot be indexed, and why."""

    name: str
    error: DamagedError


def index_batch(task: IndexTask) -> list[IndexedShard | FailedShard]:
    """Index several shards, in threads if they have to be read from the disk.

    Raises:
        CallError: an index file exists and differs, and the options do not allow replacing it.
        StorageError: a file cannot be read or written.

    """
    cached = storage.is_cached(os.path.join(task.folder, task.names[0]))
    with ThreadPoolExecutor(1 if cached else THREADS) as pool:
        return list(pool.map(lambda name: _index_shard(task, name), task.names))


def _index_shard(task: IndexTask, name: str) -> IndexedShard | FailedShard:
    try:
        return _write_index(task, name)
    except DamagedError as error:
        error.file = os.path.join(task.folder, name)
        return FailedShard(name, error)


def _write_index(task: IndexTask, name: str) -> IndexedShard:
    read_all = task.options.validate != "none"
    path = os.path.join(task.folder, name)
    with storage.open_view(path, span=_FULL_SPAN if read_all else _HEADER_SPAN) as (view, size):
        shard = ShardReader(task, name, view)
        for number, record in enumerate(FORMATS[task.format].scan(view, size, name, task.scan)):
            shard.add(number, record)
            if number % REPORTED_IMAGES == REPORTED_IMAGES - 1:
                report_images(name, REPORTED_IMAGES)
    if not shard.rows:
        raise ShardError(
            "the shard has no sample that can be indexed", file=name, hint="remove the shard"
        )
    index_name, samples_name = f"{shard_stem(name)}.idx", table_name(task.folder, name)
    index_path, table_path = (
        os.path.join(task.folder, index_name),
        os.path.join(task.folder, samples_name),
    )
    index = format_index(task.format, shard.index_lines)
    if not task.options.overwrite:
        _refuse_to_replace(index_path, index)
    _write_partials(index_path, index, table_path, shard.table())
    return IndexedShard(
        name=name,
        shard=Shard(
            file=storage.describe(task.folder, name) if read_all else File(name, size, None),
            samples=len(shard.rows),
            index=File(index_name, len(index), checksum_text(crc32c(index))),
            table=replace(
                storage.describe("", storage.partial_path(table_path)), name=samples_name
            ),
        ),
        image_components=frozenset(shard.image_components),
        class_names=shard.class_names,
        max_label=max((row.label for row in shard.rows if row.label is not None), default=-1),
        rejected=tuple(shard.rejected),
        pending=tuple((storage.partial_path(path), path) for path in (index_path, table_path)),
    )


def _refuse_to_replace(path: str, data: bytes) -> None:
    if not exists(path):
        return
    with storage.translate_errors(path, "the file cannot be read"):
        if file_length(path, INDEX) != len(data) or read_file(path, INDEX) != data:
            raise CallError(
                f"{path} exists and differs from the new index",
                hint="add --overwrite to replace it",
            )


def _write_partials(index_path: str, index: bytes, table_path: str, table: Any) -> None:
    try:
        with storage.translate_errors(index_path, "the file cannot be written"):
            with open(storage.partial_path(index_path), "wb") as file:
                file.write(index)
            write_table(table, storage.partial_path(table_path))
    except BaseException:
        storage.discard([index_path, table_path])
        raise


class _Row(NamedTuple):
    """A row of the sample table; the fields are its columns."""

    key: str
    label: int | None
    offset: int
    size: int
    width: int
    height: int
    source: str
    crc32c: int | None
    caption: str | None


class ShardReader:
    """Collects the entries of one shard's records for its index, its table and the manifest."""

    def __init__(self, task: IndexTask, name: str, view: View) -> None:
        self.rows: list[_Row] = []
        self.index_lines: list[str] = []
        self.image_components: set[str] = set()
        self.class_names: dict[int, str] = {}
        self.rejected: list[dict[str, str]] = []
        self._task = task
        self._name = name
        self._view = view
        self._key_prefix = re.sub(r"[.\s/]", "_", shard_stem(name))
        self._labels = (
            len(task.options.classes) if task.options.classes else task.options.max_classes
        )

    def add(self, number: int, record: Record) -> None:
        """Add a record, or reject it if its image is broken.

        Args:
            number: the record's position in the shard, from 0.
            record: the record.

        Raises:
            ShardError: the record is damaged or has no valid label.

        """
        self.image_components.add(
            record.component
        )  # of a rejected image too: `verify` must find it to skip it
        label_type = self._task.options.label_type
        label = self._label(number, record) if label_type == "class" else None
        caption = self._caption(number, record) if label_type == "caption" else None
        crc = None
        try:
            if self._task.options.validate == "none":
                info = image_header(self._view, record.offset, record.size)
            else:
                info, crc = self._read_image(number, record)
        except Rejected as error:
            detail = f"byte {record.offset}: {error.detail}"
            self.rejected.append(
                {"source": f"{self._name}#{number}", "reason": error.reason, "detail": detail}
            )
            return
        key = record.key or f"{self._key_prefix}-{number:06d}"
        source = record.source or f"{self._name}#{number}"
        size = (info.width, info.height)
        self.rows.append(_Row(key, label, record.offset, record.size, *size, source, crc, caption))
        self.index_lines.append(record.index_line)
        if record.class_name and label is not None:
            self.class_names.setdefault(label, record.class_name)

    def table(self) -> Any:
        """Return the sample table as an Arrow table."""
        columns = dict(zip(_Row._fields, map(list, zip(*self.rows, strict=True)), strict=True))
        label_type = self._task.options.label_type
        for name, used_by in {"label": "class", "caption": "caption"}.items():
            if label_type != used_by:
                del columns[name]
        return build_table(columns, TableMetadata())

    def _caption(self, number: int, record: Record) -> str:
        if record.caption is None:
            raise ShardError(
                f"the record has no caption under {self._task.scan.caption!r}",
                file=self._name,
                record=number,
                byte=record.start,
                hint="name another feature or extension with --label, or add --unlabelled",
            )
        return record.caption

    def _label(self, number: int, record: Record) -> int:
        if record.label is None:
            raise ShardError(
                f"the record has no integer label under {self._task.scan.components.label!r}",
                file=self._name,
                record=number,
                byte=record.start,
                hint="name another feature or extension with --label",
            )
        label = record.label + self._task.options.label_offset
        if not 0 <= label < self._labels:
            raise ShardError(
                f"label {label} is out of the range 0 to {self._labels - 1}",
                file=self._name,
                record=number,
                byte=record.start,
                hint=self._label_hint(),
            )
        return label

    def _label_hint(self) -> str:
        options = self._task.options
        if options.classes is not None or self._labels > MAX_LABEL:
            return "check --label-offset and --classes"
        return f"check --label-offset, or set --max-classes to a number up to {MAX_LABEL + 1:,}"

    def _read_image(self, number: int, record: Record) -> tuple[ImageInfo, int]:
        """Read and validate a whole record; return its image's header and CRC-32C."""
        damage = FORMATS[self._task.format].find_damage(self._view, record, self._name)
        if damage is not None:
            raise ShardError(
                damage.message,
                file=self._name,
                record=number,
                byte=damage.byte,
                hint="restore the shard from a copy, or make it again",
            )
        if record.size > MAX_BYTES:
            raise Rejected("too-large", f"{record.size} bytes, but the limit is {MAX_BYTES}")
        data, start = self._view(record.offset, record.size)
        image = bytes(data[start : start + record.size])
        return inspect(image, self._task.options.validate), crc32c(image)
