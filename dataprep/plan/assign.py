"""Decide the split, the order and the shard of every sample, and the names of the shards.

Pure functions: no I/O.

A seed gives the same plan with every release of NumPy: see `dataprep.plan.splits`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.arrays import BoolArray, Int64Array
from dataprep.images.foreign import COMPACT_SUFFIXES
from dataprep.options import GEO_COLUMNS, HASH_COLUMN, STATISTICS_COLUMNS, Options, Transcode
from dataprep.plan.splits import ORDER_STREAM, assign_splits, permutation
from dataprep.sources import Source
from dataprep.spool import STEP, release_pages
from manifests.errors import CallError, SourceError
from manifests.json_members import MAX_INTEGER
from manifests.process.text import printable, shown
from manifests.records import record
from manifests.schema import MAX_SPLIT_NAME, is_split_name
from manifests.store import check_manifest_size
from manifests.tables import MAX_SHARDS_IN_JSON

#: The rows of a shard whose samples are in the folder of a plan.
NO_ROWS = np.zeros(0, np.int64)


@record
class ShardPlan:
    """One shard to write, with its samples.

    Attributes:
        name: the shard's file name without extension, ``train-00000`` for example.
        split: name of its split.
        rows: rows of the source in stored order, int64 [N]. Empty if the samples are in the folder
            of a plan.

    """

    name: str
    split: str
    rows: Int64Array


@record
class ConversionPlan:
    """All shards to write.

    Attributes:
        shards: the shards, in the order of the splits.
        fingerprint: digest of everything that determines their bytes.
        notices: messages for the user about the new splits, one line each.

    """

    shards: tuple[ShardPlan, ...]
    fingerprint: str
    notices: tuple[str, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have at least one shard, in order."""
        return tuple(dict.fromkeys(shard.split for shard in self.shards))


def make_plan(source: Source, options: Options) -> ConversionPlan:
    """Assign every sample to a split, a shard and a position in it.

    Raises:
        CallError: `val_fraction`, `test_fraction` or `split_by` does not fit the source, the source
            already has one of the columns that the options add, or the manifest would be too long.

    """
    _check_columns(source, options)
    splits = assign_splits(source, options)
    _check_names(splits.names)
    shards = []
    for number, name in enumerate(splits.names):
        rows = np.flatnonzero(splits.index == number)
        # Each split has its own random stream, so the others keep their order if it grows.
        if options.shuffle:
            rows = _shuffled(source, rows, options.seed, ORDER_STREAM, number)
        # The bytes that the images take when they are stored; approximate if they are resized.
        sizes = source.size[rows]
        sizes.clip(min=0, out=sizes)
        if options.raw:
            sizes[:] = options.raw_bytes
        else:
            if options.transcode:
                sizes[_are_compact(source, rows)] *= _GROWTH[options.transcode]
            if options.downscale and options.downscale.estimated_max_bytes:
                sizes.clip(max=options.downscale.estimated_max_bytes, out=sizes)
        # The other images of a sample are about as large as its first one.
        sizes *= max(1, len(source.image_names))
        for index, (start, stop) in enumerate(_shard_bounds(sizes, options)):
            shards.append(ShardPlan(shard_name(name, index), name, rows[start:stop]))
    _check_manifest(source, shards)
    return ConversionPlan(tuple(shards), fingerprint_of(source, options.as_json()), splits.notices)


#: Estimated bytes of an image in each format for a byte of an image with `COMPACT_SUFFIXES`.
_GROWTH: dict[Transcode, int] = {"jpeg": 3, "png": 12, "webp": 2, "tiff": 12}


def _are_compact(source: Source, rows: Int64Array) -> BoolArray:
    """Return which rows have the names of images that grow when they are transcoded, bool [n]."""
    paths = source.path.take(pa.array(rows))
    found = np.zeros(len(rows), np.bool_)
    for suffix in COMPACT_SUFFIXES:
        found |= np.asarray(pc.ends_with(paths, suffix, ignore_case=True), np.bool_)
    return found


#: Bytes that a shard takes in the manifest, at most: its three files with their names, lengths and
#: checksums.
_MANIFEST_BYTES_PER_SHARD = 1024


def _check_manifest(source: Source, shards: Sequence[ShardPlan]) -> None:
    """Check now, not after the last shard, that the manifest will not be too long."""
    names = len(json.dumps(source.classes, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    listed = len(shards) if len(shards) <= MAX_SHARDS_IN_JSON else 0
    # Each name is on an indented line of its own.
    check_manifest_size(names + 2 * len(source.classes) + _MANIFEST_BYTES_PER_SHARD * (listed + 1))


def _check_columns(source: Source, options: Options) -> None:
    if source.pixels not in (None, options.raw_pixels):
        height = source.pixels[0]
        raise CallError(
            f"the source stores raw pixels of {source.pixels[1]}x{height}, which cannot be encoded"
            " or resized again",
            hint=(
                f"set --store raw --raw-size {height}, or make the dataset from the original images"
            ),
        )
    for field in source.extra.schema:
        # The integers of a tf.train.Example have a sign.
        if options.fmt == "tfrecord" and field.type == pa.uint64():
            largest = pc.max(source.extra[field.name]).as_py()
            if largest is not None and largest > MAX_INTEGER:
                raise SourceError(
                    f"column {printable(field.name)} has the integer {largest}, but TFRecord has"
                    f" integers up to {MAX_INTEGER}",
                    file=source.root,
                    hint="write the column as text, or set --fmt webdataset",
                )
    if source.prepared:
        return
    for name in options.added_columns:
        if name in source.extra.column_names:
            flags = {HASH_COLUMN: "--hash"} | dict.fromkeys(STATISTICS_COLUMNS, "--statistics")
            flags |= dict.fromkeys(GEO_COLUMNS, "--georeference")
            added_by = flags.get(name, "resizing or --store raw")
            raise CallError(
                f"the source has a column {name!r}, and {added_by} adds a column of that name",
                hint="rename the column of the source",
            )


def _check_names(splits: Sequence[str]) -> None:
    for name in splits:
        if len(os.fsencode(name)) > MAX_SPLIT_NAME:
            raise CallError(
                f"split {name[:40]!r}... has a name of {len(os.fsencode(name))} bytes, but the"
                f" limit is {MAX_SPLIT_NAME}, because shards are named after it",
                hint="write shorter names into the split column",
            )
        if not is_split_name(name):
            raise CallError(
                f"split {shown(name)} cannot be part of a file name",
                hint="use letters, digits, - and _",
            )


def shard_name(split: str, number: int) -> str:
    """Return the name of a shard; `number` counts the shards of its split from 0.

    An append goes on after the last number of the dataset: `run.convert` renames what it plans.
    """
    return f"{split}-{number:05d}"


def shard_number(name: str) -> int:
    """Return the number in the name of a shard without extension; -1 if it has none."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def key_of(row: int, revision: int = 0) -> str:
    """Return the key of the sample in a row of the source.

    Keys are unique and contain no dots or spaces.

    Args:
        row: the row.
        revision: number of the revision that the sample is new in; see `dataprep.run.convert`.

    """
    return f"{revision}-{row:08d}" if revision else f"{row:08d}"


#: Groups of images, such as the row groups of a Parquet file, are shuffled; then the images of
#: consecutive groups that together have at most about this many bytes. A worker keeps that much of
#: them in memory.
WINDOW_BYTES = 64 << 20


def _shuffled(source: Source, rows: Int64Array, *stream: int) -> Int64Array:
    """Return rows in random order, int64 [N].

    If the source has groups, rows of few groups are close to each other.
    """
    # A random order of the rows, then of the groups.
    order = permutation(len(rows), *stream)
    if source.group is None:
        return rows[order]
    _, group = np.unique(source.group[rows], return_inverse=True)
    groups = permutation(int(group.max(initial=-1)) + 1, *stream, ORDER_STREAM)
    if source.has_videos:
        # Videos in random order, and their frames in order: a loader reads some that are close.
        rank = np.empty_like(groups)
        rank[groups] = np.arange(len(groups))
        return rows[np.argsort(rank[group], kind="stable")]
    sizes = np.bincount(group, source.size[rows].clip(min=0), minlength=len(groups))[groups]
    window = np.empty(len(groups), np.int64)
    window[groups] = np.cumsum(sizes) // WINDOW_BYTES
    return rows[order[np.argsort(window[group[order]], kind="stable")]]


def _shard_bounds(sizes: Int64Array, options: Options) -> Iterator[tuple[int, int]]:
    """Yield the first sample of each shard and the one after its last, divided by count or by `shard_bytes`."""
    if options.shard_samples:
        for start in range(0, len(sizes), options.shard_samples):
            yield start, min(start + options.shard_samples, len(sizes))
        return
    # In as few arrays as possible: a split can have a hundred million samples.
    start, before, ends = 0, 0, np.cumsum(sizes)
    while start < len(sizes):
        limit = min(before + options.shard_bytes, int(ends[-1]))
        # An image that is larger than a shard should be is a shard of its own.
        stop = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def fingerprint_of(source: Source, options: Mapping[str, Any]) -> str:
    """Return a digest of everything that determines the bytes of the shards: samples, classes, options.

    The path, size, label, split and extra columns of each sample are included. Times and the
    source's folder are not, so a copy of the source in another place has the same fingerprint.

    Args:
        source: the samples.
        options: what `Options.as_json` returned.

    """
    head = [1, dict(options), source.classes, source.splits]
    if not source.labels.is_class:  # older releases knew only classes
        head.append(source.label_type)
    if source.image_names:
        head.append(source.image_names)
    digest = hashlib.sha256(json.dumps(head).encode())
    columns: Mapping[str, Any] = {
        "path": source.path,
        "label": source.label,
        "split": source.split,
        "size": source.size,
        **({} if source.copies is None else {"copies": source.copies}),
        **{name: source.extra[name] for name in source.extra.column_names},
    }
    table = pa.table(dict(columns)).combine_chunks()
    # The stream goes through the digest as it is written: in memory, it would be as large as the
    # table.
    with (
        pa.PythonFile(_DigestFile(digest), "w") as sink,
        pa.ipc.new_stream(sink, table.schema.remove_metadata()) as stream,
    ):
        stream.write_table(table)
    return digest.hexdigest()[:32]


class _DigestFile:
    """A file to write, of which only the digest remains."""

    closed = False

    def __init__(self, digest: hashlib._Hash) -> None:
        self._digest = digest

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), STEP):
            self._digest.update(view[start : start + STEP])
            release_pages()
        return memoryview(data).nbytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
