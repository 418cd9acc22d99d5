"""Shards that another tool wrote: find them, see where their records store the image and the label, and index one.

Without validation, only headers are read: one or two 4 KiB pages of a 110 KB record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from awscrt.checksums import crc32c
from braceexpand import braceexpand

from dataprep import storage
from dataprep.formats import FORMATS, ByteView, Record, ScanOptions, image_header, read_bytes
from dataprep.images.base import MAX_BYTES, ImageInfo, Rejected
from dataprep.images.validate import check_image
from dataprep.labels.kinds import KINDS
from dataprep.options import MAX_PIXELS, IndexOptions
from dataprep.progress import REPORTED_IMAGES, report_images
from manifests.dali_index import format_index
from manifests.errors import CallError, DamagedError, ShardError, TableError
from manifests.files import INDEX, SHARD, file_length, read_file
from manifests.json_members import is_unicode
from manifests.labels import MAX_LABEL
from manifests.pixels import RGB8, PixelKind
from manifests.process.text import plural, shown
from manifests.records import record
from manifests.remote.url import absolute, parent_folder
from manifests.schema import (
    MAX_LABEL_OFFSET,
    SPLIT_WORDS,
    TABLE_COLUMNS,
    File,
    Format,
    Shard,
    TableMetadata,
    is_split_name,
)
from manifests.serialization import file_of
from manifests.tables import build_table, read_table_metadata, write_table

#: TensorFlow Datasets and many scripts write TFRecord shards without an extension:
#: ``train-00012-of-01024``.
_TENSORFLOW_NAME = re.compile(r"-\d+-of-\d+$")


@record
class FoundShards:
    """The shards of one dataset.

    Attributes:
        folder: folder of the dataset.
        names: paths relative to `folder`; sorted if the user gave a folder, else in the order
            given.
        format: record format of all shards.
        pixels: what a pixel of every image must be.

    """

    folder: str
    names: tuple[str, ...]
    format: Format
    pixels: PixelKind = RGB8

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
    # A pattern can name many shards, and a folder has as many as there are below it.
    files = []
    for path in paths:
        for expanded in _expand_braces(path):
            files += _shards_of(expanded)
    if not files:
        raise CallError(
            f"{paths[0]} contains no .tar, .tfrecord or NAME-00000-of-00001 file",
            hint="unpack compressed shards (.tar.gz, .tgz) first",
        )
    folder = paths[0]
    # The manifest names shards relative to one folder.
    if len(paths) > 1 or not storage.is_folder(folder):
        folders = {parent_folder(absolute(file)) for file in files}
        if len(folders) > 1:
            raise CallError(
                f"the shards are in {len(folders)} folders",
                hint="give the one folder that contains them all",
            )
        folder = folders.pop()
    start = absolute(folder)
    names = tuple(absolute(file).removeprefix(start).lstrip("/") for file in files)
    _check_names(names)
    return FoundShards(folder, names, _common_format(names, folder))


def _expand_braces(path: str) -> Iterable[str]:
    if exists(path):  # its name may contain braces
        return [path]
    try:
        return [*braceexpand(path)]
    except ValueError:  # UnbalancedBracesError, which the type stubs do not define
        raise CallError(
            f"{path} does not exist, and its braces are unbalanced", hint="close each brace"
        ) from None


def _shards_of(path: str) -> list[str]:
    if storage.is_folder(path):
        return sorted(file for file in storage.walk(path) if _format_of(file))
    if not exists(path):
        raise CallError(
            f"{path} does not exist", hint="give a folder of shards, or the shard files"
        )
    return [path]


def exists(path: str) -> bool:
    """Return whether there is a file or an object of this name, or a local folder."""
    return storage.file_length(path) >= 0


def _check_names(names: Sequence[str]) -> None:
    by_stem: dict[str, str] = {}
    # The index and the table of a shard have its name with another suffix.
    for name in names:
        other = by_stem.get(shard_stem(name))
        if other == name:
            raise CallError(f"{name} is given twice", hint="give each shard once")
        if not is_unicode(name):
            raise CallError(
                f"the name {name!r} is not valid UTF-8", hint="rename the file or its folder"
            )
        if other:
            raise CallError(
                f"{other} and {name} would have the same index file", hint="rename one of them"
            )
        by_stem[shard_stem(name)] = name


def _common_format(names: Sequence[str], folder: str) -> Format:
    examples: dict[Format, str] = {}
    for name in names:
        if fmt := _format_of(name):
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


def _format_of(name: str) -> Format | None:
    """Return the format that a file name stands for, if any."""
    if _TENSORFLOW_NAME.search(name):
        return "tfrecord"
    # Suffixes of other tools count too: .tfrec, .record.
    for fmt, record_format in FORMATS.items():
        if name.lower().endswith(record_format.SUFFIXES):
            return fmt
    return None


def shard_stem(name: str) -> str:
    """Return a shard's name without its extension. The index and the table are named after it."""
    if _TENSORFLOW_NAME.search(name):
        return name
    return os.path.splitext(name)[0]


def split_word(name: str) -> str:
    """Return the last word of a split in the path of a shard, else ``"train"``."""
    # ``data/val/part-0003.tar``: the word that is nearest to the shard.
    parts = re.split(r"[^a-z]+", name.lower())
    return next(filter(SPLIT_WORDS.get, reversed(parts)), "train")


def table_name(folder: str, name: str) -> str:
    """Return the name of a shard's sample table: ``STEM.parquet``, or ``STEM.samples.parquet`` if that is taken.

    img2dataset writes its own Parquet file next to each shard; that file is kept.
    """
    preferred = f"{shard_stem(name)}.parquet"
    path = os.path.join(folder, preferred)
    if not exists(path) or table_metadata(path):
        return preferred
    return f"{shard_stem(name)}.samples.parquet"


def table_metadata(path: str) -> TableMetadata | None:
    """Read the metadata of a sample table.

    `None` if the file is missing, damaged, or from another tool.
    """
    try:
        return read_table_metadata(path) if exists(path) else None
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
    # Options that contradict each other or the format, before a shard is opened.
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
    # Without options, the names are found in the first record.
    path = next(shards.paths)
    with storage.open_view(path) as (view, size):
        components = FORMATS[shards.format].find_components(view, size, path, options.image)
    without_label = ScanOptions(replace(components, label=None))
    if not KINDS[options.label_type].is_class:
        return _without_class(shards, options, without_label)
    if options.label_key:
        scan = without_label._replace(label_key=options.label_key)
    else:
        label = options.label or components.label
        if label is None:
            raise CallError(
                f"{shards.names[0]} has no label in its first record",
                hint=(
                    "give the feature or extension of the label with --label, or its member of the"
                    " .json with --label-key; or add --label-type none or caption"
                ),
            )
        scan = ScanOptions(replace(components, label=label))
    # Only names that the user gives can be wrong: the others are in the record.
    if options.label or options.label_key:
        _check_label(shards, scan, without_label)
    # The offset is added to the labels that are read, so it does not matter before.
    offset = replace(scan.components, label_offset=options.label_offset)
    return scan._replace(components=offset)


def _first_record(shards: FoundShards, scan: ScanOptions) -> Record:
    path = next(shards.paths)
    with storage.open_view(path) as (view, size):
        return next(FORMATS[shards.format].scan(view, size, path, scan))


#: Records at the start of the first shard whose images say what the pixels are.
_FIRST = 32


def find_pixels(shards: FoundShards, scan: ScanOptions) -> PixelKind:
    """Return RGB of 8 bits if one of the first images has it, or else the kind of the first one."""
    found, path = [], next(shards.paths)
    with storage.open_view(path) as (view, size), suppress(DamagedError):
        for record in islice(FORMATS[shards.format].scan(view, size, path, scan), _FIRST):
            with suppress(Rejected):
                found.append(image_header(view, record.offset, record.size, None).pixels)
            if RGB8 in found:
                break
    return RGB8 if RGB8 in found or not found else found[0]


def _without_class(shards: FoundShards, options: IndexOptions, scan: ScanOptions) -> ScanOptions:
    """Find where records store what `options.label_type` says: a caption, or nothing."""
    labels = KINDS[options.label_type]
    if options.label_key or options.label_offset or (options.label and not labels.columns):
        raise CallError(
            f"--label-type {options.label_type} excludes --label, --label-key and --label-offset",
            hint="leave one of them out",
        )
    if not labels.columns:
        return scan
    if not labels.foreign:
        raise CallError(
            f"--label-type {options.label_type}: only classes and captions are read from shards of"
            " other tools",
            hint="add --label-type none, or convert the source with dataprep convert",
        )
    # The most specific name comes first.
    for name in (options.label,) if options.label else labels.foreign[shards.format]:
        with_caption = scan._replace(caption=name)
        if _first_record(shards, with_caption).caption is not None:
            return with_caption
    raise CallError(
        f"{shards.names[0]} has no caption in its first record",
        hint="give the feature or extension of the caption with --label",
    )


def _check_label(shards: FoundShards, scan: ScanOptions, without_label: ScanOptions) -> None:
    """Check that the first record has an integer label under the name that an option gives.

    A damaged record is not reported here: indexing the shard reports it.

    Raises:
        CallError: the record is intact, but has no such label.
        ShardError: the record cannot be read even without its label.

    """
    option = f"--label {scan.components.label}"
    hint = "give the feature or extension that contains the label"
    if scan.label_key:
        option = f"--label-key {scan.label_key}"
        hint = "give the member of the .json that contains the label"
    message = "the first record has no integer under that name"
    try:
        if _first_record(shards, scan).label is not None:
            return
    except ShardError as error:
        # The .json is damaged, so another --label-key would not help.
        if scan.label_key and error.byte is not None:
            return
        message = error.message
    # If the record is damaged without its label too, this raises the better error.
    _first_record(shards, without_label)
    raise CallError(f"{option}: {next(shards.paths)}: {message}", hint=hint)


# --- the index and the table of one shard -----------------------------------------------------------


#: Shards that one process indexes at the same time if they are not in the page cache: while one
#: thread waits for the disk, another parses.
THREADS = 16

_HEADER_SPAN, _FULL_SPAN = 4096, 1 << 20


class IndexTask(NamedTuple):
    """Shards that one process indexes together.

    Attributes:
        shards: the shards.
        scan: where a record stores its image and label.
        options: the user's options.

    """

    shards: FoundShards
    scan: ScanOptions
    options: IndexOptions


class IndexedShard(NamedTuple):
    """A shard whose index and table are written, under temporary names.

    Attributes:
        shard: its entry in the manifest.
        image_components: features or extensions in which images were found.
        class_names: the class name of each label, if the records have class names; if it has
            several, two of them.
        labels: the smallest and the largest label; -1 if there are none.
        rejected: rows for ``rejected.jsonl``.
        pending: temporary and final path of the index and of the table.

    """

    shard: Shard
    image_components: set[str]
    class_names: Mapping[int, list[str]]
    labels: tuple[int, int]
    rejected: Sequence[dict[str, str]]
    pending: Sequence[tuple[str, str]]


def index_batch(task: IndexTask) -> list[tuple[str, IndexedShard | DamagedError]]:
    """Index several shards, in threads if they have to be read from the disk.

    Returns:
        The name of each shard, and the shard or why it cannot be indexed.

    Raises:
        CallError: an index file exists and differs, and the options do not allow replacing it.
        StorageError: a file cannot be read or written.

    """

    def index(name: str) -> tuple[str, IndexedShard | DamagedError]:
        try:
            return name, _write_index(task, name)
        except DamagedError as error:
            error.file = os.path.join(task.shards.folder, name)
            return name, error

    # Threads only help while they wait for a disk or a server.
    if storage.is_cached(next(task.shards.paths)):
        return [*map(index, task.shards.names)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [*pool.map(index, task.shards.names)]


def _write_index(task: IndexTask, name: str) -> IndexedShard:
    folder = task.shards.folder
    read_all = task.options.validate != "none"
    reader = read_records(task, name)
    if not reader.rows:
        raise _no_sample(reader, name)
    index = format_index(task.shards.format, reader.index_lines)
    index_file = file_of(f"{shard_stem(name)}.idx", index)
    samples_name = table_name(folder, name)
    paths = [os.path.join(folder, each) for each in (index_file.name, samples_name)]
    # Another tool may need its own index; an equal one can be replaced.
    if not task.options.overwrite:
        _refuse_to_replace(paths[0], index)
    partial_table = storage.partial_path(paths[1])
    # Both files get their names when all shards are indexed.
    try:
        storage.write_partial(paths[0], index)
        with storage.translate_errors(paths[0], "the file cannot be written"):
            write_table(reader.table(), partial_table)
    except BaseException:
        storage.discard(paths)
        raise
    labels = [-1]
    if KINDS[task.options.label_type].is_class:
        labels = [row[1] for row in reader.rows]
    return IndexedShard(
        shard=Shard(
            file=storage.describe(folder, name) if read_all else File(name, reader.size, None),
            samples=len(reader.rows),
            index=index_file,
            table=replace(storage.describe("", partial_table), name=samples_name),
        ),
        image_components=reader.image_components,
        class_names=reader.class_names,
        labels=(min(labels), max(labels)),
        rejected=reader.rejected,
        pending=[(storage.partial_path(path), path) for path in paths],
    )


def _no_sample(reader: ShardReader, name: str) -> ShardError:
    """Return the error about a shard of which no sample can be indexed, with the reason for the first one."""
    if not reader.rejected:
        return ShardError(
            "the shard has no record", file=name, hint="leave it out, or make it again"
        )
    first = reader.rejected[0]
    _, _, number = first["source"].rpartition("#")
    hint = "convert the original images with `dataprep convert`"
    if first["reason"] in ("corrupt", "truncated", "empty"):
        hint = "copy the shard again, or make it again from the original images"
    return ShardError(
        f"none of {plural(len(reader.rejected), 'sample')} can be indexed: the image of record"
        f" {number} is {first['reason']} ({first['detail']})",
        file=name,
        hint=hint,
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


def read_records(task: IndexTask, name: str) -> ShardReader:
    """Read all records of a shard.

    Raises:
        ShardError: a record is damaged or has no valid label.

    """
    span = _HEADER_SPAN if task.options.validate == "none" else _FULL_SPAN
    with storage.open_view(os.path.join(task.shards.folder, name), span) as (view, size):
        reader = ShardReader(task, name, view, size)
        records = FORMATS[task.shards.format].scan(view, size, name, task.scan)
        for number, record in enumerate(records):
            reader.add(number, record)
            if number % REPORTED_IMAGES == REPORTED_IMAGES - 1:
                report_images(name, REPORTED_IMAGES)
    return reader


class ShardReader:
    """Collects the entries of one shard's records for its index, its table and the manifest.

    Attributes:
        size: length of the shard in bytes.
        rows: for each record, the values of `TABLE_COLUMNS`, and its caption if it has one.
        index_lines: lines of the DALI index.
        image_components: features or extensions in which images were found.
        class_names: the class name of each label, if the records have class names; if it has
            several, two of them.
        rejected: rows for ``rejected.jsonl``.

    """

    def __init__(self, task: IndexTask, name: str, view: ByteView, size: int) -> None:
        self.size = size
        self.rows: list[tuple[Any, ...]] = []
        self.index_lines: list[str] = []
        self.image_components: set[str] = set()
        self.class_names: dict[int, list[str]] = {}
        self.rejected: list[dict[str, str]] = []
        self._task, self._name, self._view = task, name, view
        self._kind = KINDS[task.options.label_type]
        # Keys of WebDataset end at the first dot, and tar names contain no spaces.
        self._key_prefix = re.sub(r"[.\s/]", "_", shard_stem(name))
        classes = task.options.classes
        self._labels = len(classes) if classes else task.options.max_classes

    def add(self, number: int, record: Record) -> None:
        """Add the record with this number, or reject it if its image is broken."""
        # Of a rejected image too: `verify` must find it to skip it.
        self.image_components.add(record.component)
        label = None
        if self._kind.is_class:
            label = self._label(number, record)
        if self._kind.text_column and record.caption is None:
            raise self._error(
                number,
                record.start,
                f"the record has no caption under {self._task.scan.caption!r}",
                "name another feature or extension with --label, or add --label-type none",
            )
        # Records without a source or a key are named by their place.
        place, crc = f"{self._name}#{number}", None
        try:
            if self._task.options.validate == "none":
                info = image_header(
                    self._view, record.offset, record.size, self._task.shards.pixels
                )
            else:
                info, crc = self._read_image(number, record)
        except Rejected as error:
            detail = f"byte {record.offset}: {error.detail}"
            self.rejected.append({"source": place, "reason": error.reason, "detail": detail})
            return
        key, source = record.key or f"{self._key_prefix}-{number:06d}", record.source or place
        size = (info.width, info.height)
        self.rows.append(
            (key, label, record.offset, record.size, *size, source, crc, record.caption)
        )
        self.index_lines.append(record.index_line)
        if record.class_name and label is not None:
            names = self.class_names.setdefault(label, [])
            if record.class_name not in names and len(names) < 2:
                names.append(record.class_name)

    def table(self) -> Any:
        """Return the sample table as an Arrow table."""
        values = dict(zip((*TABLE_COLUMNS, "caption"), zip(*self.rows, strict=True), strict=True))
        for name in {"label", "caption"} - {*self._kind.columns}:
            del values[name]
        return build_table(values, "index")

    def _label(self, number: int, record: Record) -> int:
        if record.label is None:
            raise self._error(
                number,
                record.start,
                f"the record has no integer label under {self._task.scan.components.label!r}",
                "name another feature or extension with --label",
            )
        options = self._task.options
        # The limit keeps one wrong label from making a million class names.
        label = record.label + options.label_offset
        if not 0 <= label < self._labels:
            hint = "check --label-offset and --classes"
            if options.classes is None and self._labels <= MAX_LABEL:
                hint = (
                    "check --label-offset, or set --max-classes to a number up to"
                    f" {MAX_LABEL + 1:,}"
                )
            message = f"label {label} is out of the range 0 to {self._labels - 1}"
            raise self._error(number, record.start, message, hint)
        return label

    def _read_image(self, number: int, record: Record) -> tuple[ImageInfo, int]:
        """Read and validate a whole record; return its image's header and CRC-32C."""
        damage = FORMATS[self._task.shards.format].find_damage(self._view, record, self._name)
        if damage is not None:
            raise self._error(number, damage.byte, damage.message, SHARD.hint)
        if record.size > MAX_BYTES:
            raise Rejected("too-large", f"{record.size} bytes, but the limit is {MAX_BYTES}")
        image = read_bytes(self._view, record.offset, record.size)
        validate, pixels = self._task.options.validate, self._task.shards.pixels
        return check_image(image, validate, MAX_PIXELS, pixels), crc32c(image)

    def _error(self, number: int, byte: int, message: str, hint: str) -> ShardError:
        return ShardError(message, file=self._name, record=number, byte=byte, hint=hint)
