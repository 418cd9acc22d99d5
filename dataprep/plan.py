"""Decide the split, the order and the shard of every sample, and the names of the shards. Pure functions: no I/O.

All random numbers come from the raw 64-bit output of PCG64. NumPy guarantees that this stream stays the same, so a seed
gives the same plan with every release of NumPy.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.options import CHANGE_COLUMNS, Options
from dataprep.sources import Source
from dataprep.sources.base import LABEL_COLUMNS, MAX_SPLIT_NAME
from manifests.errors import CallError
from manifests.store import check_manifest_size
from manifests.text import plural

__all__ = ["ConversionPlan", "Options", "ShardPlan", "key_of", "make_plan"]

# Second number of the random seed, so the split and the order use separate random streams.
_SPLIT_STREAM, _ORDER_STREAM = 1, 2


@dataclass(frozen=True)
class ShardPlan:
    """One shard to write.

    Attributes:
        name: the shard's file name without extension, ``train-00000`` for example.
        split: name of its split.
        rows: rows of the source in stored order, int64 [N].

    """

    name: str
    split: str
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class ConversionPlan:
    """All shards to write, and a fingerprint of everything that determines their bytes."""

    shards: tuple[ShardPlan, ...]
    fingerprint: str

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have at least one shard, in order."""
        return tuple(dict.fromkeys(shard.split for shard in self.shards))


def make_plan(source: Source, options: Options) -> ConversionPlan:
    """Assign every sample to a split, a shard and a position in it.

    Raises:
        CallError: `val_fraction` or `split_by` does not fit the source, the source already has one of the
            `CHANGE_COLUMNS` that the options add, or the manifest would be too long.

    """
    _check_columns(source, options)
    splits, split_index = _assign_splits(source, options)
    _check_names(splits)
    shards = []
    for number, name in enumerate(splits):
        rows = np.flatnonzero(split_index == number)
        if options.shuffle:
            rows = _shuffled(source, rows, options.seed, _ORDER_STREAM, number)
        sizes = _estimated_sizes(source.size[rows].clip(min=0), options)
        for index, (start, stop) in enumerate(_shard_bounds(sizes, options)):
            shards.append(ShardPlan(f"{name}-{index:05d}", name, rows[start:stop]))
    _check_manifest(source, shards)
    return ConversionPlan(tuple(shards), _fingerprint(source, options))


#: Bytes that a shard takes in the manifest, at most: its three files with their names, lengths and checksums.
_MANIFEST_BYTES_PER_SHARD = 1024


def _check_manifest(source: Source, shards: Sequence[ShardPlan]) -> None:
    """Check now, not after the last shard, that the manifest will not be too long."""
    names = len(json.dumps(source.classes, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    # Each name is on an indented line of its own.
    check_manifest_size(names + 2 * len(source.classes) + _MANIFEST_BYTES_PER_SHARD * (len(shards) + 1))


def _check_columns(source: Source, options: Options) -> None:
    if not options.changes_images:
        return
    for name in CHANGE_COLUMNS:
        if name in source.extra.column_names:
            raise CallError(
                f"the source has a column {name!r}, and resizing or --store raw adds a column of that name",
                hint="rename the column of the source",
            )


def _check_names(splits: Sequence[str]) -> None:
    for name in splits:
        if len(os.fsencode(name)) > MAX_SPLIT_NAME:
            raise CallError(
                f"split {name[:40]!r}... has a name of {len(os.fsencode(name))} bytes, but the limit is "
                f"{MAX_SPLIT_NAME}, because shards are named after it",
                hint="write shorter names into the split column",
            )


def key_of(row: int) -> str:
    """Return the key of the sample in a row of the source. Keys are unique and contain no dots or spaces."""
    return f"{row:08d}"


def _assign_splits(source: Source, options: Options) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    """Return the names of the splits, and for each sample the index of its split, int8 [N]."""
    if not options.val_fraction:
        if options.split_by:
            raise CallError("--split-by requires --val-fraction", hint="set the fraction of train that goes to val")
        return source.splits, source.split
    if "val" in source.splits:
        raise CallError("--val-fraction: the source already has a val split", hint="leave out --val-fraction")
    if "train" not in source.splits:
        raise CallError(
            "--val-fraction: the source has no train split to take images from", hint="leave out --val-fraction"
        )
    train = np.flatnonzero(source.split == source.splits.index("train"))
    val = _choose_groups(source, train, options) if options.split_by else _choose_samples(train, options)
    splits = ("train", "val", *(name for name in source.splits if name != "train"))
    split_index = np.array([splits.index(name) for name in source.splits], np.int8)[source.split]
    split_index[val] = splits.index("val")
    return splits, split_index


def _choose_samples(train: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    """Choose rows for val at random."""
    order = _permutation(len(train), options.seed, _SPLIT_STREAM)
    count = round(options.val_fraction * len(train))
    if not 0 < count < len(train):
        raise CallError(
            f"--val-fraction {options.val_fraction:g} of {plural(len(train), 'image')} leaves a split empty",
            hint="choose a fraction that gives both splits at least one image",
        )
    return train[order[:count]]


def _choose_groups(source: Source, train: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    """Choose rows for val in whole groups: visit the groups in random order and take each that still fits."""
    column = _split_column(source, options).take(pa.array(train))
    values = column.dictionary_encode(null_encoding="encode")
    # Number groups by value, not by first occurrence. Rows without a value form a group of their own.
    rank = np.asarray(pc.rank(values.dictionary.cast(pa.large_string()), tiebreaker="first")).astype(np.int64) - 1
    group = rank[np.asarray(values.indices)]
    counts = np.bincount(group)
    order = _permutation(len(counts), options.seed, _SPLIT_STREAM)
    remaining, chosen = round(options.val_fraction * len(train)), []
    for number, count in zip(order.tolist(), counts[order].tolist(), strict=True):
        if count <= remaining:
            chosen.append(number)
            remaining -= count
    if not chosen or len(chosen) == len(counts):
        raise CallError(
            f"--split-by {options.split_by} makes {plural(len(counts), 'group')}, which --val-fraction "
            f"{options.val_fraction:g} cannot divide into two splits",
            hint="choose another fraction, or a column with more values",
        )
    return train[np.isin(group, chosen)]


def _split_column(source: Source, options: Options) -> pa.Array:
    """Return the column that ``--split-by`` names; every source has the column ``label``, the name of the class."""
    if options.split_by in source.extra.column_names:
        return source.extra[options.split_by].combine_chunks()
    if options.split_by in LABEL_COLUMNS:
        return pa.array(source.classes, pa.large_string()).take(pa.array(source.label))
    known = ", ".join([*source.extra.column_names, "label"])
    raise CallError(
        f"--split-by {options.split_by}: the source has no column of that name", hint=f"choose one of: {known}"
    )


def _permutation(count: int, *stream: int) -> NDArray[np.int64]:
    """Return a random order of `count` elements, int64 [count]; the seed and the stream determine it."""
    draws = np.random.PCG64(np.random.SeedSequence(stream)).random_raw(count)
    return np.argsort(np.asarray(draws, np.uint64).reshape(-1), kind="stable")


#: Groups of images, such as the row groups of a Parquet file, are shuffled; then the images of consecutive groups that
#: together have at most about this many bytes. A worker keeps that much of them in memory.
WINDOW_BYTES = 256 << 20


def _shuffled(source: Source, rows: NDArray[np.int64], *stream: int) -> NDArray[np.int64]:
    """Return rows in random order, int64 [N]; if the source has groups, rows of few groups are close to each other."""
    order = _permutation(len(rows), *stream)
    if source.group is None:
        return rows[order]
    _, group = np.unique(source.group[rows], return_inverse=True)
    groups = _permutation(int(group.max(initial=-1)) + 1, *stream, _ORDER_STREAM)
    sizes = np.bincount(group, source.size[rows].clip(min=0), minlength=len(groups))[groups]
    window = np.empty(len(groups), np.int64)
    window[groups] = np.cumsum(sizes) // WINDOW_BYTES
    return rows[order[np.argsort(window[group[order]], kind="stable")]]


def _estimated_sizes(sizes: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    """Return the bytes that images of these sizes take when they are stored, int64 [N]; approximate if resized."""
    if options.raw:
        return np.full_like(sizes, math.prod(options.raw.pixels))
    return sizes.clip(max=options.downscale.estimated_max_bytes) if options.downscale else sizes


def _shard_bounds(sizes: NDArray[np.int64], options: Options) -> Iterator[tuple[int, int]]:
    """Yield the first sample of each shard and the one after its last, divided by count or by `shard_bytes`."""
    start, total = 0, np.concatenate([[0], np.cumsum(sizes)])
    while start < len(sizes):
        if options.shard_samples:
            stop = start + min(options.shard_samples, len(sizes))
        else:
            limit = min(int(total[start]) + options.shard_bytes, int(total[-1]))
            stop = int(np.searchsorted(total, limit, side="right")) - 1
        stop = min(max(stop, start + 1), len(sizes))
        yield start, stop
        start = stop


def _fingerprint(source: Source, options: Options) -> str:
    """Return a digest of everything that determines the bytes of the shards: samples, classes, options.

    The path, size, label, split and extra columns of each sample are included. Times and the source's folder are not,
    so a copy of the source in another place has the same fingerprint.
    """
    digest = hashlib.sha256(json.dumps([1, options.as_json(), source.classes, source.splits]).encode())
    columns: Mapping[str, Any] = {
        "path": source.path,
        "label": source.label,
        "split": source.split,
        "size": source.size,
        **{name: source.extra[name] for name in source.extra.column_names},
    }
    sink = pa.BufferOutputStream()
    table = pa.table(dict(columns)).combine_chunks()
    with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as stream:
        stream.write_table(table)
    digest.update(sink.getvalue())
    return digest.hexdigest()[:32]
