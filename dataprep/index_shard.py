"""A shard that someone else wrote -> its index and its sample table. It must never know the manifest.

Only headers are read unless the images are to be validated: of a record of 110 KB, one page or two.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from awscrt.checksums import crc32c

from dataprep import formats, storage
from dataprep.discover import stem, table_name
from dataprep.images.base import MAX_BYTES, Rejected
from dataprep.images.validate import inspect
from dataprep.options import IndexOptions
from dataprep.sources.columns import MAX_LABEL
from manifests.errors import CallError, DamagedError, ShardError
from manifests.schema import File, Format, Shard, TableMetadata
from manifests.store import build_table, checksum_text, write_table

#: Shards that one worker walks at a time where the disk is slow: while one waits, another is parsed.
THREADS = 16


class IndexTask(NamedTuple):
    """Shards, by name in the folder, that one worker takes together."""

    folder: str
    names: tuple[str, ...]
    fmt: Format
    want: formats.ScanOptions
    options: IndexOptions


class Indexed(NamedTuple):
    """A shard with its new index and table, or what is wrong with it.

    Attributes:
        name: the shard.
        shard: its files; none where `error` is given.
        components: under which image components were found.
        class_names: class name of each label, where records say it.
        max_label: the largest label in it.
        rejected: rows for ``rejected.jsonl``.
        error: why it was not indexed.
        pending: its index and table, each under a temporary and a final name.

    """

    name: str
    shard: Shard | None
    components: frozenset[str] = frozenset()
    class_names: dict[int, str] = {}  # noqa: RUF012  (never changed)
    max_label: int = -1
    rejected: tuple[dict[str, str], ...] = ()
    error: DamagedError | None = None
    pending: tuple[tuple[str, str], ...] = ()


def index_batch(task: IndexTask) -> list[Indexed]:
    """Index several shards; side by side where the disk must be waited for."""
    cached = storage.is_cached(os.path.join(task.folder, task.names[0]))
    with ThreadPoolExecutor(1 if cached else THREADS) as pool:
        return list(pool.map(lambda name: _index_shard(task, name), task.names))


def _index_shard(task: IndexTask, name: str) -> Indexed:
    try:
        return _write_index(task, name)
    except DamagedError as error:
        error.file = os.path.join(task.folder, name)
        return Indexed(name, None, error=error)


class _Columns:
    """Columns of a table that grows record by record, and what else a shard shows on the way."""

    def __init__(self, stem: str) -> None:
        self.stem = stem
        self.rows: list[tuple[Any, ...]] = []
        self.lines: list[str] = []
        self.components: set[str] = set()
        self.class_names: dict[int, str] = {}
        self.rejected: list[dict[str, str]] = []

    def table(self) -> Any:
        names = ("key", "label", "offset", "size", "width", "height", "source", "crc32c")
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(names)
        columns_by_name = {name: list(column) for name, column in zip(names, columns, strict=True)}
        return build_table(columns_by_name, TableMetadata())


def _write_index(task: IndexTask, name: str) -> Indexed:
    record_format = formats.FORMATS[task.fmt]
    path = os.path.join(task.folder, name)
    columns = _Columns(re.sub(r"[.\s/]", "_", stem(name)))
    whole = task.options.validate != "none"
    with storage.open_view(path, span=1 << 20 if whole else 4096) as (view, size):
        for number, record in enumerate(record_format.scan(view, size, name, task.want)):
            _add(columns, number, record, view, (task, name))
    if not columns.rows:
        raise ShardError("holds no sample that could be indexed", file=name, hint="leave it out")
    index_name, own_table = f"{stem(name)}.idx", table_name(task.folder, name)
    data = record_format.index_bytes(columns.lines)
    index_path, table_path = (os.path.join(task.folder, found) for found in (index_name, own_table))
    _write_pair(task, index_path, data, table_path, columns)
    described = storage.describe(task.folder, os.path.relpath(storage.partial_path(table_path), task.folder))
    shard = Shard(
        storage.describe(task.folder, name) if whole else File(name, size, None),
        len(columns.rows),
        File(index_name, len(data), checksum_text(crc32c(data))),
        replace(described, name=own_table),
    )
    labels = max(row[1] for row in columns.rows)
    pending = tuple((storage.partial_path(path), path) for path in (index_path, table_path))
    return Indexed(
        name,
        shard,
        frozenset(columns.components),
        columns.class_names,
        labels,
        tuple(columns.rejected),
        pending=pending,
    )


def _add(
    columns: _Columns, number: int, record: formats.Record, view: formats.View, where: tuple[IndexTask, str]
) -> None:
    task, name = where
    label = _label(record, number, task, name)
    crc = None
    try:
        if task.options.validate == "none":
            info = formats.image_header(view, record.image, record.size)
        else:
            info, crc = _validated(view, record, number, where)
    except Rejected as error:
        columns.rejected.append(
            {
                "source": f"{name}#{number}",
                "reason": error.reason,
                "detail": f"byte {record.image}: {error.detail}",
            }
        )
        return
    key = record.key or f"{columns.stem}-{number:06d}"
    source = record.source or f"{name}#{number}"
    columns.rows.append((key, label, record.image, record.size, info.width, info.height, source, crc))
    columns.lines.append(record.line)
    columns.components.add(record.component)
    if record.class_name:
        columns.class_names.setdefault(label, record.class_name)


def _validated(
    view: formats.View, record: formats.Record, number: int, where: tuple[IndexTask, str]
) -> tuple[Any, int]:
    task, name = where
    fault = formats.FORMATS[task.fmt].fault(view, record, name)
    if fault is not None:
        raise ShardError(fault.message, file=name, record=number, byte=fault.byte, hint="copy or make it again")
    if record.size > MAX_BYTES:
        raise Rejected("too-large", f"{record.size} bytes, the limit is {MAX_BYTES}")
    data, i = view(record.image, record.size)
    image = bytes(data[i : i + record.size])
    return inspect(image, task.options.validate), crc32c(image)


def _label(record: formats.Record, number: int, task: IndexTask, name: str) -> int:
    if record.label is None:
        what = f"under {task.want.components.label!r}"
        raise ShardError(
            f"has no integer label {what}",
            file=name,
            record=number,
            byte=record.start,
            hint="name another with --label",
        )
    label = record.label + task.options.label_offset
    limit = len(task.options.classes) if task.options.classes else MAX_LABEL + 1
    if not 0 <= label < limit:
        raise ShardError(
            f"has the label {label}, out of the range 0 to {limit - 1}",
            file=name, record=number, byte=record.start, hint="see --label-offset and --classes",
        )  # fmt: skip
    return label


def _write_pair(task: IndexTask, index_path: str, data: bytes, table_path: str, columns: _Columns) -> None:
    if not task.options.overwrite and os.path.exists(index_path):
        with storage.translate_errors(index_path, "read"), open(index_path, "rb") as file:
            if file.read(len(data) + 1) != data:
                raise CallError(
                    f"{index_path} is there already and says something else",
                    hint="replace it with --overwrite",
                )
    try:
        with storage.translate_errors(index_path, "write"):
            with open(storage.partial_path(index_path), "wb") as file:
                file.write(data)
            write_table(columns.table(), storage.partial_path(table_path))
    except BaseException:
        storage.discard([index_path, table_path])
        raise
