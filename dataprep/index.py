"""Index, sample table and manifest for shards that someone else wrote. It never changes a shard."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataprep import engines, formats, storage
from dataprep.discover import find_components, find_shards, format_of, split_of, stated_by_table, stem
from dataprep.index_shard import THREADS, Indexed, IndexTask, index_batch
from dataprep.options import IndexOptions
from dataprep.progress import Progress
from manifests.errors import CallError, DamagedError
from manifests.schema import Components, Format, Manifest, Shard, Split, split_order
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    has_no_other_manifest,
    manifest_bytes,
    read_manifest,
    rejected_bytes,
)


@dataclass(frozen=True)
class IndexResult:
    """What `index_shards` did.

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


def index_shards(
    paths: Sequence[str],
    options: IndexOptions | None = None,
    *,
    workers: int | None = None,
    progress: Progress[Indexed] | None = None,
) -> IndexResult:
    """Make the index and the sample table of every shard, and a manifest when all of them are sound.

    Args:
        paths: a folder of shards, or shards of one folder.
        options: what to look for in a record.
        workers: processes; as many as there are processors where none is given.
        progress: receives the number of shards, then each finished shard.

    Raises:
        CallError: there are no shards, or they are not of one format and folder.
        StorageError: the folder cannot be written.

    """
    options = options or IndexOptions()
    folder, names = find_shards(paths)
    fmt = format_of(names, folder)
    if progress:
        progress.start(len(names))
    done: dict[str, Indexed] = {}
    with (
        storage.locked(folder),
        storage.clean_partials({os.path.dirname(os.path.join(folder, name)) for name in names}),
    ):
        _check_ours(folder, names, options)
        want = find_components(folder, names, fmt, options)
        count = min(workers or engines.default_workers(), len(names))
        batches = max(count, -(-len(names) // (2 * THREADS)))
        tasks = [IndexTask(folder, tuple(names[at::batches]), fmt, want, options) for at in range(batches)]
        for batch in engines.run(index_batch, tasks, min(count, len(tasks))):
            for shard in batch:
                done[shard.name] = shard
                if progress:
                    progress.advance(shard)
        errors = tuple(done[name].error for name in names if done[name].error)
        if errors:  # all or nothing: what an earlier run made stays as it was
            return IndexResult(folder, None, errors, 0)  # type: ignore[arg-type]
        return _finish(folder, [done[name] for name in names], fmt, want, options)


def _check_ours(folder: str, names: Sequence[str], options: IndexOptions) -> None:
    """Refuse to replace another tool's manifest, or tables of `dataprep convert`, which say more than the shards."""
    if not options.overwrite and not has_no_other_manifest(folder):
        raise CallError(
            f"{os.path.join(folder, MANIFEST_NAME)} is another tool's",
            hint="move it away, or replace it with --overwrite",
        )
    for name in names:
        table = os.path.join(folder, f"{stem(name)}.parquet")
        metadata = stated_by_table(table) if os.path.exists(table) else None
        if not options.overwrite and metadata and metadata.creator == "convert":
            raise CallError(
                f"{folder} was made by `dataprep convert` and has its index and tables",
                hint="to replace them by what the shards alone say, use --overwrite",
            )


def _finish(
    folder: str, shards: Sequence[Indexed], fmt: Format, want: formats.ScanOptions, options: IndexOptions
) -> IndexResult:
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
            splits.setdefault(split_of(shard.name, options), []).append(shard.shard)
    manifest = Manifest(
        creator="index",
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
    return IndexResult(folder, read_manifest(folder), (), len(rejected), notices)


def _components(fmt: Format, want: formats.ScanOptions, options: IndexOptions, shards: Sequence[Indexed]) -> Components:
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
