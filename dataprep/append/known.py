"""Which samples of a source are already in a dataset: those with the same path in the source and the same content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.append.base import Base, options_members, options_of
from dataprep.append.contradictions import (
    Splits,
    check_labels,
    compare_splits,
    describe_splits,
    own_texts,
)
from dataprep.append.reading import count_tasks, read_contents, read_tasks
from dataprep.datasets.label_texts import label_columns, label_texts
from dataprep.datasets.sample_rows import hash_texts
from dataprep.engines import Engine
from dataprep.options import Options, library_versions
from dataprep.plan.assign import fingerprint_of
from dataprep.progress import Progress, divide
from dataprep.sources import Source
from manifests.errors import CallError
from manifests.json_members import MemberError
from manifests.labels import LABEL_COLUMNS, MASK_TYPES, PLACED_TYPES
from manifests.process.text import plural, printable
from manifests.revisions import parts
from manifests.schema import UNREADABLE, Manifest
from manifests.tables import read_table


def revision_with(base: Base, source: Source) -> int | None:
    """Return the revision that this source made or was appended in; `None` if there is none.

    Reads no image.
    """
    manifest = base.manifest
    digests = [
        manifest.options.get("plan"),
        *(revision.source_digest for revision in manifest.revisions),
    ]
    for number, (part, digest) in enumerate(zip(parts(manifest), digests, strict=True)):
        if fingerprint_of(source, options_members(part.options)) == digest:
            return number
    return None


@dataclass(frozen=True, slots=True)
class Known:
    """The samples of a source that are in the dataset.

    Attributes:
        rows: whether each sample is, bool [n].
        notices: messages for the user, one line each.

    """

    rows: NDArray[np.bool_]
    notices: tuple[str, ...] = ()


def find_known(
    base: Base, source: Source, engine: Engine, progress: Progress | None = None
) -> Known:
    """Find the samples of a source that are in the dataset.

    Only images with the file name and the folder of a sample are read, and if the dataset stores
    images as they are, only those that also have its length.

    Args:
        base: the dataset.
        source: the samples, with labels of the dataset.
        engine: reads images.
        progress: receives the number of images that are read.

    Raises:
        CallError: the images cannot be compared, because other libraries resized those of the
            dataset.
        SourceError: an image is in the dataset with another label.

    """
    known = np.zeros(len(source), np.bool_)
    splits: list[Splits] = []
    own = pa.table({"source": source.path, "own_size": source.size})
    pending: list[tuple[Options, pa.Table]] = []
    for part in parts(base.manifest):
        shards = [(split.name, shard) for split in part.splits for shard in split.shards]
        paths = [os.path.join(base.out, shard.table.name) for _, shard in shards]
        manifest = base.manifest
        has_masks = manifest.label_type in MASK_TYPES
        columns = [
            "source",
            *label_columns(manifest.label_type),
            *["mask_offset"] * has_masks,
            "size",
            "crc32c",
        ]
        read = partial(read_table, columns=columns, label_type=manifest.label_type)
        read_tables = storage.map_files(base.out, read, paths)
        tables = [
            _with_texts(table, manifest, name, os.path.join(base.out, shard.file.name))
            for (name, shard), table in zip(shards, read_tables, strict=True)
        ]
        if not tables:
            continue
        stored = pa.concat_tables(tables).replace_schema_metadata(None)
        stored = stored.set_column(0, "source", stored["source"].cast(pa.large_string()))
        is_unchanged = not (part.options.get("downscale") or part.options.get("raw"))
        pairs = _pairs(own, stored, by_size=is_unchanged and source.location is None)
        if len(pairs):
            pending.append((_comparable(base, part.options, pairs), pairs))
    with divide(progress, [len(pc.unique(pairs["row"])) for _, pairs in pending]) as shares:
        for (options, pairs), share in zip(pending, shares, strict=True):
            same = _compare(source, options, pairs, known, engine, share)
            splits.append(compare_splits(source, options, same))
    return Known(known, describe_splits(base.out, source, splits))


#: More pairs than this for each sample of both sides would take too much memory.
_MOST_PAIRS = 20

#: Odd, so that sizes that differ give numbers that differ.
_FACTOR = 0x9E3779B97F4A7C15


def _pairs(own: pa.Table, stored: pa.Table, *, by_size: bool) -> pa.Table:
    """Return the images of the source and the samples that may be the same.

    They have the same file name in a folder of the same name: the folders above it depend on what
    else was given as ``--src``. If that is so for too many, as for frames of videos, the whole path
    counts.

    Args:
        own: path and size of each image of the source.
        stored: path, size and others of each sample.
        by_size: whether the same image has the same size.

    """
    sizes = [
        np.asarray(table[name]) if by_size else 0
        for table, name in ((own, "own_size"), (stored, "size"))
    ]
    for shorten in (_tail, lambda paths: paths):
        # Rows with different keys can have the same hash, but not the same checksum too.
        first, second = (
            hash_texts(shorten(table["source"]))
            ^ (np.uint64(_FACTOR) * np.asarray(size).astype(np.uint64))
            for table, size in zip((own, stored), sizes, strict=True)
        )
        order = np.argsort(second)
        start, stop = (np.searchsorted(second[order], first, side) for side in ("left", "right"))
        counts = stop - start
        if counts.sum() <= _MOST_PAIRS * (len(own) + len(stored)):
            break
    rows = np.repeat(np.arange(len(own)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return stored.take(order[np.repeat(start, counts) + within]).append_column(
        "row", pa.array(rows)
    )


def _tail(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the file name of each path, with the folder that it is in."""
    return pc.replace_substring_regex(paths, r"^.*/([^/]*/[^/]*)$", r"\1")


def _comparable(base: Base, members: Mapping[str, object], pairs: pa.Table) -> Options:
    """Return the options to read images with, so that they have the checksums in the tables."""
    made_by = members.get("made_by")
    try:
        options = options_of(members)
    except MemberError as error:
        reason = str(error)
    else:
        if not options.changes_images:
            return replace(options, validate="none")
        if made_by == library_versions():
            return options
        reason = f"they were stored with {made_by}"
    path = pairs["source"][0].as_py()
    raise CallError(
        f"--append: {plural(len(pairs), 'image')} of the source, such as {printable(path)}, may"
        f" already be in {printable(base.out)}, but cannot be compared with it: {reason}",
        hint="leave them out with --where, or install these versions",
    )


def _compare(  # noqa: PLR0917
    source: Source,
    options: Options,
    pairs: pa.Table,
    known: NDArray[np.bool_],
    engine: Engine,
    progress: Progress,
) -> pa.Table:
    """Read the images of pairs of which none is known yet, mark those that are the same, and return their pairs."""
    rows, sizes = np.asarray(pairs["row"]), np.asarray(pairs["size"])
    candidates = ~known[rows]
    if not options.changes_images and source.location is None:
        candidates &= (source.size[rows] == sizes) | (source.size[rows] == UNREADABLE)
    pairs, rows = pairs.filter(pa.array(candidates)), rows[candidates]
    unique = np.unique(rows)
    tasks, count = read_tasks(source, options, pairs, unique), count_tasks(unique)
    progress.start(len(unique), count)
    checksums = np.full(len(source), -1, np.int64)
    labels: dict[int, str] = {}
    is_equal = np.zeros(len(rows), np.bool_)
    with closing(engine.run(read_contents, tasks, count)) as results:
        for number, found in enumerate(results):
            checksums[found.rows] = found.checksums
            labels.update(zip(found.rows, found.labels, strict=True))
            is_equal[found.equal] = True
            progress.advance(f"part {number}", len(found.rows))
    same = checksums[rows] == np.asarray(pairs["crc32c"].cast(pa.int64()).fill_null(-2))
    pairs, rows, is_equal = pairs.filter(pa.array(same)), rows[same], is_equal[same]
    if source.label_type in PLACED_TYPES:
        own = pa.array([labels[row] for row in rows.tolist()], pa.large_string())
    else:
        own = own_texts(source, rows)
    if source.label_type not in MASK_TYPES:
        is_equal = np.asarray(pc.equal(own, pairs["label"].combine_chunks()))
    check_labels(source, rows, pairs["label"].combine_chunks(), own, is_equal)
    known[rows] = True
    return pairs


def _with_texts(table: pa.Table, manifest: Manifest, split: str, shard: str) -> pa.Table:
    """Return the columns ``source``, ``label`` and ``split`` as text, ``size`` and ``crc32c``.

    And where masks are.
    """
    columns = {
        "source": table["source"],
        "label": label_texts(table, manifest.label_type, manifest.classes),
        "split": pa.repeat(pa.scalar(split), len(table)),
        "size": table["size"],
        "crc32c": table["crc32c"],
    }
    if manifest.label_type in MASK_TYPES:
        columns["shard"] = pa.repeat(pa.scalar(shard), len(table))
        columns |= {name: table[name] for name in LABEL_COLUMNS[manifest.label_type]}
    return pa.table(columns)
