"""Pure: samples -> split, order, shard. It must never touch a file.

All draws come from the raw 64-bit output of PCG64, whose stream NumPy fixes for ever; the same seed
gives the same plan with every release.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.options import CHANGE_COLUMNS, Options
from dataprep.sources import Source
from manifests.errors import CallError

__all__ = ["Options", "Plan", "ShardPlan", "key_of", "make_plan"]

# What each draw is for: with the seed, it names a stream of its own.
_SPLIT, _ORDER = 1, 2


@dataclass(frozen=True)
class ShardPlan:
    """One shard to write: its name without suffix, its split, and rows of the source in stored order (int64)."""

    name: str
    split: str
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """All shards to write, and a fingerprint of everything that decides their bytes."""

    shards: tuple[ShardPlan, ...]
    fingerprint: str

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that get a shard, in order."""
        return tuple(dict.fromkeys(shard.split for shard in self.shards))


def make_plan(source: Source, options: Options) -> Plan:
    """Assign every sample a split, a shard and a place in it.

    Raises:
        CallError: `val_fraction` or `split_by` do not fit the source, or it has a column that is to be written.

    """
    _check_columns(source, options)
    splits, code = _split(source, options)
    shards = []
    for number, name in enumerate(splits):
        rows = np.flatnonzero(code == number)
        if options.shuffle:
            rows = rows[_permutation(len(rows), options.seed, _ORDER, number)]
        sizes = _foretold(source.size[rows].clip(min=0), options)
        for count, (start, stop) in enumerate(_bounds(sizes, options)):
            shards.append(ShardPlan(f"{name}-{count:05d}", name, rows[start:stop]))
    return Plan(tuple(shards), _fingerprint(source, options))


def _check_columns(source: Source, options: Options) -> None:
    taken = [name for name in CHANGE_COLUMNS if options.alters and name in source.extra.column_names]
    if taken:
        raise CallError(
            f"the source has a column {taken[0]!r}, and resizing or --store raw writes one of that name",
            hint="rename it",
        )


def key_of(row: int) -> str:
    """Name the sample in a row of the source: short, unique, without dot and blank."""
    return f"{row:08d}"


def _split(source: Source, options: Options) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    if not options.val_fraction:
        if options.split_by:
            raise CallError("--split-by goes with --val-fraction", hint="say how much of train goes to val")
        return source.splits, source.split
    if "val" in source.splits:
        raise CallError("--val-fraction: the source has a split val already", hint="leave the option out")
    if "train" not in source.splits:
        raise CallError("--val-fraction: the source has no split train to take it from")
    train = np.flatnonzero(source.split == source.splits.index("train"))
    chosen = _choose_groups(source, train, options) if options.split_by else _choose(train, options)
    splits = ("train", "val", *(name for name in source.splits if name != "train"))
    code = np.array([splits.index(name) for name in source.splits], np.int8)[source.split]
    code[chosen] = splits.index("val")
    return splits, code


def _choose(train: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    order = _permutation(len(train), options.seed, _SPLIT)
    count = round(options.val_fraction * len(train))
    if not 0 < count < len(train):
        raise CallError(f"--val-fraction {options.val_fraction:g} of {len(train)} images leaves a split empty")
    return train[order[:count]]


def _choose_groups(source: Source, train: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    """Choose whole groups in a random order, each that still fits into the fraction, so that none is in two splits."""
    if options.split_by not in source.extra.column_names:
        known = ", ".join(source.extra.column_names) or "none"
        raise CallError(f"--split-by {options.split_by}: no such column", hint=f"further columns are: {known}")
    column = source.extra[options.split_by].take(pa.array(train)).combine_chunks()
    values = column.dictionary_encode(null_encoding="encode")
    # Numbered by value, not by where they first occur; rows without a value are a group too.
    rank = np.asarray(pc.rank(values.dictionary.cast(pa.large_string()), tiebreaker="first")).astype(np.int64) - 1
    group = rank[np.asarray(values.indices)]
    counts = np.bincount(group)
    order = _permutation(len(counts), options.seed, _SPLIT)
    room, taken = round(options.val_fraction * len(train)), []
    for number, count in zip(order.tolist(), counts[order].tolist(), strict=True):
        if count <= room:
            taken.append(number)
            room -= count
    if not taken or len(taken) == len(counts):
        raise CallError(f"--split-by {options.split_by}: {len(counts)} groups are too few for --val-fraction")
    return train[np.isin(group, taken)]


def _permutation(count: int, *stream: int) -> NDArray[np.int64]:
    draws = np.random.PCG64(np.random.SeedSequence(stream)).random_raw(count)
    return np.argsort(np.asarray(draws, np.uint64).reshape(-1), kind="stable")


def _foretold(sizes: NDArray[np.int64], options: Options) -> NDArray[np.int64]:
    """Say what images of these lengths take when they are stored; of those to be resized, about."""
    if options.raw:
        return np.full_like(sizes, math.prod(options.raw.pixels))
    return sizes.clip(max=options.downscale.typical_bytes) if options.downscale else sizes


def _bounds(sizes: NDArray[np.int64], options: Options) -> Iterator[tuple[int, int]]:
    """Cut a split into shards: by count, or each as long as it stays within `shard_bytes`."""
    start, total = 0, np.concatenate([[0], np.cumsum(sizes)])
    while start < len(sizes):
        if options.shard_samples:
            stop = start + min(options.shard_samples, len(sizes))
        else:
            most = min(int(total[start]) + options.shard_bytes, int(total[-1]))
            stop = int(np.searchsorted(total, most, side="right")) - 1
        stop = min(max(stop, start + 1), len(sizes))
        yield start, stop
        start = stop


def _fingerprint(source: Source, options: Options) -> str:
    """Digest what the bytes of every shard follow from: samples by name and size, classes, options.

    Neither times nor folders are in it, so that a copy of the source elsewhere gives the same.
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
