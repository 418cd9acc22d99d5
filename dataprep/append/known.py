"""Which samples of a source are already in a dataset: those with the same path in the source and the same content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep import storage
from dataprep.append.base import Base, options_members, options_of
from dataprep.containers import Location, locations_of
from dataprep.engines import Engine
from dataprep.images.base import Rejected
from dataprep.options import Options, library_versions
from dataprep.plan.assign import fingerprint_of
from dataprep.progress import Progress
from dataprep.shards.source_image import load_image
from dataprep.sources import Source
from manifests.errors import CallError, SourceError
from manifests.members import MemberError
from manifests.revisions import parts
from manifests.schema import UNREADABLE
from manifests.tables import read_table
from manifests.text import plural, printable

#: Images that one task reads.
_BATCH = 256


def revision_with(base: Base, source: Source) -> int | None:
    """Return the revision that this very source made or was appended in; `None` if there is none. Reads no image."""
    manifest = base.manifest
    digests = [manifest.options.get("plan"), *(revision.source_digest for revision in manifest.revisions)]
    for number, (part, digest) in enumerate(zip(parts(manifest), digests, strict=True)):
        if fingerprint_of(source, options_members(part.options)) == digest:
            return number
    return None


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Source images to read.

    Attributes:
        root: folder that relative `paths` start from.
        options: how they are stored.
        rows: their rows in the source.
        paths: their paths.
        sizes: their sizes in bytes, when the source was scanned.
        locations: where they are inside containers.

    """

    root: str
    options: Options
    rows: list[int]
    paths: list[str]
    sizes: list[int]
    locations: list[Location | None]


def known_rows(base: Base, source: Source, engine: Engine, progress: Progress | None = None) -> NDArray[np.bool_]:
    """Return which samples of a source are in the dataset, bool [n].

    Only images with the path of a sample are read, and if the dataset stores images as they are, only those that also
    have its length.

    Args:
        base: the dataset.
        source: the samples, with labels of the dataset.
        engine: reads images.
        progress: receives the number of images that are read.

    Raises:
        CallError: the images cannot be compared, because other libraries resized those of the dataset.
        SourceError: an image is in the dataset in another class.

    """
    known = np.zeros(len(source), np.bool_)
    own = pa.table({"source": source.path, "row": np.arange(len(source))})
    pending: list[tuple[Options, pa.Table]] = []
    for part in parts(base.manifest):
        paths = [os.path.join(base.out, shard.table.name) for split in part.splits for shard in split.shards]
        columns = ["source", "label", "size", "crc32c"]
        tables = [table.select(columns) for table in storage.map_files(base.out, read_table, paths)]
        if not tables:
            continue
        stored = pa.concat_tables(tables).replace_schema_metadata(None)
        stored = stored.set_column(0, "source", stored["source"].cast(pa.large_string()))
        pairs = own.join(stored, "source", join_type="inner")
        if len(pairs):
            pending.append((_comparable(base, part.options, pairs), pairs))
    for options, pairs in pending:
        _compare(source, options, pairs, known, engine, progress)
    return known


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
        f"--append: {plural(len(pairs), 'image')} of the source, such as {printable(path)}, may already be in "
        f"{printable(base.out)}, but cannot be compared with it: {reason}",
        hint="leave them out with --where, or install these versions",
    )


def _compare(  # noqa: PLR0917
    source: Source,
    options: Options,
    pairs: pa.Table,
    known: NDArray[np.bool_],
    engine: Engine,
    progress: Progress | None,
) -> None:
    rows, sizes = np.asarray(pairs["row"]), np.asarray(pairs["size"])
    candidates = ~known[rows]
    if not options.changes_images and source.location is None:
        candidates &= (source.size[rows] == sizes) | (source.size[rows] == UNREADABLE)
    pairs, rows = pairs.filter(pa.array(candidates)), rows[candidates]
    unique = np.unique(rows)
    if progress:
        progress.start(len(unique), -(-len(unique) // _BATCH))
    tasks = list(_tasks(source, options, unique))
    checksums = np.full(len(source), -1, np.int64)
    with closing(engine.run(read_checksums, tasks, len(tasks))) as results:
        for number, (read, found) in enumerate(results):
            checksums[read] = found
            if progress:
                progress.advance(f"part {number}", len(read))
    same = checksums[rows] == np.asarray(pairs["crc32c"].cast(pa.int64()).fill_null(-2))
    moved = np.flatnonzero(same & (source.label[rows] != np.asarray(pairs["label"])))
    if len(moved):
        row, label = int(rows[moved[0]]), int(pairs["label"][int(moved[0])].as_py())
        names = [printable(source.classes[number]) for number in (label, int(source.label[row]))]
        raise SourceError(
            f"the image is in the dataset in class {names[0]}, but here in class {names[1]}; --append only adds images",
            file=source.path[row].as_py(),
            hint="make the dataset again to change labels",
        )
    known[rows[same]] = True


def _tasks(source: Source, options: Options, rows: NDArray[np.int64]) -> Iterator[ReadTask]:
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        locations = locations_of(source.location, some)
        yield ReadTask(
            source.root,
            options,
            some.tolist(),
            source.path.take(some).to_pylist(),
            source.size[some].tolist(),
            locations or [None] * len(some),
        )


def read_checksums(task: ReadTask) -> tuple[list[int], Sequence[int]]:
    """Return the rows of a task, and the CRC-32C of each image as it is stored; -1 for one that would be rejected."""
    checksums = []
    for path, size, location in zip(task.paths, task.sizes, task.locations, strict=True):
        try:
            checksums.append(crc32c(load_image(task.root, path, size, task.options, location).data))
        except Rejected:
            checksums.append(-1)
    return task.rows, checksums
