"""Index, sample table and manifest for shards that someone else wrote. It never changes a shard.

Only headers are read unless the images are to be validated: of a record of 110 KB, one page or two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from awscrt.checksums import crc32c

from dataprep import engines, formats, storage
from dataprep.images import MAX_BYTES, Rejected, Validation, inspect
from manifests.errors import CallError, DamagedError, ShardError, TableError
from manifests.schema import (
    FORMATS,
    SPLIT_ALIASES,
    Components,
    File,
    Format,
    Manifest,
    Shard,
    Split,
    split_order,
)
from manifests.sources.columns import MAX_LABEL
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    build_table,
    checksum_text,
    has_no_other_manifest,
    manifest_bytes,
    read_manifest,
    read_table_metadata,
    rejected_bytes,
    write_table,
)

#: Shards that one worker walks at a time where the disk is slow: while one waits, another is parsed.
THREADS = 16


@dataclass(frozen=True)
class IndexOptions:
    """What to look for in a record, where it does not show by itself.

    Attributes:
        image: TFRecord feature, or WebDataset extension (several with commas), that holds the encoded image.
        label: likewise for the label.
        label_key: member of the ``.json`` that holds the label.
        label_offset: added to every label; -1 where the shards count from 1.
        classes: names in label order.
        split: name of the split; read from each file's name or folder where none is given.
        validate: ``none`` reads headers only; ``header`` and ``decode`` read every byte, and give the
            tables and the manifest their checksums.
        overwrite: replace index files that are there and differ.

    """

    image: str | None = None
    label: str | None = None
    label_key: str | None = None
    label_offset: int = 0
    classes: tuple[str, ...] | None = None
    split: str | None = None
    validate: Validation = "none"
    overwrite: bool = False


class IndexTask(NamedTuple):
    """Shards, by name in the folder, that one worker takes together."""

    folder: str
    names: tuple[str, ...]
    fmt: Format
    want: formats.Want
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


@dataclass(frozen=True)
class Result:
    """What `index` did.

    Attributes:
        folder: where the manifest is.
        manifest: none where a shard could not be indexed.
        errors: one for each such shard.
        rejected: how many records were left out of the index.
        notices: what a user should be told.

    """

    folder: str
    manifest: Manifest | None
    errors: tuple[DamagedError, ...]
    rejected: int
    notices: tuple[str, ...] = ()


Progress = Callable[[Indexed], None]


def index(
    paths: Sequence[str],
    options: IndexOptions | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> Result:
    """Make the index and the sample table of every shard, and a manifest when all of them are sound.

    Args:
        paths: folders of shards, or shards of one folder.
        options: what to look for in a record.
        workers: processes; as many as there are processors where none is given.
        progress: given the number of shards, returns what to call with each that is done.

    Raises:
        CallError: there are no shards, or they are not of one format and folder.
        StorageError: the folder cannot be written.

    """
    options = options or IndexOptions()
    folder, names = _find_shards(paths)
    fmt = _format_of(names, folder)
    advance = progress(len(names)) if progress else None
    done: dict[str, Indexed] = {}
    with storage.locked(folder), storage.swept({os.path.dirname(os.path.join(folder, name)) for name in names}):
        _check_ours(folder, names, options)
        want = _find_components(folder, names, fmt, options)
        count = min(workers or engines.default_workers(), len(names))
        batches = max(count, -(-len(names) // (2 * THREADS)))
        tasks = [IndexTask(folder, tuple(names[at::batches]), fmt, want, options) for at in range(batches)]
        for batch in engines.run(index_shards, tasks, min(count, len(tasks))):
            for shard in batch:
                done[shard.name] = shard
                if advance:
                    advance(shard)
        errors = tuple(done[name].error for name in names if done[name].error)
        if errors:  # all or nothing: what an earlier run made stays as it was
            return Result(folder, None, errors, 0)  # type: ignore[arg-type]
        return _finish(folder, [done[name] for name in names], fmt, want, options)


def _check_ours(folder: str, names: Sequence[str], options: IndexOptions) -> None:
    """Refuse to replace another tool's manifest, or tables of `dataprep convert`, which say more than the shards."""
    if not options.overwrite and not has_no_other_manifest(folder):
        raise CallError(
            f"{os.path.join(folder, MANIFEST_NAME)} is another tool's",
            mend="move it away, or replace it with --overwrite",
        )
    for name in names:
        table = os.path.join(folder, f"{_stem(name)}.parquet")
        if not options.overwrite and os.path.exists(table) and _is_planned(table):
            raise CallError(
                f"{folder} was made by `dataprep convert` and has its index and tables",
                mend="to replace them by what the shards alone say, use --overwrite",
            )


def _is_planned(table: str) -> bool:
    try:
        return "plan" in read_table_metadata(table)
    except TableError:
        return False


# --- which shards -------------------------------------------------------------------------------

_OF = re.compile(r"-\d+-of-\d+$")  # TensorFlow's names: train-00012-of-01024


def _find_shards(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Give the dataset's folder and the shards in it, in the order of their names."""
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            files += sorted(_shards_below(path))
        elif os.path.isfile(path):
            files.append(path)
        else:
            raise CallError(f"{path} does not exist", mend="name a folder of shards, or shards")
    if not files:
        raise CallError(
            f"{paths[0]} holds no .tar, .tfrecord or NAME-00000-of-00001 file",
            mend="compressed shards (.tar.gz, .tgz) must be unpacked first",
        )
    if len(paths) == 1 and os.path.isdir(paths[0]):
        folder = paths[0]
    else:
        folders = {os.path.dirname(os.path.abspath(file)) for file in files}
        if len(folders) > 1:
            raise CallError(f"the shards lie in {len(folders)} folders", mend="name the one folder that holds them all")
        folder = folders.pop()
    names = [os.path.relpath(file, folder) for file in files]
    if len(set(names)) < len(names):
        raise CallError("a shard is named twice")
    stems: dict[str, str] = {}
    for name in names:
        if (other := stems.setdefault(_stem(name), name)) != name:
            raise CallError(f"{other} and {name} would have the same index file", mend="rename one")
    return folder, names


def _shards_below(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            if not name.startswith(".") and _is_shard(name):
                yield os.path.join(parent, name)


def _is_shard(name: str) -> bool:
    suffixes = tuple(suffix for fmt in FORMATS for suffix in formats.get(fmt).SUFFIXES)
    return name.lower().endswith(suffixes) or _OF.search(name) is not None


def _stem(name: str) -> str:
    return name if _OF.search(name) else os.path.splitext(name)[0]


def _format_of(names: Sequence[str], folder: str) -> Format:
    kinds: dict[Format, str] = {}
    for name in names:
        for fmt in FORMATS:
            if name.lower().endswith(formats.get(fmt).SUFFIXES) or (fmt == "tfrecord" and _OF.search(name)):
                kinds.setdefault(fmt, name)
    if len(kinds) > 1:
        raise CallError(f"{folder} holds both {' and '.join(kinds.values())}", mend="index one format at a time")
    if not kinds:
        raise CallError(f"{names[0]} is neither .tar nor .tfrecord", mend="rename it, if it is one")
    return next(iter(kinds))


def _split_of(name: str, options: IndexOptions) -> str:
    if options.split:
        return SPLIT_ALIASES.get(options.split.lower(), options.split)
    words = re.split(r"[^a-z]+", name.lower())
    return next((SPLIT_ALIASES[word] for word in reversed(words) if word in SPLIT_ALIASES), "train")


def _table_name(folder: str, name: str) -> str:
    """Name a shard's table; img2dataset has a Parquet file of its own under the first choice, which must stay."""
    first = f"{_stem(name)}.parquet"
    path = os.path.join(folder, first)
    if not os.path.exists(path) or _is_table(path):
        return first
    return f"{_stem(name)}.samples.parquet"


def _is_table(path: str) -> bool:
    try:
        return bool(read_table_metadata(path))
    except TableError:
        return False


def _find_components(folder: str, names: Sequence[str], fmt: Format, options: IndexOptions) -> formats.Want:
    path = os.path.join(folder, names[0])
    with storage.window(path) as (view, size):
        components = formats.get(fmt).find_components(view, size, path, options.image)
    if options.label and options.label_key:
        raise CallError("--label and --label-key exclude each other", mend="leave one out")
    if options.label_key and fmt != "webdataset":
        raise CallError("--label-key goes with WebDataset shards", mend="name the label's feature with --label")
    label = None if options.label_key else options.label or components.label
    if label is None and options.label_key is None:
        raise CallError(
            f"{names[0]} shows no label in its first record",
            mend="name its feature or extension with --label, or a member of its .json with --label-key",
        )
    want = formats.Want(replace(components, label=label, label_offset=options.label_offset), options.label_key)
    if options.label or options.label_key:
        _check_label(path, fmt, want)
    return want


def _check_label(path: str, fmt: Format, want: formats.Want) -> None:
    """Refuse a name under which the first record, sound otherwise, has no integer label: the call is wrong."""
    unlabelled = want._replace(components=replace(want.components, label=None), label_key=None)
    with storage.window(path) as (view, size):
        try:
            if next(formats.get(fmt).scan(view, size, path, want)).label is not None:
                return
            message = "has no integer of that name in its first record"
        except ShardError as error:
            if want.label_key and error.byte is not None:  # its .json cannot be read, whatever member is asked for
                return
            message = error.message
        next(formats.get(fmt).scan(view, size, path, unlabelled))
    if want.label_key:
        raise CallError(f"--label-key {want.label_key}: {path} {message}", mend="name the member that holds the label")
    raise CallError(
        f"--label {want.components.label}: {path} {message}", mend="name the feature or extension that holds the label"
    )


# --- one shard ----------------------------------------------------------------------------------


def index_shards(task: IndexTask) -> list[Indexed]:
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
        return build_table(columns_by_name, {"made_by": "dataprep index"})


def _write_index(task: IndexTask, name: str) -> Indexed:
    record_format = formats.get(task.fmt)
    path = os.path.join(task.folder, name)
    columns = _Columns(re.sub(r"[.\s/]", "_", _stem(name)))
    whole = task.options.validate != "none"
    with storage.window(path, span=1 << 20 if whole else 4096) as (view, size):
        for number, record in enumerate(record_format.scan(view, size, name, task.want)):
            _add(columns, number, record, view, (task, name))
    if not columns.rows:
        raise ShardError("holds no sample that could be indexed", file=name, mend="leave it out")
    index_name, table_name = f"{_stem(name)}.idx", _table_name(task.folder, name)
    data = record_format.index_bytes(columns.lines)
    index_path, table_path = (os.path.join(task.folder, found) for found in (index_name, table_name))
    _write_pair(task, index_path, data, table_path, columns)
    described = storage.describe(task.folder, os.path.relpath(storage.partial(table_path), task.folder))
    shard = Shard(
        storage.describe(task.folder, name) if whole else File(name, size, None),
        len(columns.rows),
        File(index_name, len(data), checksum_text(crc32c(data))),
        replace(described, name=table_name),
    )
    labels = max(row[1] for row in columns.rows)
    pending = tuple((storage.partial(path), path) for path in (index_path, table_path))
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
    fault = formats.get(task.fmt).fault(view, record, name)
    if fault is not None:
        raise ShardError(fault.message, file=name, record=number, byte=fault.byte, mend="copy or make it again")
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
            mend="name another with --label",
        )
    label = record.label + task.options.label_offset
    limit = len(task.options.classes) if task.options.classes else MAX_LABEL + 1
    if not 0 <= label < limit:
        raise ShardError(
            f"has the label {label}, out of the range 0 to {limit - 1}",
            file=name, record=number, byte=record.start, mend="see --label-offset and --classes",
        )  # fmt: skip
    return label


def _write_pair(task: IndexTask, index_path: str, data: bytes, table_path: str, columns: _Columns) -> None:
    if not task.options.overwrite and os.path.exists(index_path):
        with storage.explained(index_path, "read"), open(index_path, "rb") as file:
            if file.read(len(data) + 1) != data:
                raise CallError(
                    f"{index_path} is there already and says something else",
                    mend="replace it with --overwrite",
                )
    try:
        with storage.explained(index_path, "write"):
            with open(storage.partial(index_path), "wb") as file:
                file.write(data)
            write_table(columns.table(), storage.partial(table_path))
    except BaseException:
        storage.discard([index_path, table_path])
        raise


# --- the manifest -------------------------------------------------------------------------------


def _finish(folder: str, shards: Sequence[Indexed], fmt: Format, want: formats.Want, options: IndexOptions) -> Result:
    """Write ``rejected.jsonl`` where there is cause, and the manifest."""
    rejected = [row for shard in shards for row in shard.rejected]
    rejected_file = None
    # The manifest first: it must not stand beside other indexes than its own.
    for name in (MANIFEST_NAME, REJECTED_NAME):
        storage.remove(os.path.join(folder, name))
    storage.publish_all(pair for shard in shards for pair in shard.pending)
    if rejected:
        storage.replace_file(os.path.join(folder, REJECTED_NAME), rejected_bytes(rejected))
        rejected_file = storage.describe(folder, REJECTED_NAME)
    splits: dict[str, list[Shard]] = {}
    for shard in shards:
        if shard.shard is not None:
            splits.setdefault(_split_of(shard.name, options), []).append(shard.shard)
    manifest = Manifest(
        format=fmt,
        store="encoded",
        components=_components(fmt, want, options, shards),
        classes=options.classes or _class_names(shards),
        splits=tuple(Split(name, tuple(splits[name])) for name in split_order(set(splits))),
        rejected=rejected_file,
        options={"made_by": "dataprep index", "label_key": options.label_key, "validate": options.validate},
    )
    storage.replace_file(os.path.join(folder, MANIFEST_NAME), manifest_bytes(manifest))
    unread = "images were not read, so `dataprep verify` has no checksum for them"
    notices = (unread,) if options.validate == "none" else ()
    return Result(folder, read_manifest(folder), (), len(rejected), notices)


def _components(fmt: Format, want: formats.Want, options: IndexOptions, shards: Sequence[Indexed]) -> Components:
    if fmt == "tfrecord" or options.image:
        return want.components
    found = sorted({component for shard in shards for component in shard.components})
    return replace(want.components, image=tuple(found))


def _class_names(shards: Sequence[Indexed]) -> tuple[str, ...]:
    """Class names that the records state, if every label has one of its own; else the labels' numbers."""
    count = max(shard.max_label for shard in shards) + 1
    stated: dict[int, set[str]] = {}
    for shard in shards:
        for label, name in shard.class_names.items():
            stated.setdefault(label, set()).add(name)
    names = {label: next(iter(found)) for label, found in stated.items() if len(found) == 1}
    if len(names) < len(stated) or len(set(names.values())) < len(names):
        names = {}
    return tuple(names.get(label, str(label)) for label in range(count))
