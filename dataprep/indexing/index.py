"""Index a dataset that another tool wrote: DALI indexes, sample tables and a manifest.

Shards are never changed.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain

from dataprep import engines, storage
from dataprep.formats import FORMATS, ScanOptions
from dataprep.images.base import FAILED
from dataprep.indexing.shard import (
    THREADS,
    FoundShards,
    IndexedShard,
    IndexTask,
    find_components,
    find_pixels,
    find_shards,
    index_batch,
    shard_stem,
    split_word,
    table_metadata,
)
from dataprep.labels.kinds import KINDS
from dataprep.ledger.fence import replace_dataset, seen_digest
from dataprep.ledger.state import read_journal
from dataprep.options import IndexOptions
from dataprep.progress import Progress
from manifests.errors import CallError, DamagedError, ShardError
from manifests.json_members import shorten
from manifests.pixels import RGB8
from manifests.process.text import missing_parts, printable
from manifests.records import record
from manifests.remote.url import parent_folder
from manifests.schema import (
    SPLIT_ALIASES,
    Components,
    Format,
    Manifest,
    RejectedRow,
    Shard,
    Split,
    read_splits,
    split_order,
)
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    may_replace_manifest,
    read_as_written,
    read_manifest,
)

_log = logging.getLogger(__name__)

#: By default, one process per this many bytes of shards. If only headers are read, also this many
#: records: half of them are read while another process starts.
_BYTES_PER_WORKER = 32 << 20
_RECORDS_PER_WORKER = 20_000


@record
class IndexResult:
    """What `index_shards` did.

    Attributes:
        folder: folder of the dataset.
        manifest: the new manifest, or `None` if a shard cannot be indexed.
        errors: one error per shard that cannot be indexed.
        rejected: number of records that were left out of the index.
        failed: the rows of ``rejected.jsonl`` with the reason ``"failed"``: dataprep itself failed
            on these images.
        notices: notices for the user, one sentence each.

    """

    folder: str
    manifest: Manifest | None
    errors: tuple[DamagedError, ...] = ()
    rejected: int = 0
    failed: tuple[RejectedRow, ...] = ()
    notices: tuple[str, ...] = ()


def index_shards(
    paths: Sequence[str],
    options: IndexOptions | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> IndexResult:
    """Write the index and the sample table of every shard, then the manifest.

    If a shard cannot be indexed, nothing in the folder changes.

    Args:
        paths: a folder of shards, or shards of one folder; see `discover.find_shards`.
        options: where records store the image and the label, and how to validate them.
        workers: number of processes. By default one per CPU, and fewer for small datasets.
        progress: receives the shards; the number of images is not known before.

    Raises:
        CallError: there are no shards, they are in several folders or formats, or files that
            `dataprep index` did not make would be replaced.
        ShardError: the first record of the first shard cannot be read.
        StorageError: a file cannot be read or written, or another run is working in the folder.

    """
    options = options or IndexOptions()
    shards = find_shards(paths)
    if progress:
        progress.start(None, len(shards.names))
    # Shards can be in subfolders, which get indexes and tables too.
    folders = {shards.folder, *(parent_folder(path) for path in shards.paths)}
    with storage.locked(*folders) as is_locked:
        # Everything that can be refused is, before a shard is read.
        with storage.remember(shards.folder):
            _refuse_folders(shards)
            _refuse_unfinished(shards.folder)
            _refuse_removed(shards.folder)
            if not options.overwrite:
                _refuse_to_replace(shards)
        seen = "" if storage.has_locks(shards.folder) else seen_digest(shards.folder)
        scan = find_components(shards, options)
        shards = replace(shards, pixels=find_pixels(shards, scan))
        # Files have temporary names until all shards are indexed.
        with storage.partials(*folders, is_alone=is_locked):
            indexed, errors = _index(shards, scan, options, workers, progress)
            if errors:
                return IndexResult(shards.folder, None, tuple(errors))
            return _commit(shards, indexed, scan, options, seen)


def _index(
    shards: FoundShards,
    scan: ScanOptions,
    options: IndexOptions,
    workers: int | None,
    progress: Progress | None,
) -> tuple[list[IndexedShard], list[DamagedError]]:
    """Index all shards; return them, and the errors of the others."""
    results = {}
    workers = workers or _default_workers(shards, scan, options)
    tasks, workers = _make_tasks(shards, scan, options, workers)
    with closing(engines.run(index_batch, tasks, workers)) as batches:
        for name, result in chain.from_iterable(batches):
            results[name] = result
            samples = 0
            if isinstance(result, DamagedError):
                _log.info("%s: cannot be indexed: %s", name, result.message)
            else:
                samples, rejected = result.shard.samples, len(result.rejected)
                _log.info("%s: %s samples, %s rejected", name, samples, rejected)
            if progress:
                progress.advance(name, samples)
    # Results come in any order, the manifest lists shards as they were found.
    errors, indexed = [], []
    for name in shards.names:
        result = results[name]
        if isinstance(result, DamagedError):
            errors.append(result)
        else:
            indexed.append(result)
    return indexed, errors


def _refuse_folders(shards: FoundShards) -> None:
    """Refuse folders under the names of files that will be written, which no option can replace."""
    # In an object store, no path is a folder: it can have a file and a folder of the same name.
    paths = []
    for path in shards.paths:
        paths += [f"{shard_stem(path)}.idx", f"{shard_stem(path)}.samples.parquet"]
    paths += [os.path.join(shards.folder, name) for name in (MANIFEST_NAME, REJECTED_NAME)]
    for path in paths:
        if os.path.isdir(path):
            raise CallError(
                f"{printable(path)} is a folder, but a file of this name is needed",
                hint="move it away",
            )


def _refuse_unfinished(folder: str) -> None:
    """Refuse a folder in which a conversion or an append has not ended: its shards are only a part of the dataset."""
    journal = read_journal(folder)
    if journal is None:
        return
    what, hint = "a conversion", "run the command that made it again to finish it"
    if journal.action != "convert":
        what = "a change"
        hint = f"`dataprep verify {shlex.quote(folder)}` says how to finish or to undo it"
    raise CallError(f"{what} in {printable(folder)} was interrupted, or is running", hint=hint)


def _refuse_removed(folder: str) -> None:
    """Refuse a dataset whose shards still contain removed samples, which their new indexes would list again."""
    try:
        manifest = read_manifest(folder)
        written = read_as_written(folder, manifest)
    except (CallError, DamagedError):  # no dataset, or a damaged one, which this command replaces
        return
    indexes = {shard.index for shard in written.shards}
    if not indexes.issuperset(shard.index for shard in manifest.shards):
        raise CallError(
            f"samples of {folder} were removed, but its shards contain them, so new indexes would"
            " list them again",
            hint="run `dataprep remove --scrub` first, or move manifest.json away to list them",
        )


def _refuse_to_replace(shards: FoundShards) -> None:
    """Refuse to replace another tool's manifest, or tables of ``dataprep convert``, which contain more columns."""
    if not may_replace_manifest(shards.folder):
        raise CallError(
            f"{os.path.join(shards.folder, MANIFEST_NAME)} was written by another tool",
            hint="move it away, or add --overwrite to replace it",
        )
    for path in shards.paths:
        metadata = table_metadata(f"{shard_stem(path)}.parquet")
        if metadata and metadata != "index":
            raise CallError(
                f"{shards.folder} was made by `dataprep convert` and already has indexes and"
                " tables",
                hint="to replace them with what the shards alone contain, add --overwrite",
            )


def _default_workers(shards: FoundShards, scan: ScanOptions, options: IndexOptions) -> int:
    limit, size, share = engines.default_workers(), 0, _BYTES_PER_WORKER
    first = next(shards.paths)
    # Processes share the wait for a disk or a server.
    if options.validate == "none" and storage.is_cached(first):
        with suppress(ShardError), storage.open_view(first) as (view, length):
            record = next(FORMATS[shards.format].scan(view, length, first, scan))
            share = max(share, _RECORDS_PER_WORKER * (record.end - record.start))
    # Stop as soon as the shards are enough work for all processes.
    for path in shards.paths:
        with storage.translate_errors(path, "the file cannot be read"):
            size += storage.stat(path).st_size
        if size >= limit * share:
            break
    return min(limit, max(1, math.ceil(size / share)))


def _make_tasks(
    shards: FoundShards, scan: ScanOptions, options: IndexOptions, workers: int
) -> tuple[list[IndexTask], int]:
    """Divide the shards into at least one task per worker, of at most `2 * THREADS` shards each."""
    workers = min(workers, len(shards.names))
    count = max(workers, math.ceil(len(shards.names) / (2 * THREADS)))
    tasks = []
    for first in range(count):
        some = replace(shards, names=shards.names[first::count])
        tasks.append(IndexTask(some, scan, options))
    return tasks, workers


def _commit(
    shards: FoundShards,
    indexed: Sequence[IndexedShard],
    scan: ScanOptions,
    options: IndexOptions,
    seen: str,
) -> IndexResult:
    """Give all files their final names: indexes and tables, then ``rejected.jsonl``, the manifest last."""
    folder = shards.folder
    stored = {"made_by": "dataprep index", "label_key": options.label_key}
    stored["validate"] = options.validate
    if scan.caption:
        stored["caption"] = scan.caption
    words = [split_word(each.shard.name) for each in indexed]
    split_of, read = read_splits(dict.fromkeys(words))
    if options.split:
        read = []
        split_of = dict.fromkeys(words, SPLIT_ALIASES.get(options.split.lower(), options.split))
    # Shards keep their order in each split.
    splits: dict[str, tuple[Shard, ...]] = {}
    rejected: list[dict[str, str]] = []
    pending: list[tuple[str, str]] = []
    for word, each in zip(words, indexed, strict=True):
        rejected += each.rejected
        pending += each.pending
        split = split_of[word]
        splits[split] = (*splits.get(split, ()), each.shard)
    classes, notices = _class_names(indexed, options)
    manifest = Manifest(
        creator="index",
        format=shards.format,
        store="encoded",
        components=_components(shards.format, indexed, scan, options),
        classes=classes,
        splits=tuple(Split(name, splits[name]) for name in split_order({*splits})),
        options=stored,
        label_type=options.label_type,
        kind=shards.pixels,
    )
    manifest = replace_dataset(folder, manifest, pending, rejected, seen)
    if read:
        notices.append(f"read the split {' and '.join(read)}")
    notices += missing_parts(shards.names)
    least = min(each.labels[0] for each in indexed)
    if least > 0:
        notices.append(
            f"no record has a label below {least}, but labels count from 0; if {least} is the first"
            f" class, set --label-offset -{least}"
        )
    if shards.pixels != RGB8:
        notices.append(f"the images have {shards.pixels}; others are rejected")
    if options.validate == "none":
        notices.append(
            "the images were not read, so there are no checksums for `dataprep verify` to compare"
            " with"
        )
    return IndexResult(
        folder,
        manifest,
        rejected=len(rejected),
        failed=tuple(row for row in rejected if row["reason"] == FAILED),
        notices=tuple(notices),
    )


def _components(
    fmt: Format, indexed: Sequence[IndexedShard], scan: ScanOptions, options: IndexOptions
) -> Components:
    """Return where records store image and label.

    Of the known image extensions, keep only what the shards contain.
    """
    if fmt == "tfrecord" or options.image:
        return scan.components
    extensions = set()
    for each in indexed:
        extensions |= each.image_components
    return replace(scan.components, image=tuple(sorted(extensions)))


def _class_names(
    indexed: Sequence[IndexedShard], options: IndexOptions
) -> tuple[tuple[str, ...], list[str]]:
    """Return the class names in the records if they are unambiguous and distinct, else the labels as text.

    If no record has the class name of a label, the label itself is the name. Notices report names
    that are not used.
    """
    if not KINDS[options.label_type].is_class:
        return (), []
    count = 1 + max(each.labels[1] for each in indexed)
    names: dict[int, str] = {}
    labels: dict[str, int] = {}
    conflict = None
    # One label with two names, or one name for two labels, is no list of classes.
    for each in indexed:
        for label, given in each.class_names.items():
            for name in given:
                first, own = names.setdefault(label, name), labels.setdefault(name, label)
                if first != name:
                    conflict = f"label {label} is both {shorten(first)} and {shorten(name)}"
                elif own != label:
                    conflict = f"labels {own} and {label} are both {shorten(name)}"
    if options.classes:
        return options.classes, []
    if conflict is None:
        return tuple(names.get(label, str(label)) for label in range(count)), []
    notice = (
        f"the class names in the records are not used: {conflict}; if the labels are right, name"
        " the classes with --classes; if not, put shards that number their classes differently into"
        " a folder each"
    )
    return tuple(map(str, range(count))), [notice]
