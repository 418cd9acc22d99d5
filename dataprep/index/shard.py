"""Shards that another tool wrote: find them, see where their records store the image and the label, and index one.

Without validation, only headers are read: one or two 4 KiB pages of a 110 KB record.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from awscrt.checksums import crc32c
from braceexpand import braceexpand

from dataprep import storage
from dataprep.formats import FORMATS, ByteView, Record, ScanOptions, image_header
from dataprep.images.base import MAX_BYTES, ImageInfo, Rejected
from dataprep.images.validate import inspect
from dataprep.labels.kinds import KINDS
from dataprep.options import IndexOptions
from dataprep.progress import REPORTED_IMAGES, report_images
from manifests.dali_index import format_index
from manifests.errors import CallError, DamagedError, ShardError, TableError
from manifests.files import INDEX, file_length, read_file
from manifests.json_members import is_unicode
from manifests.labels import MAX_LABEL
from manifests.process.text import shown
from manifests.remote.url import absolute, parent_folder, relative_path
from manifests.schema import (
    MAX_LABEL_OFFSET,
    SPLIT_ALIASES,
    Components,
    File,
    Format,
    Shard,
    TableMetadata,
    is_split_name,
)
from manifests.serialization import checksum_text
from manifests.tables import build_table, read_table_metadata, write_table

#: TensorFlow Datasets and many scripts write TFRecord shards without an extension:
#: ``train-00012-of-01024``.
_TENSORFLOW_NAME = re.compile(r"-\d+-of-\d+$")


@dataclass(frozen=True, slots=True)
class FoundShards:
    """The shards of one dataset.

    Attributes:
        folder: folder of the dataset.
        names: paths relative to `folder`; sorted if the user gave a folder, else in the order
            given.
        format: record format of all shards.

    """

    folder: str
    names: tuple[str, ...]
    format: Format

    @property
    def paths(self) -> Iterator[str]:
        """Paths of the shards, in the order of `names`."""
        return (os.path.join(self.folder, name) for name in self.names)


def find_shards(paths: Sequence[str]) -> FoundShards:
    """Find the shards at the paths that the user gives.

    Args:
        paths: a folder, which is searched with all its subfolders, or shards of one folder. A path
            that does not exist is expanded as in a shell: ``train-{000..012}.tar`` names 13 shards.

    Raises:
        CallError: a path does not exist, there are no shards, they are in several folders or
            formats, or two of them would have the same index file.

    """
    files = [
        file for path in paths for expanded in _expand_braces(path) for file in _shards_of(expanded)
    ]
    if not files:
        raise CallError(
            f"{paths[0]} contains no .tar, .tfrecord or NAME-00000-of-00001 file",
            hint="unpack compressed shards (.tar.gz, .tgz) first",
        )
    folder = paths[0] if len(paths) == 1 and storage.is_folder(paths[0]) else _common_folder(files)
    names = tuple(relative_path(file, folder) for file in files)
    _check_names(names)
    return FoundShards(folder, names, _format_of(names, folder))


def _expand_braces(path: str) -> Iterator[str]:
    if exists(path):  # its name may contain braces
        yield path
        return
    try:
        yield from braceexpand(path)
    except ValueError:  # UnbalancedBracesError, which the type stubs do not define
        raise CallError(
            f"{path} does not exist, and its braces are unbalanced", hint="close each brace"
        ) from None


def _shards_of(path: str) -> Iterator[str]:
    if storage.is_folder(path):
        yield from sorted(file for file in storage.walk(path) if _formats_of(file))
    elif exists(path):
        yield path
    else:
        raise CallError(
            f"{path} does not exist", hint="give a folder of shards, or the shard files"
        )


def exists(path: str) -> bool:
    """Return whether there is a file or an object of this name, or a local folder."""
    return storage.file_length(path) >= 0


def _common_folder(files: Sequence[str]) -> str:
    folders = {parent_folder(absolute(file)) for file in files}
    if len(folders) > 1:
        raise CallError(
            f"the shards are in {len(folders)} folders",
            hint="give the one folder that contains them all",
        )
    return folders.pop()


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for name, count in Counter(names).items() if count > 1)
        raise CallError(f"{repeated} is given twice", hint="give each shard once")
    if wrong := [name for name in names if not is_unicode(name)]:
        raise CallError(
            f"the name {wrong[0]!r} is not valid UTF-8", hint="rename the file or its folder"
        )
    by_stem: dict[str, str] = {}
    for name in names:
        other = by_stem.setdefault(shard_stem(name), name)
        if other != name:
            raise CallError(
                f"{other} and {name} would have the same index file", hint="rename one of them"
            )


def _format_of(names: Sequence[str], folder: str) -> Format:
    examples: dict[Format, str] = {}
    for name in names:
        for fmt in _formats_of(name):
            examples.setdefault(fmt, name)
    if len(examples) > 1:
        raise CallError(
            f"{folder} contains shards of several record formats: {', '.join(examples.values())}",
            hint="give only the shards of one format",
        )
    if not examples:
        raise CallError(
            f"{names[0]} is neither a .tar nor a .tfrecord file",
            hint="if it is a shard, rename it to end in .tar or .tfrecord",
        )
    return next(iter(examples))


def _formats_of(name: str) -> tuple[Format, ...]:
    """Return the format that a file name stands for, if any."""
    if _TENSORFLOW_NAME.search(name):
        return ("tfrecord",)
    return tuple(
        fmt
        for fmt, record_format in FORMATS.items()
        if name.lower().endswith(record_format.SUFFIXES)
    )


def shard_stem(name: str) -> str:
    """Return a shard's name without its extension. The index and the table are named after it."""
    return name if _TENSORFLOW_NAME.search(name) else os.path.splitext(name)[0]


def split_of(name: str, options: IndexOptions) -> str:
    """Return the split of a shard: the one in the options, else the last one in its path, else ``"train"``."""
    if options.split:
        return SPLIT_ALIASES.get(options.split.lower(), options.split)
    parts = re.split(r"[^a-z]+", name.lower())
    return next((SPLIT_ALIASES[part] for part in reversed(parts) if part in SPLIT_ALIASES), "train")


def table_name(folder: str, name: str) -> str:
    """Return the name of a shard's sample table: ``STEM.parquet``, or ``STEM.samples.parquet`` if that is taken.

    img2dataset writes its own Parquet file next to each shard; that file is kept.
    """
    preferred = f"{shard_stem(name)}.parquet"
    path = os.path.join(folder, preferred)
    if storage.file_length(path) < 0 or table_metadata(path):
        return preferred
    return f"{shard_stem(name)}.samples.parquet"


def table_metadata(path: str) -> TableMetadata | None:
    """Read the metadata of a sample table.

    `None` if the file is missing, damaged, or from another tool.
    """
    try:
        return read_table_metadata(path) if storage.file_length(path) >= 0 else None
    except TableError:
        return None


# --- where a record stores its image and label ------------------------------------------------------


def find_components(shards: FoundShards, options: IndexOptions) -> ScanOptions:
    """Find where records store the image and the label, from the options and the first record.

    Raises:
        CallError: the first record has no label, or no image or label under the name that an option
            gives; or the options contradict each other.
        ShardError: the first record cannot be read.

    """
    if options.split and not is_split_name(options.split):
        raise CallError(
            f"--split {shown(options.split)} cannot be part of a file name",
            hint="use letters, digits, - and _",
        )
    if options.label and options.label_key:
        raise CallError(
            "--label and --label-key cannot be used together", hint="leave one of them out"
        )
    if abs(options.label_offset) > MAX_LABEL_OFFSET:
        raise CallError(
            f"--label-offset {options.label_offset} is out of the range -{MAX_LABEL_OFFSET} to"
            f" {MAX_LABEL_OFFSET}",
            hint="give the difference between the labels in the shards and those from 0",
        )
    if options.label_key and shards.format != "webdataset":
        raise CallError(
            "--label-key requires WebDataset shards",
            hint="give the feature of the label with --label",
        )
    path = next(shards.paths)
    with storage.open_view(path) as (view, size):
        components = FORMATS[shards.format].find_components(view, size, path, options.image)
    label = None if options.label_key else options.label or components.label
    if not KINDS[options.label_type].is_class:
        return _without_class(shards, options, components)
    if label is None and options.label_key is None:
        raise CallError(
            f"{shards.names[0]} has no label in its first record",
            hint=(
                "give the feature or extension of the label with --label, or its member of the"
                " .json with --label-key; or add --label-type none or caption"
            ),
        )
    scan = ScanOptions(
        replace(components, label=label, label_offset=options.label_offset), options.label_key
    )
    if options.label or options.label_key:
        _check_label(path, shards.format, scan)
    return scan


def _without_class(
    shards: FoundShards, options: IndexOptions, components: Components
) -> ScanOptions:
    """Find where records store what `options.label_type` says: a caption, or nothing."""
    labels = KINDS[options.label_type]
    if options.label_key or options.label_offset or (options.label and not labels.columns):
        raise CallError(
            f"--label-type {options.label_type} excludes --label, --label-key and --label-offset",
            hint="leave one of them out",
        )
    scan = ScanOptions(replace(components, label=None))
    if not labels.columns:
        return scan
    if not labels.foreign:
        raise CallError(
            f"--label-type {options.label_type}: only classes and captions are read from shards of"
            " other tools",
            hint="add --label-type none, or convert the source with dataprep convert",
        )
    names = (options.label,) if options.label else labels.foreign[shards.format]
    path = next(shards.paths)
    with storage.open_view(path) as (view, size):
        for name in names:
            record = next(
                FORMATS[shards.format].scan(view, size, path, scan._replace(caption=name))
            )
            if record.caption is not None:
                return scan._replace(caption=name)
    raise CallError(
        f"{shards.names[0]} has no caption in its first record",
        hint="give the feature or extension of the caption with --label",
    )


def _check_label(path: str, fmt: Format, scan: ScanOptions) -> None:
    """Check that the first record has an integer label under the name that an option gives.

    A damaged record is not reported here: indexing the shard reports it.

    Raises:
        CallError: the record is intact, but has no such label.
        ShardError: the record cannot be read even without its label.

    """
    message = _label_problem(path, fmt, scan)
    if message is None:
        return
    if scan.label_key:
        option, hint = (
            f"--label-key {scan.label_key}",
            "give the member of the .json that contains the label",
        )
    else:
        option, hint = (
            f"--label {scan.components.label}",
            "give the feature or extension that contains the label",
        )
    raise CallError(f"{option}: {path}: {message}", hint=hint)


def _label_problem(path: str, fmt: Format, scan: ScanOptions) -> str | None:
    without_label = scan._replace(components=replace(scan.components, label=None), label_key=None)
    with storage.open_view(path) as (view, size):
        try:
            record = next(FORMATS[fmt].scan(view, size, path, scan))
        except ShardError as error:
            if (
                scan.label_key and error.byte is not None
            ):  # the .json is damaged, so another --label-key would not help
                return None
            message = error.message
        else:
            if record.label is not None:
                return None
            message = "the first record has no integer under that name"
        next(FORMATS[fmt].scan(view, size, path, without_label))
    return message


# --- the index and the table of one shard -----------------------------------------------------------


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
    if cached:
        return [_index_shard(task, name) for name in task.names]
    with ThreadPoolExecutor(THREADS) as pool:
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

    def __init__(self, task: IndexTask, name: str, view: ByteView) -> None:
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
        # Of a rejected image too: `verify` must find it to skip it.
        self.image_components.add(record.component)
        labels = KINDS[self._task.options.label_type]
        label = self._label(number, record) if labels.is_class else None
        caption = self._caption(number, record) if labels.text_column else None
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
        labels = KINDS[self._task.options.label_type]
        for name in {"label", "caption"} - {*labels.columns}:
            del columns[name]
        return build_table(columns, "index")

    def _caption(self, number: int, record: Record) -> str:
        if record.caption is None:
            raise ShardError(
                f"the record has no caption under {self._task.scan.caption!r}",
                file=self._name,
                record=number,
                byte=record.start,
                hint="name another feature or extension with --label, or add --label-type none",
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
